"""`kctl txns end`.

A producer that begins to work under a transactional id ends what an earlier one left open: this is that first request
of it, and nothing more. The coordinator aborts the transaction in all its partitions at once, and whoever still writes
under that id is fenced.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

import click

from kafkad.errors import ErrorCode
from kctl.command.changes import Change
from kctl.command.choosing import named_by
from kctl.command.cluster_names import transactional_ids
from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.errors import Exit, KctlError
from kctl.reach.offsets import LATEST, offsets_at
from kctl.reach.session import Session
from kctl.records.producer_transaction import Transaction as ProducerTransaction
from kctl.texts.output import Column, Row, counted, note
from kctl.txns.asking import Producer, Transaction, changed_since, described, described_or_unknown, producers_of
from kctl.txns.facts import times, waits_for

COLUMNS = (
    Column("transactional_id", "Whose transaction is ended."),
    Column("producer_id", "Of the producer that is fenced.", "number"),
    Column("producer_epoch", "Which of the producers of that name it is.", "number", "EPOCH"),
    Column("age_ms", "How long its transaction is open.", "duration", "AGE"),
    Column("left_ms", "Until its coordinator would end it.", "duration", "LEFT"),
    Column("written_ms", "Since its last record: a producer that writes is alive.", "duration", "LAST-WRITE"),
    Column("aborted_at_most", "Records from where it begins: those of this producer become invisible.", "number"),
    Column("partitions", "To which it writes.", "list"),
)


@click.command("end", cls=KctlCommand, columns=COLUMNS)
@click.argument("ids", nargs=-1, required=True, metavar="TRANSACTIONAL-ID…", shell_complete=transactional_ids)
@pass_session
def end(session: Session, ids: tuple[str, ...]) -> int:
    """Abort the open transactions of producers that are gone.

    Its coordinator aborts such a transaction everywhere, as at its time-out: its records, and the offsets that it has
    sent, never count, and readers of committed records go on. If its producer still lives it is fenced: its next
    request fails, and it has to start again.

    An id without an open transaction is left alone. What is decided cannot be ended: it waits for brokers.

    Example: kctl txns end billing-writer-1
    """
    found, errors = described_or_unknown(session, named_by(ids))
    waits = waits_for(session, found.values())
    errors += [_decided(one, waits[name]) for name, one in found.items() if one.is_decided]
    going_on = {name: one for name, one in found.items() if one.state == "Ongoing"}
    for name, one in found.items():
        if not one.is_open:
            note(session.settings, f'"{name}" has no open transaction ({one.state}): it is left alone')
    if not going_on:
        return answer(session, COLUMNS, [], errors, text=lambda: ())
    change = Change(session, COLUMNS, _rows(session, going_on), errors)
    note(session.settings, f"whoever still writes as {', '.join(going_on)} is fenced: it has to start again")
    if not change.confirmed(f"Abort {counted(len(going_on), 'transaction')}?"):
        return change.code
    with change.preparing():
        _still_as_shown(session, going_on)
    failed = [error for one in going_on.values() if (error := _ended(session, one)) is not None]

    def are_over() -> bool:
        now = described(session, going_on)
        return not any(_is_the_same(going_on[name], one) for name, one in now.items())

    return change.done(errors=failed, verified=f"{counted(len(going_on), 'transaction')} aborted", seen=are_over)


def _still_as_shown(session: Session, shown: Mapping[str, Transaction]) -> None:
    """KctlError if one of them has ended since: its producer lives, and what it has begun after it was not shown."""
    for name, one in described(session, shown).items():
        if isinstance(one, KctlError):
            raise one
        if not _is_the_same(shown[name], one):
            raise changed_since(f'the transaction of "{name}"')


def _decided(one: Transaction, waits: Iterable[str]) -> KctlError:
    what = f'the transaction of "{one.transactional_id}" is decided ({one.state}) and waits for {", ".join(waits)}'
    hints = ("it ends as soon as these partitions have a leader",)
    return KctlError(what, exit_code=Exit.REFUSED, hints=hints)


def _rows(session: Session, going_on: Mapping[str, Transaction]) -> list[Row]:
    now_ms = int(time.time() * 1000)
    where = sorted({where for one in going_on.values() for where in one.partitions})
    producers = producers_of(session, where)
    ends = offsets_at(session, dict.fromkeys(where, LATEST))
    rows: list[Row] = []
    for one in going_on.values():
        own: list[Producer] = []
        records: int | None = 0
        for place in one.partitions:
            there, last = producers[place], ends[place]
            if isinstance(there, KctlError) or isinstance(last, KctlError):
                records = None
                continue
            begun = [each for each in there if each.producer_id == one.producer_id and each.start_offset >= 0]
            own += begun
            if records is not None:
                records += sum(last.offset - each.start_offset for each in begun)
        row: dict[str, Any] = {
            **one._asdict(),
            **times(one, now_ms),
            "aborted_at_most": records,
            "partitions": [str(place) for place in one.partitions],
        }
        if own:
            row["written_ms"] = max(now_ms - max(each.last_timestamp for each in own), 0)
        rows.append(row)
    return rows


def _ended(session: Session, one: Transaction) -> KctlError | None:
    """What kept the transaction from being over."""
    try:
        ProducerTransaction(session, one.transactional_id, timeout_ms=one.timeout_ms).begin()
    except KctlError as error:
        if error.code != ErrorCode.CONCURRENT_TRANSACTIONS.name:
            return error
        now, told = described_or_unknown(session, [one.transactional_id])
        waits = waits_for(session, now.values()).get(one.transactional_id)
        return _decided(now[one.transactional_id], waits) if waits else (*told, error)[0]
    return None


def _is_the_same(before: Transaction, now: Transaction | KctlError) -> bool:
    return isinstance(now, KctlError) or (now.is_open and now.start_ms == before.start_ms)
