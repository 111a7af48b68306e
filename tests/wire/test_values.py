"""The values of records, read without the records: the same values, and the same bytes refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkad.wire import values as values_module
from kafkad.wire.records import Record, RecordsError, build_batch, iter_records, read_header
from kafkad.wire.values import values_of

_data = st.none() | st.binary(max_size=200) | st.integers(0, 20_000).map(bytes)
_records = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(0, 2**40),
        _data,
        _data,
        st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=100,
)


def batch_of(records: list[Record], codec: int = 0) -> bytes:
    return bytes(build_batch([record._replace(offset=at * 40) for at, record in enumerate(records)], codec=codec))


def both(data: bytes) -> tuple[list[bytes | None] | str, list[bytes | None] | str]:
    """The values from the records, and from the reader of values alone."""
    view = memoryview(data)
    header = read_header(view, 0)
    found: list[list[bytes | None] | str] = []
    for read in (
        lambda: [record.value for record in iter_records(view, 0, header)],
        lambda: values_of(view, 0, header),
    ):
        try:
            found.append(read())
        except RecordsError:
            found.append("refused")
    return found[0], found[1]


@given(_records, st.sampled_from([0, 1, 3]))
def test_values_are_those_of_the_records(records: list[Record], codec: int) -> None:
    whole, values = both(batch_of(records, codec))
    assert values == whole == [record.value for record in records]


@st.composite
def _runs(draw: st.DrawFn) -> list[Record]:
    """Some that are laid out alike, then others that are: what is read by steps."""
    records: list[Record] = []
    for _ in range(draw(st.integers(1, 4))):
        size, key_size = draw(st.integers(0, 200)), draw(st.none() | st.integers(0, 90))
        time, step = draw(st.integers(0, 9000)), draw(st.integers(0, 30))
        headers = draw(st.sampled_from([(), (), (("h", b"v"),)]))
        records += [
            Record(0, time + step * n, None if key_size is None else bytes([n]) * key_size, bytes([n]) * size, headers)
            for n in range(draw(st.integers(1, 90)))
        ]
    return records


@given(_runs(), st.integers(0, 3))
def test_values_of_records_that_are_alike(records: list[Record], nulls: int) -> None:
    for at in range(nulls):
        records[at * 31 % len(records)] = Record(0, 7, b"k", None)
    whole, values = both(batch_of(records))
    assert values == whole == [record.value for record in records]


@given(_runs(), st.data())
def test_damage_among_records_that_are_alike_is_found(records: list[Record], data: st.DataObject) -> None:
    damaged = bytearray(batch_of(records))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(61, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    whole, values = both(bytes(damaged))
    assert values == whole or (whole == "refused" and values != "refused" and len(values) == len(records))


def test_most_records_that_are_alike_are_not_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [Record(0, n // 9, None, b"%04d" % n * 250) for n in range(500)]
    one_by_one: list[int] = []
    parse = values_module._parse_each

    def counted(data: bytes, count: int, *rest: Any) -> tuple[int, int]:
        one_by_one.append(count)
        return parse(data, count, *rest)

    monkeypatch.setattr(values_module, "_parse_each", counted)
    data = bytes(build_batch([record._replace(offset=at) for at, record in enumerate(records)]))
    assert both(data)[1] == [record.value for record in records]
    assert sum(one_by_one) < 10


@given(_records, st.data())
def test_damaged_records_are_refused_alike(records: list[Record], data: st.DataObject) -> None:
    """A varint of more bytes than there can be is refused by the one and fits nothing in the other."""
    damaged = bytearray(batch_of(records))
    at = data.draw(st.integers(61, len(damaged) - 1))
    damaged[at] = data.draw(st.integers(0, 255))
    whole, values = both(bytes(damaged))
    assert values == whole or (whole == "refused" and values != "refused" and len(values) == len(records))


@pytest.mark.parametrize("count", [-1, 0, 2, 4, 2**31 - 1])
def test_wrong_counts_are_refused(count: int) -> None:
    data = bytearray(batch_of([Record(0, 0, None, b"v")] * 3))
    data[57:61] = count.to_bytes(4, "big", signed=True)
    assert both(bytes(data)) == ("refused", "refused")


def test_values_before_and_after_others() -> None:
    """In a Fetch's records a batch is one of many."""
    one, two = batch_of([Record(0, 0, b"k", b"one")]), batch_of([Record(0, 0, None, b"two"), Record(0, 0, None, None)])
    for view in (memoryview(one + two), memoryview(b"xx" + one + two)[2:], memoryview(bytearray(one + two))):
        header = read_header(view, len(one))
        assert values_of(view, len(one), header) == [b"two", None]
