"""The last record of transactional ids in `__transaction_state`: it has the time at which their state last changed.

Whoever may not read that topic learns less, never something wrong. As a group's history it is read from its end
backwards, and not for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kafkad.names import TRANSACTIONS_TOPIC, TopicPartition
from kctl.errors import KctlError
from kctl.groups.history import bounds, homes_in, records_between, steps

if TYPE_CHECKING:
    from kafkad.wire.records import Record
    from kctl.reach.session import Session


def changed_ms(session: Session, ids: Iterable[str]) -> dict[str, int]:
    """When the state of each id last changed, of those of which it can be known."""
    found: dict[str, int] = {}
    at_home: dict[TopicPartition, set[str]] = {}
    try:
        for name, home in homes_in(session, TRANSACTIONS_TOPIC, ids).items():
            at_home.setdefault(home, set()).add(name)
        ends = bounds(session, at_home)
        for home, names in at_home.items():
            of_home = ends[home]
            if isinstance(of_home, KctlError):
                continue
            for begin, end in steps(*of_home):
                found = last_changes(names, records_between(session, home, begin, end)) | found
                if names <= found.keys():
                    break
    except KctlError:
        return found
    return found


def last_changes(names: set[str], records: Iterable[Record]) -> dict[str, int]:
    """Pure. The records are in their order."""
    from kctl.segments.decoders import decode_transactions

    found = {}
    for record in records:
        if record.key is not None and record.key[4:].decode("utf-8", "replace") in names:
            decoded = decode_transactions(record)
            value: Any = decoded and decoded.value
            if decoded is not None and value is not None:
                found[decoded.subject] = value.transaction_last_update_timestamp_ms
    return found
