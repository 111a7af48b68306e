"""Is everything in order in a partition's directory, and in a broker's?"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import zip_longest
from typing import NamedTuple

from kafkad.log import checkpoint, snapshots
from kafkad.log.check import MISSING, Problem, examine
from kafkad.log.indexed import LOG, segment_path
from kafkad.log.lock import is_taken
from kafkad.log.names import Kind, base_of, parse_name
from kafkad.log.swap import DELETED
from kafkad.names import TopicPartition
from kafkad.wire.records import RecordsError, iter_records
from kctl.segments import verdicts
from kctl.segments.files import (
    BROKERS,
    FILES,
    Batch,
    Damage,
    Segment,
    brokers_in,
    place_text,
    read_batches,
    segments_in,
    span_text,
)
from kctl.segments.verdicts import Start, Verdict
from kctl.texts.output import counted

_DELAY_S = 90
"""What a running broker has at work changes more often than that."""
_BLOCK = 512
_MOST_OF_A_FILE = 5
"""Findings of one file that are reported one by one; the others are counted."""
_ATTEMPTS = 3
"""A running broker removes files between their names and their contents being read."""


_AT_WORK = (".cleaned", ".tmp")
"""Files that a running broker makes and removes by itself."""


class Finding(NamedTuple):
    severity: str
    file: str
    problem: str
    at_start: str
    action: str

    @classmethod
    def of(cls, severity: str, file: str, problem: str, verdict: Verdict) -> Finding:
        return cls(severity, file, problem, *verdict)


class Checked(NamedTuple):
    """One partition: `end` is the offset after its last record; None if it could not be read."""

    end: int | None
    size: int
    findings: list[Finding]


def check_partition(directory: str, start: Start, now_s: float, deep: bool, attempts: int = _ATTEMPTS) -> Checked:
    """Everything in one partition's directory. What cannot be read is a finding, unless a running broker has just
    removed it, and keeps nobody from checking the other partitions."""
    try:
        return _check_partition(directory, start, now_s, deep)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and start.in_use and attempts > 1:
            return check_partition(directory, start, now_s, deep, attempts - 1)
        file = os.fsdecode(error.filename) if error.filename else directory
        return Checked(None, 0, [_unreadable(file, error)])


def _unreadable(file: str, error: OSError) -> Finding:
    return Finding.of("error", file, f"cannot be read: {error.strerror or error}", verdicts.UNREADABLE)


def _check_partition(directory: str, start: Start, now_s: float, deep: bool) -> Checked:
    segments = segments_in(directory)
    bases = [segment.base for segment in segments]
    following = dict(zip_longest(bases, bases[1:]))
    found = examine(directory, FILES)
    end = found.end
    unreadable = {problem.path for problem in found.problems if problem.stops}
    findings = [_finding(problem, following, start) for problem in found.problems if problem.path not in unreadable]
    for segment in segments:
        if segment.path in unreadable:
            more, end_of_segment = _around_damage(segment, following[segment.base], start)
            findings += more
            end = max(end, end_of_segment)
        if deep:
            findings += _records(segment)
    in_use_at = now_s if start.in_use else None
    bad = {os.path.basename(problem.path) for problem in found.problems}
    findings += _missing_snapshots(directory, bases, bad, start, in_use_at)
    findings += _leftovers(directory, set(following), in_use_at)
    findings += _topic_id(directory)
    size = sum(_size_on_disk(entry.stat()) for entry in os.scandir(directory) if entry.is_file())
    return Checked(end, size, list(_shortened(findings)))


def _missing_snapshots(
    directory: str, bases: list[int], bad: set[str], start: Start, in_use_at: float | None
) -> Iterator[Finding]:
    """Brokers write one wherever a segment begins, but for the first, and delete those below the log's start. A roll on
    a full disk does without, and nobody needs those before the newest that is not among the `bad` files: a log that is
    cut reads more of itself."""
    names = os.listdir(directory)
    taken = {offset for name in names if name.endswith(snapshots.SUFFIX) and (offset := base_of(name)) is not None}
    newest = max((offset for offset in taken if snapshots.file_name(offset) not in bad), default=0)
    needed_after = max(newest, start.start_offset)
    missing = [base for base in bases[1:] if base > needed_after and base not in taken]
    if missing and missing[-1] == bases[-1] and _is_fresh(segment_path(directory, bases[-1], LOG), in_use_at):
        del missing[-1]  # a running broker may be at it
    if missing:
        path = os.path.join(directory, snapshots.file_name(missing[0]))
        more = f", and {counted(len(missing) - 1, 'other')} of this partition" if len(missing) > 1 else ""
        yield Finding.of("warn", path, f"{MISSING}{more}", verdicts.of_missing_snapshot(start, none_left=not taken))


def _size_on_disk(status: os.stat_result) -> int:
    """Without what was only reserved: an index of an active segment is nearly all hole."""
    return min(status.st_size, status.st_blocks * _BLOCK)


def _finding(problem: Problem, following: Mapping[int, int | None], start: Start) -> Finding:
    name = os.path.basename(problem.path)
    suffix = os.path.splitext(name)[1]
    after = following.get(base_of(name) or 0)
    if suffix == ".log":
        verdict = verdicts.of_log(problem.offset, after, start)
    elif suffix in (".index", ".timeindex", ".txnindex"):
        verdict = verdicts.of_index(suffix, after, start, missing=problem.text == MISSING)
    elif suffix == ".snapshot":
        verdict = verdicts.of_snapshot()
    else:
        verdict = verdicts.of_epochs() if following else verdicts.NO_SEGMENT
    return Finding.of("error", problem.path, problem.text, verdict)


def _around_damage(segment: Segment, following: int | None, start: Start) -> tuple[list[Finding], int]:
    """The findings in a `.log` file with stretches that are no batches, and the offset after its last batch."""
    found: list[tuple[int, str]] = []
    end = segment.base
    file = FILES.open_log_file(segment.path, os.O_RDONLY)
    for step in read_batches(file):
        if isinstance(step, Damage):
            found.append((end, span_text(step)))
            continue
        first = step.header.base_offset
        if not step.crc_ok:
            found.append((first, f"{place_text(step)} fails its checksum"))
        elif first < end:
            found.append((first, f"offset {first} at byte {step.position} where {end} is next"))
        end = step.header.last_offset + 1
    if following is not None and end > following:
        found.append((following, f"ends with offset {end - 1}, but {following} begins the next segment"))
    return [
        Finding.of("error", segment.path, text, verdicts.of_log(offset, following, start)) for offset, text in found
    ], end


def _records(segment: Segment) -> Iterator[Finding]:
    """Batches whose checksum is right and whose records make no sense."""
    file = FILES.open_log_file(segment.path, os.O_RDONLY)
    for step in read_batches(file):
        if not isinstance(step, Batch) or not step.crc_ok:
            continue
        try:
            _in_order(step)
        except RecordsError as error:
            yield Finding.of("error", segment.path, f"{place_text(step)}: {error}", verdicts.BROKEN_RECORDS)


def _in_order(batch: Batch) -> None:
    last = -1
    for record in iter_records(batch.view, batch.at, batch.header):
        if record[0] <= last:
            raise RecordsError(f"offset {record[0]} after {last}", batch.position)
        last = record[0]
    if last > batch.header.last_offset:
        raise RecordsError(f"offset {last}, where the batch ends with {batch.header.last_offset}", batch.position)


def _leftovers(directory: str, bases: set[int], in_use_at: float | None) -> Iterator[Finding]:
    """Files of work that was broken off, and of segments that are not there."""
    for name in sorted(os.listdir(directory)):
        path = os.path.join(directory, name)
        verdict = verdicts.unfinished(name)
        if verdict:
            if not (name.endswith(_AT_WORK) and _is_fresh(path, in_use_at)):
                yield Finding.of("warn", path, "left over by work that was broken off", verdict)
        elif name.endswith((".index", ".timeindex", ".txnindex")) and base_of(name) not in bases:
            yield Finding.of("warn", path, "belongs to no segment", verdicts.NO_LOG_FOR_INDEX)


def _is_fresh(path: str, in_use_at: float | None) -> bool:
    """True if a running broker may still be at it: a rename counts as a change."""
    try:
        return in_use_at is not None and in_use_at - os.stat(path).st_ctime < _DELAY_S
    except FileNotFoundError:
        return True  # it was at it just now


def _topic_id(directory: str) -> Iterator[Finding]:
    path = os.path.join(directory, checkpoint.PARTITION_METADATA)
    try:
        checkpoint.read_topic_id(path, FILES)
    except checkpoint.CheckpointError as error:
        yield _broken_checkpoint(path, error)


def _broken_checkpoint(path: str, error: checkpoint.CheckpointError) -> Finding:
    problem, _, remedy = str(error).removeprefix(f"{path}, ").partition(". ")
    return Finding.of("error", path, problem, verdicts.broken_checkpoint(remedy))


def _shortened(findings: list[Finding]) -> Iterator[Finding]:
    """A file that is wrong in many places need not fill the screen."""
    count: dict[str, int] = {}
    for finding in findings:
        count[finding.file] = count.get(finding.file, 0) + 1
        if count[finding.file] <= _MOST_OF_A_FILE:
            yield finding
    for finding in findings:
        more = count.pop(finding.file, 0) - _MOST_OF_A_FILE
        if more > 0:
            yield finding._replace(problem=f"and {more:,} more of this file")


# --- what waits for its deletion


class Doomed(NamedTuple):
    """What a running broker deletes after file.delete.delay.ms, else its next start: nothing is wrong with it."""

    partitions: int
    files: int
    """Of partitions that stay."""
    size: int


def doomed_in(partitions: Iterable[str]) -> Doomed:
    """Counts what is there: a running broker may be at it."""
    whole, files, size = 0, 0, 0
    for partition in partitions:
        is_whole = is_doomed(partition)
        whole += is_whole
        with suppress(OSError), os.scandir(partition) as entries:
            for entry in entries:
                if is_whole or entry.name.endswith(DELETED):
                    files += not is_whole
                    size += _size_on_disk(entry.stat())
    return Doomed(whole, files, size)


def is_doomed(partition: str) -> bool:
    name = parse_name(os.path.basename(os.path.abspath(partition)))
    return name is not None and name.kind is Kind.DELETED


# --- what belongs to the whole log directory


class Owner(NamedTuple):
    """The broker that a log directory belongs to."""

    cluster_id: str | None
    broker_id: int


class LogDirectory(NamedTuple):
    """The files that describe a log directory; for a partition's directory, those of the directory above it."""

    path: str
    owner: Owner | None
    """None if nothing in it says so."""
    clean: bool
    in_use: bool
    recovery_points: Mapping[TopicPartition, int]
    start_offsets: Mapping[TopicPartition, int]

    def start_of(self, partition: str) -> Start:
        name = parse_name(os.path.basename(os.path.abspath(partition)))
        if name is None:
            return Start(self.clean, self.in_use, 0, 0)
        where = name.topic_partition
        return Start(self.clean, self.in_use, self.recovery_points.get(where, 0), self.start_offsets.get(where, 0))


def read_directory(path: str) -> LogDirectory:
    def offsets(name: str) -> Mapping[TopicPartition, int]:
        try:
            return checkpoint.read_offsets(os.path.join(path, name), FILES)
        except (checkpoint.CheckpointError, OSError):
            return {}  # `check_directory` tells of it

    clean = os.path.exists(os.path.join(path, checkpoint.CLEAN_SHUTDOWN))
    points, starts = offsets(checkpoint.RECOVERY_POINTS), offsets(checkpoint.START_OFFSETS)
    return LogDirectory(path, _owner(path), clean, is_taken(path), points, starts)


def check_directory(whole: LogDirectory, checked: Mapping[str, Checked]) -> Iterator[Finding]:
    """`checked` are the partitions in it, without those that are being deleted."""
    path = whole.path
    ends: dict[TopicPartition, int | None] = {}
    for partition, one in checked.items():
        name = parse_name(os.path.basename(partition))
        assert name is not None  # by this it was found
        if name.kind is Kind.CURRENT:
            ends[name.topic_partition] = one.end
        elif not (name.kind is Kind.FUTURE and whole.in_use):
            yield Finding.of("warn", partition, *verdicts.PUT_ASIDE[name.kind])
    for entry in filter(os.DirEntry.is_dir, os.scandir(path)):
        found = parse_name(entry.name)
        if found is not None and found.kind is Kind.DELETED:
            ends.setdefault(found.topic_partition, None)  # checkpoints name it for some seconds more
        elif found is None and entry.name != _REMOTE_INDEXES and not (entry.name == BROKERS and brokers_in(path)):
            yield Finding.of("warn", entry.path, "its name is not that of a partition", verdicts.NO_PARTITION)
    for file_name in _CHECKPOINTS:
        yield from _check_offsets(os.path.join(path, file_name), ends)
    yield from _check_meta_properties(os.path.join(path, checkpoint.META_PROPERTIES))


_REMOTE_INDEXES = "remote-log-index-cache"
"""Kafka keeps there what it has fetched from remote storage."""
_CHECKPOINTS = (
    checkpoint.RECOVERY_POINTS,
    checkpoint.HIGH_WATERMARKS,
    checkpoint.START_OFFSETS,
    checkpoint.CLEANED_OFFSETS,
    checkpoint.DAMAGED_OFFSETS,
)


def _check_meta_properties(path: str) -> Iterator[Finding]:
    try:
        if checkpoint.read_meta_properties(path, FILES) is None:
            yield Finding.of("warn", path, MISSING, verdicts.NO_META_PROPERTIES)
    except checkpoint.CheckpointError as error:
        yield _broken_checkpoint(path, error)
    except OSError as error:
        yield _unreadable(path, error)


def _check_offsets(path: str, ends: Mapping[TopicPartition, int | None]) -> Iterator[Finding]:
    try:
        offsets = checkpoint.read_offsets(path, FILES)
    except checkpoint.CheckpointError as error:
        yield _broken_checkpoint(path, error)
        return
    except OSError as error:
        yield _unreadable(path, error)
        return
    for partition, offset in offsets.items():
        end = ends.get(partition)
        if partition not in ends:
            problem = f"names {partition.topic}-{partition.partition}, which is not there"
            yield Finding.of("warn", path, problem, verdicts.NOT_THERE)
        elif end is not None and offset > end:
            problem = f"{offset} for {partition.topic}-{partition.partition}, whose log ends at {end}"
            is_start = os.path.basename(path) == checkpoint.START_OFFSETS
            yield Finding.of(
                "error", path, problem, verdicts.of_start_offset(offset) if is_start else verdicts.PAST_THE_END
            )


def check_together(directories: Iterable[tuple[LogDirectory, Iterable[str]]]) -> Iterator[Finding]:
    """Findings across log directories, each with its partitions: those of one broker that contradict each other. One
    that may be anybody's counts as every broker's."""
    seen: dict[TopicPartition, list[tuple[Owner | None, str]]] = {}
    first: dict[int, LogDirectory] = {}
    for directory, partitions in directories:
        owner = directory.owner
        for partition in partitions:
            name = parse_name(os.path.basename(partition))
            if name is None or name.kind is not Kind.CURRENT:
                continue
            others = seen.setdefault(name.topic_partition, [])
            other = next((path for who, path in others if None in (who, owner) or who == owner), None)
            if other is not None:
                yield Finding.of("error", partition, f"is in {os.path.dirname(other)} too", verdicts.TWICE)
            others.append((owner, partition))
        if owner is not None and owner.cluster_id is not None:
            known = first.setdefault(owner.broker_id, directory)
            if known.owner != owner:
                yield _of_other_cluster(directory, known)


def _of_other_cluster(directory: LogDirectory, known: LogDirectory) -> Finding:
    assert directory.owner is not None and known.owner is not None  # by these they were compared
    path = os.path.join(directory.path, checkpoint.META_PROPERTIES)
    ids = f"{directory.owner.cluster_id}, where {known.path} has {known.owner.cluster_id}"
    problem = f"broker.id {directory.owner.broker_id} and cluster.id {ids}"
    return Finding.of("warn", path, problem, verdicts.OTHER_CLUSTER)


def _owner(directory: str) -> Owner | None:
    with suppress(checkpoint.CheckpointError, OSError):  # `check_directory` tells of it
        meta = checkpoint.read_meta_properties(os.path.join(directory, checkpoint.META_PROPERTIES), FILES)
        if meta is not None and meta.broker_id is not None:
            return Owner(meta.cluster_id, meta.broker_id)
    above, name = os.path.split(os.path.abspath(directory))
    return Owner(None, int(name)) if os.path.basename(above) == BROKERS and name.isdecimal() else None
