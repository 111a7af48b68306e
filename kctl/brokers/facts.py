"""Leaders and replicas of each broker of a cluster, also of those that are down but still in replica lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kctl.brokers.release import release
from kctl.errors import Disconnected, KctlError, OtherCluster, Unreachable
from kctl.reach.log_dirs import LogDir, disks, known_sum, log_dirs_of
from kctl.reach.session import silent_brokers

if TYPE_CHECKING:
    from kctl.reach.session import Session, Topic
    from kctl.texts.output import Row


KAFKAD_VERSION, ZOOKEEPER = "kafkad.version", "zookeeper.connect"
CONTROLLER_EPOCH, ABSENT_BROKERS = "kafkad.controller.epoch", "kafkad.absent.brokers"

DOWN, NO_ANSWER, NO_ACCESS, OTHER_CLUSTER, ANSWERS = "down", "no answer", "no access", "other cluster", "answers"
STATES = (
    f"ok; {DOWN}: named in replica lists only; {NO_ANSWER}; {NO_ACCESS}: its TLS or login failed; {OTHER_CLUSTER}: "
    f"another cluster's broker is at its address; directory offline; {ANSWERS}: no more can be seen."
)


class BrokerFacts(NamedTuple):
    """None: not known. `host` is None for a broker that is down: nobody says where it was."""

    id: int
    host: str | None
    port: int | None
    rack: str | None
    release: str | None
    leaders: int
    partitions: int
    under_replicated: int
    """Partitions that it should be in sync with, and is not."""
    size_bytes: int | None
    free_bytes: int | None
    total_bytes: int | None
    is_controller: bool
    state: str

    def row(self) -> Row:
        """The columns that list and describe both print."""
        return {
            "id": self.id,
            "host": self.host,
            "port": self.port,
            "rack": self.rack,
            "version": self.release,
            "state": self.state,
            "controller": self.is_controller,
            "leaders": self.leaders,
            "partitions": self.partitions,
            "out_of_sync": self.under_replicated,
            "size_bytes": self.size_bytes,
            "free_bytes": self.free_bytes,
        }


def broker_facts(session: Session, topics: Iterable[Topic]) -> tuple[list[BrokerFacts], list[LogDir], list[KctlError]]:
    """The brokers in the order of their ids; the directories that can be seen; and the errors of the others."""
    led, held, lagging = counts(topics)
    cluster = session.cluster
    answers = log_dirs_of(session, cluster.brokers)
    silent = silent_brokers(answers)
    directories = [directory for own in answers.values() if not isinstance(own, KctlError) for directory in own]
    found = []
    for broker in sorted({*cluster.brokers, *held}):
        known = cluster.brokers.get(broker)
        answer = answers.get(broker, [])
        own = [] if isinstance(answer, KctlError) else answer
        found.append(
            BrokerFacts(
                id=broker,
                host=known.host if known else None,
                port=known.port if known else None,
                rack=known.rack if known else None,
                release=None if known is None or broker in silent else _release(session, broker),
                leaders=led.get(broker, 0),
                partitions=held.get(broker, 0),
                under_replicated=lagging.get(broker, 0),
                size_bytes=sum(r.size for directory in own for r in directory.replicas) if own else None,
                free_bytes=known_sum(disk.free for disk in disks(own, cluster.brokers)),
                total_bytes=known_sum(disk.total for disk in disks(own, cluster.brokers)),
                is_controller=broker == cluster.controller_id,
                state=answer_state(answer) if known else DOWN,
            )
        )
    return found, directories, [answer for answer in answers.values() if isinstance(answer, KctlError)]


class Kafkad(NamedTuple):
    version: str
    zookeeper: str
    """Its setting zookeeper.connect; empty where it has its metadata itself."""


def kafkads(session: Session, brokers: Iterable[BrokerFacts]) -> dict[int, Kafkad]:
    """Those brokers that are kafkad, where we may read their settings."""
    from kctl.configs.resources import Resource, described

    asked = [Resource("broker", str(broker.id)) for broker in brokers if broker.release is not None]
    found, _ = described(session, asked, (KAFKAD_VERSION, ZOOKEEPER))
    own = {
        int(resource.name): {entry.name: entry.value or "" for entry in entries} for resource, entries in found.items()
    }
    return {
        broker: Kafkad(values[KAFKAD_VERSION], values.get(ZOOKEEPER, ""))
        for broker, values in own.items()
        if values.get(KAFKAD_VERSION)
    }


class ClusterState(NamedTuple):
    """What kafkads know of their cluster; other brokers say nothing of it."""

    controller_epoch: int | None
    absent_since_ms: Mapping[int, int]
    """Brokers that are away, with the earliest time at which a broker heard of it."""


def cluster_state(session: Session, brokers: Iterable[int]) -> ClusterState:
    """As these brokers know it."""
    from kctl.configs.resources import Resource, described

    asked = [Resource("broker", str(broker)) for broker in brokers]
    found, _ = described(session, asked, (CONTROLLER_EPOCH, ABSENT_BROKERS))
    told = [(entry.name, entry.value) for entries in found.values() for entry in entries if entry.value]
    since: dict[int, int] = {}
    for pair in ",".join(value for name, value in told if name == ABSENT_BROKERS).split(","):
        broker, _, ms = pair.partition("@")
        if ms:
            since[int(broker)] = min(int(ms), since.get(int(broker), int(ms)))
    return ClusterState(max((int(value) for name, value in told if name == CONTROLLER_EPOCH), default=None), since)


def counts(topics: Iterable[Topic]) -> tuple[dict[int, int], dict[int, int], dict[int, int]]:
    """Numbers of partitions by broker: those it leads, holds, and holds but is not in sync with."""
    led: dict[int, int] = {}
    held: dict[int, int] = {}
    lagging: dict[int, int] = {}
    for topic in topics:
        for partition in topic.partitions:
            if partition.leader_id >= 0:
                led[partition.leader_id] = led.get(partition.leader_id, 0) + 1
            for broker in partition.replica_nodes:
                held[broker] = held.get(broker, 0) + 1
                if broker not in partition.isr_nodes:
                    lagging[broker] = lagging.get(broker, 0) + 1
    return led, held, lagging


def _release(session: Session, broker: int) -> str:
    return release(session.connection(broker).versions)


def answer_state(answer: list[LogDir] | KctlError) -> str:
    """How a registered broker is, by what became of the question for its directories."""
    match answer:
        case OtherCluster():
            return OTHER_CLUSTER
        case Disconnected():
            return NO_ANSWER
        case Unreachable():
            return NO_ACCESS
        case KctlError():
            return ANSWERS  # whether its directories are well is not known
    return "directory offline" if any(directory.error for directory in answer) else "ok"
