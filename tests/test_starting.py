"""kafkad while it starts: what /health, /ready and /metrics say, and that SIGTERM ends it at once without harm."""

from __future__ import annotations

import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.broker import KafkadProcess
from tests.clients.asker import Asker
from tests.oracle.kafka import free_port

SECONDS = 30
LATEST = {"name": "kept", "partitions": [{"partition_index": 0, "timestamp": -1}]}


ON_A_SLOW_DISK = """
import pathlib, sys, time
from kafkad.__main__ import main
from kafkad.log.files import Files

held, read, stamp = pathlib.Path(sys.argv.pop(1)), Files.read, Files.stamp

def slow_read(files, path):
    while held.exists() and path.endswith("leader-epoch-checkpoint"):
        time.sleep(0.005)
    return read(files, path)

def slow_stamp(files, path):
    while held.exists() and path.endswith("kept-0"):
        time.sleep(0.005)
    return stamp(files, path)

Files.read, Files.stamp = slow_read, slow_stamp
sys.exit(main())
"""


ON_A_FULL_DISK = """
import asyncio, errno, os, pathlib, sys
from kafkad.__main__ import main
from kafkad.broker.parts import Parts
from kafkad.meta.journal import Journal

full, append, wait = pathlib.Path(sys.argv.pop(1)), Journal.append, Parts.wait_until_ready

def append_if_room(journal, payload):
    if full.exists():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    append(journal, payload)

async def wait_long(parts):
    while full.exists():
        await asyncio.sleep(0.01)
    await wait(parts)

Journal.append, Parts.wait_until_ready = append_if_room, wait_long
sys.exit(main())
"""


WITHOUT_AN_ANSWER_OF_THE_STORE = """
import asyncio, sys
from kafkad.__main__ import main
from kafkad.broker import starting

async def wait(store):
    await asyncio.Event().wait()

starting.prepare = wait
sys.exit(main())
"""


class StoreAway(KafkadProcess):
    """Its metadata store answers nothing."""

    def command(self) -> list[str]:
        python, _, _, *arguments = super().command()
        return [python, "-c", WITHOUT_AN_ANSWER_OF_THE_STORE, *arguments]


class FullDisk(KafkadProcess):
    """While the file `full` exists the disk has no room for metadata, and kafkad serves and is not yet ready."""

    full: Path

    def command(self) -> list[str]:
        python, _, _, *arguments = super().command()
        return [python, "-c", ON_A_FULL_DISK, str(self.full), *arguments]


class SlowDisk(KafkadProcess):
    """As long as the file `held` exists, no partition is loaded to its end."""

    held: Path

    def command(self) -> list[str]:
        python, _, _, *arguments = super().command()
        return [python, "-c", ON_A_SLOW_DISK, str(self.held), *arguments]


class Slow:
    """A kafkad whose one partition takes until `go_on` to be loaded."""

    def __init__(self, directory: Path) -> None:
        self.http = free_port()
        self.kafkad = SlowDisk(directory, {"http.listener": f"127.0.0.1:{self.http}"})
        self.kafkad.held = directory / "held"

    def prepare(self, *, clean: bool) -> None:
        with self.kafkad:
            asker = Asker(self.kafkad.port)
            asker.create("kept")
            asker.client.close()
            if not clean:
                self.kafkad.kill()

    @contextmanager
    def loading(self) -> Iterator[None]:
        self.kafkad.held.touch()
        self.kafkad.start(wait=False)
        try:
            deadline = time.monotonic() + SECONDS
            while "loading" not in self.get("/health")[1]:
                assert time.monotonic() < deadline, self.kafkad.log
                time.sleep(0.01)
            yield
        finally:
            if self.kafkad.alive():
                self.kafkad.kill()

    def go_on(self) -> None:
        self.kafkad.held.unlink()

    def get(self, path: str) -> tuple[int, str]:
        return get(self.http, path)


def get(http: int, path: str) -> tuple[int, str]:
    """Status and text; 0 while nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{http}{path}", timeout=SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


def test_says_what_it_does_before_it_is_ready(tmp_path: Path) -> None:
    slow = Slow(tmp_path)
    slow.prepare(clean=True)
    with slow.loading():
        assert slow.get("/health") == (200, "loading logs\n")
        assert slow.get("/ready") == (503, "loading logs\n")
        status, metrics = slow.get("/metrics")
        assert status == 200
        assert "\nkafka_server_kafkaserver_brokerstate 2\n" in metrics
        slow.go_on()
        slow.kafkad.wait_ready()
        deadline = time.monotonic() + SECONDS
        while slow.get("/ready") != (200, "ok\n"):
            assert time.monotonic() < deadline
        assert slow.get("/health") == (200, "ok\n")
        assert "\nkafka_server_kafkaserver_brokerstate 3\n" in slow.get("/metrics")[1]


def test_a_reload_that_is_asked_for_while_logs_are_loaded_waits_until_the_broker_is_ready(tmp_path: Path) -> None:
    slow = Slow(tmp_path)
    slow.prepare(clean=True)
    with slow.loading():
        assert slow.kafkad.process is not None
        slow.kafkad.process.send_signal(signal.SIGHUP)
        time.sleep(0.1)
        slow.go_on()
        slow.kafkad.wait_ready()
        deadline = time.monotonic() + SECONDS
        while "configuration reloaded" not in slow.kafkad.log:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_full_disk_takes_no_change_of_the_first_client(tmp_path: Path) -> None:
    """What a start writes may wait for room; what a client is told of may not."""
    kafkad = FullDisk(tmp_path)
    kafkad.full = tmp_path / "full"
    kafkad.full.touch()
    kafkad.start(wait=False)
    asker = first_asker(kafkad)
    new = {"name": "lost", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    answer = asker.ask("CreateTopics", 4, {"topics": [new], "timeout_ms": 1000})
    asker.client.close()
    assert answer.topics[0].error_code != 0
    kafkad.full.unlink()
    kafkad.wait_ready()
    kafkad.stop()


def first_asker(kafkad: KafkadProcess) -> Asker:
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            return Asker(kafkad.port)
        except OSError:
            assert time.monotonic() < deadline, kafkad.log
            time.sleep(0.01)


def test_a_port_that_is_taken_while_logs_are_loaded(tmp_path: Path) -> None:
    """Two who both allow it may be bound to one port; only one of them may listen."""
    slow = Slow(tmp_path)
    slow.prepare(clean=True)
    with slow.loading(), socket.create_server(("127.0.0.1", slow.kafkad.port)):
        assert slow.kafkad.process is not None
        slow.go_on()
        assert slow.kafkad.process.wait(SECONDS) == 1, slow.kafkad.log
    where = f"PLAINTEXT://127.0.0.1:{slow.kafkad.port}"
    assert f"cannot start: cannot listen on {where}: Address already in use; see the setting" in slow.kafkad.log
    assert "Traceback" not in slow.kafkad.log


def test_sigterm_while_the_metadata_store_is_waited_for(tmp_path: Path) -> None:
    http = free_port()
    kafkad = StoreAway(tmp_path, {"http.listener": f"127.0.0.1:{http}"}).start(wait=False)
    deadline = time.monotonic() + SECONDS
    while get(http, "/health") != (200, "reading the metadata store\n"):
        assert time.monotonic() < deadline, kafkad.log
        time.sleep(0.01)
    assert kafkad.stop() == 0
    assert "told to stop while reading the metadata store" in kafkad.log
    assert "Traceback" not in kafkad.log


@pytest.mark.parametrize("clean", [True, False])
def test_sigterm_while_logs_are_loaded(tmp_path: Path, clean: bool) -> None:
    """Nothing was changed: what had been left clean still is, and what had not is not called so."""
    slow = Slow(tmp_path)
    slow.prepare(clean=clean)
    with slow.loading():
        assert slow.kafkad.process is not None
        slow.kafkad.process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        slow.go_on()
        assert slow.kafkad.process.wait(SECONDS) == 0, slow.kafkad.log
    assert "told to stop while loading logs" in slow.kafkad.log
    assert "Traceback" not in slow.kafkad.log
    assert (slow.kafkad.log_directory() / ".kafka_cleanshutdown").exists() is clean
    with slow.kafkad:
        asker = Asker(slow.kafkad.port)
        answer = asker.ask("ListOffsets", 7, {"replica_id": -1, "topics": [LATEST]})
        assert answer.topics[0].partitions[0].offset == 6
        asker.client.close()
