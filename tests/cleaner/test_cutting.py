"""Reading keys and cutting records out, on batches of all shapes, beside the plain way: parse, choose, build."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkad.cleaner.cutting import cut, judge
from kafkad.cleaner.keymap import DROP, KEEP, TOMBSTONE, UNKNOWN_TOMBSTONE, KeyMap
from kafkad.log.bodies import Body, read_keys
from kafkad.wire.records import BATCH_HEADER, HEADER_SIZE, BatchHeader, Record, build_batch, crc_matches, iter_records

BASE = 1 << 40
TIMESTAMP = 1_700_000_000_000

key_sizes = st.sampled_from([None, 0, 1, 8, 12, 63, 64, 200])
value_sizes = st.sampled_from([None, 0, 3, 40, 70, 1000])


@st.composite
def batches(draw: st.DrawFn) -> list[Record]:
    """Stretches of records of one shape, with gaps in offsets and timestamps as compaction and producers leave them."""
    records: list[Record] = []
    offset, timestamp = BASE, TIMESTAMP
    for _ in range(draw(st.integers(1, 6))):
        key_size, value_size = draw(key_sizes), draw(value_sizes)
        gap, pause = draw(st.sampled_from([1, 1, 2, 50])), draw(st.sampled_from([0, 1, 40, 10_000, -3]))
        headers = draw(st.sampled_from([(), (), (("h", b"v"),)]))
        for n in range(draw(st.integers(1, 300))):
            key = None if key_size is None else b"%0*d" % (key_size, n % 5)
            value = None if value_size is None else bytes(value_size)
            records.append(Record(offset, timestamp, key, value, headers))
            offset += gap
            timestamp += pause
    return records


def unpacked(records: list[Record], **options: int) -> tuple[BatchHeader, Body]:
    data = bytes(build_batch(records, **options))
    header = BatchHeader._make(BATCH_HEADER.unpack_from(data))
    return header, Body(data, HEADER_SIZE, len(data))


@given(batches())
def test_every_key_is_read(records: list[Record]) -> None:
    header, body = unpacked(records)
    read = [
        (key, entry)
        for keys, entries in read_keys(body, header.base_offset, header.record_count)
        for key, entry in zip(keys, entries, strict=True)
    ]
    assert read == [(record.key, record.offset * 2 + (record.value is None)) for record in records]


@given(batches(), st.data())
def test_a_cut_batch_is_the_one_that_would_be_built(records: list[Record], data: st.DataObject) -> None:
    header, body = unpacked(records, producer_id=7, producer_epoch=1, base_sequence=3, leader_epoch=5)
    stay = data.draw(st.integers(0, 2 ** len(records) - 1))  # a bit each: a list of as many takes long to draw
    kept = [record for number, record in enumerate(records) if stay >> number & 1] or records[:1]
    verdicts = bytearray(header.last_offset_delta + 1)
    for record in kept:
        verdicts[record.offset - BASE] = KEEP
    horizon = data.draw(st.sampled_from([None, TIMESTAMP + 86_400_000]))
    batch = memoryview(cut(body, header, verdicts, horizon))
    new = BatchHeader._make(BATCH_HEADER.unpack_from(batch))
    assert crc_matches(batch, 0, new)
    assert list(iter_records(batch, 0, new)) == kept
    assert new.delete_horizon_ms == horizon
    assert new.max_timestamp == max(record.timestamp for record in kept)
    assert new.record_count == len(kept)
    for name in ("base_offset", "last_offset", "producer_id", "producer_epoch", "base_sequence", "leader_epoch"):
        assert getattr(new, name) == getattr(header, name)


@given(batches(), st.integers(0, 100))
def test_verdicts_by_key_and_by_offset_agree(records: list[Record], more: int) -> None:
    header, body = unpacked(records)
    keys = KeyMap(1 << 20, 0.9, BASE, header.last_offset + 1)
    for some, entries in read_keys(body, BASE, header.record_count):
        assert keys.put(some, entries)
    keys.latest = header.last_offset
    last = {record.key: record.offset for record in records if record.key is not None}
    expected = bytearray(header.last_offset_delta + 1)
    for record in records:
        if last.get(record.key) == record.offset:
            expected[record.offset - BASE] = TOMBSTONE if record.value is None else KEEP
    assert judge(body, header, keys) == expected
    assert keys.verdicts(BASE, len(expected)) == expected
    assert all(keys.find(key) == offset for key, offset in last.items())


def test_nothing_is_known_of_what_comes_after_the_map() -> None:
    records = [Record(BASE + n, TIMESTAMP, b"key", None if n == 3 else b"value") for n in range(4)]
    header, body = unpacked(records)
    keys = KeyMap(1 << 20, 0.9, BASE, BASE + 10)
    keys.put([b"key", b"key"], [BASE * 2, BASE * 2 + 2])
    assert list(judge(body, header, keys)) == [DROP, KEEP, KEEP, UNKNOWN_TOMBSTONE]


def test_a_full_map_takes_known_keys_and_says_where_it_ended() -> None:
    keys = KeyMap(8 * 24, 0.5, 100, 1000)
    names = [b"%d" % n for n in range(4)]
    assert keys.put(names, [2 * offset for offset in range(100, 104)])
    assert keys.put([names[1], None], [2 * 104, 2 * 105])
    assert not keys.put([names[0], b"another", names[2]], [2 * 106, 2 * 107, 2 * 108])
    assert keys.latest == 106
    assert [keys.find(name) for name in names] == [106, 104, 102, 103]
    assert keys.find(b"another") == -1
    assert keys.utilization == 0.5


@pytest.mark.parametrize("load_factor", [0.3, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("count", [1, 2, 8, 15, 16, 1000])
def test_a_map_has_room_for_all_keys_that_its_buffer_has_room_for(load_factor: float, count: int) -> None:
    keys = KeyMap(1 << 20, load_factor, 100, 100 + count)
    assert keys.put([b"%d" % n for n in range(count)], [2 * (100 + n) for n in range(count)])
    assert keys.latest == 100 + count - 1
    assert keys.utilization <= load_factor


@pytest.mark.parametrize("load_factor", [-1.0, 0.0, 1e308])
def test_no_load_factor_ends_a_compaction(load_factor: float) -> None:
    keys = KeyMap(8 * 24, load_factor, 100, 1000)
    keys.put([b"a", b"b"], [2 * 100, 2 * 101])
    assert keys.find(b"a") == 100
    assert keys.find(b"none") == -1
