"""`kctl topics describe`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from kctl.command.choosing import Choice, choosing
from kctl.command.chosen import chosen_topics
from kctl.command.cluster_names import topic_names
from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.configs.values import with_unit
from kctl.errors import KctlError
from kctl.reach.session import Cluster, Session
from kctl.texts.output import Column, Document, Row, Writer, note, rfc3339, size_text
from kctl.texts.scopes import not_there, parse_numbers
from kctl.topics.details import PartitionDetails, TopicDetails, topic_details

if TYPE_CHECKING:
    from kctl.topics.readers import Readers

COLUMNS = (
    Column("topic", "The topic's name."),
    Column("topic_id", "The topic's id.", wide=True),
    Column("internal", "Whether Kafka keeps its own state in it.", wide=True),
    Column("partition_count", "How many partitions it has.", "number", "PARTITIONS"),
    Column("replication", "Replicas of each partition.", "number"),
    Column("size_bytes", "Bytes of its records, each counted once.", "size", "SIZE"),
    Column("replicated_bytes", "Bytes on all brokers together.", "size", "REPLICATED"),
    Column("records", "Offsets between start and end; compaction and transactions leave fewer records.", "number"),
    Column("min_isr", "min.insync.replicas.", "number"),
    Column(
        "partitions",
        "Of each: partition, leader, leader_epoch, preferred_leader, replicas, isr, out, offline, start_offset, "
        "end_offset, size_bytes, last_timestamp, last_timestamp_ms, health.",
        machine=True,
    ),
    Column("configs", "Of each that is set, or all with --configs all: name, value, source, default.", machine=True),
    Column("groups", "With --groups, of each that reads it: group, state, type, lag, members.", machine=True),
)

PARTITION_COLUMNS = (
    Column("partition", "", "number", "PART"),
    Column("leader_shown", "", "number", "LEADER"),
    Column("replicas", "", "list"),
    Column("isr", "", "list"),
    Column("out", "", "list"),
    Column("start_offset", "", "number", "START"),
    Column("end_offset", "", "number", "END"),
    Column("size_bytes", "", "size", "SIZE"),
    Column("last_timestamp_ms", "", "time", "LAST WRITE"),
    Column("health_shown", "", "state", "HEALTH"),
)
_OFFSETS = {"start_offset", "end_offset", "last_timestamp_ms"}


@click.command("describe", cls=KctlCommand, columns=COLUMNS, watchable=True)
@choosing("topic", topic_names)
@click.option("--partitions", metavar="0,3-5", help="Only these partitions.")
@click.option("--unhealthy", is_flag=True, help="Only unhealthy partitions, of internal topics too.")
@click.option("--offsets/--no-offsets", default=None, help="Show offsets.  [default: if topics are named]")
@click.option(
    "--configs",
    type=click.Choice(("set", "all")),
    default="set",
    help="Show the settings made for the topic, or all in effect.",
)
@click.option("--groups", is_flag=True, help="Show the groups that read the topic, and their lag.")
@pass_session
def describe(
    session: Session,
    chosen: Choice,
    partitions: str | None,
    unhealthy: bool,
    offsets: bool | None,
    configs: str,
    groups: bool,
) -> int:
    """Show partitions, replicas, offsets and settings of topics.

    A "!" after the leader means that it is not the preferred leader. HEALTH is ok, or some of offline, unreachable
    (the leader does not answer), under-min-isr (fewer in-sync replicas than min.insync.replicas: writes with acks=all
    fail), at-min-isr, under-replicated, not-preferred, moving, rack-unaware, same-host (replicas share a rack or a
    host though there are enough).
    Without names it describes all topics except internal ones, without offsets; with --unhealthy, all.

    Example: kctl topics describe orders
    """
    wanted = set(parse_numbers(partitions)) if partitions else None
    topics, errors = chosen_topics(session, chosen, internal=unhealthy)
    with_offsets = bool(chosen) if offsets is None else offsets
    found = topic_details(session, topics, with_offsets=with_offsets)
    for missing in found.notes:
        note(session.settings, missing)
    pictures = []
    for topic in found.topics:
        errors += not_there(topic.name, sorted(wanted or ()), {p.partition for p in topic.partitions})
        shown = [
            p for p in topic.partitions if (wanted is None or p.partition in wanted) and not (unhealthy and _fine(p))
        ]
        if shown or not unhealthy:
            pictures.append((topic, shown))
    readers, unknown = _readers(session, [topic.name for topic, _ in pictures]) if groups else (None, [])
    errors += unknown
    rows = (_row(topic, shown, configs == "all", readers) for topic, shown in pictures)
    columns = PARTITION_COLUMNS if with_offsets else [c for c in PARTITION_COLUMNS if c.name not in _OFFSETS]

    def text() -> Iterator[str]:
        writer = Writer(session.settings, columns, Document(session.settings.command))
        if unhealthy and not pictures and not errors:
            yield "all healthy"
        for topic, shown in pictures:
            yield from _text(session.cluster, found.silent, writer, topic, shown)
            yield f"configs  {_configs_line(topic, configs == 'all')}"
            if groups:
                yield f"groups   {'   '.join(map(str, (readers or {}).get(topic.name, ()))) or '-'}"
            yield ""

    return answer(session, COLUMNS, rows, errors, text=text)


def _readers(session: Session, topics: list[str]) -> tuple[Readers, list[KctlError]]:
    from kctl.groups.group_lag import missed_groups
    from kctl.topics.readers import reading_of

    reading = reading_of(session, topics)
    return reading.readers, [*reading.errors, *missed_groups(session, reading.silent)]


_WORTH_A_LOOK = {"offline", "unreachable", "under-min-isr", "at-min-isr", "under-replicated"}


def _fine(partition: PartitionDetails) -> bool:
    """Moving, led by another broker, or two in one place: not as it should be, but nothing is at risk now."""
    return not _WORTH_A_LOOK & set(partition.health)


# --- for programs


def _row(
    topic: TopicDetails, partitions: Sequence[PartitionDetails], all_configs: bool, readers: Readers | None
) -> Row:
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "internal": topic.internal,
        "partition_count": len(topic.partitions),
        "replication": topic.replication,
        "size_bytes": topic.size_bytes,
        "replicated_bytes": topic.replicated_bytes,
        "records": topic.records,
        "min_isr": topic.min_isr,
        "partitions": [_partition_item(partition) for partition in partitions],
        "configs": [
            {"name": entry.name, "value": entry.shown, "source": entry.source, "default": entry.is_default}
            for entry in topic.configs
            if all_configs or not entry.is_default
        ],
        "groups": None if readers is None else [reader._asdict() for reader in readers.get(topic.name, ())],
    }


def _partition_item(partition: PartitionDetails) -> dict[str, Any]:
    last = partition.last_timestamp
    return {
        "partition": partition.partition,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "preferred_leader": partition.preferred_leader,
        "replicas": partition.replicas,
        "isr": partition.isr,
        "out": partition.out,
        "offline": partition.offline,
        "start_offset": partition.start_offset,
        "end_offset": partition.end_offset,
        "size_bytes": partition.size_bytes,
        "last_timestamp": None if last is None else rfc3339(last),
        "last_timestamp_ms": last,
        "health": partition.health,
    }


# --- for people


def _text(
    cluster: Cluster,
    silent: Collection[int],
    writer: Writer,
    topic: TopicDetails,
    partitions: Sequence[PartitionDetails],
) -> Iterator[str]:
    yield _headline(topic)
    yield f"health  {health_line(topic, cluster, silent)}"
    if partitions:
        yield from writer.table(map(_partition_row, partitions))


def _headline(topic: TopicDetails) -> str:
    size = "-" if topic.size_bytes is None else size_text(topic.size_bytes)
    records = "-" if topic.records is None else f"{topic.records:,}"
    count = len(topic.partitions)
    parts = [
        topic.name,
        f"{count} partition{'s' * (count != 1)} x {topic.replication}",
        size,
        f"{records} record{'s' * (records != '1')}",
        f"min.insync.replicas {_min_isr_text(topic)}",
    ]
    if topic.internal:
        parts.append("internal")
    return "  ".join(parts)


def health_line(topic: TopicDetails, cluster: Cluster, silent: Collection[int]) -> str:
    """One line: what is wrong with how many partitions, which brokers cause it, and what producers notice of it."""
    counts = Counter(word for partition in topic.partitions for word in partition.health if word != "ok")
    if not counts:
        return "ok" if topic.replication > 1 else "ok, but each partition has a single replica"
    line = ", ".join(f"{count} {word}" for word, count in counts.items())
    replicas = sorted({broker for partition in topic.partitions for broker in partition.replicas})
    causes = [
        _cause([broker for broker in replicas if broker not in cluster.brokers], "is down", "are down"),
        _cause([broker for broker in replicas if broker in silent], "does not answer", "do not answer"),
    ]
    told = ", ".join(filter(None, causes))
    return line + (told and f": {told}") + _consequence(topic, counts)


def _cause(brokers: Sequence[int], of_one: str, of_several: str) -> str:
    if not brokers:
        return ""
    names = ", ".join(map(str, brokers))
    return f"brokers {names} {of_several}" if len(brokers) > 1 else f"broker {names} {of_one}"


def _min_isr_text(topic: TopicDetails) -> str:
    if topic.min_isr is None or topic.min_isr == topic.needed:
        return "-" if topic.min_isr is None else str(topic.min_isr)
    return f"{topic.min_isr} (these brokers ask for {topic.needed}: there are no more replicas)"


def _consequence(topic: TopicDetails, counts: Counter[str]) -> str:
    if counts["offline"]:
        return "; nothing can be written to or read from what is offline"
    if counts["unreachable"]:
        return "; nothing can be written to or read from what is unreachable"
    least = min(len(partition.isr) for partition in topic.partitions)
    if counts["under-min-isr"]:
        return f"; writes with acks=all fail ({least} in sync, {topic.needed} needed)"
    if counts["under-replicated"] and topic.needed is not None:
        return f"; writes continue ({least} in sync, {topic.needed} needed)"
    return ""


def _partition_row(partition: PartitionDetails) -> Row:
    leader = "-" if partition.leader is None else str(partition.leader)
    unpreferred = partition.leader is not None and partition.leader != partition.preferred_leader
    words = [word for word in partition.health if word != "not-preferred"]
    if {"at-min-isr", "under-min-isr"} & set(words):  # which says it already
        words = [word for word in words if word != "under-replicated"]
    if unpreferred:
        words.append("not preferred leader")
    return {
        "partition": partition.partition,
        "leader_shown": leader + "!" * unpreferred,
        "replicas": partition.replicas,
        "isr": partition.isr,
        "out": partition.out,
        "start_offset": partition.start_offset,
        "end_offset": partition.end_offset,
        "size_bytes": partition.size_bytes,
        "last_timestamp_ms": partition.last_timestamp,
        "health_shown": ", ".join(words) or "ok",
    }


def _configs_line(topic: TopicDetails, everything: bool) -> str:
    shown = [entry for entry in topic.configs if everything or not entry.is_default]
    words = [f"{e.name} {with_unit(e.name, e.shown)} ({e.source})" for e in shown]
    hidden = len(topic.configs) - len(shown)
    if hidden:
        words.append(f"[{hidden} defaults hidden: --configs all]")
    return "  ".join(words) or "-"
