"""`kctl txns list`."""

from __future__ import annotations

import time
from collections.abc import Mapping

import click

from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.errors import KctlError
from kctl.reach.session import Session
from kctl.texts.output import Column, Row
from kctl.texts.parsing import parse_duration_ms
from kctl.txns.asking import Listed, Transaction, described, listed
from kctl.txns.facts import expirations, times, waits_for

COLUMNS = (
    Column("transactional_id", "What its producer calls itself."),
    Column("state", "Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort."),
    Column("producer_id", "Which the records carry.", "number"),
    Column("producer_epoch", "Which of the producers of that name it is.", "number", "EPOCH"),
    Column("age_ms", "How long its transaction is open.", "duration", "AGE"),
    Column("timeout_ms", "When its coordinator ends it.", "duration", "TIMEOUT"),
    Column("left_ms", "Until then.", "duration", "LEFT"),
    Column("partitions", "To how many partitions it writes; once it is decided, how many lack its marker.", "number"),
    Column("expires_ms", "Until its coordinator forgets the idle id, at the earliest.", "duration", "EXPIRES"),
    Column("waits_for", "Partitions that lack the marker of a decided transaction.", "list", "WAITS-FOR"),
    Column("coordinator", "The broker that looks after it.", "number", wide=True),
    Column("start_ms", "When its transaction began.", "time", machine=True),
)


@click.command("list", cls=KctlCommand, columns=COLUMNS, watchable=True)
@click.option("--older", metavar="TIME", help="Only transactions that have been open for longer than this.")
@click.option("--state", multiple=True, metavar="STATE", help="Only transactions in this state.")
@pass_session
def list_transactions(session: Session, older: str | None, state: tuple[str, ...]) -> int:
    """List transactional ids with the state of their transactions.

    Only what is open has an age. An idle id is forgotten after transactional.id.expiration.ms.

    Example: kctl txns list --older 5m
    """
    now = int(time.time() * 1000)
    older_ms = -1 if older is None else parse_duration_ms(older)
    found, errors = listed(session, state)
    details = described(session, [one.transactional_id for one in found])
    known = [one for one in details.values() if not isinstance(one, KctlError)]
    idle = {one.transactional_id for one in known if not one.is_open} if older is None else set()
    expire = expirations(session, [one.coordinator for one in found if one.transactional_id in idle])
    waits = waits_for(session, known)
    rows = [_row(one, details[one.transactional_id], now, expire, waits) for one in found]
    if older is not None:
        rows = [row for row in rows if row.get("age_ms") is not None and row["age_ms"] >= older_ms]
    shown = [column for column in COLUMNS if column.name != "waits_for" or waits or not session.settings.is_text]
    return answer(session, shown, rows, errors)


def _row(
    one: Listed,
    details: Transaction | KctlError,
    now: int,
    expire: Mapping[int, int],
    waits: Mapping[str, tuple[str, ...]],
) -> Row:
    row = {
        "transactional_id": one.transactional_id,
        "state": one.state,
        "producer_id": one.producer_id,
        "coordinator": one.coordinator,
    }
    if isinstance(details, KctlError):
        return row
    return {
        **row,
        **times(details, now, expire.get(one.coordinator)),
        "producer_epoch": details.producer_epoch,
        "timeout_ms": details.timeout_ms,
        "partitions": len(details.partitions),
        "waits_for": list(waits.get(one.transactional_id, ())),
    }
