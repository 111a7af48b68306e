"""Walking over batches without a log: where blocks that are read end must not matter, and damage ends it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from kafkad.log import batches
from kafkad.log.batches import sound_headers
from kafkad.log.files import Files
from kafkad.wire.records import BASE_OFFSET, BATCH_HEADER, LENGTH, PREFIX_SIZE, Record, build_batch

SIZES = (10, 3000, 10, 10, 500, 2000, 10)


def log_of(sizes: Iterable[int]) -> bytes:
    """A batch with a value of each size; those of one size differ in nothing that the checksum covers."""
    each = (build_batch([Record(n, 1, b"k", b"v" * size)], base_offset=n) for n, size in enumerate(sizes))
    return b"".join(bytes(batch) for batch in each)


def begins(data: bytes) -> list[int]:
    found = [0]
    while found[-1] < len(data):
        found.append(found[-1] + PREFIX_SIZE + BATCH_HEADER.unpack_from(data, found[-1])[LENGTH])
    return found


def walked(path: Path, data: bytes) -> tuple[list[int], int]:
    """The base offsets that are found, and where the last batch ends."""
    path.write_bytes(data)
    end, found = 0, []
    with path.open("rb") as file:
        for headers, end in sound_headers(Files(), file.fileno(), 0, len(data)):  # noqa: B007 - the last one counts
            found += [header[BASE_OFFSET] for header in headers]
    return found, end


@pytest.mark.parametrize("block", [61, 700, 1 << 20])
def test_sound_headers_end_at_the_first_batch_that_is_not(
    tmp_path: Path, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "_CHUNK", block)
    data, everything = log_of(SIZES), list(range(len(SIZES)))
    places = begins(data)
    assert walked(tmp_path / "log", data) == (everything, len(data))
    assert walked(tmp_path / "log", data[:-1]) == (everything[:-1], places[-2])
    for number, at in ((1, 100), (4, 8), (5, 16), (6, 17)):  # inside the records; the length, magic and checksum
        damaged = bytearray(data)
        damaged[places[number] + at] ^= 0x80
        assert walked(tmp_path / "log", bytes(damaged)) == (everything[:number], places[number])


def test_what_a_broker_cuts_off_meanwhile_is_not_taken_from_the_block_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = log_of([500] * 10)
    size = len(data) // 10
    monkeypatch.setattr(batches, "_CHUNK", 5 * size)
    path = tmp_path / "log"
    path.write_bytes(data)
    with path.open("rb") as file:
        steps = sound_headers(Files(), file.fileno(), 0, len(data))
        assert next(steps)[1] == 5 * size
        os.truncate(path, 7 * size + 100)
        assert [end for _, end in steps] == [7 * size]
