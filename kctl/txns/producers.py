"""`kctl txns producers`."""

from __future__ import annotations

import click

from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.errors import KctlError
from kctl.reach.session import Session
from kctl.texts.output import Column, Row
from kctl.txns.asking import Producer, partitions_named, producers_of

COLUMNS = (
    Column("topic", "The topic."),
    Column("partition", "The partition.", "number", "PART"),
    Column("producer_id", "Who writes to it.", "number"),
    Column("producer_epoch", "Which of the producers with that id.", "number", "EPOCH"),
    Column("last_sequence", "Of its last record.", "number", "SEQUENCE"),
    Column("last_timestamp_ms", "Of its last record.", "time", "LAST-WRITE"),
    Column("start_offset", "Where its open transaction begins.", "number", "OPEN-FROM"),
    Column("coordinator_epoch", "Of the coordinator that ended its last transaction.", "number", wide=True),
)


@click.command("producers", cls=KctlCommand, columns=COLUMNS, watchable=True)
@click.argument("partitions", nargs=-1, required=True, metavar="TOPIC[:PARTITION,…]…")
@click.option("--open", "only_open", is_flag=True, help="Only those with an open transaction.")
@pass_session
def producers(session: Session, partitions: tuple[str, ...], only_open: bool) -> int:
    """List the producers of partitions, with their open transactions.

    Example: kctl txns producers payments:0,1 --open
    """
    where, errors = partitions_named(session, partitions)
    rows: list[Row] = []
    for found in producers_of(session, where).values():
        if isinstance(found, KctlError):
            errors.append(found)
        else:
            rows.extend(row(one) for one in sorted(found) if one.start_offset >= 0 or not only_open)
    return answer(session, COLUMNS, rows, errors)


def row(producer: Producer) -> Row:
    return {
        "topic": producer.where.topic,
        "partition": producer.where.partition,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "last_sequence": producer.last_sequence if producer.last_sequence >= 0 else None,
        "last_timestamp_ms": producer.last_timestamp if producer.last_timestamp >= 0 else None,
        "start_offset": producer.start_offset if producer.start_offset >= 0 else None,
        "coordinator_epoch": producer.coordinator_epoch if producer.coordinator_epoch >= 0 else None,
    }
