"""`kctl etl compact`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from kafkad_etl.commands import options
from kafkad_etl.commands.base import EtlCommand, for_people
from kctl.command.verb import pass_settings
from kctl.settings import Settings
from kctl.texts.output import Column, Document, Writer, note

COLUMNS = (
    Column("directory", "The directory, relative to sink.path; or the table."),
    Column("rows", "Rows in the merged file.", "number"),
    Column("files_before", "Number of files before.", "number", header="FILES"),
    Column("files_after", "Number of files after.", "number", header="NOW"),
    Column("bytes_before", "Size before.", "size", header="SIZE"),
    Column("bytes_after", "Size after.", "size", header="NOW"),
)


@click.command("compact", cls=EtlCommand, columns=COLUMNS)
@click.argument("job", type=click.Path(path_type=Path))
@options.variables
@options.sets
@click.option(
    "--min-files",
    type=click.IntRange(min=2),
    metavar="N",
    help="Merge only in directories with at least N small files.",
)
@options.master
@options.java_home
@pass_settings
def compact(settings: Settings, /, job: Path, variables: Mapping[str, str], sets: Sequence[str], **given: Any) -> int:
    """Merge small files that a job has written.

    In each directory with at least sink.compact.min_files (8) files smaller than sink.target_file_mb, they are merged
    into as few files as possible. Only files written by the job itself are merged, and never while it runs. On local
    disks the merged file replaces the others atomically: readers see each row once, even after a kill; only a file
    that a reader was about to open may be gone. On other file systems, and in directories with subdirectories, readers
    may see rows twice during the merge, and after a kill until the next run or compact completes it; a warning says so.

    Tables of Iceberg and Delta merge files by their own means (rewrite_data_files, OPTIMIZE), whoever wrote them, in
    partitions with as many small files. Readers see each row once, and the job and others may write meanwhile, except
    to a table in an object store without a catalog of type rest or jdbc, which is merged only while its job does not
    run. Versions of the table from before sink.compact.expire_after are then removed (expire_snapshots and
    remove_orphan_files, VACUUM), with files that no later version needs; without that key all are kept.

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
        note(settings, "there are not enough small files in any directory or partition")
    return done.ends
