"""A cluster of processes: one ZooKeeper and several kafkads, whose links to one another and to ZooKeeper can be cut."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from tests.broker import KafkadProcess
from tests.cluster.links import Links
from tests.oracle.kafka import free_port
from tests.oracle.zookeeper import ZooKeeper

SESSION_MS = 3_000
LAG_MS = 5_000
ZOOKEEPER = "zookeeper"
SECONDS = 60

SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "zookeeper.connection.timeout.ms": "30000",
    "replica.lag.time.max.ms": str(LAG_MS),
    "offsets.topic.num.partitions": "6",
    "offsets.topic.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "auto.leader.rebalance.enable": "false",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
}


class Cluster:
    """A context manager. Brokers have the ids 1, 2, 3; what a test kills it may start again."""

    def __init__(self, directory: Path, brokers: int = 3, settings: Mapping[str, str] | None = None) -> None:
        self.links = Links()
        self.zookeeper = ZooKeeper()
        self.ids = tuple(range(1, brokers + 1))
        self._directory = directory
        self._settings = {**SETTINGS, **(settings or {})}
        self.brokers: dict[int, KafkadProcess] = {}
        self._client: KazooClient | None = None

    def __enter__(self) -> Self:
        self.links.__enter__()
        try:
            self.zookeeper.start()
            for broker in self.ids:
                self.brokers[broker] = self._broker(broker)
                self.brokers[broker].start(wait=False)
            for broker in self.ids:
                self.brokers[broker].wait_ready()
            self.until(lambda: self.live() == set(self.ids), "all brokers are registered")
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            for broker, process in self.brokers.items():
                print(f"---- broker {broker}\n{process.log}", file=sys.stderr)
        for process in self.brokers.values():
            if process.alive():
                process.kill()
        if self._client is not None:
            self._client.stop()
            self._client.close()
        self.zookeeper.__exit__(None, None, None)
        self.links.__exit__(None, None, None)

    def _broker(self, broker: int) -> KafkadProcess:
        process = KafkadProcess(self._directory / str(broker))
        inner = free_port()
        between = self.links.to(str(broker), lambda: inner)
        store = self.links.to(ZOOKEEPER, lambda: self.zookeeper.port, source=str(broker))
        process.settings |= {
            **self._settings,
            "broker.id": str(broker),
            "listeners": f"CLIENTS://127.0.0.1:{process.port},BROKERS://127.0.0.1:{inner}",
            "advertised.listeners": f"CLIENTS://127.0.0.1:{process.port},BROKERS://127.0.0.1:{between}",
            "zookeeper.connect": f"127.0.0.1:{store}/cluster",
        }
        return process

    # -- faults ----------------------------------------------------------------------------------------------------

    def kill(self, broker: int) -> None:
        """SIGKILL."""
        self.brokers[broker].kill()

    def stop(self, broker: int) -> None:
        """SIGTERM; returns when the process has ended."""
        code = self.brokers[broker].stop()
        assert code == 0, f"broker {broker} ended with {code}"

    def start(self, broker: int) -> None:
        self.brokers[broker].start()

    def suspend(self, broker: int) -> None:
        os.kill(self.brokers[broker].pid, signal.SIGSTOP)

    def resume(self, broker: int) -> None:
        os.kill(self.brokers[broker].pid, signal.SIGCONT)

    def cut(self, broker: int, *others: int | str) -> None:
        for other in others or self.peers(broker):
            self.links.cut(str(broker), str(other))

    def heal(self, broker: int, *others: int | str) -> None:
        for other in others or self.peers(broker):
            self.links.heal(str(broker), str(other))

    def peers(self, broker: int) -> list[int]:
        return [other for other in self.ids if other != broker]

    # -- what ZooKeeper says ---------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        return ",".join(process.bootstrap for process in self.brokers.values())

    def node(self, path: str) -> Any:
        """The JSON of a znode; None where there is none, or ZooKeeper does not answer."""
        try:
            return json.loads(self._zookeeper().get(f"/cluster{path}")[0])
        except (NoNodeError, KazooException, KazooTimeoutError):
            return None

    def live(self) -> set[int]:
        try:
            return {int(name) for name in self._zookeeper().get_children("/cluster/brokers/ids")}
        except (NoNodeError, KazooException, KazooTimeoutError):
            return set()

    @property
    def controller(self) -> int | None:
        node = self.node("/controller")
        return None if node is None else int(node["brokerid"])

    def state(self, topic: str, partition: int = 0) -> Any:
        return self.node(f"/brokers/topics/{topic}/partitions/{partition}/state")

    def leader(self, topic: str, partition: int = 0) -> int | None:
        state = self.state(topic, partition)
        return None if state is None else int(state["leader"])

    def is_whole(self, topic: str, partitions: int) -> bool:
        """True if all replicas of all partitions are in sync."""
        states = [self.state(topic, partition) for partition in range(partitions)]
        return all(state is not None and set(state["isr"]) == set(self.ids) for state in states)

    def until(self, condition: Callable[[], bool], what: str, seconds: float = SECONDS) -> float:
        """Waits until something holds; returns how long that took."""
        begun = time.monotonic()
        while not condition():
            assert time.monotonic() < begun + seconds, f"not within {seconds} s: {what}"
            time.sleep(0.01)
        return time.monotonic() - begun

    def _zookeeper(self) -> KazooClient:
        if self._client is None:
            self._client = KazooClient(self.zookeeper.connect)
            self._client.start(30)
        return self._client
