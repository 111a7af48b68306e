"""`kctl txns describe`."""

from __future__ import annotations

import time

import click

from kafkad.errors import ErrorCode
from kctl.command.choosing import unknown
from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.errors import KctlError
from kctl.reach.session import TRANSACTION, Session
from kctl.texts.output import Column
from kctl.txns.asking import described, listed

COLUMNS = (
    Column("transactional_id", "What its producer calls itself."),
    Column("state", "Of its transaction."),
    Column("producer_id", "Which the records carry.", "number"),
    Column("producer_epoch", "Which of the producers of that name it is.", "number", "EPOCH"),
    Column("coordinator", "The broker that looks after it.", "number"),
    Column("age_ms", "How long its transaction is open.", "duration", "AGE"),
    Column("timeout_ms", "When its coordinator ends it.", "duration", "TIMEOUT"),
    Column("partitions", "To which it writes.", "list"),
    Column("start_ms", "When its transaction began.", "time", wide=True, header="BEGAN"),
)


@click.command("describe", cls=KctlCommand, columns=COLUMNS, watchable=True)
@click.argument("ids", nargs=-1, required=True, metavar="TRANSACTIONAL-ID…")
@pass_session
def describe(session: Session, ids: tuple[str, ...]) -> int:
    """Show transactions and the partitions they write to.

    Example: kctl txns describe billing-writer-1
    """
    now = int(time.time() * 1000)
    found = described(session, ids)
    coordinators = session.coordinators(ids, TRANSACTION)
    rows = []
    errors = []
    for name, one in found.items():
        if isinstance(one, KctlError):
            is_unknown = one.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND.name
            errors.append(unknown("transactional id", name, _known(session)) if is_unknown else one)
            continue
        place = coordinators.get(name)
        rows.append(
            {
                **one._asdict(),
                "coordinator": place if isinstance(place, int) else None,
                "age_ms": now - one.start_ms if one.start_ms >= 0 else None,
                "start_ms": one.start_ms if one.start_ms >= 0 else None,
                "partitions": [str(where) for where in one.partitions],
            }
        )
    return answer(session, COLUMNS, rows, errors)


def _known(session: Session) -> list[str]:
    return [one.transactional_id for one in listed(session)[0]]
