"""Whether anything but markers is left to read, in batches as brokers send them."""

from __future__ import annotations

import pytest

from kafkad.wire.control import ControlRecord, build_marker
from kafkad.wire.records import Record, build_batch
from kctl.groups.markers import BYTES, MOST, has_only_markers


def data(base: int, count: int = 1) -> bytes:
    return bytes(build_batch([Record(base + at, 0, b"k", b"v" * 100) for at in range(count)]))


def marker(base: int) -> bytes:
    return bytes(build_marker(ControlRecord(True, 0), producer_id=1, producer_epoch=0, timestamp=0, base_offset=base))


COMPACTED = bytes(build_batch([], base_offset=5, last_offset=6, base_timestamp=0, max_timestamp=0))


@pytest.mark.parametrize(
    ("batches", "begin", "end", "nothing"),
    [
        (marker(5), 5, 6, True),
        (marker(5) + marker(6), 5, 7, True),
        (marker(5) + marker(6) + data(7), 5, 7, True),
        (marker(5) + data(6), 5, 7, False),
        (data(5) + marker(6), 5, 7, False),
        (data(3, 3), 4, 6, False),
        (marker(5), 5, 7, False),
        (COMPACTED + marker(7), 5, 8, True),
        (b"", 5, 6, False),
        (marker(5) + marker(6)[:-1], 5, 7, False),
        (marker(5) + data(6)[:70], 5, 6, True),
        (marker(5) + b"\x01" * 100, 5, 7, False),
    ],
)
def test_what_is_left(batches: bytes, begin: int, end: int, nothing: bool) -> None:
    assert has_only_markers(batches, begin, end) is nothing


def test_as_many_as_are_asked_for_fit_in_what_is_asked_for() -> None:
    assert len(marker(0)) * MOST <= BYTES
