"""`kctl cluster describe`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from kctl.brokers.facts import DOWN, broker_facts, cluster_state, kafkads
from kctl.cluster.mode import mode
from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.reach.log_dirs import disks, known_sum
from kctl.reach.session import Session, leader_trouble
from kctl.texts.output import Column, Row, known_sum_text, note, rfc3339

if TYPE_CHECKING:
    from kafkad.wire.messages.metadata import MetadataResponsePartition

COLUMNS = (
    Column("cluster_id", "The cluster's id."),
    Column("mode", "Where its metadata are: zookeeper, kraft, or embedded in the broker."),
    Column("controller", "The id of the controller.", "number"),
    Column("controller_epoch", "How often a controller was elected; known of kafkad only.", "number"),
    Column("brokers", "Ids of the brokers that are there.", "list"),
    Column("down", "Ids of brokers that only replica lists name.", "list"),
    Column("down_since", "The time since when each of them is down; none where no kafkad has seen it go.", "list"),
    Column("silent", "Ids of brokers that are registered, and cannot be asked.", "list"),
    Column("racks", "The racks of the brokers.", "list"),
    Column("versions", "Releases of Kafka that serve the same APIs.", "list"),
    Column("kafkad", "Releases of kafkad, of those brokers that are kafkad.", "list"),
    Column("topics", "How many topics there are, Kafka's own included.", "number"),
    Column("partitions", "How many partitions they have.", "number"),
    Column("replicas", "How many replicas these have.", "number"),
    Column("offline", "Partitions without a leader.", "number"),
    Column("unreachable", "Partitions whose leader cannot be asked.", "number"),
    Column("under_replicated", "Partitions with fewer replicas in sync than they have.", "number"),
    Column("size_bytes", "Bytes in the log directories of all brokers that tell.", "size", "BYTES"),
    Column("free_bytes", "Room left on their disks; one that brokers of a host share counts once.", "size", "FREE"),
)


@click.command("describe", cls=KctlCommand, columns=COLUMNS, watchable=True)
@pass_session
def describe(session: Session) -> int:
    """Show a summary of the cluster.

    Example: kctl cluster describe
    """
    topics = session.metadata()
    brokers, directories, silent = broker_facts(session, topics)
    for error in silent:
        note(session.settings, f"sizes are incomplete: {error.with_code}")
    state = cluster_state(session, [broker.id for broker in brokers if broker.release is not None])
    own = kafkads(session, brokers)
    down = [broker.id for broker in brokers if broker.state == DOWN]
    since = [state.absent_since_ms.get(broker) for broker in down]
    partitions = [partition for topic in topics for partition in topic.partitions]
    deaf = [broker.id for broker in brokers if broker.host is not None and broker.release is None]
    row = {
        "cluster_id": session.cluster.cluster_id,
        "mode": mode(session.connection().versions, next((each.zookeeper for each in own.values()), None)),
        "controller": session.cluster.controller_id if session.cluster.controller_id >= 0 else None,
        "controller_epoch": state.controller_epoch,
        "brokers": list(session.cluster.brokers),
        "down": down,
        "down_since": [None if ms is None else rfc3339(ms) for ms in since],
        "silent": deaf,
        "racks": sorted({broker.rack for broker in brokers if broker.rack is not None}),
        "versions": sorted({broker.release for broker in brokers if broker.release is not None}),
        "kafkad": sorted({each.version for each in own.values()}),
        "topics": len(topics),
        "partitions": len(partitions),
        "replicas": sum(len(partition.replica_nodes) for partition in partitions),
        "offline": _count(partitions, deaf, "offline"),
        "unreachable": _count(partitions, deaf, "unreachable"),
        "under_replicated": sum(len(p.isr_nodes) < len(p.replica_nodes) for p in partitions),
        "size_bytes": known_sum(broker.size_bytes for broker in brokers),
        "free_bytes": known_sum(disk.free for disk in disks(directories, session.cluster.brokers)),
    }
    is_whole = all(broker.size_bytes is not None for broker in brokers)
    return answer(session, COLUMNS, [row], text=lambda: _text(row, is_whole))


def _count(partitions: Iterable[MetadataResponsePartition], silent: Sequence[int], trouble: str) -> int:
    return sum(leader_trouble(partition.leader_id, silent) == trouble for partition in partitions)


def _text(row: Row, is_whole: bool) -> Iterator[str]:
    """`is_whole`: all brokers have told what is on their disks."""

    def ids(values: Any) -> str:
        return ", ".join(map(str, values)) or "-"

    since = [f" since {time}" if time else "" for time in row["down_since"]]
    gone = ", ".join(f"{broker}{time}" for broker, time in zip(row["down"], since, strict=True))
    down = f"; down: {gone}" if gone else ""
    silent = f"; unreachable: {ids(row['silent'])}" if row["silent"] else ""
    epoch = "" if row["controller_epoch"] is None else f", epoch {row['controller_epoch']}"
    trouble = [f"{row[n]} {n.replace('_', '-')}" for n in ("offline", "unreachable", "under_replicated") if row[n]]
    yield f"cluster     {row['cluster_id']}"
    yield f"metadata    {row['mode']}, controller {'-' if row['controller'] is None else row['controller']}{epoch}"
    yield f"brokers     {len(row['brokers'])}: {ids(row['brokers'])}{silent}{down}"
    yield f"racks       {ids(row['racks'])}"
    own = f"kafkad {ids(row['kafkad'])}, with the APIs of Kafka {ids(row['versions'])}"
    yield f"version     {own if row['kafkad'] else ids(row['versions']) + ', by the APIs'}"
    yield f"topics      {row['topics']} with {row['partitions']} partitions, {row['replicas']} replicas"
    yield f"health      {', '.join(trouble) or 'ok'}"
    size, free = (known_sum_text([row[n]] if is_whole else [row[n], None]) for n in ("size_bytes", "free_bytes"))
    yield f"size        {size}, {free} free"
