"""A cluster of processes: one ZooKeeper and several brokers, whose links to one another and to ZooKeeper can be cut.

The brokers are kafkads, or Kafka's: the tests of what a cluster goes through are tried on real Kafka, too.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Mapping
from itertools import combinations
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from tests.broker import KafkadProcess
from tests.cluster.links import Links
from tests.oracle.kafka import START_SECONDS, free_port, java
from tests.oracle.zookeeper import Ensemble, ZooKeeper

SESSION_MS = 3_000
LAG_MS = 5_000
CHECKPOINT_MS = 1_000
ZOOKEEPER = "zookeeper"
SECONDS = 90
KINDS = ("kafkad", "kafka")

SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "zookeeper.connection.timeout.ms": "30000",
    "replica.lag.time.max.ms": str(LAG_MS),
    "offsets.topic.num.partitions": "6",
    "offsets.topic.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "replica.high.watermark.checkpoint.interval.ms": str(CHECKPOINT_MS),
    "auto.leader.rebalance.enable": "false",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
}


JAVA_SETTINGS = {"zookeeper.session.timeout.ms": str(4 * SESSION_MS)}
"""JVMs that share a few cores do not always start within a short session."""


class KafkaProcess(KafkadProcess):
    """A broker of Kafka 3.9 in the place of a kafkad."""

    def command(self) -> list[str]:
        properties = self.log_path.with_name("server.properties")
        properties.write_text("".join(f"{name}={value}\n" for name, value in self.settings.items()))
        options = ["-Xms256m", "-Xmx384m", "-XX:+UseSerialGC"]
        return java("3.9", "kafka.Kafka", str(properties), options=options)

    def wait_ready(self, seconds: float = START_SECONDS) -> None:
        """A broker that gives up while it starts, as when its session ends meanwhile, is started again."""
        end = time.monotonic() + seconds
        while True:
            try:
                super().wait_ready(seconds)
            except AssertionError:
                if self.process is None or self.process.poll() != 1 or time.monotonic() > end:
                    raise
                self.start(wait=False)
            else:
                return

    def stop(self) -> int:
        """A JVM ends well with the number of the signal."""
        code = super().stop()
        return 0 if code == 128 + signal.SIGTERM else code


class Cluster:
    """A context manager. Brokers have the ids 1, 2, 3; what a test kills it may start again."""

    def __init__(
        self,
        directory: Path,
        brokers: int = 3,
        settings: Mapping[str, str] | None = None,
        *,
        kind: str = "kafkad",
        kinds: Mapping[int, str] | None = None,
        prepare: Callable[[KafkadProcess], None] = lambda process: None,
        log_dirs: Mapping[int, list[Path]] | None = None,
        wrappers: Mapping[int, list[str]] | None = None,
        ensemble: Ensemble | None = None,
    ) -> None:
        """`kinds`, `log_dirs` and `wrappers` are of single brokers; `prepare` changes each broker's settings before it
        starts. With an `ensemble`, which is running, there is no server of its own, and no link to one."""
        self.kind = kind
        self.failed: Exception | None = None
        """What was wrong in a test with it; then it shows its logs at the end."""
        self.links = Links()
        self.zookeeper = ZooKeeper()
        self.ids = tuple(range(1, brokers + 1))
        self._ensemble = ensemble
        self._directory = directory
        self._log_dirs = log_dirs or {}
        self._wrappers = wrappers or {}
        self._kinds = kinds or {}
        self._prepare = prepare
        self._settings = settings or {}
        self.brokers: dict[int, KafkadProcess] = {}
        self._client: KazooClient | None = None

    def __enter__(self) -> Self:
        self.links.__enter__()
        try:
            if self._ensemble is None:
                self.zookeeper.start()
            for broker in self.ids:
                self.brokers[broker] = self._broker(broker)
                self.brokers[broker].start(wait=False)
            for broker in self.ids:
                self.brokers[broker].wait_ready()
            self.until(
                lambda: self.live() == set(self.ids) and self.controller is not None, "registered", START_SECONDS
            )
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None or self.failed is not None:
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
        kind = self._kinds.get(broker, self.kind)
        made = KafkadProcess if kind == "kafkad" else KafkaProcess
        process = made(self._directory / str(broker), log_dirs=self._log_dirs.get(broker))
        process.wrapper = self._wrappers.get(broker, [])
        inner = free_port()
        between = self.links.to(str(broker), lambda: inner)
        process.settings |= {
            **SETTINGS,
            **(JAVA_SETTINGS if kind == "kafka" else {}),
            **self._settings,
            "broker.id": str(broker),
            "listeners": f"CLIENTS://127.0.0.1:{process.port},BROKERS://127.0.0.1:{inner}",
            "advertised.listeners": f"CLIENTS://127.0.0.1:{process.port},BROKERS://127.0.0.1:{between}",
            "zookeeper.connect": f"{self._store_of(broker)}/cluster",
        }
        self._prepare(process)
        return process

    def _store_of(self, broker: int) -> str:
        if self._ensemble is not None:
            return self._ensemble.connect
        return f"127.0.0.1:{self.links.to(ZOOKEEPER, lambda: self.zookeeper.port, source=str(broker))}"

    # -- faults ----------------------------------------------------------------------------------------------------

    def kill(self, broker: int) -> None:
        """SIGKILL."""
        self.brokers[broker].kill()

    def stop(self, broker: int) -> None:
        """SIGTERM; returns when the process has ended."""
        code = self.brokers[broker].stop()
        assert code == 0, f"broker {broker} ended with {code}"

    def start(self, broker: int, *, wait: bool = True) -> None:
        """A broker of Kafka ends at once if its old session has not, and is started anew then."""
        if self.kind == "kafka":
            self.until_gone(broker)
        self.brokers[broker].start(wait=wait)

    def suspend(self, broker: int) -> None:
        os.kill(self.brokers[broker].pid, signal.SIGSTOP)

    def resume(self, broker: int) -> None:
        os.kill(self.brokers[broker].pid, signal.SIGCONT)

    def depose(self, successors: Collection[int]) -> int:
        """Removes the controller's node, as operators of Kafka do, so that one of these is the controller; the others
        are suspended meanwhile, for less than a session. Returns the new one."""
        others = [broker for broker in self.ids if broker not in successors]
        for broker in others:
            self.suspend(broker)
        try:
            self._zookeeper().delete("/cluster/controller")
            self.until(lambda: self.controller in successors, f"one of {successors} is the controller")
        finally:
            for broker in others:
                self.resume(broker)
        return self.until_controller()

    def cut(self, broker: int, *others: int | str) -> None:
        for other in others or self.peers(broker):
            self.links.cut(str(broker), str(other))

    def heal(self, broker: int, *others: int | str) -> None:
        for other in others or self.peers(broker):
            self.links.heal(str(broker), str(other))

    def heal_all(self) -> None:
        ends = [ZOOKEEPER, *map(str, self.ids)]
        for one, other in combinations(ends, 2):
            self.links.heal(one, other)

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

    def topics(self) -> list[str]:
        return list(self._zookeeper().get_children("/cluster/brokers/topics"))

    def is_deleted(self, topic: str) -> bool:
        """The request to delete a topic is removed last."""
        names = (f"/cluster/brokers/topics/{topic}", f"/cluster/admin/delete_topics/{topic}")
        return not any(self._zookeeper().exists(name) for name in names)

    def write_node(self, path: str, value: object) -> None:
        """As old tools ask the controller for something."""
        self._zookeeper().create(f"/cluster{path}", json.dumps(value).encode())

    def live(self) -> set[int]:
        try:
            return {int(name) for name in self._zookeeper().get_children("/cluster/brokers/ids")}
        except (NoNodeError, KazooException, KazooTimeoutError):
            return set()

    @property
    def controller(self) -> int | None:
        node = self.node("/controller")
        return None if node is None else int(node["brokerid"])

    def until_gone(self, broker: int) -> None:
        """Until its session has ended."""
        self.until(lambda: broker not in self.live(), f"the session of broker {broker} has ended")

    def until_controller(self) -> int:
        """The controller, as soon as there is one."""
        self.until(lambda: self.controller is not None, "there is a controller")
        controller = self.controller
        assert controller is not None
        return controller

    def state(self, topic: str, partition: int = 0) -> Any:
        return self.node(f"/brokers/topics/{topic}/partitions/{partition}/state")

    def leader(self, topic: str, partition: int = 0) -> int | None:
        state = self.state(topic, partition)
        return None if state is None else int(state["leader"])

    def replicas(self, topic: str, partition: int) -> list[int]:
        node = self.node(f"/brokers/topics/{topic}")
        return [] if node is None else list(node["partitions"][str(partition)])

    def is_whole(self, topic: str, partitions: int) -> bool:
        """True if all replicas of all partitions are in sync, and one of them leads."""
        states = [self.state(topic, partition) for partition in range(partitions)]
        return all(
            state is not None and state["leader"] >= 0 and set(state["isr"]) == set(self.replicas(topic, partition))
            for partition, state in enumerate(states)
        )

    def until(self, condition: Callable[[], bool], what: str, seconds: float = SECONDS) -> float:
        """Waits until something holds; returns how long that took."""
        begun = time.monotonic()
        while not condition():
            assert time.monotonic() < begun + seconds, f"not within {seconds} s: {what}"
            time.sleep(0.01)
        return time.monotonic() - begun

    def _zookeeper(self) -> KazooClient:
        if self._client is None:
            self._client = KazooClient((self._ensemble or self.zookeeper).connect)
            self._client.start(30)
        return self._client
