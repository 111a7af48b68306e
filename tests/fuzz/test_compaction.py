"""Damaged segments: compaction names them and replaces nothing, whatever is in them."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from kafkad.log.compaction import CLEANED, UncleanableError
from kafkad.wire.records import CRC_FROM, HEADER_SIZE, iter_batches, seal
from tests.cleaner.compacting import Partition, run

GOLDEN = Path(__file__).parent.parent / "golden" / "logs"
VICTIMS = [*(GOLDEN / "before-compaction").glob("compact-*-0"), *(GOLDEN / "old-formats").glob("old-*-v1-*-0")]
BLOCKS = [
    0,
    *(pytest.param(block, marks=pytest.mark.slow if block < 2 else pytest.mark.long) for block in range(1, 20)),
]
BLOCK = 60
LEADER_EPOCH = range(12, 16)
"""Bytes that no checksum covers and that affect nothing."""


def victim(dice: random.Random, tmp_path: Path) -> tuple[Partition, Path]:
    source = dice.choice(sorted(VICTIMS))
    shutil.rmtree(tmp_path / "victim", ignore_errors=True)
    partition = Partition(shutil.copytree(source, tmp_path / "victim", copy_function=shutil.copyfile))
    logs = [base for base in partition.bases[:-1] if partition.path(base).stat().st_size]
    if not logs:
        partition.write(1 << 20)
        logs = partition.bases[:-1]
    return partition, partition.path(dice.choice(logs))


def contents(partition: Partition) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in partition.directory.iterdir() if not path.name.endswith(CLEANED)}


@pytest.mark.parametrize("block", BLOCKS)
def test_no_flipped_bit_goes_unnoticed(block: int, tmp_path: Path) -> None:
    dice = random.Random(block)
    for _ in range(BLOCK):
        partition, path = victim(dice, tmp_path)
        data = bytearray(path.read_bytes())
        view = memoryview(bytes(data))
        at, header = dice.choice(list(iter_batches(view)))
        inside = dice.randrange(header.size)
        data[at + inside] ^= 1 << dice.randrange(8)
        path.write_bytes(data)
        before = contents(partition)
        if header.magic == 2 and inside in LEADER_EPOCH:
            run(partition.job(), partition.offered.append)
            continue
        with pytest.raises(UncleanableError) as caught:
            run(partition.job(), partition.offered.append)
        assert caught.value.path == str(path)
        assert at <= caught.value.position <= at + header.size or inside < 12
        assert contents(partition) == before


@pytest.mark.parametrize("block", BLOCKS)
def test_sense_that_checksums_do_not_hold_together_is_no_trap(block: int, tmp_path: Path) -> None:
    """Batches of a producer that lies about what is in them, under a right checksum: any end but a crash or a hang."""
    dice = random.Random(block)
    outcomes = []
    for _ in range(BLOCK):
        partition, path = victim(dice, tmp_path)
        data = bytearray(path.read_bytes())
        batches = [(at, header) for at, header in iter_batches(memoryview(bytes(data))) if header.magic == 2]
        if not batches:
            continue
        at, header = dice.choice(batches)
        for _ in range(dice.randint(1, 3)):
            inside = dice.randrange(CRC_FROM, min(header.size, HEADER_SIZE + 60))
            data[at + inside] = dice.randrange(256)
        seal(memoryview(data), at, at + header.size)
        path.write_bytes(data)
        before = contents(partition)
        try:
            result = run(partition.job(), partition.offered.append)
        except UncleanableError as error:
            assert error.path == str(path)
            outcomes.append(False)
        else:
            assert result.next_dirty == partition.bases[-1]
            outcomes.append(True)
        assert contents(partition) == before
    assert True in outcomes
