"""What Spark's checkpoint says of a batch: the offsets it planned, and the watermark it ran under."""

from __future__ import annotations

import json
from typing import NamedTuple

from kafkad_etl.driver.paths import Files, join
from kafkad_etl.job import Offsets


class Planned(NamedTuple):
    end: Offsets
    watermark_ms: int
    """Windows that end by then are closed by this batch; rows are late by the one of the batch before."""


class Range(NamedTuple):
    start: Offsets
    end: Offsets
    late_before_ms: int
    """0: no row of this batch is late."""


def offsets_of(text: str) -> Offsets:
    """Of one source. Sources of files have other positions: none here."""
    try:
        found = json.loads(text)
        return {topic: {int(p): int(offset) for p, offset in parts.items()} for topic, parts in found.items()}
    except (ValueError, AttributeError):
        return {}


def planned(content: bytes) -> Planned:
    """`offsets/<n>`: a version, the metadata, and one line for each source."""
    _, metadata, *sources = content.decode().splitlines()
    end = offsets_of(sources[0]) if sources and sources[0] != "-" else {}
    return Planned(end, int(json.loads(metadata).get("batchWatermarkMs", 0)))


def initial(content: bytes) -> Offsets:
    """`sources/0/0`: where the first batch began. Spark writes a zero byte and a version before the offsets."""
    return offsets_of(content.lstrip(b"\0").decode().partition("\n")[2])


def keep(files: Files, checkpoint: str, batch: int) -> None:
    """Else a batch that comes again after a loss of power might be another one, with other offsets."""
    first = ["sources/0/0"] if batch == 0 and files.exists(join(checkpoint, "sources/0/0")) else []
    files.keep(checkpoint, ["metadata", f"offsets/{batch}", *first])


def range_of(files: Files, checkpoint: str, batch: int) -> Range:
    this = planned(files.read(join(checkpoint, f"offsets/{batch}")))
    if batch == 0:
        first = join(checkpoint, "sources/0/0")
        start = initial(files.read(first)) if files.exists(first) else {}
        return Range(start, this.end, 0)
    before = planned(files.read(join(checkpoint, f"offsets/{batch - 1}")))
    return Range(before.end, this.end, before.watermark_ms)
