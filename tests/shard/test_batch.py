"""Batches built by hand have to be those of the codec."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkad.shard.batch import Repeating, body_of, build, build_around, cut
from kafkad.turns import at_once
from kafkad.wire.records import BATCH_HEADER, Record, build_batch

PAIRS = st.lists(st.tuples(st.binary(max_size=700), st.none() | st.binary(max_size=700)), min_size=1, max_size=70)


@given(PAIRS, st.integers(0, 2**50), st.sampled_from(range(5)), st.sampled_from((-1, 0)))
def test_a_batch_has_the_bytes_of_the_codec(
    pairs: list[tuple[bytes, bytes | None]], timestamp: int, codec: int, sequence: int
) -> None:
    batch, header = build(pairs, timestamp, codec, sequence)
    records = [Record(number, timestamp, key, value) for number, (key, value) in enumerate(pairs)]
    assert batch == build_batch(records, codec=codec, base_sequence=sequence)
    assert header == BATCH_HEADER.unpack_from(batch)


def test_many_records_need_longer_numbers() -> None:
    pairs = [(b"k%d" % number, b"v" * number) for number in range(9_000)]
    records = [Record(number, 5, key, value) for number, (key, value) in enumerate(pairs)]
    assert build(pairs, 5, 0, -1)[0] == build_batch(records)


@given(PAIRS, st.sampled_from(range(5)))
def test_a_batch_whose_records_were_made_in_turns_is_the_same(
    pairs: list[tuple[bytes, bytes | None]], codec: int
) -> None:
    body = at_once(body_of(pairs, lambda pair: pair))
    assert build_around(body, len(pairs), 5, codec, 0) == build(pairs, 5, codec, 0)


@given(PAIRS, st.integers(0, 2_000))
def test_records_are_cut_into_batches_that_are_small_enough_and_as_few_as_may_be(
    pairs: list[tuple[bytes, bytes | None]], most: int
) -> None:
    made = list(cut(pairs, lambda pair: pair, most))
    batches = [batch for batch, _ in made]
    sizes = [len(build(batch, 5, 0, -1)[0]) for batch in batches]
    assert all(build_around(body, len(batch), 5, 0, -1) == build(batch, 5, 0, -1) for batch, body in made)
    assert [pair for batch in batches for pair in batch] == pairs
    assert all(size <= most or len(batch) == 1 for batch, size in zip(batches, sizes, strict=True))
    with_next = [[*batch, following[0]] for batch, following in pairwise(batches)]
    assert all(len(build(batch, 5, 0, -1)[0]) > most - 32 * len(batch) for batch in with_next)


@pytest.mark.parametrize("codec", range(5))
def test_what_cannot_be_compressed_does_not_become_twice_as_long(codec: int) -> None:
    random = Random(1)
    pairs: list[tuple[bytes, bytes | None]] = [(random.randbytes(100), None) for _ in range(1_000)]
    for batch, _ in cut(pairs, lambda pair: pair, 500):
        assert len(build(batch, 5, codec, -1)[0]) <= 1_000


@given(st.binary(max_size=300), st.lists(st.binary(min_size=200, max_size=200), min_size=1), st.integers(0, 2**50))
def test_a_repeated_batch_is_one_that_is_built_anew(key: bytes, values: list[bytes], timestamp: int) -> None:
    repeating = Repeating(key, 200, 0)
    for number, value in enumerate(values):
        header = repeating.fill(value, timestamp + number)
        batch, expected = build([(key, value)], timestamp + number, 0, 0)
        assert repeating.view == batch and header == expected and repeating.size == len(batch)
