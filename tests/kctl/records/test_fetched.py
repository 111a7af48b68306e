"""One partition's part of a Fetch response, where it is damaged."""

from __future__ import annotations

import pytest

from kafkad.names import TopicPartition
from kafkad.wire.messages.fetch import PartitionData
from kafkad.wire.records import Record, build_batch
from kctl.errors import KctlError
from kctl.records.fetched import DamagedBatch, Fetched

WHERE = TopicPartition("t", 0)
_MAGIC_AT = 16
_LAST_OFFSET_DELTA_AT = 23


def batch(base: int) -> bytearray:
    """Three records."""
    return bytearray(build_batch([Record(base + at, 5, None, b"%d" % (base + at), ()) for at in range(3)]))


def fetched(*batches: bytes, start: int = 0) -> Fetched:
    return Fetched(WHERE, PartitionData(records=b"".join(batches)), start, 99)


def read(found: Fetched) -> tuple[list[int], DamagedBatch | None]:
    offsets: list[int] = []
    try:
        offsets.extend(record.offset for record in found.records())
    except DamagedBatch as error:
        return offsets, error
    return offsets, None


@pytest.mark.parametrize("start", [3, 4, 5])
@pytest.mark.parametrize("delta", [-9, 0, 2, 7, 2**31 - 1], ids=lambda delta: f"delta{delta}")
@pytest.mark.parametrize("alone", [True, False])
def test_reading_stops_before_a_damaged_batch_and_goes_on_after_it_whatever_its_header_says(
    start: int, delta: int, alone: bool
) -> None:
    damaged = batch(3)
    damaged[_LAST_OFFSET_DELTA_AT : _LAST_OFFSET_DELTA_AT + 4] = delta.to_bytes(4, "big", signed=True)
    damaged[-1] ^= 1
    found = fetched(damaged, start=start) if alone else fetched(damaged, batch(6), start=start)
    assert found.next > start
    offsets, error = read(found)
    assert (offsets, error and error.start) == ([], 3)
    assert error is not None and error.end > start
    if not alone:
        assert error.end == 6
        assert str(error) == "t-0 has a damaged batch at offsets 3 to 5: its checksum does not fit"


def test_nothing_of_a_damaged_batch_is_read_and_all_before_it() -> None:
    damaged = batch(3)
    damaged[-1] ^= 1
    offsets, error = read(fetched(batch(0), damaged, batch(6), start=1))
    assert (offsets, error and error.start, error and error.end) == ([1, 2], 3, 6)


def test_a_header_that_cannot_be_read_ends_what_was_fetched() -> None:
    damaged = batch(3)
    damaged[_MAGIC_AT] = 9
    found = fetched(batch(0), damaged, batch(6))
    assert (read(found), found.next) == (([0, 1, 2], None), 3)
    with pytest.raises(KctlError, match="damaged batch at offset 3, and nothing after it can be read"):
        fetched(damaged, batch(6), start=3)
