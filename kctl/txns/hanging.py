"""`kctl txns hanging`.

A transaction hangs on a partition when its records wait there for an end that nobody will write: the coordinator has
forgotten the producer, or has ended its transaction without this partition. Readers of committed records stop there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import click

from kafkad.names import TopicPartition
from kctl.command.cluster_names import broker_ids
from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.errors import Exit, KctlError
from kctl.reach.session import Session
from kctl.texts.output import Column, Row
from kctl.texts.parsing import parse_duration_ms
from kctl.texts.spelling import command, spelled
from kctl.txns.asking import OPEN, Producer, Transaction, described, listed, partitions_named, producers_of

COLUMNS = (
    Column("topic", "The topic."),
    Column("partition", "The partition.", "number", "PART"),
    Column("producer_id", "Who began it.", "number"),
    Column("producer_epoch", "Which of the producers with that id.", "number", "EPOCH"),
    Column("start_offset", "Where it begins, and where readers of committed records stop.", "number"),
    Column("age_ms", "Since its last record.", "duration", "AGE"),
    Column("transactional_id", "Whose it was, where a coordinator still knows."),
    Column("why", "Why nobody will end it."),
    Column("fix", "What ends it."),
)


@click.command("hanging", cls=KctlCommand, columns=COLUMNS)
@click.argument("partitions", nargs=-1, metavar="[TOPIC[:PARTITION,…]…]")
@click.option("--max-timeout", default="15m", show_default=True, help="Ignore transactions younger than this.")
@click.option(
    "--broker",
    type=int,
    metavar="BROKER",
    shell_complete=broker_ids,
    help="Only on this broker, as its replicas know them.  [default: as the leaders do]",
)
@pass_session
def hanging(session: Session, partitions: tuple[str, ...], max_timeout: str, broker: int | None) -> int:
    """Find hanging transactions, which nothing will ever end.

    Searches all topics, or only those named. Exits with 7 if there is one.

    Example: kctl txns hanging payments
    """
    where, errors = partitions_named(session, partitions, broker)
    found, more = find_hanging(session, where, int(time.time() * 1000), parse_duration_ms(max_timeout), broker)
    code = answer(session, COLUMNS, found, errors + more)
    return code if errors or more else Exit.FINDINGS if found else code


def find_hanging(
    session: Session, partitions: Iterable[TopicPartition], now_ms: int, max_timeout_ms: int, broker: int | None = None
) -> tuple[list[Row], list[KctlError]]:
    """Candidates are asked of the partitions; their coordinators say which of them are still looked after."""
    errors: list[KctlError] = []
    candidates: list[Producer] = []
    for found in producers_of(session, partitions, broker).values():
        if isinstance(found, KctlError):
            errors.append(found)
        else:
            candidates.extend(one for one in found if is_candidate(one, now_ms, max_timeout_ms))
    if not candidates:
        return [], errors
    known, silent = listed(session, producer_ids=sorted({one.producer_id for one in candidates}))
    if silent:  # who is not asked may be the one that looks after it
        return [], errors + silent
    names = {one.producer_id: one.transactional_id for one in known}
    transactions = described(session, names.values())
    rows = []
    for candidate in sorted(candidates):
        name = names.get(candidate.producer_id)
        transaction = None if name is None else transactions[name]
        if isinstance(transaction, KctlError):
            errors.append(transaction)
        elif why := why_hanging(candidate, transaction):
            rows.append(_row(session, candidate, name, why, now_ms))
    return rows, errors


def is_candidate(producer: Producer, now_ms: int, max_timeout_ms: int) -> bool:
    """Open for longer than any coordinator lets a transaction be."""
    return producer.start_offset >= 0 and now_ms - producer.last_timestamp > max_timeout_ms


def why_hanging(producer: Producer, transaction: Transaction | None) -> str:
    """Empty if its coordinator still looks after it."""
    if transaction is None:
        return "no coordinator knows this producer"
    if transaction.state not in OPEN:
        return f"its coordinator has it as {transaction.state}"
    if producer.producer_epoch < transaction.producer_epoch:
        return f"its coordinator goes on with epoch {transaction.producer_epoch}"
    if producer.where not in transaction.partitions:
        return "its coordinator's transaction is without this partition"
    return ""


def _row(session: Session, producer: Producer, name: str | None, why: str, now_ms: int) -> Row:
    topic, partition = producer.where
    abort = command("txns abort", f"{topic}:{partition}", options=f"--start-offset {producer.start_offset}")
    return {
        "topic": topic,
        "partition": partition,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "start_offset": producer.start_offset,
        "age_ms": now_ms - producer.last_timestamp,
        "transactional_id": name,
        "why": why,
        "fix": spelled(session.settings, abort),
    }
