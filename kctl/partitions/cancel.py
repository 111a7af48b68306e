"""`kctl partitions cancel`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence

import click

from kafkad.names import TopicPartition
from kctl.changes import Change
from kctl.command import KctlCommand
from kctl.errors import Exit, KctlError
from kctl.output import Column, Row, note
from kctl.partitions.apply import read_plan, rollback_path
from kctl.partitions.carrying import copies, look
from kctl.partitions.dynamic import write_settings
from kctl.partitions.naming import is_file, named
from kctl.partitions.plan_file import Place
from kctl.partitions.reassignments import Active, active_moves, begin_moves, by_topic
from kctl.partitions.throttle import Throttles, throttles
from kctl.partitions.throttled import StateFile, Throttled
from kctl.partitions.throttling import TOPIC, Setting, without
from kctl.session import Session, pass_session

COLUMNS = (
    Column("topic", "The topic."),
    Column("partition", "The number of the partition.", "number", header="PART"),
    Column("planned", "The replicas that it was moving to.", "list", header="MOVING TO"),
    Column("back", "The replicas that it returns to.", "list", header="BACK TO"),
    Column("copied_bytes", "What was copied so far, and is deleted.", "size", header="COPIED"),
)
_SECONDS = 10.0
_LOOK_SECONDS = 0.2


@click.command("cancel", cls=KctlCommand, columns=COLUMNS)
@click.argument("what", nargs=-1, metavar="[PLAN.JSON | TOPIC[:PARTITION]…]")
@click.option("--all", "everything", is_flag=True, help="All moves under way.")
@click.option("--keep-throttles", is_flag=True, help="Leave throttles as they are.")
@pass_session
def cancel(session: Session, what: Sequence[str], everything: bool, keep_throttles: bool) -> int:
    """Cancel moves: their partitions return to the replicas they had.

    Throttles that apply put on for the plan become what they were before it; without a plan, those on the topics that
    no longer move are removed, and those on brokers once nothing moves any more.

    Example: kctl partitions cancel plan.json
    """
    if everything == bool(what):
        hint = "kctl partitions status shows the moves under way"
        raise KctlError("name a plan or partitions, or use --all", exit_code=Exit.USAGE, hints=(hint,))
    active = active_moves(session)
    chosen = active if everything else _chosen(session, what, active)
    plan = what[0] if len(what) == 1 and is_file(what[0]) else None
    throttled = Throttled(session, StateFile(plan), None) if plan else None
    if not chosen:
        note(session.settings, "none of these moves is under way")
    change = Change(session, COLUMNS, _rows(session, chosen))
    if chosen and not change.confirmed(f"Cancel {len(chosen)} moves?"):
        return Exit.DONE
    refused = begin_moves(session, dict.fromkeys(chosen)) if chosen else {}
    gone = [where for where in chosen if where not in refused]
    errors = [*refused.values(), *_still_moving(session, gone)]
    if plan and not errors and chosen:
        _restore_order(session, plan, gone)
    if not keep_throttles and not errors and not session.settings.dry_run:
        errors += throttled.take_off() if throttled and throttled.rate is not None else _clear(session, gone)
    return change.done(errors=errors, verified=f"{len(gone)} moves are no longer under way")


def _chosen(
    session: Session, words: Sequence[str], active: Mapping[TopicPartition, Active]
) -> dict[TopicPartition, Active]:
    if len(words) == 1 and is_file(words[0]):
        return {where: active[where] for where in read_plan(words[0]).places if where in active}
    every = look(session, {where: Place(each.target) for where, each in active.items()}).snapshot.partitions
    return {partition.name: active[partition.name] for partition in named(words, every)}


def _rows(session: Session, chosen: Mapping[TopicPartition, Active]) -> list[Row]:
    if not chosen:
        return []
    amounts = copies(look(session, {where: Place(each.target) for where, each in chosen.items()}))
    return [
        {
            "topic": where.topic,
            "partition": where.partition,
            "planned": list(each.target),
            "back": list(each.origin),
            "copied_bytes": sum(amount.copied for copy, amount in amounts.items() if copy.partition == where),
        }
        for where, each in sorted(chosen.items())
    ]


def _still_moving(session: Session, partitions: Sequence[TopicPartition]) -> list[KctlError]:
    """Read back."""
    end = time.monotonic() + _SECONDS
    while moving := active_moves(session, by_topic(partitions)):
        if time.monotonic() >= end:
            return [KctlError(f"{where} still moves") for where in sorted(moving)]
        time.sleep(_LOOK_SECONDS)
    return []


def _restore_order(session: Session, plan: str, partitions: Sequence[TopicPartition]) -> None:
    """Kafka forgets in which order the replicas were, and with it which one should lead; the way back of the plan
    knows."""
    rollback = rollback_path(plan)
    if not os.path.exists(rollback):
        return
    before = read_plan(rollback).places
    now = look(session, {where: before[where] for where in partitions if where in before}).snapshot.by_name()
    turned = {
        where: before[where].replicas
        for where, partition in now.items()
        if partition.replicas != before[where].replicas and set(partition.replicas) == set(before[where].replicas)
    }
    if turned:
        begin_moves(session, turned)


def _clear(session: Session, partitions: Sequence[TopicPartition]) -> list[KctlError]:
    """The throttles of moves that somebody else began: nobody knows what was there before."""
    found = throttles(session)
    new = removals(found, partitions)
    return write_settings(session, new)


def removals(found: Throttles, partitions: Iterable[TopicPartition]) -> dict[Setting, str | None]:
    """Of these partitions those in the lists of their topics, and once nothing moves all rates of brokers."""
    numbers = by_topic(partitions)
    new: dict[Setting, str | None] = {}
    for setting, value in found.values.items():
        if setting.kind == TOPIC and setting.owner in numbers:
            new[setting] = without(value, numbers[setting.owner])
        elif setting.kind != TOPIC and not found.transfers:
            new[setting] = None
    return new
