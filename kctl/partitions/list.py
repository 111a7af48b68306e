"""`kctl partitions list`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from kafkad.names import TopicPartition
from kctl.command.choosing import Choice, choosing
from kctl.command.chosen import chosen_topics
from kctl.command.cluster_names import broker_ids, topic_names
from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.partitions.requests import Active, moves_as_far_as_known
from kctl.reach.log_dirs import log_dirs, replica_sizes
from kctl.reach.session import Session, leader_trouble, silent_brokers
from kctl.texts.output import Column, Document, Row, Writer, counted, known_sum_text, note

if TYPE_CHECKING:
    from kafkad.wire.messages.metadata import MetadataResponsePartition

COLUMNS = (
    Column("topic", "The topic."),
    Column("partition", "The number of the partition.", "number", header="PART"),
    Column("leader", "The broker that leads it.", "number"),
    Column("replicas", "Its replicas in the order of their assignment: the first one should lead.", "list"),
    Column("isr", "Those in sync.", "list", header="ISR"),
    Column("size_bytes", "What its leader has on disk.", "size", header="SIZE"),
    Column("health", "ok, offline, unreachable, moving, under-replicated, not-preferred.", "state"),
    Column("offline", "Replicas on brokers or disks that are down.", "list", wide=True),
    Column("epoch", "The leader epoch.", "number", wide=True),
    Column("sizes", "Bytes of each replica as broker:bytes.", "list", wide=True),
)


@click.command("list", cls=KctlCommand, columns=COLUMNS, watchable=True)
@choosing("topic", topic_names)
@click.option("--internal", is_flag=True, help="Include internal topics.")
@click.option("--unhealthy", is_flag=True, help="Only unhealthy partitions, of internal topics too.")
@click.option(
    "--broker",
    type=int,
    metavar="BROKER",
    shell_complete=broker_ids,
    help="Only partitions with a replica on this broker.",
)
@click.option(
    "--leader", type=int, metavar="BROKER", shell_complete=broker_ids, help="Only partitions that this broker leads."
)
@pass_session
def list_partitions(
    session: Session, chosen: Choice, internal: bool, unhealthy: bool, broker: int | None, leader: int | None
) -> int:
    """List partitions with their replicas, health and size.

    Example: kctl partitions list --unhealthy
    """
    absent = session.absent(each for each in (broker, leader) if each is not None)
    if absent.unknown:
        raise session.no_broker(absent.unknown)
    internal = internal or unhealthy or broker is not None or leader is not None
    topics, errors = chosen_topics(session, chosen, internal=internal)
    asked = {name: [each.partition_index for each in topic.partitions] for name, topic in topics.items()}
    directories, silent = log_dirs(session, partitions=asked if chosen else None)
    for error in silent.values():
        note(session.settings, f"sizes are incomplete: {error.with_code}")
    sizes = replica_sizes(directories)
    moves = moves_as_far_as_known(session, asked)
    deaf = silent_brokers(silent)
    every = [
        _row(TopicPartition(name, each.partition_index), each, sizes, moves, deaf)
        for name, topic in topics.items()
        for each in sorted(topic.partitions, key=lambda each: each.partition_index)
        if (broker is None or broker in each.replica_nodes) and (leader is None or leader == each.leader_id)
    ]
    rows = [row for row in every if row["health"] != "ok"] if unhealthy else every
    return answer(session, COLUMNS, rows, errors, text=lambda: _text(session, rows, len(every) - len(rows)))


def partition_health(
    leader: int, replicas: Sequence[int], isr: Sequence[int], moving: bool, silent: Collection[int]
) -> str:
    """The worst of it in a word; `silent` are the brokers that do not answer."""
    if trouble := leader_trouble(leader, silent):
        return trouble
    if moving:
        return "moving"
    if len(isr) < len(replicas):
        return "under-replicated"
    return "ok" if leader == replicas[0] else "not-preferred"


def _row(
    where: TopicPartition,
    each: MetadataResponsePartition,
    sizes: Mapping[tuple[TopicPartition, int], int],
    moves: Mapping[TopicPartition, Active],
    silent: Collection[int],
) -> Row:
    replicas = list(each.replica_nodes)
    return {
        "topic": where.topic,
        "partition": where.partition,
        "leader": each.leader_id if each.leader_id >= 0 else None,
        "replicas": replicas,
        "isr": list(each.isr_nodes),
        "size_bytes": sizes.get((where, each.leader_id)),
        "health": partition_health(each.leader_id, replicas, each.isr_nodes, where in moves, silent),
        "offline": list(each.offline_replicas),
        "epoch": each.leader_epoch,
        "sizes": [f"{broker}:{sizes[where, broker]}" for broker in replicas if (where, broker) in sizes],
    }


def _text(session: Session, rows: Sequence[Row], healthy: int) -> Iterator[str]:
    """`healthy` partitions are left out of the rows."""
    settings = session.settings
    if rows:
        yield from Writer(settings, COLUMNS, Document(settings.command)).table(rows)
    if settings.no_headers or settings.limit is not None:
        return
    if healthy and not rows:
        yield f"{counted(healthy, 'partition')}, none unhealthy"
        return
    unhealthy = sum(row["health"] != "ok" for row in rows)
    size = known_sum_text(row["size_bytes"] for row in rows)
    yield f"{counted(len(rows), 'partition')}, {size}; {f'{unhealthy} unhealthy' if unhealthy else 'all healthy'}"
