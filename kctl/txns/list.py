"""`kctl txns list`."""

from __future__ import annotations

import time

import click

from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.errors import KctlError
from kctl.reach.session import Session
from kctl.texts.output import Column, Row
from kctl.texts.parsing import parse_duration_ms
from kctl.txns.asking import OPEN, Listed, Transaction, described, listed

COLUMNS = (
    Column("transactional_id", "What its producer calls itself."),
    Column("state", "Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort."),
    Column("producer_id", "Which the records carry.", "number"),
    Column("producer_epoch", "Which of the producers of that name it is.", "number", "EPOCH"),
    Column("age_ms", "How long its transaction is open.", "duration", "AGE"),
    Column("timeout_ms", "When its coordinator ends it.", "duration", "TIMEOUT"),
    Column("partitions", "To how many partitions it writes.", "number"),
    Column("coordinator", "The broker that looks after it.", "number", wide=True),
    Column("start_ms", "When its transaction began.", "time", machine=True),
)


@click.command("list", cls=KctlCommand, columns=COLUMNS, watchable=True)
@click.option("--older", metavar="TIME", help="Only transactions that have been open for longer than this.")
@click.option("--state", multiple=True, metavar="STATE", help="Only transactions in this state.")
@pass_session
def list_transactions(session: Session, older: str | None, state: tuple[str, ...]) -> int:
    """List transactional ids with the state of their transactions.

    Example: kctl txns list --older 5m
    """
    now = int(time.time() * 1000)
    older_ms = -1 if older is None else parse_duration_ms(older)
    found, errors = listed(session, state)
    details = described(session, [one.transactional_id for one in found])
    rows = [_row(one, details[one.transactional_id], now) for one in found]
    if older is not None:
        rows = [row for row in rows if row["age_ms"] is not None and row["age_ms"] >= older_ms]
    return answer(session, COLUMNS, rows, errors)


def _row(one: Listed, details: Transaction | KctlError, now: int) -> Row:
    row = {
        "transactional_id": one.transactional_id,
        "state": one.state,
        "producer_id": one.producer_id,
        "coordinator": one.coordinator,
    }
    if isinstance(details, KctlError):
        return {**row, "age_ms": None}
    is_open = details.state in OPEN and details.start_ms >= 0  # one that has ended still has its beginning
    return {
        **row,
        "producer_epoch": details.producer_epoch,
        "age_ms": now - details.start_ms if is_open else None,
        "timeout_ms": details.timeout_ms,
        "partitions": len(details.partitions),
        "start_ms": details.start_ms if is_open else None,
    }
