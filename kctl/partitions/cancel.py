"""`kctl partitions cancel`."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from contextlib import nullcontext

import click

from kafkad.names import TopicPartition
from kctl.command.changes import Change
from kctl.command.cluster_names import topic_names
from kctl.command.verb import KctlCommand, pass_session
from kctl.errors import Exit, KctlError
from kctl.partitions.apply import read_plan, rollback_of
from kctl.partitions.copy_progress import by_partition
from kctl.partitions.dynamic_settings import are_so, write_settings
from kctl.partitions.partition_names import is_file, named
from kctl.partitions.plan_entries import PlanEntry
from kctl.partitions.plan_execution import PlanStatus, copies, plan_status, under_way
from kctl.partitions.plan_lock import held
from kctl.partitions.plan_throttle import PlanThrottle, StateFile
from kctl.partitions.requests import Directory, begin_moves, by_topic, choose_directories
from kctl.partitions.throttle import Throttles, left_over_lines, throttles
from kctl.partitions.throttle_settings import CHANGED, TOPIC, Setting, changed_rows, without
from kctl.reach.session import Session
from kctl.texts.output import Column, Row, counted, note

COLUMNS = (
    Column("topic", "The topic."),
    Column("partition", "The number of the partition.", "number", header="PART"),
    Column("planned", "The replicas that it was moving to.", "list", header="MOVING TO"),
    Column("back", "The replicas that it returns to.", "list", header="BACK TO"),
    Column("log_dirs", "The log directories that replicas return to.", "list", wide=True),
    Column("copied_bytes", "What was copied so far, and is deleted.", "size", header="COPIED"),
    *CHANGED,
)
_MOVES = COLUMNS[: -len(CHANGED)]


@click.command("cancel", cls=KctlCommand, columns=COLUMNS)
@click.argument("what", nargs=-1, metavar="[PLAN.JSON | TOPIC[:PARTITION]…]", shell_complete=topic_names)
@click.option("--all", "everything", is_flag=True, help="All moves under way.")
@click.option("--keep-throttles", is_flag=True, help="Leave throttles as they are.")
@pass_session
def cancel(session: Session, what: Sequence[str], everything: bool, keep_throttles: bool) -> int:
    """Cancel moves: partitions return to their former replicas.

    Throttles that apply set for the plan are restored to what they were, even if all its moves have ended. Without a
    plan, throttles are removed from these partitions and, once no move is left, from their topics and from all brokers.
    Where no move is left to cancel, leftover throttles are shown, with what clears them: they may be meant to be there.
    A plan that another kctl is applying is left to it; end that one first.

    Example: kctl partitions cancel plan.json
    """
    if everything == bool(what):
        hint = "kctl partitions status shows the moves under way"
        raise KctlError("name a plan or partitions, or use --all", exit_code=Exit.USAGE, hints=(hint,))
    plan = what[0] if len(what) == 1 and is_file(what[0]) else None
    with held(plan) if plan else nullcontext():
        return _cancelled(session, what, plan, keep_throttles=keep_throttles)


def _cancelled(session: Session, what: Sequence[str], plan: str | None, *, keep_throttles: bool) -> int:
    """Of no words, all moves; `plan` is the one word if it is a file."""
    seen = under_way(session)
    chosen, unknown = _chosen(what, seen) if what else (seen.entries, [])
    of_plan = _throttle_of(session, plan) if plan else None
    if not chosen:
        if not unknown:
            note(session.settings, "none of these moves is under way")
        if of_plan and not keep_throttles:
            return _only_take_off(session, of_plan)
        code = Change(session, COLUMNS, [], unknown).done()
        for line in () if keep_throttles else left_over_lines(session):
            note(session.settings, line)
        return code
    names = {each.partition.name for each in chosen}
    rollback = rollback_of(plan, plan_status(session, read_plan(plan).places).entries, session) if plan else ""
    found = throttles(session)
    doomed = {} if of_plan or keep_throttles else removals(found, names)
    slowing = of_plan.rows() if of_plan and not keep_throttles else changed_rows(found.values, doomed)
    columns = COLUMNS if slowing or not session.settings.is_text else _MOVES
    change = Change(session, columns, [*cancelled_rows(seen, chosen), *slowing], unknown)
    if not change.confirmed(f"Cancel {counted(len(chosen), 'move')}?"):
        return change.code
    errors = _cancel(session, chosen)
    if rollback and not errors:
        _restore_order(session, rollback, names)
    if not keep_throttles and not errors:
        errors += of_plan.take_off() if of_plan else _clear(session, names, doomed)
    return change.done(errors=errors, verified=f"{counted(len(chosen), 'move')} no longer under way")


def _throttle_of(session: Session, plan: str) -> PlanThrottle | None:
    """The throttle of a plan, if it is on."""
    throttle = PlanThrottle(session, StateFile(plan), None)
    return throttle if throttle.is_set else None


def _only_take_off(session: Session, throttle: PlanThrottle) -> int:
    """What is left of a plan whose moves have ended."""
    rows = throttle.rows()
    change = Change(session, CHANGED if session.settings.is_text else COLUMNS, rows)
    if not change.confirmed(f"Put back {counted(len(rows), 'throttle setting')}?"):
        return change.code
    return change.done(errors=throttle.take_off(), verified="the throttle of the plan is off")


def _chosen(words: Sequence[str], seen: PlanStatus) -> tuple[list[PlanEntry], list[KctlError]]:
    if len(words) == 1 and is_file(words[0]):
        names = set(read_plan(words[0]).places)
        return [each for each in seen.entries if each.partition.name in names], []
    partitions, errors = named(words, seen.snapshot.partitions)
    moving = {each.partition.name for each in seen.entries}
    still = [str(partition.name) for partition in partitions if partition.name not in moving]
    names = {partition.name for partition in partitions}
    chosen = [each for each in seen.entries if each.partition.name in names]
    if not chosen and still:
        what = f"these partitions are not moving: {', '.join(still)}"
        errors.append(KctlError(what, exit_code=Exit.NOT_FOUND, code="NO_REASSIGNMENT_IN_PROGRESS"))
    return chosen, errors


def cancelled_rows(seen: PlanStatus, chosen: Sequence[PlanEntry]) -> list[Row]:
    amounts = by_partition(copies(seen))
    return [
        {
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "planned": list(each.place.replicas),
            "back": list(each.now),
            "log_dirs": list(each.before.log_dirs),
            "copied_bytes": amounts[each.partition.name].copied if each.partition.name in amounts else 0,
        }
        for each in chosen
    ]


def _cancel(session: Session, chosen: Sequence[PlanEntry]) -> list[KctlError]:
    """Cancels moves. A replica on its way to another directory stays if it is assigned the one that it is in."""
    stay = {
        Directory(each.partition.name, broker): path
        for each in chosen
        for broker, path in each.before.directories().items()
        if broker in each.shifting
    }
    errors = list(choose_directories(session, stay).values())
    moves = [each.partition.name for each in chosen if each.active]
    refused = begin_moves(session, dict.fromkeys(moves)) if moves else {}
    errors += refused.values()
    return errors or _still_moving(session, {each.partition.name for each in chosen})


def _still_moving(session: Session, names: Collection[TopicPartition]) -> list[KctlError]:
    """Read back."""
    moving: list[TopicPartition] = []

    def none_moves() -> bool:
        moving[:] = [each.partition.name for each in under_way(session).entries if each.partition.name in names]
        return not moving

    if names:
        session.wait_until(none_moves)
    return [KctlError(f"{where} is still moving") for where in moving]


def _restore_order(session: Session, rollback: str, partitions: Collection[TopicPartition]) -> None:
    """Kafka forgets in which order the replicas were, and with it which one should lead; the way back of the plan
    knows."""
    if not os.path.exists(rollback):
        return
    before = read_plan(rollback).places
    now = plan_status(session, {where: before[where] for where in partitions if where in before}).snapshot.by_name()
    turned = {
        where: before[where].replicas
        for where, partition in now.items()
        if partition.replicas != before[where].replicas and set(partition.replicas) == set(before[where].replicas)
    }
    if turned:
        begin_moves(session, turned)


def _clear(session: Session, partitions: Collection[TopicPartition], doomed: Collection[Setting]) -> list[KctlError]:
    """The throttles of moves that somebody else began: nobody knows what was there before. Of those that were shown
    as `doomed` the ones that no move needs that began since."""
    now = removals(throttles(session), partitions)
    new = {setting: value for setting, value in now.items() if setting in doomed}
    errors = write_settings(session, new)
    if errors or session.wait_until(lambda: are_so(session, new)):
        return errors
    return [KctlError("throttles were removed, but can still be read", hints=("kctl partitions throttle show",))]


def removals(found: Throttles, partitions: Iterable[TopicPartition]) -> dict[Setting, str | None]:
    """The throttles to remove once these partitions do not move: their own and, if nothing else moves, all of their
    topics, for one of them may have arrived just now, and the rates of all brokers."""
    names = set(partitions)
    numbers = by_topic(names)
    others_move = any(each.partition not in names for each in found.transfers)
    new: dict[Setting, str | None] = {}
    for setting, value in found.values.items():
        if setting.kind == TOPIC and setting.owner in numbers:
            new[setting] = without(value, numbers[setting.owner]) if others_move else None
        elif setting.kind != TOPIC and not others_move:
            new[setting] = None
    return new
