"""`kctl txns describe`."""

from __future__ import annotations

import time

import click

from kctl.command.choosing import named_by
from kctl.command.cluster_names import transactional_ids
from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.errors import KctlError
from kctl.reach.session import TRANSACTION, Session
from kctl.texts.output import Column
from kctl.txns.asking import described_or_unknown
from kctl.txns.facts import expirations, times, waits_for
from kctl.txns.last_records import changed_ms

COLUMNS = (
    Column("transactional_id", "What its producer calls itself."),
    Column("state", "Of its transaction."),
    Column("producer_id", "Which the records carry.", "number"),
    Column("producer_epoch", "Which of the producers of that name it is.", "number", "EPOCH"),
    Column("coordinator", "The broker that looks after it.", "number"),
    Column("age_ms", "How long its transaction is open.", "duration", "AGE"),
    Column("timeout_ms", "When its coordinator ends it.", "duration", "TIMEOUT"),
    Column("left_ms", "Until then.", "duration", "LEFT"),
    Column("expires_ms", "Until its coordinator forgets the idle id, at the earliest.", "duration", "EXPIRES"),
    Column("partitions", "To which it writes; once it is decided, those that lack its marker.", "list"),
    Column("waiting_ms", "How long it has been decided, and waits for markers.", "duration", "WAITING"),
    Column("waits_for", "Partitions that lack its marker, with their leaders.", "list", "WAITS-FOR"),
    Column("start_ms", "When its transaction began.", "time", wide=True, header="BEGAN"),
)
_OF_DECIDED = {"waiting_ms", "waits_for"}


@click.command("describe", cls=KctlCommand, columns=COLUMNS, watchable=True)
@click.argument("ids", nargs=-1, required=True, metavar="TRANSACTIONAL-ID…", shell_complete=transactional_ids)
@pass_session
def describe(session: Session, ids: tuple[str, ...]) -> int:
    """Show transactions, the partitions they write to, and what they wait for.

    Only what is open has an age. A transaction whose outcome is decided waits until each partition has its marker. An
    idle id is forgotten after transactional.id.expiration.ms.

    Example: kctl txns describe billing-writer-1
    """
    now = int(time.time() * 1000)
    names = named_by(ids)
    found, errors = described_or_unknown(session, names)
    places = session.coordinators(found, TRANSACTION)
    coordinators = {name: place for name, place in places.items() if not isinstance(place, KctlError)}
    idle = [name for name, one in found.items() if not one.is_open]
    expire = expirations(session, [coordinators[name] for name in idle if name in coordinators])
    changes = changed_ms(session, [name for name, one in found.items() if one.state != "Ongoing"])
    waits = waits_for(session, found.values())
    rows = [
        {
            **one._asdict(),
            **times(one, now, expire.get(coordinators.get(name, -1)), changes.get(name)),
            "coordinator": coordinators.get(name),
            "partitions": [str(where) for where in one.partitions],
            "waits_for": list(waits.get(name, ())),
        }
        for name, one in found.items()
    ]
    shown = [column for column in COLUMNS if column.name not in _OF_DECIDED or waits or not session.settings.is_text]
    return answer(session, shown, rows, errors)
