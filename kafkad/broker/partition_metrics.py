"""Metrics of each log and each partition, read and written in pieces: there may be tens of thousands.

Names are those of Kafka's JMX metrics, and of the exporter that Strimzi's dashboards for topics ask.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple, TypeVar

from kafkad.log.manager import LogManager
from kafkad.metrics import GAUGE, PAUSE, Family, counters, gauges, label_text
from kafkad.names import TopicPartition
from kafkad.replica.manager import ReplicaManager
from kafkad.replica.partition import Partition

READ_AT_ONCE = 500
_LATE_MS = 5 * 60_000
"""A coordinator may need so long beyond the longest time-out to end a transaction."""

T = TypeVar("T")
Limit = Callable[[], int]
"""kafkad.metrics.max.partitions: the most partitions that have series of their own."""


class LogSample(NamedTuple):
    labels: str
    size: int
    start_offset: int
    end_offset: int
    segments: int


_LOG_METRICS = (
    ("size", 1, "Bytes of the log's segments."),
    ("logstartoffset", 2, "The first offset of the log."),
    ("logendoffset", 3, "The offset after the last record."),
    ("numlogsegments", 4, "Segments of the log."),
)


def log_families(logs: LogManager, limit: Limit) -> Iterator[Family | None]:
    rows: list[LogSample] = []
    for tp, log in (yield from _chosen(list(logs.logs.items()), limit())):
        rows.append(LogSample(_labels(tp), log.size, log.start_offset, log.end_offset, len(log.segments)))
        if not len(rows) % READ_AT_ONCE:
            yield PAUSE
    for metric, field, text in _LOG_METRICS:
        yield Family(f"kafka_log_log_{metric}", GAUGE, text, ((row[0], row[field]) for row in rows))  # type: ignore[misc]


class PartitionSample(NamedTuple):
    labels: str
    leads: bool
    replicas: int
    in_sync: int
    under_replicated: bool
    under_min_isr: bool
    at_min_isr: bool
    stable_lag: int
    late: bool
    """A transaction is open for longer than any should be."""
    producers: int
    leader: int
    preferred: bool
    start_offset: int
    high_watermark: int


def _sample(partition: Partition, late_before_ms: int) -> PartitionSample:
    """As Kafka: what only the leader knows is 0 elsewhere."""
    producers = partition.log.producers
    oldest_ms = producers.oldest_transaction_ms()
    role, leads = partition.role, partition.is_leader
    in_sync, replicas = (len(role.isr), len(role.replicas)) if leads else (0, 0)
    return PartitionSample(
        labels=_labels(partition.tp),
        leads=leads,
        replicas=replicas,
        in_sync=in_sync,
        under_replicated=in_sync < replicas,
        under_min_isr=leads and in_sync < partition.min_isr,
        at_min_isr=leads and in_sync == partition.min_isr,
        stable_lag=partition.high_watermark - partition.last_stable_offset if leads else 0,
        late=leads and oldest_ms is not None and oldest_ms < late_before_ms,
        producers=len(producers),
        leader=role.leader,
        preferred=role.replicas[:1] == (role.leader,),
        start_offset=partition.log.start_offset,
        high_watermark=partition.high_watermark,
    )


_CLUSTER_METRICS = (
    ("replicascount", "replicas", "Replicas that it shall have."),
    ("insyncreplicascount", "in_sync", "Replicas in sync."),
    ("underreplicated", "under_replicated", "1 when a replica is not in sync."),
    ("underminisr", "under_min_isr", "1 when fewer replicas are in sync than min.insync.replicas: no acks=all."),
    ("atminisr", "at_min_isr", "1 when no more replicas are in sync than min.insync.replicas asks for."),
    ("laststableoffsetlag", "stable_lag", "Records that wait for the end of a transaction."),
)
_TOPIC_METRICS = (
    ("current_offset", "high_watermark", "The offset after the last record that consumers can read."),
    ("oldest_offset", "start_offset", "The first offset that consumers can read."),
    ("leader", "leader", "The broker that leads it."),
    ("leader_is_preferred", "preferred", "1 when the first of its replicas leads it."),
    ("replicas", "replicas", "Replicas that it shall have."),
    ("in_sync_replica", "in_sync", "Replicas in sync."),
    ("under_replicated_partition", "under_replicated", "1 when a replica is not in sync."),
)


def partition_families(
    replicas: ReplicaManager, limit: Limit, longest_transaction_ms: Callable[[], int]
) -> Iterator[Family | None]:
    """The sums are over all partitions, whatever the limit is."""
    partitions = list(replicas)
    sums = dict.fromkeys(("leads", "under_replicated", "under_min_isr", "at_min_isr", "late", "producers"), 0)
    late_before_ms = replicas.parts.clock.now_ms() - longest_transaction_ms() - _LATE_MS
    rows: dict[TopicPartition, PartitionSample] = {}
    lag = 0
    for partition in partitions:
        row = rows[partition.tp] = _sample(partition, late_before_ms)
        for name in sums:
            sums[name] += getattr(row, name)
        if partition.following is not None:
            lag = max(lag, partition.following.lag)
        if not len(rows) % READ_AT_ONCE:
            yield PAUSE
    yield from _sum_families(replicas, partitions, sums)
    yield Family(
        "kafka_server_replicafetchermanager_maxlag",
        GAUGE,
        "The most committed records that a replica here does not have yet.",
        [((("clientId", "Replica"),), lag)],
    )
    shown = [row for _, row in (yield from _chosen(list(rows.items()), limit()))]
    for metric, field, text in _CLUSTER_METRICS:
        yield _column(f"kafka_cluster_partition_{metric}", field, text, shown)
    led = [row for row in shown if row.leads]
    for metric, field, text in _TOPIC_METRICS:
        yield _column(f"kafka_topic_partition_{metric}", field, text, led)
    left_out = {"left_out": len(rows) - len(shown)}
    yield from gauges(
        "kafkad_metrics_partitions", left_out, "Over kafkad.metrics.max.partitions, so not told one by one"
    )


def _sum_families(
    replicas: ReplicaManager, partitions: Sequence[Partition], sums: dict[str, int]
) -> Iterator[Family | None]:
    values = {
        "partitioncount": len(partitions) + replicas.refused_count,
        "leadercount": sums["leads"],
        "underreplicatedpartitions": sums["under_replicated"],
        "underminisrpartitioncount": sums["under_min_isr"],
        "atminisrpartitioncount": sums["at_min_isr"],
        "partitionswithlatetransactionscount": sums["late"],
        "produceridcount": sums["producers"],
        "offlinereplicacount": sum(partition.failure is not None for partition in partitions) + replicas.refused_count,
    }
    yield from gauges("kafka_server_replicamanager", values, "Replicas of this broker")
    changes = {
        "isrshrinks": replicas.isr_shrinks,
        "isrexpands": replicas.isr_expands,
        "failedisrupdates": replicas.isr_failures,
    }
    yield from counters("kafka_server_replicamanager", changes, "In-sync replicas")


def _column(name: str, field: str, text: str, rows: Sequence[PartitionSample]) -> Family:
    return Family(name, GAUGE, text, ((row.labels, int(getattr(row, field))) for row in rows))


def _chosen(
    items: list[tuple[TopicPartition, T]], limit: int
) -> Generator[Family | None, None, list[tuple[TopicPartition, T]]]:
    """The first by name when there are too many, so that a scrape names those that the last one did."""
    if len(items) <= limit:
        return items
    by_topic: dict[str, list[tuple[TopicPartition, T]]] = {}
    for number, item in enumerate(items, start=1):
        by_topic.setdefault(item[0].topic, []).append(item)
        if not number % READ_AT_ONCE:
            yield PAUSE
    chosen: list[tuple[TopicPartition, T]] = []
    paused_at = 0
    for topic in sorted(by_topic):
        if len(chosen) >= limit:
            break
        chosen += sorted(by_topic[topic], key=_partition)
        if len(chosen) - paused_at >= READ_AT_ONCE:
            paused_at = len(chosen)
            yield PAUSE
    return chosen[:limit]


def _partition(item: tuple[TopicPartition, object]) -> int:
    return item[0].partition


def _labels(tp: TopicPartition) -> str:
    return label_text((("topic", tp.topic), ("partition", str(tp.partition))))
