"""What the doctor looks at: transactions that are open, since when, and what keeps them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kctl.errors import KctlError
from kctl.txns.asking import OPEN, Transaction, described, listed
from kctl.txns.facts import waits_for
from kctl.txns.last_records import changed_ms

if TYPE_CHECKING:
    from kctl.reach.session import Session


class Lingering(NamedTuple):
    """`decided_ms` is when its outcome was decided, if it is and that can be known."""

    transaction: Transaction
    decided_ms: int | None = None
    waits_for: tuple[str, ...] = ()


def open_transactions(session: Session) -> tuple[list[Lingering], list[KctlError]]:
    """All that are open, and the errors of brokers that did not tell theirs."""
    found, errors = listed(session, OPEN)
    transactions = []
    for one in described(session, [one.transactional_id for one in found]).values():
        if isinstance(one, KctlError):
            errors.append(one)
        elif one.is_open:
            transactions.append(one)
    decided = changed_ms(session, [one.transactional_id for one in transactions if one.is_decided])
    waits = waits_for(session, transactions)
    names = [one.transactional_id for one in transactions]
    return [
        Lingering(one, decided.get(name), waits.get(name, ())) for name, one in zip(names, transactions, strict=True)
    ], errors
