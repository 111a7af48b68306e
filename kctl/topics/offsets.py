"""`kctl topics offsets`."""

from __future__ import annotations

import time

import click

from kafkad.names import TopicPartition
from kctl.command.choosing import Choice, choosing
from kctl.command.chosen import chosen_topics
from kctl.command.cluster_names import topic_names
from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.errors import KctlError
from kctl.reach.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, OffsetAt, offsets_at
from kctl.reach.session import Session
from kctl.texts.output import Column, Row
from kctl.texts.parsing import parse_time_ms
from kctl.texts.scopes import not_there, parse_numbers

COLUMNS = (
    Column("topic", "The topic's name."),
    Column("partition", "The partition.", "number", "PART"),
    Column("offset", "The offset; null where no record is as late as the time asked for.", "number"),
    Column("timestamp_ms", "The time of the record there, where one was looked for by its time.", "time", "TIME"),
    Column("leader_epoch", "The epoch of the leader that wrote it.", "number", "EPOCH", wide=True),
)
_NAMED = {"latest": LATEST, "earliest": EARLIEST, "max-timestamp": MAX_TIMESTAMP}


@click.command("offsets", cls=KctlCommand, columns=COLUMNS, watchable=True)
@choosing("topic", topic_names)
@click.option(
    "--at",
    default="latest",
    metavar="TIME",
    help="earliest, latest, max-timestamp (the newest record), or the first offset at or after a time.",
)
@click.option("--partitions", metavar="0,3-5", help="Only these partitions.")
@click.option(
    "--committed", is_flag=True, help="With latest: the last stable offset, where read_committed consumers stop."
)
@pass_session
def offsets(session: Session, chosen: Choice, at: str, partitions: str | None, committed: bool) -> int:
    """Show start and end offsets of partitions, or offsets at a time.

    Times are -30m, @2026-11-21T05:30, or seconds or milliseconds since 1970. Without names it shows all topics except
    internal ones.

    Example: kctl topics offsets orders --at -30m
    """
    when = _NAMED.get(at)
    if when is None:
        when = parse_time_ms(at, int(time.time() * 1000), session.settings.utc)
    wanted = set(parse_numbers(partitions)) if partitions else None
    topics, errors = chosen_topics(session, chosen, internal=False)
    for name, topic in topics.items():
        errors += not_there(name, sorted(wanted or ()), {p.partition_index for p in topic.partitions})
    asked = [
        TopicPartition(name, index)
        for name, topic in topics.items()
        for index in sorted(p.partition_index for p in topic.partitions)
        if wanted is None or index in wanted
    ]
    found = offsets_at(session, dict.fromkeys(asked, when), committed=committed)
    errors += {str(error): error for error in found.values() if isinstance(error, KctlError)}.values()
    return answer(session, COLUMNS, [_row(where, found[where]) for where in asked], errors)


def _row(where: TopicPartition, found: OffsetAt | KctlError) -> Row:
    known = None if isinstance(found, KctlError) else found
    return {
        "topic": where.topic,
        "partition": where.partition,
        "offset": known.offset if known and known.offset >= 0 else None,
        "timestamp_ms": known.timestamp if known and known.timestamp >= 0 else None,
        "leader_epoch": known.leader_epoch if known and known.leader_epoch >= 0 else None,
    }
