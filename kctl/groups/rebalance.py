"""`kctl groups rebalance`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum

import click

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kctl.command.changes import Change
from kctl.command.cluster_names import group_names
from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.errors import Exit, KctlError, did_you_mean
from kctl.groups.culprits import (
    COMPLETING,
    PREPARING,
    Judged,
    fates,
    judge,
    longest_wait_ms,
    suspects,
)
from kctl.groups.eviction import evict, until
from kctl.groups.group import CLASSIC, DEAD, NEW, REBALANCING, Group, Member, described_groups, labels
from kctl.groups.group_lag import nothing_of
from kctl.groups.history import History, read_history
from kctl.groups.offset_changes import read_commits
from kctl.groups.partitions_text import partitions_text
from kctl.reach.session import Session
from kctl.texts.output import Column, Document, Row, Writer, duration_text, note
from kctl.texts.spelling import command, spelled

COLUMNS = (
    Column("member", "Its instance, or its client with as much of its id as tells it from the others."),
    Column("host", "Where it is."),
    Column("status", "waiting: it has joined; suspect: perhaps; working: not yet, it still commits; gone.", "state"),
    Column("why", "How that is known."),
    Column("held", "What it had in the last generation."),
    Column("last_commit_age_ms", "Since its last commit.", "duration", "LAST COMMIT"),
    Column("client", "The name that its client gives.", wide=True),
    Column("member_id", "Its whole id.", wide=True),
)
RESULT = (
    Column("member", "Its instance, or its client with as much of its id as tells it from the others."),
    Column("host", "Where it is."),
    Column("fate", "returned, did not return, stayed, left, or new.", "state"),
    Column("held", "What it had before."),
    Column("has", "What it has now."),
    Column("member_id", "Its whole id; of who returned the new one.", wide=True),
)
_LOOK_SECONDS = 1.0
"""For so long commits are watched, to see who still works."""
_RETURN_SECONDS = 5.0
"""Clients learn with their next heartbeat, by default every 3 seconds, that they are no members any more."""
_JOIN_SECONDS = 3.0
"""Time for the others to complete a rebalance once a suspect is gone."""


@click.command("rebalance", cls=KctlCommand, columns=COLUMNS, watchable=True)
@click.argument("group", shell_complete=group_names)
@click.option(
    "--explain", is_flag=True, help="Show who has joined and who has not, and change nothing. This is the default."
)
@click.option("--member", "members", multiple=True, metavar="ID", help="Make this member rejoin, by id or name.")
@click.option("--instance", "instances", multiple=True, metavar="ID", help="Make this static member rejoin.")
@click.option("--suspects", "all_suspects", is_flag=True, help="Remove suspects one by one until the group continues.")
@click.option("--all", "everybody", is_flag=True, help="Make all members rejoin.")
@click.option(
    "--reason", default="kctl groups rebalance", metavar="TEXT", help="The reason to write to the coordinator's log."
)
@pass_session
def rebalance(
    session: Session,
    group: str,
    explain: bool,
    members: tuple[str, ...],
    instances: tuple[str, ...],
    all_suspects: bool,
    everybody: bool,
    reason: str,
) -> int:
    """Show who holds up a rebalance, or make members rejoin.

    Members are removed from the group. A live client rejoins by itself within seconds (with a new id, unless it is a
    static member or uses the consumer protocol); a hanging one does not, and the others continue without it. Clients
    with cooperative rebalancing lose their partitions and may read records twice.

    Example: kctl groups rebalance shipping --suspects
    """
    ways = [bool(members or instances), all_suspects, everybody, explain]
    if sum(ways) > 1:
        raise KctlError("use only one of --explain, --suspects, --all and member names", exit_code=Exit.USAGE)
    if session.settings.watch is not None and any(ways[:3]):
        raise KctlError("--watch can only be used with --explain", exit_code=Exit.USAGE)
    found = _described(session, group)
    judged, history = _judged(session, found, look=all_suspects or not any(ways[:3]))
    if not any(ways[:3]):
        rows = _rows(judged, found)
        return answer(session, COLUMNS, rows, text=lambda: _explanation(session, found, history, rows))
    if all_suspects:
        chosen = suspects(judged)
        nobody = f'nobody of group "{group}", which is {found.state}, is suspected'
    else:
        wanted = found.members if everybody else _named(found, members, instances)
        chosen = [one for one in judged if one.member in wanted]
        nobody = f'group "{group}" has no members'
    if not chosen:
        raise KctlError(
            nobody, exit_code=Exit.NOT_FOUND, hints=(f"kctl {command('groups rebalance', group, options='--explain')}",)
        )
    return _act(session, found, chosen, reason, one_by_one=all_suspects)


def _described(session: Session, name: str) -> Group:
    found = described_groups(session, [name])[name]
    if isinstance(found, KctlError):
        raise found
    if found.state == DEAD:
        raise nothing_of(session, name)
    if found.type not in (CLASSIC, NEW):
        what = f'group "{name}" is a {found.type} group: only members of classic and consumer groups are known here'
        hint = f"Kafka's kafka-{found.type}-groups.sh shows its members: --group {name} --describe --members"
        raise KctlError(what, exit_code=Exit.REFUSED, hints=(hint,))
    return found


def _judged(session: Session, group: Group, *, look: bool) -> tuple[list[Judged], History]:
    commits = read_commits(session, [group.name])[group.name]
    history = read_history(session, group.name, commits)
    advancing: set[TopicPartition] = set()
    if look and group.state == PREPARING and not history.problem:
        time.sleep(_LOOK_SECONDS)
        later = read_history(session, group.name, commits)
        advancing = {where for where, at in later.commit_ms.items() if at != history.commit_ms.get(where)}
        history = later
    return judge(group, history, advancing), history


def _rows(judged: Iterable[Judged], group: Group) -> list[Row]:
    judged = list(judged)
    names = labels(one.member for one in judged)
    now_ms = int(time.time() * 1000)
    rows: list[Row] = [
        {
            "member": names[one.member.id],
            "host": one.member.host,
            "status": one.status,
            "why": one.why or None,
            "held": partitions_text(one.held) or None,
            "last_commit_age_ms": None if one.last_commit_ms is None else max(now_ms - one.last_commit_ms, 0),
            "client": one.member.client,
            "member_id": one.member.id,
        }
        for one in judged
    ]
    return sorted(rows, key=lambda row: str(row["member"]))


def _explanation(session: Session, group: Group, history: History, rows: Sequence[Row]) -> Iterator[str]:
    yield _headline(group, history)
    if rows:
        yield from Writer(session.settings, COLUMNS, Document(session.settings.command)).table(rows)
    if group.state == PREPARING:
        if history.problem:
            yield f"who has joined cannot be told: {history.problem}"
        else:
            yield "who waits has joined for certain; a suspect has too, or sends heartbeats without polling."
        suspects = spelled(session.settings, command("groups rebalance", group.name, options="--suspects"))
        yield f"to find out and go on: {suspects}"
    elif group.state == COMPLETING:
        yield "all members have joined; one of them, the leader, has not yet handed in the assignment."


def _headline(group: Group, history: History) -> str:
    last = history.generation
    words = f"{group.name}  {group.state}"
    if group.epoch is not None:
        return f"{words}  epoch {group.epoch}"
    if group.state not in REBALANCING:
        return f"{words}  generation {last.generation}" if last else words
    if last:
        words += f" (generation {last.generation} -> {last.generation + 1})"
    longest = longest_wait_ms(last)
    if longest is None or group.state != PREPARING:
        return words
    return f"{words}; goes on without the missing in {duration_text(longest)} at the latest (largest rebalance timeout)"


def _named(group: Group, members: Sequence[str], instances: Sequence[str]) -> list[Member]:
    """By a whole id, or the short name that is printed."""
    names = labels(group.members)
    found: list[Member] = []
    for word in members:
        matching = [m for m in group.members if word in (m.id, names[m.id])]
        matching = matching or [m for m in group.members if word == m.client]
        found.append(_only(group, matching, "member", word, [*names.values()]))
    for word in instances:
        matching = [m for m in group.members if m.instance == word]
        found.append(_only(group, matching, "instance", word, [m.instance for m in group.members if m.instance]))
    return found


def _only(group: Group, matching: Sequence[Member], kind: str, word: str, known: Sequence[str]) -> Member:
    if len(matching) == 1:
        return matching[0]
    if matching:
        hints = ("one of", *(f"  {member.id}" for member in matching))
        raise KctlError(f'{len(matching)} members are called "{word}"', exit_code=Exit.USAGE, hints=hints)
    raise KctlError(
        f'group "{group.name}" has no {kind} "{word}"',
        exit_code=Exit.NOT_FOUND,
        code=ErrorCode.UNKNOWN_MEMBER_ID.name,
        hints=did_you_mean(word, known) or (f"there are: {' '.join(known) or 'none'}",),
    )


def _act(session: Session, group: Group, chosen: Sequence[Judged], reason: str, *, one_by_one: bool) -> IntEnum:
    change = Change(
        session, COLUMNS if session.settings.dry_run or session.settings.is_text else RESULT, _rows(chosen, group)
    )
    statics = [one.member.instance for one in chosen if one.member.instance]
    if statics:
        note(session.settings, f"static members keep their id when they return: {', '.join(statics)}")
    many = f"{len(chosen)} member{'s' if len(chosen) > 1 else ''}"
    how = "one after the other until the group goes on" if one_by_one and len(chosen) > 1 else "so that they join again"
    if not change.confirmed(f"Remove {many} of group {group.name}, {how}?"):
        return Exit.DONE
    removed: set[str] = set()
    errors: list[KctlError] = []
    try:
        for batch in [[one] for one in chosen] if one_by_one else [list(chosen)]:
            refused = evict(session, group.name, [one.member for one in batch], reason)
            errors += refused.values()
            removed |= {one.member.id for one in batch} - refused.keys()
            if one_by_one and _joined(until(session, group.name, _joined, _JOIN_SECONDS)):
                break
        after = until(session, group.name, _settled(group, removed), session.settings.timeout)
    except KeyboardInterrupt:
        note(
            session.settings, f"removed, and back by themselves if they live: {', '.join(sorted(removed)) or 'nobody'}"
        )
        raise
    return _told(session, group, after, removed, {one.member.id: one for one in chosen}, errors)


def _settled(before: Group, removed: set[str]) -> Callable[[Group], bool]:
    """A test that the rebalance is over, and that the removed members are back or have had time for it."""
    calm_since: float | None = None

    def enough(now: Group) -> bool:
        nonlocal calm_since
        if now.state in REBALANCING:
            calm_since = None
            return False
        calm_since = calm_since or time.monotonic()
        found = fates(before.members, removed, now.members)
        return all(one.now for one in found if one.removed) or time.monotonic() - calm_since >= _RETURN_SECONDS

    return enough


def _joined(group: Group) -> bool:
    """True if all have joined. The consumer protocol assigns at once; what takes time is the revocation."""
    return group.state not in REBALANCING if group.type == NEW else group.state != PREPARING


def _told(
    session: Session,
    before: Group,
    after: Group,
    removed: set[str],
    chosen: Mapping[str, Judged],
    errors: list[KctlError],
) -> IntEnum:
    held = {member.id: member.assigned for member in before.members}
    held |= {member_id: one.held for member_id, one in chosen.items()}
    found = fates(before.members, removed, after.members)
    names = labels([*after.members, *(one.before for one in found if one.before and not one.now)])
    rows: list[Row] = []
    for one in found:
        member = one.now or one.before
        assert member is not None  # there is a before or a now
        had, has = held.get(one.before.id, ()) if one.before else (), one.now.assigned if one.now else ()
        rows.append(
            {
                "member": names[member.id],
                "host": member.host,
                "fate": one.word,
                "held": partitions_text(had) or None,
                "has": partitions_text(has) or None,
                "member_id": member.id,
            }
        )
    if after.state in REBALANCING:
        what = f'group "{before.name}" is still {after.state} after {session.settings.timeout:g}s'
        hint = f"kctl {command('groups rebalance', before.name, options='--explain')}"
        errors = [*errors, KctlError(what, exit_code=Exit.UNREACHABLE, hints=(hint, "--timeout 60s waits longer"))]
    code = answer(session, RESULT, rows, errors)
    missing = [str(row["member"]) for row in rows if row["fate"] == "did not return"]
    moved = sum(row["held"] != row["has"] for row in rows)
    if not errors:
        changed = f"{moved} of {len(rows)} members have other partitions than before"
        note(session.settings, f"verified: {before.name} is {after.state}, {changed}")
    if missing:
        note(session.settings, f"did not return: {', '.join(missing)}")
    return code
