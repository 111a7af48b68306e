"""Reading files that a broker writes to meanwhile, and finding the way again in large damage."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from kafkad.wire.records import Record, build_batch
from kctl.segments import files
from kctl.segments.files import FILES, Batch, Damage, find_batch, read_batches


def _batch(offset: int, size: int = 100) -> bytes:
    return bytes(build_batch([Record(offset, 1, None, os.urandom(size))], leader_epoch=0))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000000.log"


def test_batch_that_was_being_written_is_read_when_it_is_whole(path: Path) -> None:
    third = _batch(2)
    path.write_bytes(_batch(0) + _batch(1) + third[:70])
    steps = read_batches(FILES.open_log_file(str(path), os.O_RDONLY))
    assert [next(steps).position, next(steps).position] == [0, len(third)]
    with path.open("ab") as file:
        file.write(third[70:] + _batch(3))
    rest = list(steps)
    assert all(isinstance(step, Batch) and step.crc_ok for step in rest)
    assert [step.header.base_offset for step in rest if isinstance(step, Batch)] == [2, 3]


def test_segment_that_is_cut_meanwhile_ends_in_damage(path: Path) -> None:
    first, second = _batch(0), _batch(1)
    path.write_bytes(first + second)
    steps = read_batches(FILES.open_log_file(str(path), os.O_RDONLY), 0, None)
    os.truncate(path, len(first) + 5)
    assert [type(step) for step in steps] == [Batch, Damage]


@pytest.mark.parametrize("size", [1, 61, 4000, 4096, 10_000])
def test_finds_the_next_batch_wherever_it_begins(path: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_CHUNK", 4096)  # so that batches begin at the edges of what is read at once
    for noise in (bytes(size), random.Random(size).randbytes(size)):
        path.write_bytes(_batch(0) + noise + _batch(1) + _batch(2))
        file = FILES.open_log_file(str(path), os.O_RDONLY)
        first, damage, second, third = read_batches(file)
        assert isinstance(damage, Damage)
        assert damage[:2] == (first.position + len(_batch(0)), second.position)
        assert damage.size == size
        assert third.position - second.position == len(_batch(1))


def test_finds_nothing_in_a_long_tail_of_zeros(path: Path) -> None:
    path.write_bytes(_batch(0))
    os.truncate(path, 64 << 20)
    file = FILES.open_log_file(str(path), os.O_RDONLY)
    _, damage = read_batches(file)
    assert isinstance(damage, Damage)
    assert damage[1:] == (64 << 20, "zeros to the end of the file")
    assert find_batch(file, 1000, 2000) is None
