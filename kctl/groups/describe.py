"""`kctl groups describe`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import click

from kafkad.names import TopicPartition
from kctl.command.choosing import Choice, choosing
from kctl.command.cluster_names import group_names
from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.errors import KctlError
from kctl.groups.culprits import judge
from kctl.groups.group import REBALANCING, Group, labels
from kctl.groups.group_lag import GroupLag, chosen_groups, lags_of_groups, missed_groups, note_unknown, with_unread
from kctl.groups.history import History, read_histories
from kctl.groups.members import MEMBER_COLUMNS, member_rows
from kctl.groups.other_protocols import with_other_protocols
from kctl.groups.partition_lag import NO_COMMIT, PartitionLag, total
from kctl.groups.record_times import Place, times_of
from kctl.reach.offsets import EARLIEST, MAX_TIMESTAMP, OffsetAt, offsets_at
from kctl.reach.session import Session
from kctl.settings import Settings
from kctl.texts.output import Column, Document, Row, Writer, duration_text, note
from kctl.texts.spelling import command, spelled

_AT_ONCE = 1000
"""Records whose times are asked for together: more may take longer than an answer may."""

COLUMNS = (
    Column("group", "The group's name."),
    Column("state", "Stable, Empty, or what its rebalance waits for.", "state"),
    Column("type", "classic, or consumer for the protocol of KIP-848."),
    Column("protocol", "The assignor."),
    Column("generation", "Of its last complete rebalance, where it could be read; KIP-848: its epoch.", "number"),
    Column("coordinator", "The broker that coordinates it.", "number"),
    Column("lag", "Records not yet read, those of partitions without a commit included.", "number"),
    Column("unknown", "Partitions whose end is not known: nor is the lag then.", "number", machine=True),
    Column("members", "member_id, instance, client, host, topics, assignment and lag of each.", "list", machine=True),
    Column("offsets", "One for each partition: the columns of csv but for the group.", "list", machine=True),
)
OFFSETS = (
    Column("group", "The group's name.", machine=True),
    Column("topic", "A topic that it has committed or assigned."),
    Column("partition", "One of its partitions.", "number", "PART"),
    Column("committed", "The offset of the record that is read next.", "number"),
    Column("end", "The offset of the record that is written next.", "number"),
    Column("lag", "Records not yet read, up to the first open transaction; where nothing is committed, all.", "number"),
    Column("behind_ms", "Between the record that is read next and the last one.", "duration", "BEHIND"),
    Column("commit_age_ms", "Since the last commit, if __consumer_offsets has it.", "duration", "COMMIT AGE"),
    Column("member", "Who has it assigned."),
    Column("host", "Where that member is."),
    Column(
        "note",
        "no commit, deleted, no leader, nobody reads it, committed beyond the end, how many of the lag are gone, or "
        "where an open transaction is.",
    ),
    Column("metadata", "What was committed beside the offset.", wide=True),
    Column("member_id", "The whole id of the member.", wide=True),
    Column(
        "stable",
        "Where readers of committed records stop: the first open transaction, or the end. Asked where there is lag.",
        "number",
        machine=True,
    ),
)


@click.command("describe", cls=KctlCommand, columns=COLUMNS, watchable=True)
@choosing("group", group_names, required=True)
@click.option("--members", is_flag=True, help="Show members and their assignments instead of partitions.")
@click.option("--all-partitions", is_flag=True, help="Include partitions of its topics that no member reads.")
@click.option("--lagging", is_flag=True, help="Only partitions with lag.")
@click.option("--no-time", is_flag=True, help="Leave out BEHIND and COMMIT AGE, which need a few more requests.")
@pass_session
def describe_groups(
    session: Session, chosen: Choice, members: bool, all_partitions: bool, lagging: bool, no_time: bool
) -> int:
    """Show a group's members and its position in each partition.

    There is a line for every partition that is committed or assigned; csv has the same lines, json and yaml one object
    per group. Lag ends where a reader of committed records has to stop, and markers of transactions are none; a group
    that has committed more reads everything, and its lag ends at the end. BEHIND is the time between the next record to
    be read and the last one.

    Example: kctl groups describe billing
    """
    found = chosen_groups(session, chosen)
    group_lags, errors = lags_of_groups(session, found)
    group_lags, unseen = with_other_protocols(session, group_lags)
    errors += unseen + missed_groups(session, found.silent)
    note_unknown(session, group_lags)
    if all_partitions:
        group_lags = with_unread(session, group_lags)
    histories = {} if no_time else read_histories(session, {name: look.commits for name, look in group_lags.items()})
    for problem in dict.fromkeys(history.problem for history in histories.values() if history.problem):
        note(session.settings, f"times of commits are not known: {problem}")
    behind = {} if no_time else _behind(session, group_lags.values())
    starts = _starts(session, group_lags.values())
    shown = [
        _Shown(group_lag, histories.get(name, History({}, None)), behind, starts, lagging)
        for name, group_lag in group_lags.items()
    ]
    if session.settings.output in ("json", "yaml", "name"):
        return answer(session, COLUMNS, [one.item for one in shown], errors)
    if members:
        lines = [row for one in shown for row in one.members]
        return answer(session, MEMBER_COLUMNS, lines, errors, text=lambda: _text(session, shown, members=True))
    lines = [row for one in shown for row in one.offsets]
    return answer(session, OFFSETS, lines, errors, text=lambda: _text(session, shown, members=False))


class _Shown:
    """One group with all that is printed of it."""

    def __init__(self, group_lag: GroupLag, history: History, behind: Behind, starts: Starts, lagging: bool) -> None:
        self.group_lag = group_lag
        self.history = history
        names = labels(group_lag.group.members)
        now_ms = int(time.time() * 1000)
        lags = [lag for lag in group_lag.lags if not lagging or lag.lag or lag.is_unknown]
        self.offsets = [_offset_row(group_lag.group, lag, behind, starts, self.history, names, now_ms) for lag in lags]
        self.members = member_rows(group_lag.group, group_lag.lags)

    @property
    def generation(self) -> int | None:
        group = self.group_lag.group
        return group.epoch if group.epoch is not None else (g := self.history.generation) and g.generation

    @property
    def item(self) -> Row:
        group = self.group_lag.group
        return {
            "group": group.name,
            "state": group.state,
            "type": group.type,
            "protocol": group.protocol or None,
            "generation": self.generation,
            "coordinator": group.coordinator,
            "lag": total(self.group_lag.lags).lag,
            "unknown": total(self.group_lag.lags).unknown,
            "members": [_without_group(row) for row in self.members],
            "offsets": [_without_group(row) for row in self.offsets],
        }


def _without_group(row: Row) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "group"}


Behind = Mapping[Place, int]
"""Milliseconds between the record there and the last one of its partition."""

Starts = Mapping[TopicPartition, int]
"""Where logs begin."""


def _starts(session: Session, group_lags: Iterable[GroupLag]) -> Starts:
    """Of the partitions in which groups are behind, as far as they are known."""
    lagging = {lag.where: None for look in group_lags for lag in look.lags if lag.lag}
    found = offsets_at(session, dict.fromkeys(lagging, EARLIEST))
    return {where: start.offset for where, start in found.items() if not isinstance(start, KctlError)}


def _behind(session: Session, group_lags: Iterable[GroupLag]) -> Behind:
    """Of the records that are read next."""
    places = {
        (lag.where, lag.next): None for look in group_lags for lag in look.lags if lag.lag and lag.next is not None
    }
    lates: dict[TopicPartition, OffsetAt | KctlError] = {}
    behind = {}
    remaining = iter(places)
    while part := list(islice(remaining, _AT_ONCE)):
        lates |= offsets_at(session, dict.fromkeys([where for where, _ in part if where not in lates], MAX_TIMESTAMP))
        for at, next_ms in times_of(session, part).items():
            last = lates[at[0]]
            if not isinstance(last, KctlError) and last.timestamp >= next_ms >= 0:
                behind[at] = last.timestamp - next_ms
    return behind


def _offset_row(
    group: Group,
    lag: PartitionLag,
    behind: Behind,
    starts: Starts,
    history: History,
    names: Mapping[str, str],
    now_ms: int,
) -> Row:
    committed_ms = history.commit_ms.get(lag.where)
    member = lag.member
    return {
        "group": group.name,
        "topic": lag.where.topic,
        "partition": lag.where.partition,
        "committed": lag.committed,
        "end": lag.end,
        "lag": lag.lag,
        "behind_ms": None if lag.next is None else behind.get((lag.where, lag.next)),
        "commit_age_ms": None if committed_ms is None else max(now_ms - committed_ms, 0),
        "member": names[member.id] if member else None,
        "host": member.host if member else None,
        "note": note_of(lag, starts.get(lag.where, 0)) or None,
        "metadata": lag.metadata or None,
        "member_id": member.id if member else None,
        "stable": lag.stable,
    }


def note_of(lag: PartitionLag, start: int) -> str:
    """What is not as it should be there; `start` is where the log begins."""
    words = [lag.note] if lag.note else []
    if lag.committed is not None and lag.committed < start:
        words.append(f"{start - lag.committed:,} are gone")
    if lag.reach is not None and lag.reach != lag.end:
        words.append(f"open transaction from {lag.reach:,}")
    return ", ".join(words)


def _text(session: Session, shown: list[_Shown], *, members: bool) -> Iterator[str]:
    settings = session.settings
    for at, one in enumerate(shown):
        if at:
            yield ""
        yield from _head(settings, one)
        rows = one.members if members else one.offsets
        hidden = {"group"} if any(row.get("note") for row in rows) else {"group", "note"}
        columns = [column for column in (MEMBER_COLUMNS if members else OFFSETS) if column.name not in hidden]
        if rows:
            yield from Writer(settings, columns, Document(settings.command)).table(rows)


def _head(settings: Settings, one: _Shown) -> Iterator[str]:
    group, sums = one.group_lag.group, total(one.group_lag.lags)
    words = [group.name, group.state]
    if group.protocol:
        words.append(group.protocol)
    if one.generation is not None:
        words.append(f"{'epoch' if group.epoch is not None else 'generation'} {one.generation}")
    if group.coordinator is not None:
        words.append(f"coordinator {group.coordinator}")
    words.append(f"{len(group.members)} member{'' if len(group.members) == 1 else 's'}")
    lag = f"lag {'at least ' if sums.unknown else ''}{sums.at_least:,}"
    words.append(f"{lag} on {sums.lagging} of {sums.partitions} partitions")
    if sums.unknown:
        words.append(f"{sums.unknown} not known")
    if sums.uncommitted:
        words.append(f"{sums.uncommitted} with {NO_COMMIT}")
    yield "   ".join(words)
    if group.state in REBALANCING:
        yield _culprits(settings, group, one.history)


def _culprits(settings: Settings, group: Group, history: History) -> str:
    """One line: who has joined and who perhaps not, with how long nothing was heard of it."""
    judged = judge(group, history)
    names = labels(found.member for found in judged)
    now_ms = int(time.time() * 1000)
    said: dict[str, list[str]] = {}
    for found in judged:
        quiet = found.last_commit_ms
        since = "" if quiet is None else f" (last commit {duration_text(max(now_ms - quiet, 0))} ago)"
        said.setdefault(found.status, []).append(f"{names[found.member.id]}{since}")
    who = "; ".join(f"{status}: {', '.join(members)}" for status, members in said.items())
    more = spelled(settings, command("groups rebalance", group.name, options="--explain"))
    return f"rebalancing: {who}. More: {more}"
