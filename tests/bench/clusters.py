"""Three kafkads, or three brokers of real Kafka 3.9, with a ZooKeeper of their own: started and looked at alike.

Both get the same settings, and the ZooKeepers too. The brokers have the ids 1, 2 and 3.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import ZnodeStat

from tests.bench.measured import cpu_seconds, memory_mb
from tests.broker import KafkadProcess
from tests.oracle import kafka as oracle

SESSION_MS = 6_000
SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "zookeeper.connection.timeout.ms": "30000",
    "replica.lag.time.max.ms": "10000",
    "offsets.topic.num.partitions": "6",
    "offsets.topic.replication.factor": "3",
    "auto.leader.rebalance.enable": "false",
    "log.segment.delete.delay.ms": "1000",
}
IDS: tuple[int, ...] = (1, 2, 3)
HEAP = "512m"
PATIENCE_S = 240


class Broker(Protocol):
    """A broker's process, which keeps its port and its data over its ends and starts."""

    log_dirs: list[Path]

    @property
    def port(self) -> int: ...

    @property
    def pid(self) -> int: ...

    def alive(self) -> bool: ...

    def kill(self) -> None: ...

    def end(self) -> None:
        """SIGTERM; returns when the process has ended."""

    def launch(self) -> None:
        """Returns at once."""


class KafkadBroker(KafkadProcess):
    def end(self) -> None:
        assert self.stop() == 0

    def launch(self) -> None:
        self.start(wait=False)


class JavaBroker:
    def __init__(self, kafka: oracle.Kafka, place: int) -> None:
        self._kafka = kafka
        self._place = place
        self.log_dirs = [kafka.log_directory(place)]

    @property
    def port(self) -> int:
        return self._kafka.ports[self._place]

    @property
    def pid(self) -> int:
        return self._kafka.pids[self._place]

    def alive(self) -> bool:
        return self._kafka.brokers[self._place].process.poll() is None

    def kill(self) -> None:
        self._kafka.brokers[self._place].kill()

    def end(self) -> None:
        self._kafka.brokers[self._place].stop()

    def launch(self) -> None:
        self._kafka.launch(self._place)


class Cluster:
    """One side of the bench. Everything that can be asked of it goes through clients, or is read from ZooKeeper."""

    def __init__(self, name: str, brokers: Mapping[int, Broker], zookeeper: str) -> None:
        """`zookeeper` has the root of the cluster's tree behind its address."""
        self.name = name
        self.ids = IDS
        self.brokers: Mapping[int, Broker] = brokers
        self.topics = 0
        """How many were made here, so that each can have a name of its own."""
        self._root = "/" + zookeeper.partition("/")[2] if "/" in zookeeper else ""
        self._client = KazooClient(zookeeper.partition("/")[0])
        self._client.start(30)

    def close(self) -> None:
        self._client.stop()
        self._client.close()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers.values())

    def revive(self) -> None:
        """Starts what does not run; returns when all brokers know one another."""
        for broker in self.brokers.values():
            if not broker.alive():
                broker.launch()
        self.until(lambda: self.live() == set(IDS), "all brokers are registered")
        for broker in self.brokers.values():
            oracle.wait_for_brokers(broker.port, len(IDS))

    def stop(self, broker: int) -> None:
        self.brokers[broker].end()

    def others(self, broker: int) -> list[int]:
        return [other for other in IDS if other != broker]

    # -- the machine -----------------------------------------------------------------------------------------------

    def cpu_seconds(self) -> float:
        """Of all brokers so far, without ZooKeeper."""
        return sum(cpu_seconds(broker.pid) for broker in self.brokers.values())

    def busiest(self, seconds: float) -> float:
        """The largest share of a core that one of the brokers takes in so many seconds."""
        before = {broker: cpu_seconds(process.pid) for broker, process in self.brokers.items()}
        time.sleep(seconds)
        return max(cpu_seconds(process.pid) - before[broker] for broker, process in self.brokers.items()) / seconds

    def largest_mb(self) -> float:
        """PSS of the largest broker."""
        return max(memory_mb(broker.pid) for broker in self.brokers.values())

    # -- topics ----------------------------------------------------------------------------------------------------

    def create(self, *topics: NewTopic) -> None:
        """Until every broker knows the leaders of all partitions."""
        admin = _admin(self.bootstrap)
        for future in admin.create_topics(
            list(topics), operation_timeout=PATIENCE_S, request_timeout=PATIENCE_S
        ).values():
            future.result(PATIENCE_S)
        wanted = {topic.topic: topic.num_partitions for topic in topics}
        for broker in self.brokers.values():
            admin = _admin(f"127.0.0.1:{broker.port}")
            self.until(partial(_all_led, admin, wanted), "every broker knows all leaders", every_s=0.05)

    def new_topic(self, *assignment: list[int], **configs: str) -> str:
        """A topic with the replicas of each partition, the first one its leader."""
        self.topics += 1
        name = f"topic-{self.topics}"
        named = {config.replace("_", "."): value for config, value in configs.items()}
        self.create(
            NewTopic(
                name, len(assignment), replica_assignment=list(assignment), config={"min.insync.replicas": "2", **named}
            )
        )
        self.until(lambda: self.is_whole(name, len(assignment)), "all replicas are in sync")
        return name

    def delete(self, topic: str) -> None:
        admin = _admin(self.bootstrap)
        admin.delete_topics([topic], operation_timeout=30)[topic].result(60)

    # -- what ZooKeeper says ---------------------------------------------------------------------------------------

    def live(self) -> set[int]:
        return {int(name) for name in self._client.get_children(f"{self._root}/brokers/ids")}

    def registration(self, broker: int) -> int:
        """The transaction that registered a broker; 0 while there is none."""
        stat = self._client.exists(f"{self._root}/brokers/ids/{broker}")
        return 0 if stat is None else int(stat.czxid)

    @property
    def controller(self) -> int:
        return int(json.loads(self._client.get(f"{self._root}/controller")[0])["brokerid"])

    def states(self, topic: str, partitions: int) -> list[tuple[Any, ZnodeStat]]:
        """The state of each partition that has one."""
        asked = [
            self._client.get_async(f"{self._root}/brokers/topics/{topic}/partitions/{partition}/state")
            for partition in range(partitions)
        ]
        found = []
        for answer in asked:
            with contextlib.suppress(NoNodeError):
                data, stat = answer.get()
                found.append((json.loads(data), stat))
        return found

    def leader(self, topic: str, partition: int = 0) -> int:
        return int(self.states(topic, partition + 1)[partition][0]["leader"])

    def replicas(self, topic: str, partition: int) -> list[int]:
        assignment = json.loads(self._client.get(f"{self._root}/brokers/topics/{topic}")[0])["partitions"]
        return [int(broker) for broker in assignment[str(partition)]]

    def is_whole(self, topic: str, partitions: int) -> bool:
        """True if all replicas of all partitions are in sync."""
        states = self.states(topic, partitions)
        return len(states) == partitions and all(set(state["isr"]) == set(IDS) for state, _ in states)

    def until(self, condition: Callable[[], object], what: str, every_s: float = 0.002) -> float:
        """Waits until something holds; returns how long that took."""
        begun = time.monotonic()
        while not condition():
            if time.monotonic() > begun + PATIENCE_S:
                raise TimeoutError(f"{self.name}: not within {PATIENCE_S} s: {what}")
            time.sleep(every_s)
        return time.monotonic() - begun


def _admin(bootstrap: str) -> AdminClient:
    """A new one for each use: one that is kept goes on asking the controller of before."""
    patience = {"socket.timeout.ms": PATIENCE_S * 1000}
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **patience})


def _all_led(admin: AdminClient, wanted: Mapping[str, int]) -> bool:
    known = admin.list_topics(timeout=PATIENCE_S).topics
    return all(
        name in known
        and len(known[name].partitions) == partitions
        and all(partition.leader >= 0 for partition in known[name].partitions.values())
        for name, partitions in wanted.items()
    )


@contextlib.contextmanager
def kafkads(directory: Path, name: str, session_ms: int = SESSION_MS) -> Iterator[Cluster]:
    settings = {**SETTINGS, "zookeeper.session.timeout.ms": str(session_ms)}
    with contextlib.ExitStack() as stack:
        server = oracle.zookeeper(directory / "zookeeper", oracle.free_port(), session_ms)
        stack.callback(server.stop)
        connect = f"127.0.0.1:{server.port}/cluster"
        brokers: dict[int, Broker] = {}
        for number in IDS:
            process = KafkadBroker(
                directory / str(number), {**settings, "broker.id": str(number), "zookeeper.connect": connect}
            )
            stack.callback(_end, process)
            brokers[number] = process.start()
        for broker in brokers.values():
            oracle.wait_for_brokers(broker.port, len(IDS))
        cluster = Cluster(name, brokers, connect)
        stack.callback(cluster.close)
        yield cluster


def _end(process: KafkadBroker) -> None:
    if process.alive():
        process.kill()


@contextlib.contextmanager
def kafkas(name: str) -> Iterator[Cluster]:
    with oracle.Kafka("3.9", brokers=len(IDS), settings=SETTINGS, heap=HEAP) as kafka:
        assert kafka.zookeeper is not None
        brokers: dict[int, Broker] = {broker: JavaBroker(kafka, broker - 1) for broker in IDS}
        cluster = Cluster(name, brokers, f"127.0.0.1:{kafka.zookeeper.port}")
        try:
            yield cluster
        finally:
            cluster.close()


def log_bytes(broker: Broker, partition: str) -> int:
    """What a replica has of a partition's records."""
    total = 0
    with contextlib.suppress(FileNotFoundError):
        for segment in os.scandir(broker.log_dirs[0] / partition):
            if segment.name.endswith(".log"):
                total += segment.stat().st_size
    return total
