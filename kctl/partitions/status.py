"""`kctl partitions status`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

import click

from kctl.command.paths import files
from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.errors import Exit, KctlError
from kctl.partitions.apply import read_plan
from kctl.partitions.copy_progress import (
    Amount,
    Copying,
    CopyProgress,
    Report,
    by_partition,
    progress_line,
    stall_reason,
)
from kctl.partitions.plan_entries import DONE, MOVING, PlanEntry
from kctl.partitions.plan_execution import PlanStatus, copies, plan_status, under_way
from kctl.partitions.throttle import left_over_lines
from kctl.reach.session import Session
from kctl.texts.output import Column, Document, Row, Writer, counted, note

COLUMNS = (
    Column("topic", "The topic."),
    Column("partition", "The number of the partition.", "number", header="PART"),
    Column("now", "The replicas that it moves away from, or has.", "list"),
    Column("planned", "The replicas that it shall have.", "list"),
    Column("state", "done, moving, waiting (of a plan: not begun), or moving elsewhere.", "state"),
    Column("copied_bytes", "What its new replicas have, in all.", "size", header="COPIED"),
    Column("size_bytes", "What they shall have, as far as is known.", "size", header="OF"),
    Column("percent", "How much of it that is.", "number", header="%"),
    Column("adding", "The brokers that get a replica.", "list", wide=True),
    Column("removing", "The brokers that lose theirs.", "list", wide=True),
    Column("log_dirs", "The log directories that replicas move to; any: the broker chooses.", "list", wide=True),
    Column("leader", "The broker that leads it.", "number", wide=True),
)
_PROGRESS = "kctl.partitions.copy_progress"


@click.command("status", cls=KctlCommand, columns=COLUMNS, watchable=True)
@click.argument("file", shell_complete=files, metavar="[PLAN.JSON]", required=False)
@pass_session
def status(session: Session, file: str | None) -> int:
    """Show moves under way, whoever started them, and leftover throttles.

    With a plan, shows every partition of it, and exits with 0 once all have their planned replicas, with 7 before. With
    --watch, rates appear from the second sample on.

    Example: kctl partitions status --watch
    """
    places = {} if file is None else read_plan(file).places
    seen = under_way(session) if file is None else plan_status(session, places)
    amounts = copies(seen)
    rows = status_rows(seen.entries, amounts)
    there = seen.snapshot.by_name()
    errors = [
        KctlError(f"partition {where} of the plan does not exist", exit_code=Exit.NOT_FOUND)
        for where in places
        if where not in there
    ]
    report = _progress().observe(time.monotonic(), amounts)
    code = answer(session, COLUMNS, rows, errors, text=lambda: _text(session, rows, seen, report))
    for line in _waiting(seen, amounts):
        note(session.settings, line)
    for error in seen.snapshot.silent:
        note(session.settings, f"progress is incomplete: {error.with_code}")
    for line in left_over_lines(session):
        note(session.settings, line)
    return code or (Exit.FINDINGS if file is not None and seen.missing else Exit.DONE)


def _progress() -> CopyProgress:
    """The one of this command line: with --watch it has seen the earlier looks."""
    found: CopyProgress = click.get_current_context().find_root().meta.setdefault(_PROGRESS, CopyProgress())
    return found


def status_rows(entries: Iterable[PlanEntry], amounts: Mapping[Copying, Amount]) -> list[Row]:
    sums = by_partition(amounts)
    return [_row(each, sums.get(each.partition.name, Amount(0, each.copy_bytes))) for each in entries]


def _row(each: PlanEntry, amount: Amount) -> Row:
    return {
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "now": list(each.now),
        "planned": list(each.place.replicas),
        "state": each.state,
        "copied_bytes": None if each.state == DONE else amount.copied,
        "size_bytes": None if each.state == DONE else amount.size,
        "percent": 100 if each.state == DONE else amount.percent,
        "adding": list(each.active.adding) if each.active else [],
        "removing": list(each.active.removing) if each.active else [],
        "log_dirs": list(each.place.log_dirs),
        "leader": each.partition.leader,
    }


def _waiting(seen: PlanStatus, amounts: Mapping[Copying, Amount]) -> Iterator[str]:
    """Copies that cannot go on, as far as one look can tell."""
    partitions, alive = seen.snapshot.by_name(), seen.snapshot.alive()
    for copy, amount in amounts.items():
        leader = partitions[copy.partition].leader
        if copy.target not in alive or leader is None:
            yield f"{copy} waits: {stall_reason(copy.target in alive, leader, amount, None)}"


def _text(session: Session, rows: Sequence[Row], seen: PlanStatus, report: Report) -> Iterator[str]:
    settings = session.settings
    if rows:
        yield from Writer(settings, COLUMNS, Document(settings.command)).table(rows)
    done = sum(each.state == DONE for each in seen.entries)
    moving = sum(each.active is not None or each.state == MOVING for each in seen.entries)
    if not rows:
        yield "no move is under way"
    else:
        yield progress_line(report._replace(slowest=None), counted(len(rows), "partition"), moving, done, None)
