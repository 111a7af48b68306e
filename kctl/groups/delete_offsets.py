"""`kctl groups delete-offsets`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kctl.command.changes import Change
from kctl.command.cluster_names import group_names
from kctl.command.paths import undo_dir_option
from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.errors import Exit, KctlError, failure
from kctl.groups.group_lag import nothing_of
from kctl.groups.offset_changes import Outcome, needed_undo, outcome, read_commits, save_undo, undo_command, undo_told
from kctl.groups.options import scopes_option
from kctl.groups.targets import committed_in
from kctl.reach.session import Session
from kctl.texts.output import Column, counted
from kctl.texts.scopes import parse_scope
from kctl.texts.spelling import command

if TYPE_CHECKING:
    from kafkad.wire.messages.offset_delete import (
        OffsetDeleteRequest,
        OffsetDeleteRequestPartition,
        OffsetDeleteResponse,
    )

COLUMNS = (
    Column("group", "The group's name."),
    Column("topic", "A topic."),
    Column("partition", "One of its partitions.", "number", "PART"),
    Column("current", "The offset that goes.", "number"),
)


@click.command("delete-offsets", cls=KctlCommand, columns=COLUMNS)
@click.argument("group", shell_complete=group_names)
@scopes_option
@click.option("--all-topics", is_flag=True, help="All topics that the group has committed offsets for.")
@undo_dir_option()
@pass_session
def delete_offsets(session: Session, group: str, topics: tuple[str, ...], all_topics: bool, undo_dir: str) -> int:
    """Delete a group's committed offsets of topics.

    The group may be active as long as no member subscribes to these topics. The offsets are saved first, in a file that
    reset-offsets --from-file can read. The topics may already be deleted.

    Example: kctl groups delete-offsets billing --topic orders-old
    """
    if bool(topics) == all_topics:
        hint = "--topic TOPIC, --topic TOPIC:0,1 or --all-topics"
        raise KctlError("use only one way to select topics", exit_code=Exit.USAGE, hints=(hint,))
    commits = read_commits(session, [group])[group]
    if not commits:
        raise nothing_of(session, group)
    scopes = [parse_scope(text) for text in topics]
    wheres, unknown = (sorted(commits), []) if all_topics else committed_in(scopes, group, commits)
    if not wheres:
        return answer(session, COLUMNS, (), unknown)
    rows = [{"group": group, **where._asdict(), "current": commits[where].offset} for where in wheres]
    change = Change(session, COLUMNS, rows, unknown)
    if not change.confirmed(f"Delete {len(rows)} offset{'s' if len(rows) > 1 else ''} of group {group}?"):
        return change.code
    before = {group: {where: commits[where].offset for where in wheres}}
    with change.preparing():
        file = save_undo(Path(undo_dir), before)
        undo = undo_command(session.settings, before, file)
    with undo_told(session, undo):
        deleted = _delete(session, group, wheres)
        errors = deleted.errors or _still_there(session, group, wheres)
    undo = needed_undo(undo, file, [deleted])
    return change.done(rows, errors, verified=f"{counted(len(rows), 'offset')} gone", undo=undo)


def _delete(session: Session, group: str, wheres: Collection[TopicPartition]) -> Outcome:
    gone = (ErrorCode.GROUP_ID_NOT_FOUND,)  # with its last offset an empty group goes too
    answers = session.ask_coordinators([group], lambda _: _request(group, wheres), lambda r: _read(group, r), done=gone)
    answer = answers[group]
    if isinstance(answer, KctlError):
        return outcome([answer])
    return outcome([_refusal(group, where, code) for where, code in answer.items() if code], len(wheres))


def _refusal(group: str, where: TopicPartition, code: int) -> KctlError:
    if code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
        hints = (f"see who: kctl {command('groups members', group)}",)
        return failure(code, f'{where}: members of group "{group}" subscribe to this topic', hints=hints)
    return failure(code, f"{where} of group {group}")


def _request(group: str, wheres: Iterable[TopicPartition]) -> OffsetDeleteRequest:
    from kafkad.wire.messages.offset_delete import (
        OffsetDeleteRequest,
        OffsetDeleteRequestPartition,
        OffsetDeleteRequestTopic,
    )

    topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for topic, partition in wheres:
        topics.setdefault(topic, []).append(OffsetDeleteRequestPartition(partition_index=partition))
    listed = [OffsetDeleteRequestTopic(name=name, partitions=partitions) for name, partitions in topics.items()]
    return OffsetDeleteRequest(group_id=group, topics=listed)


def _read(group: str, response: OffsetDeleteResponse) -> Iterator[tuple[str, int, dict[TopicPartition, int]]]:
    yield (
        group,
        response.error_code,
        {
            TopicPartition(topic.name, one.partition_index): one.error_code
            for topic in response.topics
            for one in topic.partitions
        },
    )


def _still_there(session: Session, group: str, wheres: Iterable[TopicPartition]) -> list[KctlError]:
    now = read_commits(session, [group])[group]
    return [KctlError(f"group {group} still has an offset of {where}") for where in wheres if where in now]
