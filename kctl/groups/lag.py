"""`kctl groups lag`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any

import click

from kctl.choosing import Choice, choosing
from kctl.command import KctlCommand, answer
from kctl.completing import group_names
from kctl.errors import Exit, KctlError
from kctl.groups.group import EMPTY, labels
from kctl.groups.looking import Look, chosen_groups, look_at
from kctl.groups.partition_lag import DELETED, PartitionLag, total
from kctl.groups.rates import Key, Pace, Point, Sample, partition_pace, slowest, together
from kctl.output import Column, Document, Row, Writer, duration_text
from kctl.session import Session, pass_session

COLUMNS = (
    Column("group", "The group's name."),
    Column("topic", "A topic that it reads."),
    Column("partition", "One of its partitions.", "number", "PART"),
    Column("member", "Who reads it."),
    Column("lag", "Records not yet read, those of partitions without a commit included.", "number"),
    Column("partitions", "Partitions that it has committed or assigned.", "number"),
    Column("lagging", "Those of them that have lag.", "number"),
    Column("uncommitted", "Those of them without a commit.", "number"),
    Column("consumed_per_s", "Records committed in a second, over the last 5 samples.", "number", "CONSUMED/s"),
    Column("produced_per_s", "Records written in a second.", "number", "PRODUCED/s"),
    Column("trend", "idle, steady, shrinking, growing, or stalled: lag and no commit for 3 samples."),
    Column("eta", "Until its slowest partition has caught up.", shown=True, header="ETA"),
    Column("eta_ms", "Until its slowest partition has caught up.", "duration", machine=True),
    Column("state", "The group's state.", "state", wide=True),
)
_RATES = {"consumed_per_s", "produced_per_s", "trend", "eta", "eta_ms"}
_BY: dict[str, set[str]] = {
    "group": {"topic", "partition", "member"},
    "topic": {"partition", "member"},
    "partition": {"partitions", "lagging", "uncommitted"},
    "member": {"topic", "partition"},
}
"""What the rows of each kind do not have."""


@click.command("lag", cls=KctlCommand, columns=COLUMNS, watches=True)
@choosing("group", group_names)
@click.option(
    "--by",
    type=click.Choice(tuple(_BY)),
    default="topic",
    help="What each line sums up.  [default: topic, of each group]",
)
@click.option("--min", "least", type=click.IntRange(min=0), default=0, metavar="N", help="Only lines with this much.")
@click.option("--fail-above", type=click.IntRange(min=0), metavar="N", help="Exit 7 if a group has a larger lag.")
@click.option("--samples", type=click.IntRange(min=1), metavar="N", help="With --watch: end after so many.")
@pass_session
def lag(session: Session, chosen: Choice, by: str, least: int, fail_above: int | None, samples: int | None) -> int:
    """Show lag; with --watch how fast it grows or shrinks.

    Without a name all groups. Rates are over the last five samples; the time to catch up is that of the slowest
    partition, not of the sum. --watch ends when --fail-above has something to say.

    Example: kctl groups lag billing --watch --by partition
    """
    seconds = session.settings.watch
    taken: list[Sample] = []
    count = 0
    while True:
        looks, errors = look_at(session, chosen_groups(session, chosen))
        taken = [*taken[-9:], _sample(time.monotonic(), looks)]
        count += 1
        rows = [row for row in lag_rows(looks, taken, by) if (row["lag"] or 0) >= least]
        code = _print(session, _columns(by, seconds is not None), rows, errors, _footer(taken, count, seconds))
        if fail_above is not None and any((total(look.lags).lag or 0) > fail_above for look in looks.values()):
            return Exit.FINDINGS
        if seconds is None or count == samples:
            return code
        time.sleep(seconds)
        session.refresh()


def _columns(by: str, watching: bool) -> tuple[Column, ...]:
    hidden = _BY[by] if watching else _BY[by] | _RATES
    if watching:
        hidden = hidden | {"partitions", "lagging", "uncommitted"}
    return tuple(column for column in COLUMNS if column.name not in hidden)


def _print(
    session: Session,
    columns: Sequence[Column],
    rows: Sequence[Row],
    errors: Sequence[KctlError],
    footer: Callable[[], Iterator[str]],
) -> IntEnum:
    settings = session.settings
    if settings.watch is None:
        return answer(session, columns, rows, errors)
    settings.no_pager = True
    if settings.is_text and sys.stdout.isatty():
        click.clear()

    def lines() -> Iterator[str]:
        yield from Writer(settings, columns, Document(settings.command)).table(rows)
        yield from footer()

    return answer(session, columns, rows, errors, text=lines)


def _footer(samples: Sequence[Sample], count: int, seconds: float | None) -> Callable[[], Iterator[str]]:
    def lines() -> Iterator[str]:
        paces = _paces(samples)
        if (last := slowest(paces)) is not None:
            group, topic, partition = last
            pace = paces[last]
            when = "" if pace.consumed is None else f", {_eta(pace, active=True)}"
            yield f"slowest: {group} {topic}-{partition}, lag {pace.lag}{when}"
        yield f"every {seconds:g}s, {count} sample{'' if count == 1 else 's'}"

    return lines


def _sample(now: float, looks: Mapping[str, Look]) -> Sample:
    points = {}
    for name, look in looks.items():
        for found in look.lags:
            if found.end is not None and found.lag is not None:
                points[_key(name, found)] = Point(found.end - found.lag, found.end)
    return Sample(now, points)


def _key(group: str, found: PartitionLag) -> Key:
    return group, found.where.topic, found.where.partition


def _paces(samples: Sequence[Sample]) -> dict[Key, Pace]:
    found = {key: partition_pace(samples, key) for key in samples[-1].points}
    return {key: pace for key, pace in found.items() if pace is not None}


def lag_rows(looks: Mapping[str, Look], samples: Sequence[Sample], by: str) -> list[Row]:
    """One for each group, or what of it `by` says."""
    paces = _paces(samples) if len(samples) > 1 else {}
    rows: list[Row] = []
    for name, look in looks.items():
        names = labels(look.group.members)
        parts: dict[tuple[Any, ...], list[PartitionLag]] = {(): []} if by == "group" else {}
        for found in look.lags:
            member = names[found.member.id] if found.member else None
            part: dict[str, tuple[Any, ...]] = {
                "group": (),
                "topic": (found.where.topic,),
                "partition": (found.where.topic, found.where.partition, member),
                "member": (member,),
            }
            parts.setdefault(part[by], []).append(found)
        rows += [_row(name, look, by, part, lags, paces) for part, lags in parts.items()]
    return rows


_FIELDS: dict[str, tuple[str, ...]] = {
    "group": (),
    "topic": ("topic",),
    "partition": ("topic", "partition", "member"),
    "member": ("member",),
}


def _row(
    name: str, look: Look, by: str, part: tuple[Any, ...], lags: Sequence[PartitionLag], paces: Mapping[Key, Pace]
) -> dict[str, Any]:
    sums = total(lags)
    row = {
        "group": name,
        **dict(zip(_FIELDS[by], part, strict=True)),
        "lag": sums.lag if any(found.note != DELETED for found in lags) or not lags else None,
        "partitions": sums.partitions,
        "lagging": sums.lagging,
        "uncommitted": sums.uncommitted,
        "state": look.group.state,
    }
    own = [paces[key] for key in (_key(name, found) for found in lags) if key in paces]
    if own and (pace := together(own)).consumed is not None:
        row |= {
            "consumed_per_s": round(pace.consumed or 0),
            "produced_per_s": round(pace.produced or 0),
            "trend": pace.trend,
            "eta_ms": None if pace.eta is None else round(pace.eta * 1000),
            "eta": _eta(pace, active=look.group.state != EMPTY),
        }
    return row


def _eta(pace: Pace, *, active: bool) -> str:
    if not pace.lag:
        return "-"
    if pace.eta is not None:
        return duration_text(round(pace.eta * 1000))
    return "never" if active else "never: no members"
