"""`kctl groups clone`."""

from __future__ import annotations

from pathlib import Path

import click

from kctl.command.cluster_names import group_names, topic_names
from kctl.command.paths import undo_dir_option
from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.errors import Exit, KctlError
from kctl.groups.offset_changes import inactive, read_commits
from kctl.groups.offset_plan import COLUMNS, Wanted, carry_out, plan_all
from kctl.groups.reset_offsets import offsets_of
from kctl.groups.targets import GIVEN, Target, committed_in
from kctl.reach.session import Session
from kctl.texts.scopes import parse_scope


@click.command("clone", cls=KctlCommand, columns=COLUMNS)
@click.argument("source", metavar="FROM", shell_complete=group_names)
@click.argument("copy", metavar="TO", shell_complete=group_names)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:0,1]",
    shell_complete=topic_names,
    help="Only this topic, or some of its partitions.",
)
@undo_dir_option()
@pass_session
def clone_group(session: Session, source: str, copy: str, topics: tuple[str, ...], undo_dir: str) -> int:
    """Copy the committed offsets of a group to another one.

    TO must be empty or not exist yet; offsets of its other topics stay as they are. FROM may be active.

    Example: kctl groups clone billing billing-test
    """
    if source == copy:
        raise KctlError("a group cannot be cloned to itself", exit_code=Exit.USAGE)
    inactive(session, [copy])
    given = offsets_of(session, source)
    missing: list[KctlError] = []
    if topics:
        wheres, missing = committed_in([parse_scope(text) for text in topics], source, given)
        given = {where: given[where] for where in wheres}
    if not given:
        return answer(session, COLUMNS, (), missing)
    commits = read_commits(session, [copy])
    plans = plan_all(session, {copy: Wanted(Target(GIVEN), sorted(given), given)}, commits)
    return carry_out(session, plans, commits, Path(undo_dir), f"{source} -> {copy}", missing)
