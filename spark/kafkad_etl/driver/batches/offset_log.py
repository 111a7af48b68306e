"""Reads Spark's write-ahead log: the planned offsets of a batch, and its watermark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import NamedTuple

from kafkad_etl.driver.paths import Files, join
from kafkad_etl.job import Offsets


class PlannedBatch(NamedTuple):
    end: Offsets
    watermark_ms: int
    """The batch's watermark. It closes windows that end by then; rows are late by the previous batch's watermark."""
    time_ms: int


class BatchRange(NamedTuple):
    start: Offsets
    end: Offsets
    late_before_ms: int
    """Rows before this time are late; 0 if none can be."""
    planned_ms: int


class PlannedWithout(NamedTuple):
    """A batch that was planned without topics which the one before it had."""

    batch: int
    topics: list[str]


def offsets_of(text: str) -> Offsets:
    """Parses the offsets of one source; empty for files, whose positions have another form."""
    try:
        found = json.loads(text)
        return {topic: {int(p): int(offset) for p, offset in parts.items()} for topic, parts in found.items()}
    except (ValueError, AttributeError):
        return {}


def planned(content: bytes) -> PlannedBatch:
    """Parses `offsets/<n>`: a version, metadata, and one line per source."""
    _, metadata, *sources = content.decode().splitlines()
    end = offsets_of(sources[0]) if sources and sources[0] != "-" else {}
    about = json.loads(metadata)
    return PlannedBatch(end, int(about.get("batchWatermarkMs", 0)), int(about.get("batchTimestampMs", 0)))


def initial(content: bytes) -> Offsets:
    """Parses `sources/0/0`, the start offsets of the first batch. Spark writes a zero byte and a version before
    them."""
    return offsets_of(content.lstrip(b"\0").decode().partition("\n")[2])


def sync(files: Files, checkpoint: str, batch: int) -> None:
    """Syncs a batch's plan, and what it follows: a start or a commit. Without its plan, a batch repeated after a power
    failure might have other offsets; with an empty commit before it, Spark could not go on."""
    before = f"commits/{batch - 1}" if batch else "sources/0/0"
    there = [before] if files.exists(join(checkpoint, before)) else []
    files.sync(checkpoint, ["metadata", f"offsets/{batch}", *there])


def range_of(files: Files, checkpoint: str, batch: int) -> BatchRange:
    this = planned(files.read(join(checkpoint, f"offsets/{batch}")))
    if batch == 0:
        first = join(checkpoint, "sources/0/0")
        start = initial(files.read(first)) if files.exists(first) else {}
        return BatchRange(start, this.end, 0, this.time_ms)
    before = planned(files.read(join(checkpoint, f"offsets/{batch - 1}")))
    return BatchRange(before.end, this.end, before.watermark_ms, this.time_ms)


def without(batch: BatchRange, deleted: Iterable[str]) -> list[str]:
    """Topics that a batch begins with and does not end with, but for those that were deleted: Spark did not see them
    when it planned the batch. Once it has left them out, it would read them again from their start."""
    return sorted(batch.start.keys() - batch.end.keys() - set(deleted))


def uncommitted(files: Files, checkpoint: str) -> int | None:
    """The batch that is planned and not committed."""
    planned = [int(each.path) for each in files.under(join(checkpoint, "offsets")) if each.path.isdecimal()]
    last = max(planned, default=None)
    return None if last is None or files.exists(join(checkpoint, f"commits/{last}")) else last


def planned_without(files: Files, checkpoint: str, deleted: Iterable[str]) -> PlannedWithout | None:
    """The batch that is planned and not committed, if that is without topics."""
    last = uncommitted(files, checkpoint)
    if last is None:
        return None
    topics = without(range_of(files, checkpoint, last), deleted)
    return PlannedWithout(last, topics) if topics else None


def take_back(
    files: Files, checkpoint: str, found: PlannedWithout, is_finished: Callable[[int, BatchRange], bool]
) -> bool:
    """Removes the plan of a batch that is without topics, so that Spark makes another. Returns False if it stays: the
    sink has finished the batch, and takes no other records under its number."""
    batch = found.batch
    if is_finished(batch, range_of(files, checkpoint, batch)):
        return False
    for name in (f".{batch}.crc", f"{batch}"):  # a plan can be read without its checksum
        files.remove(join(checkpoint, f"offsets/{name}"))
    return True
