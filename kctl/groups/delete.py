"""`kctl groups delete`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kafkad.errors import ErrorCode
from kctl.command.changes import Change
from kctl.command.choosing import Choice, choosing
from kctl.command.cluster_names import group_names
from kctl.command.paths import undo_dir_option
from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.errors import Exit, KctlError
from kctl.groups.group import DEAD, described_groups, no_commits
from kctl.groups.group_lag import chosen_groups, lags_of_groups, note_silent
from kctl.groups.offset_changes import (
    active_error,
    needed_undo,
    outcome,
    read_commits,
    save_undo,
    undo_command,
    undo_told,
)
from kctl.groups.partition_lag import total
from kctl.reach.session import Session
from kctl.texts.output import Column

if TYPE_CHECKING:
    from kafkad.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

COLUMNS = (
    Column("group", "The group's name."),
    Column("state", "Only groups without members can be deleted.", "state"),
    Column("topics", "Topics of which its offsets go.", "list"),
    Column("offsets", "How many these are.", "number"),
    Column("lag", "Records that it has not read.", "number"),
)


@click.command("delete", cls=KctlCommand, columns=COLUMNS)
@choosing("group", group_names, required=True)
@undo_dir_option()
@pass_session
def delete_groups(session: Session, chosen: Choice, undo_dir: str) -> int:
    """Delete empty groups with their offsets.

    The offsets are saved first, in a file that reset-offsets --from-file can read.

    Example: kctl groups delete etl-nightly
    """
    found = chosen_groups(session, chosen)
    note_silent(session, found.silent)
    group_lags, errors = lags_of_groups(session, found)
    errors += [no_commits(group_lag.group) for group_lag in group_lags.values() if not group_lag.group.commits]
    group_lags = {name: group_lag for name, group_lag in group_lags.items() if group_lag.group.commits}
    active = [group_lag.group for group_lag in group_lags.values() if group_lag.group.is_active]
    errors += [active_error(group, bound="it can be deleted") for group in active]
    rows = [
        {
            "group": name,
            "state": group_lag.group.state,
            "topics": sorted({where.topic for where in group_lag.commits}),
            "offsets": len(group_lag.commits),
            "lag": total(group_lag.lags).lag,
        }
        for name, group_lag in group_lags.items()
        if not group_lag.group.is_active
    ]
    if not rows:
        return answer(session, COLUMNS, [], errors, text=lambda: ())
    change = Change(session, COLUMNS, rows, errors)
    if not change.confirmed(f"Delete {len(rows)} group{'s' if len(rows) > 1 else ''}?"):
        return change.code
    names = [str(row["group"]) for row in rows]
    with change.preparing():
        before = {
            name: {where: commit.offset for where, commit in commits.items()}
            for name, commits in read_commits(session, names).items()
        }
        file = save_undo(Path(undo_dir), before)
        undo = undo_command(session.settings, before, file)
    with undo_told(session, undo):
        answers = session.ask_coordinators(names, _request, _read, done=(ErrorCode.GROUP_ID_NOT_FOUND,))
        deleted = outcome([result for result in answers.values() if result], len(names))
        left = deleted.errors or _still_there(session, names)
    undo = needed_undo(undo, file, [deleted])
    return change.done(rows, left, verified=f"{len(names)} gone", undo=undo)


def _request(names: list[str]) -> DeleteGroupsRequest:
    from kafkad.wire.messages.delete_groups import DeleteGroupsRequest

    return DeleteGroupsRequest(groups_names=names)


def _read(response: DeleteGroupsResponse) -> Iterator[tuple[str, int, KctlError | None]]:
    for result in response.results:
        if result.error_code == ErrorCode.NON_EMPTY_GROUP:
            what = f'group "{result.group_id}" has members again: it was not deleted'
            code = ErrorCode.NON_EMPTY_GROUP.name
            yield result.group_id, 0, KctlError(what, exit_code=Exit.REFUSED, code=code)
        else:
            yield result.group_id, result.error_code, None


def _still_there(session: Session, names: list[str]) -> list[KctlError]:
    return [
        group if isinstance(group, KctlError) else KctlError(f'group "{name}" is there again: it is {group.state}')
        for name, group in described_groups(session, names).items()
        if isinstance(group, KctlError) or group.state != DEAD
    ]
