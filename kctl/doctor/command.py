"""`kctl doctor`: looks at the whole cluster, changes nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import click

from kctl.command.options import names_in
from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.doctor import brokers, groups, topics, transactions
from kctl.doctor.facts import BROKER_SETTINGS, GROUPS, HEALTH, Facts, gather, grown
from kctl.doctor.finding import Check, Finding, Severity, folded
from kctl.errors import Exit, KctlError, did_you_mean, exit_code
from kctl.reach.log_dirs import log_dirs
from kctl.reach.session import Session
from kctl.settings import Settings
from kctl.texts.output import Column, Row, counted, time_text
from kctl.texts.parsing import parse_duration_ms
from kctl.texts.spelling import on_this_cluster

CHECKS = (*topics.CHECKS, *transactions.CHECKS, *brokers.CHECKS, *groups.CHECKS)
COLUMNS = (
    Column("id", "Which check found it."),
    Column("severity", "error, warn or info; unknown: it could not be looked at, or not everywhere."),
    Column("summary", "What is wrong."),
    Column("items", "What is concerned.", "list"),
    Column("fix", "What shows more of it, or mends it."),
)
_SHOWN_ITEMS = 3
_LINE = 100
_COLORS = {Severity.ERROR: "red", Severity.WARN: "yellow"}

Found = tuple[Check, Finding]


@click.command("doctor", cls=KctlCommand, columns=COLUMNS, watchable=True)
@click.option("--only", metavar="ID,…", help="Only these checks.")
@click.option("--skip", metavar="ID,…", help="All checks but these.")
@click.option(
    "--fail-on",
    type=click.Choice(("info", "warn", "error")),
    default="warn",
    show_default=True,
    help="Exit with 7 for findings of at least this severity.",
)
@click.option(
    "--sample", metavar="TIME", help="Measure disk usage twice, this far apart, to predict when disks are full."
)
@click.option("--checks", is_flag=True, help="List the checks, and run none.")
@pass_session
def doctor(session: Session, only: str | None, skip: str | None, fail_on: str, sample: str | None, checks: bool) -> int:
    """Check the whole cluster, and report problems.

    Each finding comes with the command that shows more or fixes it. Nothing is changed. Checks that were not possible,
    because access was denied or a broker did not answer, are listed; unless there are findings, the exit code is that
    of these errors.

    Brokers report the software and version of clients only over JMX (clientSoftwareName and clientSoftwareVersion), so
    old-clients relies on what group members send when they join, and does not see producers.

    Example: kctl doctor --fail-on error
    """
    chosen = [check for check in CHECKS if check.id in _ids(only, CHECKS)] if only else list(CHECKS)
    if skip:
        chosen = [check for check in chosen if check.id not in _ids(skip, CHECKS)]
    if checks:
        return _list(session, chosen)
    begin = time.monotonic()
    facts = gather(session, needs_of(chosen), int(time.time() * 1000))
    if sample is not None:
        facts = _looked_at_twice(session, facts, parse_duration_ms(sample, unit="s") / 1000)
    found = look(facts, chosen)
    spent = time.monotonic() - begin
    unseen = not_looked_at(facts, chosen)
    rows = [
        *(_row(session.settings, one) for one in found),
        *(_unseen_row(check, errors) for check, errors in unseen.items()),
    ]
    answer(session, COLUMNS, rows, text=lambda: _text(session, facts, chosen, found, unseen, spent))
    worst = max((finding.severity for _, finding in found), default=Severity.INFO - 1)
    if worst >= Severity[fail_on.upper()]:
        return Exit.FINDINGS
    return exit_code([error for errors in unseen.values() for error in errors])


def needs_of(checks: Sequence[Check]) -> set[str]:
    """The facts that these checks look at, and those that tell whether their fixes can be carried out."""
    needs = {need for check in checks for need in check.needs}
    return needs | {BROKER_SETTINGS, HEALTH} if any(check.changes for check in checks) else needs


def look(facts: Facts, checks: Sequence[Check]) -> list[Found]:
    """The findings of all checks, the worst first. A fix that cannot be carried out yet says from when on it can."""
    until = facts.standstill
    found = [
        (
            check,
            finding._replace(fix=f"once {until}: {finding.fix}")
            if check.changes and until and finding.fix
            else finding,
        )
        for check in checks
        for finding in folded(check.find(facts))
    ]
    return sorted(found, key=lambda one: -one[1].severity)


def not_looked_at(facts: Facts, checks: Sequence[Check]) -> dict[Check, tuple[KctlError, ...]]:
    """The checks that could not see all that they need, and why: of them nothing is claimed beyond what they found."""
    missing = {check: [error for need in check.needs for error in facts.unseen.get(need, ())] for check in checks}
    return {check: tuple(errors) for check, errors in missing.items() if errors}


def _looked_at_twice(session: Session, facts: Facts, seconds: float) -> Facts:
    begin = time.monotonic()
    time.sleep(seconds)
    again, _ = log_dirs(session)
    return facts._replace(growth=grown(facts.directories, again, max(time.monotonic() - begin, 0.001)))


def _ids(text: str, checks: Sequence[Check]) -> set[str]:
    known = [check.id for check in checks]
    wanted = set(names_in(text))
    for word in sorted(wanted - set(known)):
        hints = did_you_mean(word, known) or ("kctl doctor --checks lists them",)
        raise KctlError(f'there is no check "{word}"', exit_code=Exit.USAGE, hints=hints)
    return wanted


def _list(session: Session, checks: Sequence[Check]) -> int:
    columns = (Column("id", "For --only and --skip."), Column("doc", "What it looks for.", header="LOOKS-FOR"))
    return answer(session, columns, [{"id": check.id, "doc": check.doc} for check in checks])


def _row(settings: Settings, one: Found) -> Row:
    check, finding = one
    return {
        "id": check.id,
        "severity": finding.severity.name.lower(),
        "summary": finding.summary,
        "items": list(finding.items),
        "fix": on_this_cluster(settings, finding.fix) or None,
    }


def _unseen_row(check: Check, errors: Sequence[KctlError]) -> Row:
    summary = f"not looked at, or not everywhere: {_why(errors)}"
    return {"id": check.id, "severity": "unknown", "summary": summary, "items": [], "fix": None}


def _why(errors: Sequence[KctlError]) -> str:
    return f"{errors[0].with_code}{f', and {len(errors) - 1:,} more' if len(errors) > 1 else ''}"


def _text(
    session: Session,
    facts: Facts,
    checks: Sequence[Check],
    found: Sequence[Found],
    unseen: Mapping[Check, Sequence[KctlError]],
    seconds: float,
) -> Iterator[str]:
    name = session.access.context or session.cluster.cluster_id or "cluster"
    alive = len(facts.alive)
    size = f"{counted(alive, 'broker')}, {counted(len(facts.topics), 'topic')}"
    if facts.groups:
        size += f", {counted(len(facts.groups), 'group')}{' or more' if facts.unseen.get(GROUPS) else ''}"
    yield f"{name} ({size})  {time_text(facts.now_ms, session.settings.utc)}  {seconds:.1f}s"
    for _, finding in found:
        yield from _lines(session, finding)
    reasons: dict[str, list[str]] = {}
    for check, errors in unseen.items():
        reasons.setdefault(_why(errors), []).append(check.id)
    for why, ids in reasons.items():
        yield from _wrapped("?", f"not looked at, or not everywhere: {', '.join(ids)}")
        yield f"       {why}"
    talking = {check for check, _ in found} | unseen.keys()
    silent = [check.id for check in checks if check not in talking]
    if silent:
        green = click.style("ok", fg="green") if session.settings.colored() else ""
        yield from _wrapped("ok", ", ".join(silent), green)


def _wrapped(word: str, text: str, styled: str = "") -> Iterator[str]:
    from textwrap import wrap

    first, *others = wrap(text, _LINE)
    yield f"{styled or word}{' ' * (7 - len(word))}{first}"
    yield from (f"       {line}" for line in others)


def _lines(session: Session, finding: Finding) -> Iterator[str]:
    word = f"{finding.severity.name:5}"
    color = _COLORS.get(finding.severity)
    if color and session.settings.colored():
        word = click.style(word, fg=color)
    yield f"{word}  {finding.summary}"
    said = finding.summary.replace(",", " ").split()
    if not all(item.removeprefix("broker/") in said for item in finding.items):
        more = len(finding.items) - _SHOWN_ITEMS
        tail = f", … (+{more:,})" if more > 0 else ""
        yield f"       {', '.join(finding.items[:_SHOWN_ITEMS])}{tail}"
    if finding.fix:
        yield f"       fix: {on_this_cluster(session.settings, finding.fix)}"
