"""`kctl etl compact`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from kafkad_etl.commands import asking
from kafkad_etl.commands.base import EtlCommand, for_people
from kctl.command.verb import pass_settings
from kctl.settings import Settings
from kctl.texts.output import Column, Document, Writer, note

COLUMNS = (
    Column("directory", "Below sink.path; . is that itself."),
    Column("rows", "In the merged file.", "number"),
    Column("files_before", "How many there were.", "number", header="FILES"),
    Column("files_after", "How many there are.", "number", header="NOW"),
    Column("bytes_before", "Their size.", "size", header="SIZE"),
    Column("bytes_after", "Their size now.", "size", header="NOW"),
)


@click.command("compact", cls=EtlCommand, columns=COLUMNS)
@click.argument("job", type=click.Path(path_type=Path))
@asking.variables
@asking.sets
@click.option("--min-files", type=click.IntRange(min=2), metavar="N", help="Only directories with so many small files.")
@asking.master
@asking.java_home
@pass_settings
def compact(settings: Settings, /, job: Path, variables: Mapping[str, str], sets: Sequence[str], **given: Any) -> int:
    """Merge the small files that a job has written.

    In each directory with sink.compact.min_files files (8) that are smaller than sink.target_file_mb, they become as
    few as they can. Only the job's own files, and not while it runs. On local disks a merged file takes the place of
    the others at once: who reads sees each row once, also after a kill; only a file that was about to be opened may be
    gone. On other file systems, and in directories that hold directories as well, who reads in that moment sees rows
    twice, and so after a kill in it, until the next run or the next compact has finished what was begun; it warns then.

    Example: kctl etl compact orders.yaml
    """
    from kafkad_etl.model.loading import JobFile
    from kafkad_etl.tasks import compacting

    with for_people(settings) as stream:
        done = compacting.compact(compacting.Request(JobFile(job, variables, sets), **given), stream)
    rows = [
        {
            "directory": merged.directory or ".",
            "rows": merged.rows,
            "files_before": merged.files_before,
            "files_after": merged.files_after,
            "bytes_before": merged.bytes_before,
            "bytes_after": merged.bytes_after,
        }
        for merged in done.merged
    ]
    Writer(settings, COLUMNS, Document(settings.command)).write(rows)
    if not rows:
        note(settings, "no directory has enough small files of this job")
    return done.ends
