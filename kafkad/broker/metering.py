"""What /metrics shows: collectors over the living parts, under the names that dashboards for Kafka expect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from time import monotonic, thread_time

from kafkad.api.fetch_session import FetchSessions
from kafkad.broker.lifecycle import Lifecycle
from kafkad.controller.controller import Controller
from kafkad.group.committing import OffsetCommitter
from kafkad.group.coordinator import GroupCoordinator
from kafkad.log.manager import LogManager
from kafkad.metrics import (
    GAUGE,
    Family,
    IdleShare,
    Labels,
    LogSample,
    Registry,
    RequestProbe,
    build_families,
    counters,
    gauges,
    idle_families,
    log_families,
    process_families,
    request_families,
)
from kafkad.model import NO_LEADER
from kafkad.net.server import Server
from kafkad.replica.cleaner import Cleaner
from kafkad.replica.manager import ReplicaManager


def starting(lifecycle: Lifecycle) -> Registry:
    """What there is to be known of a broker that is not running yet."""
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
) -> Registry:
    """Made and asked by the event loop's thread, whose time it measures."""
    made = Registry()
    idle = IdleShare(monotonic, thread_time)
    collectors: tuple[Callable[[], Iterable[Family]], ...] = (
        lambda: _state_families(lifecycle),
        replicas.probes.collect,
        lambda: request_families(probes, monotonic()),
        lambda: log_families(lambda: _log_samples(logs)),
        lambda: _cleaner_families(cleaner, logs),
        lambda: _replica_families(replicas, logs),
        lambda: _controller_families(replicas, controller),
        lambda: _connection_families(server, sessions),
        groups.collect,
        offsets.collect,
        lambda: idle_families(idle()),
        build_families,
        process_families,
    )
    for collector in collectors:
        made.add(collector)
    return made


def _state_families(lifecycle: Lifecycle) -> Iterator[Family]:
    yield from gauges("kafka_server_kafkaserver", {"brokerstate": lifecycle.state}, "As Kafka numbers it")


def _log_samples(logs: LogManager) -> Iterator[LogSample]:
    for tp, log in list(logs.logs.items()):
        yield LogSample(tp.topic, tp.partition, log.size, log.start_offset, log.end_offset, len(log.segments))


def _replica_families(replicas: ReplicaManager, logs: LogManager) -> Iterator[Family]:
    partitions = list(replicas)
    leading = [p for p in partitions if p.is_leader]
    values = {
        "partitioncount": len(partitions),
        "leadercount": len(leading),
        "underreplicatedpartitions": sum(len(p.role.isr) < len(p.role.replicas) for p in leading),
        "underminisrpartitioncount": sum(not p.isr_suffices for p in leading),
        "atminisrpartitioncount": sum(len(p.role.isr) == p.log.config.min_insync_replicas for p in leading),
        "offlinereplicacount": sum(p.failure is not None for p in partitions),
    }
    yield from gauges("kafka_server_replicamanager", values, "Replicas of this broker")
    changes = {"isrshrinks": replicas.isr_shrinks, "isrexpands": replicas.isr_expands}
    yield from counters("kafka_server_replicamanager", changes, "In-sync replicas")
    waiting: list[tuple[Labels, float]] = [
        ((("delayedOperation", "Fetch"),), len({wait for p in partitions for wait in p.fetch_waits})),
        ((("delayedOperation", "Produce"),), sum(len(p.commit_waits) for p in partitions)),
    ]
    yield Family("kafka_server_delayedoperationpurgatory_purgatorysize", GAUGE, "Requests that wait.", waiting)
    offline = sum(directory.failure is not None for directory in logs.directories)
    yield from gauges("kafka_log_logmanager", {"offlinelogdirectorycount": offline}, "Log directories")


def _controller_families(replicas: ReplicaManager, controller: Controller) -> Iterator[Family]:
    topics = replicas.metadata.topics.values()
    active = controller.active
    values = {
        "activecontrollercount": int(active),
        "globaltopiccount": len(topics) if active else 0,
        "globalpartitioncount": sum(len(topic.partitions) for topic in topics) if active else 0,
        "offlinepartitionscount": sum(
            state.leader == NO_LEADER for topic in topics for state in topic.partitions.values() if active
        ),
        "preferredreplicaimbalancecount": sum(
            state.leader != state.replicas[0] for topic in topics for state in topic.partitions.values() if active
        ),
    }
    yield from gauges("kafka_controller_kafkacontroller", values, "As the controller sees the cluster")


def _connection_families(server: Server, sessions: FetchSessions) -> Iterator[Family]:
    open_now = {"connection_count": server.total}
    yield from gauges("kafka_server_socketservermetrics", open_now, "Connections of clients")
    made = {"connection_creation": server.accepted, "connection_refused": server.refused}
    yield from counters("kafka_server_socketservermetrics", made, "Connections of clients")
    cached = {
        "numincrementalfetchsessions": len(sessions),
        "numincrementalfetchpartitionscached": sessions.partitions(),
    }
    yield from gauges("kafka_server_fetchsessioncache", cached, "Fetch sessions")
    evicted = {"incrementalfetchsessionevictions": sessions.evictions}
    yield from counters("kafka_server_fetchsessioncache", evicted, "Fetch sessions")


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
