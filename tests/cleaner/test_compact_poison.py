"""Batches with a true CRC whose records nobody can read, which older versions took: compaction goes around them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkad.log.compaction import UncleanableError
from kafkad.wire.compression import Codec
from kafkad.wire.records import BATCH_HEADER, LAST_OFFSET_DELTA, BatchHeader, Record, build_batch, seal
from tests.cleaner.compacting import NOW_MS, Partition
from tests.log.lies import Lie, key, lies, readable
from tests.log.test_lies import LIES

POISON = [
    lie
    for lie in LIES
    if lie.codec in (Codec.NONE, Codec.GZIP)
    and not readable(lie)
    and BATCH_HEADER.unpack_from(lie.batch)[LAST_OFFSET_DELTA] >= 0
]
NAMES = ("gzip: 200 bytes that nobody compressed", "none: 200 random bytes", "none: last record: length 1000")


def placed(lie: Lie, offset: int) -> bytes:
    batch = bytearray(lie.batch)
    BATCH_HEADER.pack_into(batch, 0, *BatchHeader._make(BATCH_HEADER.unpack_from(batch))._replace(base_offset=offset))
    seal(memoryview(batch), 0, len(batch))
    return bytes(batch)


def batch(offset: int, *keys: bytes) -> bytearray:
    return build_batch([Record(offset + n, NOW_MS, name, b"value") for n, name in enumerate(keys)])


def poisoned(directory: Path, lie: Lie) -> tuple[Partition, bytes, int]:
    """Offsets 0 to 2 in front of the poison, the poison at 3, two more and the active segment behind it."""
    partition = Partition(directory)
    poison = placed(lie, 3)
    after = 3 + BATCH_HEADER.unpack_from(poison)[LAST_OFFSET_DELTA] + 1
    partition.write(0, batch(0, b"a", b"b", b"a"))
    partition.write(3, poison)
    partition.write(after, batch(after, b"c", b"b"))
    partition.write(after + 2)
    return partition, poison, after


@pytest.mark.parametrize("lie", POISON, ids=key)
def test_it_stays_and_all_else_is_compacted(tmp_path: Path, lie: Lie) -> None:
    partition, poison, after = poisoned(tmp_path / "t-0", lie)
    result = partition.compact()
    sound = [batch(0, b"a", b"b", b"a"), batch(after, b"c", b"b")]
    stored = b"".join(partition.path(base).read_bytes() for base in partition.bases)
    if result.poison:
        [found] = result.poison
        assert (found.offset, found.following, found.position) == (3, after, 0)
        assert found.path == str(partition.path(3))
        assert poison in stored
        rest = stored.replace(poison, b"")
    else:  # a part of it makes sense to compaction: no key was lost for it
        rest = stored
    assert result.next_dirty == after + 2
    front = build_batch([Record(2, NOW_MS, b"a", b"value")], base_offset=0, last_offset=2)
    assert rest.startswith(bytes(front)[:8])
    assert rest.endswith(bytes(sound[1]))


@pytest.mark.parametrize("name", NAMES)
def test_it_stays_in_the_part_that_is_clean_already(tmp_path: Path, name: str) -> None:
    lie = next(lie for lie in lies() if key(lie) == name)
    partition, poison, after = poisoned(tmp_path / "t-0", lie)
    partition.compact()
    partition.write(after + 2, batch(after + 2, b"c"))
    partition.write(after + 3)
    result = partition.compact(first_dirty=after + 2)
    stored = b"".join(partition.path(base).read_bytes() for base in partition.bases)
    assert stored.count(poison) == 1
    assert [found.offset for found in result.poison] == [3]
    assert result.next_dirty == after + 3
    assert stored.endswith(bytes(batch(after + 2, b"c")))


def test_damage_is_another_matter(tmp_path: Path) -> None:
    lie = next(lie for lie in lies() if key(lie) == "none: 200 random bytes")
    partition, poison, _ = poisoned(tmp_path / "t-0", lie)
    path = partition.path(3)
    path.write_bytes(path.read_bytes().replace(poison, poison[:-1] + b"?"))
    with pytest.raises(UncleanableError, match="CRC"):
        partition.compact()


def test_what_a_broken_batch_seems_to_say_deletes_nothing(tmp_path: Path) -> None:
    """Its first records look sound, and have the key of an older one: that one is still the last that can be read."""
    partition = Partition(tmp_path / "t-0")
    sound = batch(0, b"k")
    broken = bytearray(build_batch([Record(1 + n, NOW_MS, b"k", b"new") for n in range(3)]))
    broken[-2] ^= 0x15
    broken = broken[:-1]
    header = BatchHeader._make(BATCH_HEADER.unpack_from(broken))
    BATCH_HEADER.pack_into(broken, 0, *header._replace(length=header.length - 1))
    seal(memoryview(broken), 0, len(broken))
    partition.write(0, sound, broken)
    partition.write(4)
    result = partition.compact()
    assert [found.offset for found in result.poison] == [1]
    assert partition.path(0).read_bytes() == bytes(sound + broken)
