"""Starts members of consumer groups (consuming.py) and knows what each owns and has processed."""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.oracle.kafka import tool

SECONDS = 60
"""Longest time for what a group normally does at once."""
SESSION_MS = 45_000
SHORT_SESSION_MS = 10_000
"""Of members that get killed: not so short that a busy machine ends it before."""

Owned = tuple[float, float, int, str]
"""From when to when a member owned a partition."""


class Consumer:
    """A member as a process. It owns a partition from `assigned` until it is taken, it leaves or is dead."""

    ended: tuple[int, ...] = (0,)
    """Exit statuses of one that left."""
    clock = staticmethod(time.monotonic)
    """By which it says when something happened."""

    def __init__(self, name: str, command: list[str], log: Path) -> None:
        self.name = name
        self.owned: dict[int, float] = {}
        self.history: list[Owned] = []
        self.processed: list[tuple[int, int, str]] = []
        """(Partition, offset, value), in the order of processing."""
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def values(self) -> set[str]:
        return {value for _, _, value in list(self.processed)}

    def leave(self) -> None:
        """As a program that closes its consumer; returns when it is gone."""
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(SECONDS) in self.ended, self._log.read_text()
        self._reader.join(SECONDS)

    def kill(self) -> None:
        at = self.clock()
        self._process.kill()
        self._process.wait()
        self._reader.join(SECONDS)
        self._give_up(list(self.owned), at)

    def alive(self) -> bool:
        """Until it was told to end; it has no business ending by itself."""
        status = self._process.poll()
        assert status in (None, -signal.SIGKILL, *self.ended), self._log.read_text()
        return status is None

    def close(self) -> None:
        if self.alive():
            self.kill()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                with contextlib.suppress(json.JSONDecodeError):  # the last line of a killed one
                    self._heard(json.loads(line))

    def _heard(self, said: dict[str, Any]) -> None:
        match said["event"]:
            case "processed":
                self.processed += [(said["partition"], offset, value) for offset, value in said["records"]]
            case "assigned":
                self._give_up(set(self.owned) & set(said["partitions"]), said["at"])
                self.owned.update(dict.fromkeys(said["partitions"], said["at"]))
            case "revoked" | "lost":
                self._give_up(said["partitions"], said["at"])
            case "leaving":
                self._give_up(list(self.owned), said["at"])

    def _give_up(self, partitions: Iterable[int], at: float) -> None:
        for partition in partitions:
            if (since := self.owned.pop(partition, None)) is not None:
                self.history.append((since, at, partition, self.name))


class JavaConsumer(Consumer):
    """Kafka's VerifiableConsumer, which says the same in words of its own, by the wall clock."""

    ended = (0, 128 + signal.SIGTERM)
    clock = staticmethod(time.time)

    def _heard(self, said: dict[str, Any]) -> None:
        at, event = said["timestamp"] / 1000, said["name"]
        if event == "record_data":
            self.processed.append((said["partition"], said["offset"], said["value"]))
        elif event in ("partitions_assigned", "partitions_revoked"):
            partitions = [partition["partition"] for partition in said["partitions"]]
            super()._heard({"event": event.removeprefix("partitions_"), "at": at, "partitions": partitions})
        elif event == "shutdown_complete":
            super()._heard({"event": "leaving", "at": at})


class Group:
    """The members that one test starts, on one broker; a context manager that leaves none behind."""

    def __init__(self, bootstrap: str, group: str, topic: str, scratch: Path) -> None:
        self.bootstrap, self.group, self.topic = bootstrap, group, topic
        self.members: list[Consumer] = []
        self._scratch = scratch

    def start(
        self,
        name: str,
        library: str,
        strategy: str,
        commits: str = "sync",
        session_ms: int = SESSION_MS,
        instance: str = "",
    ) -> Consumer:
        words = [library, self.bootstrap, self.group, self.topic, name, strategy, commits, instance, str(session_ms)]
        command = [sys.executable, "-m", "tests.clients.consuming", *words]
        return self._add(Consumer(name, command, self._scratch / f"{name}.log"))

    def start_java(self, name: str, version: str, strategy: str, session_ms: int = SESSION_MS) -> Consumer:
        settings = self._scratch / f"{name}.properties"
        settings.write_text(f"client.id={name}\nheartbeat.interval.ms=300\nmetadata.max.age.ms=300\n")
        words = ["--bootstrap-server", self.bootstrap, "--group-id", self.group, "--topic", self.topic, "--verbose"]
        words += ["--reset-policy", "earliest", "--session-timeout", str(session_ms)]
        words += ["--assignment-strategy", f"org.apache.kafka.clients.consumer.{strategy}"]
        words += ["--consumer.config" if version == "3.9" else "--command-config", str(settings)]
        command = tool(version, "verifiable-consumer", *words)
        return self._add(JavaConsumer(name, command, self._scratch / f"{name}.log"))

    def _add(self, member: Consumer) -> Consumer:
        self.members.append(member)
        return member

    def wait(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + SECONDS
        while not done():
            assert all(member.alive() or not member.owned for member in self.members)
            assert time.monotonic() < deadline, f"no {what} after {SECONDS} s: {self.described()}"
            time.sleep(0.02)

    def wait_for_shares(self, *shares: set[int]) -> None:
        """Until the members that still live own exactly these partitions, in the order in which they were started."""
        wanted = [set(share) for share in shares]
        self.wait(lambda: self.shares() == wanted, f"shares {wanted}")

    def wait_for_sizes(self, *sizes: int) -> None:
        self.wait(lambda: [len(share) for share in self.shares()] == list(sizes), f"shares of {sizes}")

    def shares(self) -> list[set[int]]:
        return [set(member.owned) for member in self.members if member.alive()]

    def values(self) -> set[str]:
        """Of all records that were processed by anybody."""
        return set().union(*(member.values() for member in self.members))

    def assert_one_owner_each(self) -> None:
        """No partition had two owners at once."""
        by_partition: dict[int, list[Owned]] = defaultdict(list)
        for member in self.members:
            for owned in member.history:
                by_partition[owned[2]].append(owned)
        for spans in by_partition.values():
            spans.sort()
            for earlier, later in itertools.pairwise(spans):
                assert earlier[1] <= later[0], (earlier, later)

    def described(self) -> str:
        logs = {path.name: path.read_text()[-1000:] for path in self._scratch.glob("*.log")}
        return f"{[(m.name, sorted(m.owned), len(m.processed)) for m in self.members]} {logs}"

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.close()
