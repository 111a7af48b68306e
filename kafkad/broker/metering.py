"""Collectors for /metrics over a broker's parts, under the names that dashboards for Kafka expect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from time import monotonic, thread_time
from typing import TYPE_CHECKING

from kafkad.api.fetch_session import FetchSessions
from kafkad.api.verifier import Verifier
from kafkad.broker.lifecycle import Lifecycle
from kafkad.broker.partition_metrics import READ_AT_ONCE, log_families, partition_families
from kafkad.cleaner.cleaner import Cleaner
from kafkad.config import Config
from kafkad.config.exposed import exposed
from kafkad.controller.controller import Controller
from kafkad.group.committing import OffsetCommitter
from kafkad.group.coordinator import GroupCoordinator
from kafkad.log.manager import LogManager
from kafkad.metrics import (
    COUNTER,
    GAUGE,
    PAUSE,
    Collector,
    Family,
    IdleShare,
    Labels,
    RecentRate,
    Registry,
    RequestProbe,
    build_families,
    counters,
    gauges,
    idle_families,
    process_families,
    request_families,
)
from kafkad.model import NO_LEADER
from kafkad.net.server import Server
from kafkad.replica.manager import ReplicaManager

if TYPE_CHECKING:
    from kafkad.api.logins import Logins
    from kafkad.api.peer import Peer

_MOST_NAMED = 100
"""Kinds of client software that have a metric of their own, as in Kafka; those with most connections."""


def starting(lifecycle: Lifecycle) -> Registry:
    """The metrics of a broker that is still starting."""
    made = Registry()
    made.add(lambda: _state_families(lifecycle))
    made.add(build_families)
    made.add(process_families)
    return made


def registry(
    *,
    lifecycle: Lifecycle,
    probes: Iterable[RequestProbe],
    server: Server,
    logs: LogManager,
    cleaner: Cleaner,
    replicas: ReplicaManager,
    controller: Controller,
    sessions: FetchSessions,
    groups: GroupCoordinator,
    offsets: OffsetCommitter,
    verifier: Verifier,
    transactions: Collector,
    quotas: Collector,
    config: Callable[[], Config],
    logins: Logins | None = None,
) -> Registry:
    """Made and asked by the event loop's thread, whose time it measures."""

    def most() -> int:
        return config().int("kafkad.metrics.max.partitions")

    made = Registry()
    idle = IdleShare(monotonic, thread_time)
    collectors: tuple[Collector, ...] = (
        lambda: _state_families(lifecycle),
        replicas.probes.collect,
        lambda: request_families(probes, monotonic()),
        lambda: log_families(logs, most),
        lambda: partition_families(replicas, most, lambda: config().int("transaction.max.timeout.ms")),
        lambda: _waiting_families(replicas, logs),
        lambda: _cleaner_families(cleaner, logs),
        lambda: _controller_families(replicas, controller),
        _Connections(server).collect,
        lambda: _session_families(sessions),
        groups.collect,
        lambda: groups.lag(partial(_end_of, replicas), most()),
        offsets.collect,
        verifier.collect,
        transactions,
        quotas,
        lambda: gauges(
            "kafkad", {"exposed_listeners": len(exposed(config()))}, "Reached by others, without TLS or a token"
        ),
        lambda: idle_families(idle()),
        build_families,
        process_families,
    )
    for collector in collectors:
        made.add(collector)
    if logins is not None:
        made.add(logins.collect)
    return made


def _state_families(lifecycle: Lifecycle) -> Iterator[Family]:
    yield from gauges("kafka_server_kafkaserver", {"brokerstate": lifecycle.state}, "As Kafka numbers it")


def _waiting_families(replicas: ReplicaManager, logs: LogManager) -> Iterator[Family]:
    partitions = list(replicas)
    waiting: list[tuple[Labels | str, float]] = [
        ((("delayedOperation", "Fetch"),), replicas.waits.fetches),
        ((("delayedOperation", "Produce"),), sum(len(p.commit_waits) for p in partitions)),
    ]
    yield Family("kafka_server_delayedoperationpurgatory_purgatorysize", GAUGE, "Requests that wait.", waiting)
    offline = sum(directory.failure is not None for directory in logs.directories)
    yield from gauges("kafka_log_logmanager", {"offlinelogdirectorycount": offline}, "Log directories")
    kept, cut = ([damage for _, damage in some] for some in (logs.damages.kept(), logs.damages.cut()))
    found = {
        "damaged_places": len(kept),
        "damaged_bytes": sum(max(damage.size, 0) for damage in kept),
        "torn_tails": len(cut),
        "torn_bytes": sum(damage.size for damage in cut),
    }
    yield from gauges("kafkad_log", found, "Damage found in logs since the start (torn: cut off after a crash)")


def _controller_families(replicas: ReplicaManager, controller: Controller) -> Iterator[Family | None]:
    """Metrics of the whole cluster, which only the controller exports, so that sums over brokers are right."""
    active = controller.active
    topics = list(replicas.metadata.topics.values()) if active else []
    states = [state for topic in topics for state in topic.partitions.values()]
    offline = moved = 0
    for number, state in enumerate(states, 1):
        offline += state.leader == NO_LEADER
        moved += state.leader != state.replicas[0]
        if not number % READ_AT_ONCE:
            yield PAUSE
    values = {
        "activecontrollercount": int(active),
        "globaltopiccount": len(topics),
        "globalpartitioncount": len(states),
        "offlinepartitionscount": offline,
        "preferredreplicaimbalancecount": moved,
    }
    yield from gauges("kafka_controller_kafkacontroller", values, "As the controller sees the cluster")
    yield from gauges(
        "kafka_controller_controllereventmanager",
        {"eventqueuesize": controller.events_waiting},
        "Events that the controller has not begun to handle",
    )
    waiting = controller.requests_waiting
    yield from gauges(
        "kafka_controller_controllerchannelmanager",
        {"totalqueuesize": sum(waiting.values())},
        "Requests of the controller that brokers have not answered",
    )
    by_broker: list[tuple[Labels | str, float]] = [((("broker_id", str(id_)),), n) for id_, n in waiting.items()]
    yield Family("kafka_controller_controllerchannelmanager_queuesize", GAUGE, "Of these, by broker.", by_broker)
    elections = {"uncleanleaderelections": controller.unclean_elections}
    yield from counters("kafka_controller_controllerstats", elections, "Leaders that may lack records")
    brokers = replicas.metadata.brokers if active else {}
    yield from gauges("kafka", {"brokers": len(brokers)}, "Live brokers")
    addresses: list[tuple[Labels | str, float]] = [
        ((("id", str(broker.id)), ("address", f"{endpoint.host}:{endpoint.port}")), 1)
        for broker in brokers.values()
        for endpoint in broker.endpoints[:1]
    ]
    yield Family("kafka_broker_info", GAUGE, "Where clients reach a broker.", addresses)
    counted = (((("topic", topic.name),), len(topic.partitions)) for topic in topics)
    yield Family("kafka_topic_partitions", GAUGE, "Partitions of the topic.", counted)


class _Connections:
    """Under Kafka's names, listener by listener."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._rates = {
            listener.name: (
                RecentRate(monotonic, partial(getattr, listener, "accepted")),
                RecentRate(monotonic, partial(getattr, listener, "closed")),
            )
            for listener in server.listeners
        }

    def collect(self) -> Iterator[Family]:
        prefix, listeners = "kafka_server_socketservermetrics", self._server.listeners
        for metric, kind, text, values in (
            ("connection_count", GAUGE, "Open connections.", [len(each.connections) for each in listeners]),
            ("connection_creation_total", COUNTER, "Connections accepted.", [each.accepted for each in listeners]),
            ("connection_close_total", COUNTER, "Connections ended.", [each.closed for each in listeners]),
            ("connection_creation_rate", GAUGE, "Connections accepted per second.", self._rate(0)),
            ("connection_close_rate", GAUGE, "Connections ended per second.", self._rate(1)),
        ):
            samples = [((("listener", each.name),), value) for each, value in zip(listeners, values, strict=True)]
            yield Family(f"{prefix}_{metric}", kind, text, samples)
        yield from counters(prefix, {"connection_refused": self._server.refused}, "Connections of clients")
        lobbies = [each.lobby for each in listeners]
        at_the_door = {
            "connection_login_timeout": sum(lobby.late for lobby in lobbies),
            "connection_login_displaced": sum(lobby.displaced for lobby in lobbies),
        }
        yield from counters(prefix, at_the_door, "Connections closed before their login (displaced: to make room)")
        yield Family(
            f"{prefix}_connections", GAUGE, "Open connections by what the client says it is.", self._software()
        )

    def _rate(self, which: int) -> list[float]:
        return [round(self._rates[each.name][which](), 3) for each in self._server.listeners]

    def _software(self) -> list[tuple[Labels | str, float]]:
        listeners = self._server.listeners
        said = Counter((each.name, *_software(c.peer)) for each in listeners for c in each.connections.values())
        counts: Counter[tuple[str, str, str]] = Counter()
        for number, (key, count) in enumerate(said.most_common()):
            counts[key if number < _MOST_NAMED else (key[0], "other", "other")] += count
        names = ("listener", "client_software_name", "client_software_version")
        return [(tuple(zip(names, key, strict=True)), count) for key, count in counts.items()]


def _software(peer: Peer) -> tuple[str, str]:
    """Name and version. What somebody says that has not logged in yet names no metric."""
    return (peer.software if peer.authenticated else None) or ("unknown", "unknown")


def _session_families(sessions: FetchSessions) -> Iterator[Family]:
    cached = {
        "numincrementalfetchsessions": len(sessions),
        "numincrementalfetchpartitionscached": sessions.partition_count(),
    }
    yield from gauges("kafka_server_fetchsessioncache", cached, "Fetch sessions")
    evicted = {"incrementalfetchsessionevictions": sessions.evictions}
    yield from counters("kafka_server_fetchsessioncache", evicted, "Fetch sessions")


def _end_of(replicas: ReplicaManager, topic: str, partition: int) -> int | None:
    found = replicas.find(topic, partition)
    return found.high_watermark if found is not None and found.is_leader else None


def _cleaner_families(cleaner: Cleaner, logs: LogManager) -> Iterator[Family]:
    """Whole numbers, as Kafka gives them."""
    probe, last = cleaner.probe, list(cleaner.probe.jobs.values())
    values = {
        "cleaner_recopy_percent": 100 * sum(s.bytes_written for s in last) // max(sum(s.bytes_read for s in last), 1),
        "max_buffer_utilization_percent": int(max((100 * s.buffer_utilization for s in last), default=0)),
        "max_clean_time_secs": int(max((s.seconds for s in last), default=0)),
        "max_compaction_delay_secs": probe.max_delay_ms // 1000,
        "deadthreadcount": cleaner.dead_workers,
    }
    yield from gauges("kafka_log_logcleaner", values, "Log compaction")
    looked = {
        "max_dirty_percent": int(100 * probe.dirtiest_share),
        "time_since_last_run_ms": logs.clock.now_ms() - probe.last_look_ms,
    }
    yield from gauges("kafka_log_logcleanermanager", looked, "What is to be compacted")
    uncleanable = cleaner.uncleanable_by_directory()
    for number, name in enumerate(("uncleanable_partitions_count", "uncleanable_bytes")):
        samples = [((("logdirectory", path),), counted[number]) for path, counted in uncleanable.items()]
        yield Family(f"kafka_log_logcleanermanager_{name}", GAUGE, "What cannot be compacted", samples)
