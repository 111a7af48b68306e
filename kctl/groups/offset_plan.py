"""Plans of offset changes: made from a scope and a target, then committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kafkad.names import TopicPartition
from kctl.command.changes import Change
from kctl.command.choosing import unknown
from kctl.errors import KctlError, failure
from kctl.groups.committed import Commits
from kctl.groups.group_lag import ranges_of
from kctl.groups.offset_changes import (
    Outcome,
    commit_offsets,
    needed_undo,
    save_undo,
    still_as_shown,
    undo_command,
    undo_told,
    verify,
)
from kctl.groups.record_times import times_of
from kctl.groups.targets import TIME, Planned, Target, effect, partitions_of, planned
from kctl.reach.offsets import offsets_at
from kctl.texts.output import Column, Row, counted, note

if TYPE_CHECKING:
    from kctl.texts.scopes import Scope
from kctl.reach.session import Session

COLUMNS = (
    Column("group", "The group's name."),
    Column("topic", "A topic."),
    Column("partition", "One of its partitions.", "number", "PART"),
    Column("current", "The offset that is committed now.", "number"),
    Column("new", "The offset that is to be committed.", "number"),
    Column("change", "The difference.", "number"),
    Column("first_record_ms", "When the record that is read first then was written.", "time", "FIRST RECORD READ"),
    Column("note", "Where the offset is not the one that was asked for, why."),
    Column("end", "The offset of the record that is written next.", "number", wide=True),
)

T = TypeVar("T")
Given = Mapping[TopicPartition, int]


class Wanted(NamedTuple):
    """Of one group: partitions with their target, and what they are given where the target says so."""

    target: Target
    partitions: Sequence[TopicPartition]
    given: Given | None = None


Plans = dict[str, list[Planned]]


def partitions_in(session: Session, scopes: Iterable[Scope]) -> list[TopicPartition]:
    """KctlError for a topic or partition that is not there."""
    scopes = list(scopes)
    there: dict[str, list[int]] = {}
    for topic in session.metadata(dict.fromkeys(scope.topic for scope in scopes)):
        if topic.error_code:
            if exists := [known.name for known in session.metadata()]:
                raise unknown("topic", topic.name, exists)
            raise failure(topic.error_code, f'topic "{topic.name}"')
        there[topic.name] = [partition.partition_index for partition in topic.partitions]
    return partitions_of(scopes, there)


def plan_all(session: Session, wanted: Mapping[str, Wanted], commits: Mapping[str, Commits]) -> Plans:
    """KctlError if one of them cannot be: half a reset is worse than none."""
    every = list(dict.fromkeys(where for want in wanted.values() for where in want.partitions))
    ranges = ranges_of(session, every, every)
    times = {
        where: want.target.value for want in wanted.values() if want.target.kind == TIME for where in want.partitions
    }
    found = offsets_at(session, times) if times else {}
    plans: Plans = {}
    for name, want in wanted.items():
        plans[name] = []
        for where in want.partitions:
            commit = commits[name].get(where)
            there = _known(ranges[where])
            at = _known(found[where]).offset if want.target.kind == TIME else (want.given or {}).get(where)
            plans[name].append(planned(where, want.target, commit.offset if commit else None, there, at))
    return plans


def _known(value: T | KctlError) -> T:
    if isinstance(value, KctlError):
        hints = (*value.hints, "nothing was changed; --topic TOPIC:0,1 names the partitions that can be")
        raise KctlError(value.what, exit_code=value.exit_code, code=value.code, hints=hints)
    return value


def plan_rows(session: Session, plans: Plans) -> list[Row]:
    offsets: dict[TopicPartition, int] = {}
    for plan in plans.values():
        offsets |= {one.where: one.new for one in plan if one.new < one.end}
    same = len({tuple(sorted((one.where, one.new) for one in plan)) for plan in plans.values()}) <= 1
    times = {where: time for (where, _), time in times_of(session, offsets.items() if same else ()).items()}
    return [_row(name, one, times) for name, plan in plans.items() for one in plan]


def _row(name: str, one: Planned, times: Mapping[TopicPartition, int]) -> Row:
    return {
        "group": name,
        "topic": one.where.topic,
        "partition": one.where.partition,
        "current": one.current,
        "new": one.new,
        "change": one.change,
        "first_record_ms": times.get(one.where) if one.new < one.end else None,
        "note": one.note or None,
        "end": one.end,
    }


def carry_out(
    session: Session,
    plans: Plans,
    shown: Mapping[str, Commits],
    undo_directory: Path,
    what: str,
    unable: Sequence[KctlError] = (),
) -> IntEnum:
    """Shows the plan, asks, and does it; `shown` are the commits that it was made of, `unable` says which groups that
    were asked for are not in it."""
    rows = plan_rows(session, plans)
    columns = [column for column in COLUMNS if column.name != "group"] if _is_text_of_one(session, plans) else COLUMNS
    change = Change(session, columns, rows, unable)
    note(session.settings, what)
    said = effect(one for plan in plans.values() for one in plan)
    if not change.confirmed(f"{said[0].upper()}{said[1:]}. Apply?"):
        return change.code
    before = {name: {one.where: one.current for one in plan if one.current is not None} for name, plan in plans.items()}
    fresh = {name: [one.where for one in plan if one.current is None] for name, plan in plans.items()}
    created = [name for name in plans if not shown[name]]
    with change.preparing():
        still_as_shown(session, shown)
        file = save_undo(undo_directory, before)
        undo = undo_command(session.settings, before, file, fresh, created)
    outcomes: list[Outcome] = []
    done: dict[str, dict[TopicPartition, int]] = {}
    with undo_told(session, undo, lambda: f"{len(done)} of {len(plans)} groups are done"):
        for name, plan in plans.items():
            offsets = {one.where: one.new for one in plan}
            outcomes.append(commit_offsets(session, name, offsets))
            if not outcomes[-1].errors:
                done[name] = offsets
        errors = [error for each in outcomes for error in each.errors] + verify(session, done)
    undo = needed_undo(undo, file, outcomes)
    count = sum(map(len, done.values()))
    return change.done(rows, errors, verified=f"{counted(count, 'offset')} read back; {said}", undo=undo)


def _is_text_of_one(session: Session, plans: Plans) -> bool:
    return session.settings.is_text and not session.settings.columns and len(plans) == 1
