"""`kctl groups reset-offsets`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

import click

from kafkad.names import TopicPartition
from kctl.command.choosing import Choice, choosing
from kctl.command.cluster_names import group_names
from kctl.command.paths import files, undo_dir_option
from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.errors import Exit, KctlError, exit_code
from kctl.groups.committed import Commits
from kctl.groups.group_lag import ChosenGroups, chosen_groups, note_silent, nothing_of, nothing_of_all
from kctl.groups.offset_changes import inactive_ones, read_commits
from kctl.groups.offset_plan import COLUMNS, Plans, Wanted, carry_out, partitions_in, plan_all
from kctl.groups.offsets_file import FileOffset, csv_text, parse_offsets
from kctl.groups.options import scopes_option
from kctl.groups.targets import CURRENT, EARLIEST, GIVEN, LATEST, Target, parse_ago, parse_target
from kctl.reach.session import Session
from kctl.texts.output import note, render_errors, time_text
from kctl.texts.parsing import parse_time_ms
from kctl.texts.scopes import Scope, parse_scope
from kctl.texts.text_files import content_of

_NAMED = 5
"""Groups that are named where they are many."""


@click.command("reset-offsets", cls=KctlCommand, columns=COLUMNS)
@choosing("group", group_names)
@click.option(
    "--group",
    "more",
    multiple=True,
    metavar="GROUP",
    shell_complete=group_names,
    help="The group, as Kafka's own tool names it.",
)
@click.option("--all-groups", is_flag=True, help="All groups.")
@scopes_option
@click.option("--all-topics", is_flag=True, help="All topics that the group has committed offsets for.")
@click.option("--to", metavar="WHERE", help="earliest, latest, current, OFFSET, @TIME, @-30m, +N or -N.")
@click.option("--to-group", metavar="GROUP", shell_complete=group_names, help="The offsets of this other group.")
@click.option(
    "--from-file", shell_complete=files, metavar="FILE", help="Offsets from CSV or JSON; - reads standard input."
)
@click.option("--to-earliest", is_flag=True, help="Kafka's spelling, like the following ones.")
@click.option("--to-latest", is_flag=True)
@click.option("--to-current", is_flag=True, help="The current offset, or the end if nothing is committed.")
@click.option("--to-offset", type=int, metavar="N")
@click.option("--shift-by", type=int, metavar="N")
@click.option("--to-datetime", metavar="TIME", help="As in 2026-11-21T05:30:00.000; UTC unless it has a time zone.")
@click.option("--by-duration", metavar="DURATION", help="This long before now, as in PT5M.")
@click.option("--execute", is_flag=True, help="The same as --yes.")
@click.option("--export", is_flag=True, help="Print the new offsets in Kafka's CSV format, and change nothing.")
@click.option("--wait", is_flag=True, help="Wait until the group is empty.")
@undo_dir_option()
@pass_session
def reset_offsets(session: Session, /, chosen: Choice, **options: Any) -> int:
    """Move the committed offsets of empty groups.

    Shows current and new offsets and asks for confirmation. The current offsets are saved first, in a file that
    --from-file can read. An offset outside its partition is moved to the nearest end. A group that does not exist is
    created, as Kafka's tool does.

    Example: kctl groups reset-offsets etl --topic orders --to @-30m
    """
    found = _chosen_groups(session, chosen, options)
    target = _target(options, session)
    from_file = _file(options["from_file"])
    _scope_given(options, from_file is not None)
    if options["execute"]:
        session.settings.yes = True
    groups, errors = inactive_ones(session, found.names, wait=options["wait"])
    if not groups:
        return answer(session, COLUMNS, (), errors)
    commits = read_commits(session, groups)
    wanted = {name: _wanted(session, name, target, from_file, commits[name], options) for name in groups}
    plans = plan_all(session, {name: want for name, want in wanted.items() if want.partitions}, commits)
    left_out = [name for name in wanted if name not in plans]
    if not plans or found.listed is None:
        errors += _nothing_to_reset(session, left_out, commits, options)
    elif left_out:
        note(session.settings, f"there is nothing to reset in {_some(left_out)}")
    if not plans:
        return answer(session, COLUMNS, (), errors)
    if options["export"]:
        return _export(session, plans, errors, found.is_one)
    what = _said(plans, target, options, session.settings.utc)
    shown = {name: commits[name] for name in plans}
    return carry_out(session, plans, shown, Path(options["undo_dir"]), what, errors)


def _chosen_groups(session: Session, chosen: Choice, options: Mapping[str, Any]) -> ChosenGroups:
    chosen = chosen.also(options["more"])
    if not options["all_groups"]:
        chosen.required()
    elif chosen:
        raise KctlError("--all-groups and group names exclude each other", exit_code=Exit.USAGE)
    found = chosen_groups(session, chosen)
    note_silent(session, found.silent)
    if found.errors:
        raise found.errors[0]
    return found


_TARGETS = (
    "to", "to_group", "from_file", "to_earliest", "to_latest", "to_current", "to_offset", "shift_by", "to_datetime",
    "by_duration",
)  # fmt: skip


def _target(options: Mapping[str, Any], session: Session) -> Target:
    """GIVEN for a file or another group."""
    given = [name for name in _TARGETS if options[name] not in (None, False)]
    if len(given) != 1:
        spelled = ", ".join(f"--{name.replace('_', '-')}" for name in (given or _TARGETS))
        what = f"use only one of {spelled}" if given else "no target is given for the offsets"
        hints = () if given else (f"one of {spelled}",)
        raise KctlError(what, exit_code=Exit.USAGE, hints=hints)
    (name,) = given
    value = options[name]
    now_ms = int(time.time() * 1000)
    match name:
        case "to":
            return parse_target(value, now_ms, session.settings.utc)
        case "to_earliest":
            return Target(EARLIEST)
        case "to_latest":
            return Target(LATEST)
        case "to_current":
            return Target(CURRENT)
        case "to_offset":
            return Target("offset", value)
        case "shift_by":
            return Target("shift", value)
        case "to_datetime":
            return Target("time", parse_time_ms(value, now_ms, utc=True))
        case "by_duration":
            return parse_ago(value, now_ms)
    return Target(GIVEN)


_BYTE_ORDER_MARK = "\ufeff"
"""What Excel and Windows' editors put before a text."""


def _file(path: str | None) -> dict[str, dict[TopicPartition, int]] | None:
    """The offsets by group; those of a file that names no groups are for all of them, and stand under ""."""
    if path is None:
        return None
    text = sys.stdin.read() if path == "-" else content_of(path).decode(errors="replace")
    found: dict[str, dict[TopicPartition, int]] = {}
    for one in parse_offsets(text.removeprefix(_BYTE_ORDER_MARK), "standard input" if path == "-" else path):
        found.setdefault(one.group, {})[one.where] = one.offset
    return found


def _scope_given(options: Mapping[str, Any], from_file: bool) -> None:
    if options["topics"] and options["all_topics"]:
        raise KctlError("--all-topics and topic names exclude each other", exit_code=Exit.USAGE)
    if not (options["topics"] or options["all_topics"] or from_file or options["to_group"]):
        hint = "--topic TOPIC, --topic TOPIC:0,1 or --all-topics"
        raise KctlError("no topics are selected", exit_code=Exit.USAGE, hints=(hint,))


def _wanted(
    session: Session,
    name: str,
    target: Target,
    from_file: Mapping[str, dict[TopicPartition, int]] | None,
    commits: Commits,
    options: Mapping[str, Any],
) -> Wanted:
    scopes = [parse_scope(text) for text in options["topics"]]
    if from_file is not None:
        given = from_file.get("") or from_file.get(name, {})
    elif options["to_group"]:
        given = offsets_of(session, options["to_group"])
    else:
        partitions = partitions_in(session, scopes) if scopes else _that_exist(session, commits)
        return Wanted(target, partitions)
    partitions = _within(session, given, [scope.topic for scope in scopes])
    if scopes:
        inside = set(partitions_in(session, scopes))
        partitions = [where for where in partitions if where in inside]
    return Wanted(target, partitions, given)


def _nothing_to_reset(
    session: Session, names: Sequence[str], commits: Mapping[str, Commits], options: Mapping[str, Any]
) -> list[KctlError]:
    """Why no offset of these groups is reset."""
    if options["to_group"]:
        what = f'group "{options["to_group"]}" has committed nothing of these topics'
        return [KctlError(what, exit_code=Exit.NOT_FOUND)] if names else []
    if file := options["from_file"]:
        source = "standard input" if file == "-" else file
        rest = " in these topics" if options["topics"] else ""
        said = [f'{source} has no offsets of group "{name}"{rest}' for name in names]
        return [KctlError(what, exit_code=Exit.NOT_FOUND) for what in said]
    errors = nothing_of_all(session, [name for name in names if not commits[name]])
    errors += [_of_deleted_topics(name) for name in names if commits[name]]
    return [error.with_hint("name topics with --topic") for error in errors]


def _of_deleted_topics(name: str) -> KctlError:
    what = f'group "{name}" has committed only offsets of topics that are not there any more'
    return KctlError(what, exit_code=Exit.NOT_FOUND)


def offsets_of(session: Session, name: str) -> dict[TopicPartition, int]:
    """Another group's, which has to have some."""
    commits = read_commits(session, [name])[name]
    if not commits:
        raise nothing_of(session, name)
    there = set(_that_exist(session, commits))
    if not there:
        raise _of_deleted_topics(name)
    return {where: commit.offset for where, commit in commits.items() if where in there}


def _that_exist(session: Session, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Without those of deleted topics, of which nothing can be said but that they are left alone."""
    partitions = sorted(partitions)
    topics = session.metadata(dict.fromkeys(where.topic for where in partitions)) if partitions else ()
    there = {
        TopicPartition(topic.name, partition.partition_index) for topic in topics for partition in topic.partitions
    }
    for topic in sorted({where.topic for where in partitions if where not in there}):
        note(session.settings, f"topic {topic} is not there any more: its offsets are left as they are")
    return [where for where in partitions if where in there]


def _within(session: Session, given: Iterable[TopicPartition], topics: list[str]) -> list[TopicPartition]:
    """KctlError for a partition that is not there."""
    wheres = [where for where in given if not topics or where.topic in topics]
    return partitions_in(session, [Scope(where.topic, (where.partition,)) for where in wheres]) if wheres else []


def _export(session: Session, plans: Plans, errors: Sequence[KctlError], of_one: bool) -> IntEnum:
    lines = [FileOffset(name, one.where, one.new) for name, plan in plans.items() for one in plan]
    sys.stdout.write(csv_text(lines, of_one=of_one))
    sys.stdout.flush()
    render_errors(errors, session.settings)
    return exit_code(errors)


def _said(plans: Plans, target: Target, options: Mapping[str, Any], utc: bool) -> str:
    if options["to_group"]:
        where = f"where {options['to_group']} stands"
    elif options["from_file"]:
        where = f"the offsets of {options['from_file']}"
    else:
        match target.kind:
            case "time":
                where = f"@{time_text(target.value, utc)}"
            case "shift":
                where = f"{target.value:+d}"
            case "offset":
                where = str(target.value)
            case _:
                where = target.kind
    return f"{_some(list(plans))} -> {where}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"
