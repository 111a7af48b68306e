"""The disk of the metadata fails an fsync: kafkad ends, whoever owns the metadata, and starts again with all that it
has acknowledged. When it is full, a broker that dies is started again all the same."""

from __future__ import annotations

from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.broker import KafkadProcess
from tests.oracle.kafka import free_port

from .host import SECONDS, Host, eventually

pytestmark = pytest.mark.slow

FULL = "kafkad-metadata.journal was full at the last change: changes of metadata are refused until there is room"
WITH_A_BAD_DISK = """
import errno, pathlib, sys
from kafkad.__main__ import main
from kafkad.meta.journal import Journal

bad, append = pathlib.Path(sys.argv.pop(1)), Journal.append

def fail(fd):
    raise OSError(errno.EIO, "Input/output error")

def append_badly(journal, payload):
    if bad.exists():
        journal._sync = fail
    append(journal, payload)

Journal.append = append_badly
sys.exit(main())
"""


WITH_A_FULL_DISK = """
import errno, os, pathlib, sys
from kafkad.__main__ import main
from kafkad.meta.journal import Journal

full, append = pathlib.Path(sys.argv.pop(1)), Journal.append

def append_if_room(journal, payload):
    if full.exists():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    append(journal, payload)

Journal.append = append_if_room
sys.exit(main())
"""


def on_a_disk(code: str, words: list[str], bad: Path) -> list[str]:
    python, _, _, *arguments = words
    return [python, "-c", code, str(bad), *arguments]


class OneOnABadDisk(KafkadProcess):
    def command(self) -> list[str]:
        return on_a_disk(WITH_A_BAD_DISK, super().command(), self.log_path.with_name("bad"))


class SeveralOnABadDisk(Host):
    def command(self) -> list[str]:
        return on_a_disk(WITH_A_BAD_DISK, super().command(), self.log_path.with_name("bad"))


class OneOnAFullDisk(KafkadProcess):
    def command(self) -> list[str]:
        return on_a_disk(WITH_A_FULL_DISK, super().command(), self.log_path.with_name("full"))


class SeveralOnAFullDisk(Host):
    def command(self) -> list[str]:
        return on_a_disk(WITH_A_FULL_DISK, super().command(), self.log_path.with_name("full"))


def create(kafkad: KafkadProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafkad.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)], operation_timeout=5, request_timeout=5)[topic].result(SECONDS)


@pytest.mark.parametrize("several", [False, True])
def test_kafkad_ends_and_starts_again(tmp_path: Path, several: bool) -> None:
    kafkad: KafkadProcess = SeveralOnABadDisk(tmp_path, 2) if several else OneOnABadDisk(tmp_path)
    bad = kafkad.log_path.with_name("bad")
    with kafkad:
        create(kafkad, "kept")
        bad.touch()
        with pytest.raises(KafkaException):
            create(kafkad, "lost")
        assert kafkad.process is not None
        assert kafkad.process.wait(SECONDS) == 1, kafkad.log
        assert "kafkad-metadata.journal takes no more changes after a failed fsync (Input/output error)" in kafkad.log
        assert "Traceback" not in kafkad.log
        bad.unlink()
        kafkad.start()
        assert {"kept", "lost"} & AdminClient({"bootstrap.servers": kafkad.bootstrap}).list_topics().topics.keys() == {
            "kept"
        }


def test_one_broker_tells_that_the_disk_is_full(tmp_path: Path) -> None:
    port = free_port()
    kafkad = OneOnAFullDisk(tmp_path, {"http.listener": f"127.0.0.1:{port}"})
    full = kafkad.log_path.with_name("full")

    def health() -> str:
        with urlopen(f"http://127.0.0.1:{port}/health", timeout=SECONDS) as answer:
            return str(answer.read().decode())

    with kafkad:
        assert health() == "ok\n"
        full.touch()
        with pytest.raises(KafkaException):
            create(kafkad, "lost")
        assert FULL in health()
        full.unlink()
        create(kafkad, "kept")
        assert health() == "ok\n"


def test_a_broker_that_dies_while_the_disk_is_full_is_started_again_and_named(tmp_path: Path) -> None:
    host = SeveralOnAFullDisk(tmp_path, 2)
    full = host.log_path.with_name("full")
    with host:
        full.touch()
        killed = host.broker_pid(1)
        host.kill_broker(1)
        eventually(lambda: host.broker_pid(1) != killed, "another process")
        assert f"broker 1 (process {killed}) was killed by SIGKILL; it is started again at once" in host.log
        status, text = host.http("/ready")
        assert status == 503
        assert "broker 1: " in text
        assert FULL in text
        assert FULL in host.http("/health")[1]
        full.unlink()
        host.wait_ready()
        assert host.http("/health") == (200, "ok\n")
