"""Batches copied from another replica, checked before a log takes them in with their offsets and epochs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kafkad.log.batches import header_at
from kafkad.log.producers import read_marker
from kafkad.wire.control import ControlRecord
from kafkad.wire.records import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    LENGTH,
    PREFIX_SIZE,
    PRODUCER_ID,
    SMALLEST_BATCH,
    Header,
    crc_matches,
)


class CopiedBatch(NamedTuple):
    """A batch that begins at `at` in the bytes it came in; `marker` when it ends a transaction."""

    at: int
    header: Header
    marker: ControlRecord | None

    @property
    def size(self) -> int:
        return self.header[LENGTH] + PREFIX_SIZE

    @property
    def last_offset(self) -> int:
        return self.header[BASE_OFFSET] + self.header[LAST_OFFSET_DELTA]


def copied_batches(
    view: memoryview, end_offset: int, epochs: tuple[int, int] | None, *, is_empty: bool = False
) -> Iterator[CopiedBatch]:
    """The batches in `view`, for a log that ends at `end_offset`; a part of one at the end is ignored.

    The first may hold `end_offset` if the log `is_empty`: the one that is copied begins in the middle of that batch.

    ValueError at the first that is malformed, fails its checksum, has an offset that the log is past already, or a
    leader epoch outside of `epochs`, if there are any: before that of the log's last batch, or after the present one.
    """
    at = 0
    while (length := _whole_length(view, at)) is not None:
        header = header_at(view, at, len(view) - at)
        base = header[BASE_OFFSET]
        if base < end_offset and not (is_empty and at == 0 and end_offset <= base + header[LAST_OFFSET_DELTA]):
            raise ValueError(f"a batch with offset {base} where {end_offset} is next")
        if not crc_matches(view, at, header):
            raise ValueError(f"the batch with offset {base} fails its checksum")
        epoch = header[LEADER_EPOCH]
        if epochs is not None and epoch >= 0:
            if not epochs[0] <= epoch <= epochs[1]:
                raise ValueError(
                    f"the batch with offset {base} has leader epoch {epoch}, not {epochs[0]} to {epochs[1]}"
                )
            epochs = epoch, epochs[1]
        ends_transaction = header[PRODUCER_ID] >= 0 and header[ATTRIBUTES] & CONTROL
        batch = CopiedBatch(at, header, read_marker(view, at, header) if ends_transaction else None)
        yield batch
        end_offset = batch.last_offset + 1
        at += length


def some_at_a_time(view: memoryview, most: int = 1_000) -> Iterator[memoryview]:
    """The batches in `view`, at most so many together, however small they are: what takes long is their number. A part
    of one at the end stays with the last ones. Nothing is looked at but lengths."""
    start = at = count = 0
    while (length := _whole_length(view, at)) is not None and length > 0:
        if count == most:
            yield view[start:at]
            start, count = at, 0
        at += length
        count += 1
    yield view[start:]


def _whole_length(view: memoryview, at: int) -> int | None:
    left = len(view) - at
    if left < SMALLEST_BATCH:
        return None
    length = PREFIX_SIZE + int.from_bytes(view[at + 8 : at + PREFIX_SIZE], "big", signed=True)
    return length if length <= left else None
