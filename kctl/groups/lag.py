"""`kctl groups lag`."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import inf
from typing import Any

import click

from kctl.command.choosing import Choice, choosing
from kctl.command.cluster_names import group_names
from kctl.command.verb import KctlCommand, answer, pass_session, watched
from kctl.errors import Exit
from kctl.groups.group import EMPTY, labels
from kctl.groups.group_lag import GroupLag, chosen_groups, lags_of_groups, missed_groups, note_unknown, unknown_lags
from kctl.groups.other_protocols import with_other_protocols
from kctl.groups.partition_lag import DELETED, PartitionLag, total
from kctl.groups.rates import (
    STALLED,
    STEADY,
    Key,
    Pace,
    Point,
    Sample,
    kept,
    partition_pace,
    slowest,
    together,
    urgency,
)
from kctl.reach.session import Session
from kctl.texts.output import Column, Document, Writer, counted, duration_text

COLUMNS = (
    Column("group", "The group's name."),
    Column("topic", "A topic that it reads."),
    Column("partition", "One of its partitions.", "number", "PART"),
    Column("member", "Who reads it."),
    Column("lag", "Records not yet read, those of partitions without a commit included.", "number"),
    Column("partitions", "Partitions that it has committed or assigned.", "number"),
    Column("lagging", "Those of them that have lag.", "number"),
    Column("uncommitted", "Those of them without a commit.", "number"),
    Column("unknown", "Those of them whose end is not known: nor is the lag then.", "number", wide=True),
    Column("consumed_per_s", "Records read in a second, from commit to commit.", "number", "CONSUMED/s"),
    Column("produced_per_s", "Records written in a second.", "number", "PRODUCED/s"),
    Column(
        "trend",
        "idle; steady: it keeps up; shrinking; growing; uneven: the sum shrinks, and some partitions do not; stalled: "
        "lag, and no commit for 3 samples and twice as long as between commits before.",
        "state",
    ),
    Column("eta", "Until its slowest partition has caught up.", shown=True, header="ETA"),
    Column("eta_ms", "Until its slowest partition has caught up.", "duration", machine=True),
    Column("state", "The group's state.", "state", wide=True),
)
_RATES = {"consumed_per_s", "produced_per_s", "trend", "eta", "eta_ms"}
_BY: dict[str, set[str]] = {
    "group": {"topic", "partition", "member"},
    "topic": {"partition", "member"},
    "partition": {"partitions", "lagging", "uncommitted", "unknown"},
    "member": {"topic", "partition"},
}
"""The columns that the rows of each kind do not have."""


@click.command("lag", cls=KctlCommand, columns=COLUMNS, watches=True)
@choosing("group", group_names)
@click.option(
    "--by",
    type=click.Choice(tuple(_BY)),
    default="topic",
    help="What each line stands for.  [default: topic, per group]",
)
@click.option(
    "--min", "least", type=click.IntRange(min=0), default=0, metavar="N", help="Only lines with at least this lag."
)
@click.option(
    "--fail-above", type=click.IntRange(min=0), metavar="N", help="Exit with 7 if the lag of a group is larger."
)
@click.option("--samples", type=click.IntRange(min=1), metavar="N", help="With --watch: stop after N samples.")
@pass_session
def lag(session: Session, chosen: Choice, by: str, least: int, fail_above: int | None, samples: int | None) -> int:
    """Show lag; with --watch how fast it grows or shrinks.

    Without a name it shows all groups. Lag ends where a reader of committed records has to stop, at the first open
    transaction; markers of transactions are none. Rates are measured between commits over the last minute, so a group
    must commit twice before they appear. The time to catch up is that of the slowest partition. On a terminal the worst
    come first, as many as fit on the screen. With --fail-above, --watch ends as soon as the limit is exceeded. If an
    end cannot be read, lag is not known: with --fail-above the exit code is 4 then, unless the rest exceeds the limit.
    Then it is also 4 where groups are missing whose coordinator cannot be asked, and 5 where there may be groups that
    you may not see. Names need no list.

    Example: kctl groups lag billing --watch --by partition
    """
    seconds = session.settings.watch
    watched_lag = _Watched(session, chosen, by, least, decides=fail_above is not None)
    if seconds is None:
        code = watched_lag.look()
    else:
        from kctl.command.watching import watch

        code = watch(
            session.settings,
            seconds,
            watched_lag.look,
            watched(click.get_current_context()),
            lambda _: watched_lag.count == samples or watched_lag.largest > (inf if fail_above is None else fail_above),
        )
    return Exit.FINDINGS if fail_above is not None and watched_lag.largest > fail_above else code


class _Watched:
    """One look after another: `count` of them, and the `largest` lag of a group in the last one, as far as known."""

    def __init__(self, session: Session, chosen: Choice, by: str, least: int, *, decides: bool) -> None:
        """`decides`: something depends on the lag, so that it is an error if it is not known."""
        self.count = 0
        self.largest = 0
        self._session = session
        self._chosen = chosen
        self._by = by
        self._least = least
        self._decides = decides
        self._samples: list[Sample] = []

    def look(self) -> int:
        session = self._session
        if self.count:
            session.refresh()
        found = chosen_groups(session, self._chosen)
        group_lags, errors = lags_of_groups(session, found)
        group_lags, unseen = with_other_protocols(session, group_lags)
        errors += unseen + missed_groups(session, found.silent, decides=self._decides)
        self._samples = kept([*self._samples, _sample(time.monotonic(), group_lags)])
        self.count += 1
        if self._decides:
            errors += unknown_lags(group_lags)
        else:
            note_unknown(session, group_lags)
        self.largest = max((total(group_lag.lags).at_least for group_lag in group_lags.values()), default=0)
        paces = _paces(
            self._samples, {name for name, group_lag in group_lags.items() if group_lag.group.state == EMPTY}
        )
        rows = [
            row for row in lag_rows(group_lags, paces, self._by) if row["unknown"] or (row["lag"] or 0) >= self._least
        ]
        settings = session.settings
        columns = _columns(self._by, settings.watch is not None)
        if settings.watch is None:
            return answer(session, columns, rows, errors)
        if settings.is_text and not settings.sort:
            rows.sort(key=lambda row: row["urgency"], reverse=True)

        def lines() -> Iterator[str]:
            yield _summary(group_lags, paces)
            yield from Writer(settings, columns, Document(settings.command)).table(rows)

        return answer(session, columns, rows, errors, text=lines)


def _columns(by: str, watching: bool) -> tuple[Column, ...]:
    hidden = _BY[by] if watching else _BY[by] | _RATES
    if watching:
        hidden = hidden | {"partitions", "lagging", "uncommitted", "unknown"}
    return tuple(column for column in COLUMNS if column.name not in hidden)


def _summary(group_lags: Mapping[str, GroupLag], paces: Mapping[Key, Pace]) -> str:
    sums = [total(group_lag.lags) for group_lag in group_lags.values()]
    lag = f"{'at least ' if any(each.unknown for each in sums) else ''}{sum(each.at_least for each in sums):,}"
    text = f"{counted(len(group_lags), 'group')}, lag {lag}"
    read = {key: pace for key, pace in paces.items() if group_lags[key[0]].group.state != EMPTY}
    if (last := slowest(read)) is None:
        return text
    group, topic, partition = last
    pace = paces[last]
    return f"{text}; slowest: {group} {topic}-{partition}, lag {pace.lag:,}, {_eta(pace, active=True)}"


def _sample(now: float, group_lags: Mapping[str, GroupLag]) -> Sample:
    points = {}
    for name, group_lag in group_lags.items():
        for found in group_lag.lags:
            if found.reach is not None and found.next is not None:
                points[_key(name, found)] = Point(found.next, found.reach)
    return Sample(now, points)


def _key(group: str, found: PartitionLag) -> Key:
    return group, found.where.topic, found.where.partition


def _paces(samples: Sequence[Sample], deserted: Collection[str]) -> dict[Key, Pace]:
    """Of groups without members it is known at once that nobody commits."""
    if len(samples) < 2:
        return {}
    found = {key: partition_pace(samples, key) for key in samples[-1].points}
    return {
        key: pace._replace(consumed=0.0, trend=STALLED) if key[0] in deserted and pace.lag else pace
        for key, pace in found.items()
        if pace is not None
    }


def lag_rows(group_lags: Mapping[str, GroupLag], paces: Mapping[Key, Pace], by: str) -> list[dict[str, Any]]:
    """One for each group, or what of it `by` says."""
    rows: list[dict[str, Any]] = []
    for name, group_lag in group_lags.items():
        names = labels(group_lag.group.members)
        parts: dict[tuple[Any, ...], list[PartitionLag]] = {(): []} if by == "group" else {}
        for found in group_lag.lags:
            member = names[found.member.id] if found.member else None
            part: dict[str, tuple[Any, ...]] = {
                "group": (),
                "topic": (found.where.topic,),
                "partition": (found.where.topic, found.where.partition, member),
                "member": (member,),
            }
            parts.setdefault(part[by], []).append(found)
        rows += [_row(name, group_lag, by, part, lags, paces) for part, lags in parts.items()]
    return rows


_FIELDS: dict[str, tuple[str, ...]] = {
    "group": (),
    "topic": ("topic",),
    "partition": ("topic", "partition", "member"),
    "member": ("member",),
}


def _row(
    name: str,
    group_lag: GroupLag,
    by: str,
    part: tuple[Any, ...],
    lags: Sequence[PartitionLag],
    paces: Mapping[Key, Pace],
) -> dict[str, Any]:
    sums = total(lags)
    row = {
        "group": name,
        **dict(zip(_FIELDS[by], part, strict=True)),
        "lag": sums.lag if any(found.note != DELETED for found in lags) or not lags else None,
        "partitions": sums.partitions,
        "lagging": sums.lagging,
        "uncommitted": sums.uncommitted,
        "unknown": sums.unknown,
        "state": group_lag.group.state,
    }
    pace = together([paces[key] for key in (_key(name, found) for found in lags) if key in paces])
    row["urgency"] = (group_lag.group.state != EMPTY, *urgency(pace))  # what nobody reads can wait
    if pace.produced is not None:
        row["produced_per_s"] = round(pace.produced)
    if pace.consumed is not None:
        row |= {
            "consumed_per_s": round(pace.consumed),
            "trend": pace.trend,
            "eta_ms": None if pace.eta is None else round(pace.eta * 1000),
            "eta": _eta(pace, active=group_lag.group.state != EMPTY),
        }
    return row


def _eta(pace: Pace, *, active: bool) -> str:
    if not pace.lag or pace.trend == STEADY:
        return "-"
    if pace.eta is not None:
        return duration_text(round(pace.eta * 1000))
    return "never" if active else "never: no members"
