"""`kctl check-log`: is everything in order in the directories of a broker, or of one partition?"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import click

from kafkad.log.names import parse_name
from kctl.command.paths import directories
from kctl.command.verb import KctlCommand, pass_settings
from kctl.errors import Exit, KctlError, exit_code, of_file
from kctl.segments.checking import (
    Checked,
    Doomed,
    LogDirectory,
    check_directory,
    check_partition,
    check_together,
    doomed_in,
    is_doomed,
    read_directory,
)
from kctl.segments.files import partitions_in, segments_in
from kctl.segments.verdicts import Start
from kctl.settings import Settings
from kctl.texts.output import Column, Document, Writer, counted, duration_text, note, render_errors, size_text

_SAY_EVERY_S = 10
COLUMNS = (
    Column("file", "Where."),
    Column("severity", "error: something is damaged; warn: something is left over.", "state"),
    Column("problem", "What is wrong."),
    Column("at_start", "What a broker does about it at its next start.", header="AT NEXT START"),
    Column("action", "What is safe to do.", header="SAFE ACTION"),
)


@click.command("check-log", cls=KctlCommand, columns=COLUMNS)
@click.argument("directories", shell_complete=directories, metavar="DIRECTORY...", nargs=-1, required=True)
@click.option("--deep", is_flag=True, help="Also decode every record.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, metavar="N", help="Check with N processes.")
@pass_settings
def check_log(settings: Settings, /, directories: tuple[str, ...], deep: bool, jobs: int) -> int:
    """Check log directories, or directories of single partitions.

    Checks checksums and the order of offsets; indexes, producer snapshots and leader epochs against the log;
    checkpoints against the partitions that exist; and looks for files that should not be there. Each finding says what
    a broker would do at its next start, which depends on how it was stopped, and what is safe to do. Nothing is
    written. Exits with 7 if there are findings. What waits for its deletion is none, and summed up. A broker may be
    running, but data that it is writing may look incomplete: stop it to be certain.

    Example: kctl check-log /var/lib/kafkad /data2/kafkad --jobs 4
    """
    begun = time.monotonic()
    now_s = time.time()
    asked, errors = _all_partitions(directories)
    calls = [(path, one.of.start_of(path), now_s, deep) for one in asked for path in one.partitions]
    checked = dict(zip([path for path, *_ in calls], _check_all(settings, calls, jobs), strict=True))
    findings = [finding for one in checked.values() for finding in one.findings]
    whole = {one.of.path: {path: checked[path] for path in one.partitions} for one in asked if one.is_whole}
    for one in asked:
        if one.is_whole:
            findings += check_directory(one.of, whole[one.of.path])
    findings += check_together(whole)
    if findings or not settings.is_text:
        Writer(settings, COLUMNS, Document("check-log")).write((finding._asdict() for finding in findings), errors)
    render_errors(errors, settings)
    for one in asked:
        _note_doomed(settings, one)
    if asked:
        size = size_text(sum(one.size for one in checked.values()))
        took = duration_text(int((time.monotonic() - begun) * 1000))
        note(settings, f"{counted(len(checked), 'partition')}, {size}, {counted(len(findings), 'finding')}, {took}")
    return Exit.FINDINGS if findings else exit_code(errors)


class _Asked(NamedTuple):
    """A log directory, or a partition's."""

    directory: str
    of: LogDirectory
    partitions: list[str]
    """Those to check."""
    doomed: Doomed
    is_whole: bool


def _note_doomed(settings: Settings, asked: _Asked) -> None:
    doomed = asked.doomed
    counts = [(doomed.partitions, "partition"), (doomed.files, "file")]
    what = " and ".join(counted(number, word) for number, word in counts if number)
    if what:
        are = "is" if doomed.partitions + doomed.files == 1 else "are"
        note(settings, f"{asked.directory}: {what} {are} being deleted, {size_text(doomed.size)}")


def _all_partitions(directories: Iterable[str]) -> tuple[list[_Asked], list[KctlError]]:
    """The partitions of those directories that can be read; and the errors of the others."""
    asked, errors = [], []
    for directory in directories:
        try:
            asked.append(_partitions(directory))
        except KctlError as error:
            errors.append(error)
        except OSError as error:
            errors.append(of_file(error))
    return asked, errors


def _partitions(directory: str) -> _Asked:
    """Those in a log directory, or the one that it is, of which the directory above it tells."""
    found = [] if segments_in(directory) else partitions_in(directory)
    if found:
        kept = [path for path in found if not is_doomed(path)]
        return _Asked(directory, read_directory(directory), kept, doomed_in(found), is_whole=True)
    if not segments_in(directory) and not parse_name(os.path.basename(os.path.abspath(directory))):
        raise KctlError(f"{directory}: no partition found", exit_code=Exit.NOT_FOUND)
    above = read_directory(os.path.dirname(os.path.abspath(directory)))
    return _Asked(directory, above, [directory], doomed_in([directory]), is_whole=False)


def _check_all(settings: Settings, calls: list[tuple[str, Start, float, bool]], jobs: int) -> list[Checked]:
    if jobs == 1:
        return list(_told(settings, (check_partition(*call) for call in calls), len(calls)))
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        return list(_told(settings, pool.map(check_partition, *zip(*calls, strict=True)), len(calls)))


def _told(settings: Settings, results: Iterable[Checked], of: int) -> Iterator[Checked]:
    """Says now and then how far it is."""
    said = time.monotonic()
    for number, checked in enumerate(results, 1):
        if time.monotonic() - said > _SAY_EVERY_S:
            said = time.monotonic()
            note(settings, f"{number:,} of {counted(of, 'partition')} checked")
        yield checked
