"""`kafkad --brokers N` for tests: the supervisor as a process, its brokers by their numbers."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from random import randrange
from urllib.error import HTTPError

from tests.broker import STOP_SECONDS, KafkadProcess
from tests.clients.asker import Asker
from tests.oracle.kafka import free_port

SECONDS = 40


class Host(KafkadProcess):
    """`port` is the first broker's, the others have the next ones. Ready when the supervisor says so."""

    def __init__(self, directory: Path, brokers: int, settings: Mapping[str, str] | None = None) -> None:
        few = {"offsets.topic.num.partitions": "2", "offsets.topic.replication.factor": "1"}
        super().__init__(directory, {"broker.id": "0", **few, **(settings or {})})
        self.brokers = brokers
        self.http_port = free_port()
        self.port = free_ports(brokers)
        self.settings |= {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "http.listener": f"127.0.0.1:{self.http_port}",
        }

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.port + n}" for n in range(self.brokers))

    def command(self) -> list[str]:
        return [*super().command(), "--brokers", str(self.brokers)]

    def wait_ready(self, seconds: float = SECONDS) -> None:
        end = time.monotonic() + seconds
        while self.http("/ready")[0] != 200:
            assert self.alive(), f"kafkad has ended:\n{self.log}"
            if time.monotonic() > end:
                self.kill()  # or it would outlive the test
                raise AssertionError(f"not ready after {seconds} s:\n{self.log}")
            time.sleep(0.02)

    def http(self, path: str) -> tuple[int, str]:
        """Status 0 where nothing answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def broker_pid(self, broker: int) -> int:
        """Of its latest process."""
        return int(re.findall(rf"broker {broker}: start: kafkad \S+, process (\d+),", self.log)[-1])

    def kill_broker(self, broker: int) -> None:
        os.kill(self.broker_pid(broker), signal.SIGKILL)

    def stop_broker(self, broker: int) -> None:
        """As an operator restarts one of them."""
        os.kill(self.broker_pid(broker), signal.SIGTERM)

    def asker(self, broker: int) -> Asker:
        return Asker(self.port + broker)

    def directory(self, broker: int) -> Path:
        first = self.log_directory()
        return first if broker == 0 else first / "brokers" / str(broker)

    def wait_all_gone(self, pids: list[int], seconds: float = STOP_SECONDS) -> None:
        eventually(lambda: not any(map(is_running, pids)), f"processes {pids} to end", seconds)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def eventually(condition: Callable[[], object], what: str, seconds: float = SECONDS) -> float:
    """Waits; the seconds that it took."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < seconds, f"waited {seconds} s for {what}"
        time.sleep(0.01)
    return time.monotonic() - begun


def free_ports(count: int) -> int:
    """The first of so many neighbouring ports that are free, below those that the kernel gives to connections."""
    while True:
        first = randrange(10_000, 32_000 - count)
        with ExitStack() as probes:
            try:
                for port in range(first, first + count):
                    probes.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
