"""Workers of Kafka Connect, which share connectors as a group of the protocol type `connect`, and their REST API."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.oracle.kafka import free_port, tool

SECONDS = 90
"""Longest time for anything on a busy machine, the end of a session among it."""
STORES = ("configs", "offsets", "status")
"""The compacted topics in which workers keep what they know: `connect-` and one of these."""

SETTINGS = {
    "group.id": "workers",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "config.storage.topic": "connect-configs",
    "offset.storage.topic": "connect-offsets",
    "status.storage.topic": "connect-status",
    "config.storage.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "offset.storage.partitions": "5",
    "status.storage.replication.factor": "1",
    "status.storage.partitions": "2",
    "offset.flush.interval.ms": "500",
    "scheduled.rebalance.max.delay.ms": "1000",
    "session.timeout.ms": "10000",
    "consumer.session.timeout.ms": "10000",
    "plugin.discovery": "service_load",
}


def wait(done: Callable[[], bool], what: str) -> None:
    """Workers answer with errors while they start and rebalance."""
    deadline = time.monotonic() + SECONDS
    last: object = None
    while time.monotonic() < deadline:
        try:
            if done():
                return
        except OSError as error:
            last = error
        time.sleep(0.1)
    raise AssertionError(f"no {what} after {SECONDS} s: {last}")


class Worker:
    """A process; a context manager that leaves none behind."""

    def __init__(self, bootstrap: str, scratch: Path, name: str, more: Mapping[str, str] | None = None) -> None:
        self.port = free_port()
        self._log = scratch / f"{name}.log"
        properties = scratch / f"{name}.properties"
        own = {"bootstrap.servers": bootstrap, "listeners": f"http://127.0.0.1:{self.port}"}
        settings = SETTINGS | own | dict(more or {})
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        with self._log.open("ab") as log:
            command = tool("3.9", "connect-distributed", str(properties))
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(asked, timeout=SECONDS) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refused:
            with refused:
                raise OSError(f"{path}: {refused.code} {refused.read().decode()}") from None

    def create(self, connector: str, **config: str) -> None:
        self.ask("/connectors", {"name": connector, "config": config})

    def states(self, *connectors: str) -> dict[str, set[str]]:
        """By worker, in which states connectors and tasks are that it has."""
        found: dict[str, set[str]] = {}
        for connector in connectors:
            status = self.ask(f"/connectors/{connector}/status")
            for part in (status["connector"], *status["tasks"]):
                found.setdefault(part["worker_id"], set()).add(part["state"])
        return found

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(SECONDS)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            print(self._log.read_text()[-3000:])
        self.kill()
