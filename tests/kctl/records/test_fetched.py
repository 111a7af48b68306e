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
DELTAS = (-9, 0, 2, 7, 2**31 - 1)


def batch(base: int) -> bytearray:
    """Three records."""
    return bytearray(build_batch([Record(base + at, 5, None, b"%d" % (base + at), ()) for at in range(3)]))


def damaged(delta: int) -> bytearray:
    """The batch at 3, whose header says that its last offset is so far from there."""
    data = batch(3)
    data[_LAST_OFFSET_DELTA_AT : _LAST_OFFSET_DELTA_AT + 4] = delta.to_bytes(4, "big", signed=True)
    data[-1] ^= 1
    return data


def fetched(*batches: bytes, start: int = 0) -> Fetched:
    return Fetched(WHERE, PartitionData(records=b"".join(batches), high_watermark=6), start, 99)


def read(found: Fetched) -> tuple[list[int], DamagedBatch | None]:
    offsets: list[int] = []
    try:
        offsets.extend(record.offset for record in found.records())
    except DamagedBatch as error:
        return offsets, error
    return offsets, None


@pytest.mark.parametrize("start", [3, 4, 5])
@pytest.mark.parametrize("delta", DELTAS, ids=lambda delta: f"delta{delta}")
@pytest.mark.parametrize("behind", [0, 8, 40, None], ids=["alone", "cut-off", "less-cut-off", "whole"])
def test_reading_stops_before_a_damaged_batch_and_goes_on_after_it_whatever_its_header_says(
    start: int, delta: int, behind: int | None
) -> None:
    found = fetched(damaged(delta), batch(6)[:behind], start=start)
    assert found.next > start
    offsets, error = read(found)
    assert (offsets, error and error.start) == ([], 3)
    assert error is not None
    if behind == 0:  # it is the last of the log, which ends at 6
        assert error.end == max(start + 1, min(3 + max(delta, 0) + 1, 6))
    else:
        assert error.end == 6
        assert str(error) == "t-0 has a damaged batch at offsets 3 to 5: its checksum does not fit"


@pytest.mark.parametrize("delta", DELTAS, ids=lambda delta: f"delta{delta}")
def test_the_end_of_a_damaged_batch_that_came_last_is_left_to_the_next_fetch(delta: int) -> None:
    offsets, error = read(fetched(batch(0), damaged(delta)))
    assert (offsets, error and (error.start, error.end)) == ([0, 1, 2], (3, 3))
    assert str(error) == "t-0 has a damaged batch at offset 3: its checksum does not fit"


@pytest.mark.parametrize("start", [6, 7])
def test_a_damaged_batch_that_pretends_to_hold_more_is_not_met_again(start: int) -> None:
    """A broker looks for the first batch whose last offset is not before the one it is asked for."""
    found = fetched(damaged(2**31 - 1), batch(6), start=start)
    assert (read(found), found.next) == ((list(range(start, 9)), None), 9)
    cut_off = fetched(damaged(2**31 - 1), batch(6)[:40], start=start)
    assert (read(cut_off), cut_off.next, cut_off.size) == (([], None), start, 0)
    too_little = fetched(damaged(2**31 - 1), batch(6), start=9)
    assert (read(too_little), too_little.next, too_little.size) == (([], None), 9, 0)


def test_a_batch_that_ends_where_no_batch_can_is_fetched_again_with_what_is_behind_it() -> None:
    data = bytes(damaged(2**31 - 1))
    found = Fetched(WHERE, PartitionData(records=data, high_watermark=9), 3, 99, more=True)
    assert (found.next, found.size) == (3, 0)
    found = Fetched(WHERE, PartitionData(records=data + batch(6), high_watermark=9), 3, 99, more=True)
    offsets, error = read(found)
    assert (offsets, error and (error.start, error.end)) == ([], (3, 6))


def test_nothing_of_a_damaged_batch_is_read_and_all_before_it() -> None:
    offsets, error = read(fetched(batch(0), damaged(2), batch(6), start=1))
    assert (offsets, error and error.start, error and error.end) == ([1, 2], 3, 6)


def test_a_header_that_cannot_be_read_ends_what_was_fetched() -> None:
    unknown = batch(3)
    unknown[_MAGIC_AT] = 9
    found = fetched(batch(0), unknown, batch(6))
    assert (read(found), found.next) == (([0, 1, 2], None), 3)
    with pytest.raises(KctlError, match="damaged batch at offset 3, and nothing after it can be read"):
        fetched(unknown, batch(6), start=3)
