"""`kctl check-log`: is everything in order in the directories of a broker, or of one partition?"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import click

from kafkad.log.checkpoint import META_PROPERTIES
from kafkad.log.names import parse_name
from kctl.command.paths import directories
from kctl.command.verb import KctlCommand, pass_settings
from kctl.errors import Exit, KctlError, exit_code, of_file
from kctl.segments.checking import (
    Checked,
    Doomed,
    Finding,
    LogDirectory,
    Owner,
    check_directory,
    check_partition,
    check_together,
    doomed_in,
    is_doomed,
    read_directory,
)
from kctl.segments.files import brokers_in, partitions_in, segments_in
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
    running, but data that it is writing may look incomplete: stop it to be certain. Directories may be of several
    brokers; with that of kafkad --brokers, those of all its brokers are checked.

    Example: kctl check-log /var/lib/kafkad /data2/kafkad --jobs 4
    """
    begun = time.monotonic()
    now_s = time.time()
    asked, errors = _all_partitions(directories)
    calls = [(path, one.of.start_of(path), now_s, deep) for one in asked for path in one.partitions]
    checked = dict(zip([path for path, *_ in calls], _check_all(settings, calls, jobs), strict=True))
    results = [
        _Result(one, _findings(one, checked), sum(checked[path].size for path in one.partitions)) for one in asked
    ]
    findings = list(dict.fromkeys(finding for each in results for finding in each.findings))
    findings += check_together((one.of, one.partitions) for one in asked if one.is_whole)
    if findings or not settings.is_text:
        Writer(settings, COLUMNS, Document("check-log")).write((finding._asdict() for finding in findings), errors)
    render_errors(errors, settings)
    for one in asked:
        _note_doomed(settings, one)
    _note_brokers(settings, [each for each in results if each.asked.is_whole])
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


class _Result(NamedTuple):
    asked: _Asked
    findings: list[Finding]
    size: int


def _findings(asked: _Asked, checked: Mapping[str, Checked]) -> list[Finding]:
    own = {path: checked[path] for path in asked.partitions}
    found = [finding for one in own.values() for finding in one.findings]
    return [*found, *check_directory(asked.of, own)] if asked.is_whole else found


def _note_brokers(settings: Settings, results: Iterable[_Result]) -> None:
    """A line for each broker, where there are several."""
    of: dict[Owner | None, list[_Result]] = {}
    for result in results:
        of.setdefault(result.asked.of.owner, []).append(result)
    if len(of) == 1:
        return
    for owner, own in of.items():
        who = "unknown broker" if owner is None else f"broker {owner.broker_id}"
        cluster = f" of cluster {owner.cluster_id}" if owner is not None and owner.cluster_id else ""
        partitions = counted(sum(len(each.asked.partitions) for each in own), "partition")
        findings = counted(sum(len(each.findings) for each in own), "finding")
        size = size_text(sum(each.size for each in own))
        where = ", ".join(each.asked.directory for each in own)
        note(settings, f"{who}{cluster}: {partitions}, {size}, {findings} in {where}")


def _note_doomed(settings: Settings, asked: _Asked) -> None:
    doomed = asked.doomed
    counts = [(doomed.partitions, "partition"), (doomed.files, "file")]
    what = " and ".join(counted(number, word) for number, word in counts if number)
    if what:
        are = "is" if doomed.partitions + doomed.files == 1 else "are"
        note(settings, f"{asked.directory}: {what} {are} being deleted, {size_text(doomed.size)}")


def _all_partitions(directories: Iterable[str]) -> tuple[list[_Asked], list[KctlError]]:
    """The partitions of those directories that can be read, and of other brokers' in them; the errors of the others."""
    asked: dict[str, _Asked] = {}
    errors = []
    left = deque(directories)
    while left:
        directory = left.popleft()
        try:
            asked.setdefault(os.path.realpath(directory), _partitions(directory))
            left.extendleft(reversed(brokers_in(directory)))
        except KctlError as error:
            errors.append(error)
        except OSError as error:
            errors.append(of_file(error))
    return list(asked.values()), errors


def _partitions(directory: str) -> _Asked:
    """Those in a log directory, or the one that it is, of which the directory above it tells."""
    is_partition = bool(segments_in(directory))
    found = [] if is_partition else partitions_in(directory)
    if found or (not is_partition and _is_log_directory(directory)):
        kept = [path for path in found if not is_doomed(path)]
        return _Asked(directory, read_directory(directory), kept, doomed_in(found), is_whole=True)
    if not is_partition and not parse_name(os.path.basename(os.path.abspath(directory))):
        raise KctlError(f"{directory}: no partition found", exit_code=Exit.NOT_FOUND)
    above = read_directory(os.path.dirname(os.path.abspath(directory)))
    return _Asked(directory, above, [directory], doomed_in([directory]), is_whole=False)


def _is_log_directory(directory: str) -> bool:
    """Also without a partition."""
    return os.path.exists(os.path.join(directory, META_PROPERTIES)) or bool(brokers_in(directory))


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
