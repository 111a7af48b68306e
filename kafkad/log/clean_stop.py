"""The state of each log at a clean stop, kept in `.kafkad_cleanshutdown` so that a start need not read their files.

To open a log takes a listing and four small files; for ten thousand of them that takes seconds. This file is believed
only beside the very marker (`.kafka_cleanshutdown`) it was written with, so not when another broker has used the
directory since, and for a log only if neither its directory nor the files that it stands for have changed. Any other
log is opened from its own files, which say the same. Kafka ignores it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from kafkad.config import LogConfig
from kafkad.log.checkpoint import CLEAN_SHUTDOWN, PARTITION_METADATA
from kafkad.log.epochs import FILE_NAME as EPOCHS
from kafkad.log.epochs import LeaderEpochs
from kafkad.log.files import Files, Stamp, as_far_as_there_is_room
from kafkad.log.indexed import LOG, segment_path
from kafkad.log.log import Log
from kafkad.log.producers import ProducerStates
from kafkad.log.recovery import Loaded
from kafkad.log.segment import Segment
from kafkad.log.snapshots import Snapshots
from kafkad.names import NO_TOPIC_ID, TopicPartition, id_text
from kafkad.wire.crc import crc32c

FILE_NAME = ".kafkad_cleanshutdown"
_VERSION = 2
"""The first one described logs with files that wait for their removal, which no start finds then."""
_WATCHED = ("", f"/{EPOCHS}", f"/{PARTITION_METADATA}")
"""The directory of a log, whose stamp changes with every name in it, and the files that need not be read."""


class StoppedLog(NamedTuple):
    """One log as a clean stop left it."""

    topic_id: str
    end_offset: int
    segments: list[tuple[int, Stamp, bool]]
    """Base, stamp of the `.log` file, and whether there is a transaction index."""
    epochs: list[tuple[int, int]]
    snapshots: list[int]
    has_producers: bool
    """True if the newest snapshot is to be read."""
    stamps: list[Stamp]
    """Of what `_WATCHED` names."""


def describe(log: Log, files: Files) -> StoppedLog | None:
    """A log that was closed. None for one that has to be opened from its files."""
    snapshots = log.producers.snapshots
    has_state = len(log.producers) > 0 or log.end_offset > log.start_offset
    if log.topic_id == NO_TOPIC_ID or log.is_damaged or (has_state and snapshots.newest != log.end_offset):
        return None
    if log.doomed:
        return None  # files that wait for their removal go when its directory is listed
    segments = [(segment.base, files.stamp(segment.path(LOG)), segment.has_transactions) for segment in log.segments]
    if any(stamp[-1] != segment.size for segment, (_, stamp, _) in zip(log.segments, segments, strict=True)):
        return None
    return StoppedLog(
        id_text(log.topic_id),
        log.end_offset,
        segments,
        log.epochs.entries,
        list(snapshots.offsets),
        len(log.producers) > 0,
        [files.stamp(f"{log.directory}{path}") for path in _WATCHED],
    )


def restore(
    stopped: StoppedLog,
    directory: str,
    config: LogConfig,
    files: Files,
    now_ms: int,
    *,
    start_offset: int,
    recovery_point: int,
    producer_expiration_ms: int,
) -> Loaded | None:
    """The same as `recovery.load`; None if that is to be asked, because something has changed since the stop."""
    _, end_offset, _, entries, snapshots, has_producers, _ = stopped
    segments = _unchanged_segments(stopped, directory, config, files, now_ms)
    if not segments:
        return None
    start_offset = max(start_offset, segments[0].base)
    if not start_offset <= end_offset <= recovery_point:
        return None
    producers = ProducerStates(Snapshots(directory, files, snapshots), expiration_ms=producer_expiration_ms)
    if has_producers:
        if producers.reload(start_offset, end_offset, now_ms) < end_offset:
            return None
    elif start_offset == end_offset:
        producers.reset(start_offset)
    else:
        producers.forget_past()
    epochs = LeaderEpochs(directory, files)
    epochs.restore(entries)
    epochs.truncate_from_start(start_offset)
    return Loaded(
        segments=segments,
        epochs=epochs,
        producers=producers,
        start_offset=start_offset,
        end_offset=end_offset,
        durable_until=end_offset,
        new_names=False,
    )


def _unchanged_segments(
    stopped: StoppedLog, directory: str, config: LogConfig, files: Files, now_ms: int
) -> list[Segment]:
    """The segments of a log whose files are as they were; none if one has changed.

    None either if one is empty: earlier versions may have left it where the one before it goes on.
    """
    segments: list[Segment] = []
    try:
        for path, stamp in zip(_WATCHED, stopped.stamps, strict=True):
            if files.stamp(directory + path) != stamp:
                return []
        for base, stamp, has_transactions in stopped.segments:
            _, _, size = stamp
            if files.stamp(segment_path(directory, base, LOG)) != stamp or (segments and not size):
                return []
            segment = Segment(files, directory, base, size, config.index_interval, now_ms)
            segment.has_transactions = has_transactions
            segments.append(segment)
    except OSError:
        return []
    return segments


def write(directory: str, stopped: Mapping[TopicPartition, StoppedLog], files: Files) -> None:
    """To be called after the marker was written, with which alone it holds.

    It is not waited for: its checksum tells what a power cut leaves of it.
    """
    body = json.dumps([(*tp, *log) for tp, log in stopped.items()], separators=(",", ":")).encode()
    head = json.dumps([_VERSION, crc32c(body), *_marker(directory, files)]).encode()
    with as_far_as_there_is_room():
        files.write_file(f"{directory}/{FILE_NAME}", head + b"\n" + body, durable=False)


def read(directory: str, files: Files) -> dict[TopicPartition, StoppedLog]:
    """What was written with the marker that is there now; nothing if there is no such file, or not a whole one."""
    try:
        head, _, body = files.read(f"{directory}/{FILE_NAME}").partition(b"\n")
        if json.loads(head) != [_VERSION, crc32c(body), *_marker(directory, files)]:
            return {}
        return {TopicPartition(topic, number): StoppedLog._make(log) for topic, number, *log in json.loads(body)}
    except (OSError, ValueError):
        return {}


def _marker(directory: str, files: Files) -> Stamp:
    return files.stamp(f"{directory}/{CLEAN_SHUTDOWN}")
