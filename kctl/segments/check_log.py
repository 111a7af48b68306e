"""`kctl check-log`: is everything in order in the directories of a broker, or of one partition?"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import click

from kafkad.log import checkpoint
from kafkad.log.check import check
from kafkad.log.names import Kind, base_of, parse_name
from kafkad.names import TopicPartition
from kafkad.wire.records import RecordsError, iter_records
from kctl.command import KctlCommand, pass_settings
from kctl.errors import Exit, KctlError
from kctl.output import Column, Document, Writer, duration_text, note, size_text
from kctl.segments.files import FILES, Batch, end_offset, partitions_in, read_batches, segments_in
from kctl.settings import Settings

COLUMNS = (
    Column("severity", "error: something is damaged; warn: something is left over.", "state"),
    Column("file", "Where."),
    Column("problem", "What is wrong."),
    Column("action", "What is safe to do.", header="SAFE ACTION"),
)

_REBUILT = "with the broker stopped, delete it: it is rebuilt from the log at the next start"
_COPIED = "stop the broker, move the partition's directory away and let it copy from another replica"
_CUT = "none: a broker that was not stopped cleanly cuts the log there at its next start; else as for an older segment"
_ACTIONS = {
    ".index": _REBUILT,
    ".timeindex": _REBUILT,
    ".txnindex": "kafkad rebuilds a broken one by itself; for Kafka, with it stopped, delete the .index beside it too",
    ".snapshot": "with the broker stopped, delete it: the producers are read from the log instead",
    "leader-epoch-checkpoint": f"kafkad rebuilds a broken one by itself; for Kafka: {_COPIED}",
}
_UNFINISHED = (".deleted", ".cleaned", ".swap", ".tmp")


class Finding(NamedTuple):
    severity: str
    file: str
    problem: str
    action: str


class Checked(NamedTuple):
    """One partition: `end` is the offset after its last record."""

    end: int
    size: int
    findings: list[Finding]


@click.command("check-log", cls=KctlCommand, columns=COLUMNS)
@click.argument("directories", metavar="DIRECTORY...", nargs=-1, required=True)
@click.option("--deep", is_flag=True, help="Unpack every record too.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, metavar="N", help="Check with N processes.")
@pass_settings
def check_log(settings: Settings, /, directories: tuple[str, ...], deep: bool, jobs: int) -> int:
    """Check log directories, or directories of single partitions.

    Checksums, the order of offsets, indexes, producer snapshots and leader epochs against the log, checkpoints against
    what is there, and what should not be there. Reads only; findings give exit code 7. A broker may be running, but
    what it writes meanwhile may then look unfinished: stop it to be certain.

    Example: kctl check-log /var/lib/kafka
    """
    begun = time.monotonic()
    findings: list[Finding] = []
    partitions = size = 0
    for directory in directories:
        if segments_in(directory):
            checked = [check_partition(directory, deep)]
        else:
            found = partitions_in(directory)
            if not found:
                raise KctlError(f"{directory}: there is no partition in it", exit_code=Exit.NOT_FOUND)
            checked = list(_check_all(found, deep, jobs))
            findings += _check_directory(directory, dict(zip(found, checked, strict=True)))
        findings += (finding for one in checked for finding in one.findings)
        partitions += len(checked)
        size += sum(one.size for one in checked)
    if findings or not settings.is_text:
        Writer(settings, COLUMNS, Document("check-log")).write(finding._asdict() for finding in findings)
    took = duration_text(int((time.monotonic() - begun) * 1000))
    note(settings, f"{partitions:,} partitions, {size_text(size)}, {len(findings)} findings, {took}")
    return Exit.FINDINGS if findings else Exit.DONE


def _check_all(partitions: list[str], deep: bool, jobs: int) -> Iterable[Checked]:
    if jobs == 1:
        return (check_partition(partition, deep) for partition in partitions)
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        return list(pool.map(check_partition, partitions, [deep] * len(partitions)))


def check_partition(directory: str, deep: bool) -> Checked:
    """Everything in one partition's directory."""
    segments = segments_in(directory)
    last = segments[-1].path if segments else None
    findings = [Finding("error", path, problem, _action(path, problem, last)) for path, problem in check(directory)]
    findings += _leftovers(directory)
    findings += _topic_id(directory)
    if deep:
        findings += (finding for segment in segments for finding in _records(segment.path))
    size = sum(entry.stat().st_size for entry in os.scandir(directory) if entry.is_file())
    return Checked(end_offset(segments[-1]) if segments else 0, size, findings)


def _action(path: str, problem: str, last_segment: str | None) -> str:
    """`last_segment` is the path of the one that is written to."""
    name = os.path.basename(path)
    if name.endswith(("index", ".snapshot")) and problem == "is missing":
        return "none: rebuilt from the log at the next start"
    if path == last_segment:
        return _CUT
    return next((action for end, action in _ACTIONS.items() if name.endswith(end)), _COPIED)


def _leftovers(directory: str) -> Iterator[Finding]:
    """Files of a compaction or deletion that was broken off, and those of segments that are not there."""
    names = os.listdir(directory)
    logs = {base_of(name) for name in names if name.endswith(".log")}
    for name in sorted(names):
        path = os.path.join(directory, name)
        if name.endswith(_UNFINISHED):
            yield Finding(
                "warn", path, "left over by work that was broken off", "none: finished or cleared at the next start"
            )
        elif name.endswith((".index", ".timeindex", ".txnindex")) and base_of(name) not in logs:
            yield Finding("warn", path, "belongs to no segment", "with the broker stopped, delete it")


def _topic_id(directory: str) -> Iterator[Finding]:
    path = os.path.join(directory, checkpoint.PARTITION_METADATA)
    try:
        checkpoint.read_topic_id(path, FILES)
    except checkpoint.CheckpointError as error:
        yield _checkpoint_finding(path, error)


def _checkpoint_finding(path: str, error: checkpoint.CheckpointError) -> Finding:
    problem, _, remedy = str(error).removeprefix(f"{path}, ").partition(". ")
    return Finding("error", path, problem, remedy)


def _records(path: str) -> Iterator[Finding]:
    """Batches whose checksum is right and whose records make no sense."""
    file = FILES.open_log_file(path, os.O_RDONLY)
    for step in read_batches(file):
        if not isinstance(step, Batch) or not step.crc_ok:
            continue
        try:
            last = -1
            for record in iter_records(step.view, step.at, step.header):
                if record.offset <= last:
                    raise RecordsError(f"offset {record.offset} after {last}", step.position)
                last = record.offset
        except RecordsError as error:
            problem = f"the batch with offset {step.header.base_offset} at byte {step.position}: {error}"
            yield Finding("error", path, problem, _COPIED)


# --- what belongs to the whole log directory


def _check_directory(directory: str, checked: dict[str, Checked]) -> Iterator[Finding]:
    ends: dict[TopicPartition, int] = {}
    for path, one in checked.items():
        name = parse_name(os.path.basename(path))
        assert name is not None  # by this it was found
        if name.kind is Kind.CURRENT:
            ends[name.topic_partition] = one.end
        else:
            yield Finding("warn", path, _PUT_ASIDE[name.kind], _KEPT[name.kind])
    for file_name in (checkpoint.RECOVERY_POINTS, checkpoint.HIGH_WATERMARKS, checkpoint.START_OFFSETS):
        yield from _check_offsets(os.path.join(directory, file_name), ends)
    path = os.path.join(directory, checkpoint.META_PROPERTIES)
    try:
        if checkpoint.read_meta_properties(path, FILES) is None:
            yield Finding("warn", path, "is missing", "none, if this is not the directory of a broker")
    except checkpoint.CheckpointError as error:
        yield _checkpoint_finding(path, error)


_PUT_ASIDE = {
    Kind.DELETED: "of a partition that is being deleted",
    Kind.FUTURE: "a copy that is being made, to move the partition here",
    Kind.STRAY: "put aside by a broker that did not know the partition",
}
_KEPT = {
    Kind.DELETED: "none: a running broker removes it",
    Kind.FUTURE: "none: a running broker completes it",
    Kind.STRAY: "delete it when nobody misses the data",
}


def _check_offsets(path: str, ends: dict[TopicPartition, int]) -> Iterator[Finding]:
    try:
        offsets = checkpoint.read_offsets(path, FILES)
    except checkpoint.CheckpointError as error:
        yield _checkpoint_finding(path, error)
        return
    for partition, offset in offsets.items():
        end = ends.get(partition)
        if end is None:
            problem = f"names {partition.topic}-{partition.partition}, which is not there"
            yield Finding("warn", path, problem, "none, if the partition was deleted or moved; else restore it")
        elif offset > end:
            problem = f"{offset} for {partition.topic}-{partition.partition}, whose log ends at {end}"
            yield Finding("error", path, problem, "let the replica copy what it lost: another one must lead")
