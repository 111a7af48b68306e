"""`kctl groups export`."""

from __future__ import annotations

import sys

import click

from kctl.command.choosing import Choice, choosing
from kctl.command.cluster_names import group_names
from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.errors import KctlError, exit_code
from kctl.groups.committed import committed
from kctl.groups.group_lag import chosen_groups, missed_groups, nothing_of_all
from kctl.groups.offsets_file import FileOffset, csv_text
from kctl.reach.session import Session
from kctl.texts.output import Column, render_errors

COLUMNS = (
    Column("group", "The group's name."),
    Column("topic", "A topic that it has committed."),
    Column("partition", "One of its partitions.", "number"),
    Column("offset", "The committed offset.", "number"),
    Column("metadata", "What was committed beside it."),
)


@click.command("export", cls=KctlCommand, columns=COLUMNS)
@choosing("group", group_names, required=True)
@pass_session
def export_offsets(session: Session, chosen: Choice) -> int:
    """Print committed offsets in Kafka's CSV format.

    Prints lines of topic,partition,offset, preceded by the group unless one is named: the format that reset-offsets
    --from-file and Kafka's own tool read. -o json and the other formats print the same data with field names.

    Example: kctl groups export billing > billing.csv
    """
    found = chosen_groups(session, chosen)
    errors: list[KctlError] = [*found.errors, *missed_groups(session, found.silent)]
    lines: list[FileOffset] = []
    rows = []
    empty: list[str] = []
    for name, commits in committed(session, found.names).items():
        if isinstance(commits, KctlError):
            errors.append(commits)
        elif not commits:
            empty.append(name)
        else:
            for where, commit in sorted(commits.items()):
                lines.append(FileOffset(name, where, commit.offset))
                metadata = commit.metadata or None
                rows.append({"group": name, **where._asdict(), "offset": commit.offset, "metadata": metadata})
    errors += nothing_of_all(session, empty)
    settings = session.settings
    if settings.output != "table" or settings.columns:
        return answer(session, COLUMNS, rows, errors)
    sys.stdout.write(csv_text(lines, of_one=found.is_one))
    sys.stdout.flush()
    render_errors(errors, settings)
    return exit_code(errors)
