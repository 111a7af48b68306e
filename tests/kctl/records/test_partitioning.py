from __future__ import annotations

import itertools
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

from kctl.errors import KctlError
from kctl.records.partitioning import Choose, Sticky, murmur2, partition_of_key, partitioner


@pytest.mark.parametrize(
    ("key", "signed"),
    [  # as Java's Utils.murmur2 gives them
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_javas(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


@given(st.binary(max_size=70))
def test_murmur2_is_kafka_pythons(key: bytes) -> None:
    assert murmur2(key) == murmur2_of_kafka_python(key) & 0xFFFFFFFF


def make(how: str = "sticky", partitions: int = 4, usable: tuple[int, ...] = (), batch: int = 100) -> Choose:
    return partitioner(how, partitions, usable, batch, Random(1))


@pytest.mark.parametrize("how", ["sticky", "round-robin"])
def test_keys_decide_whether_their_partition_has_a_leader_or_not(how: str) -> None:
    choose = make(how, usable=(0,))
    keys = [str(number).encode() for number in range(50)]
    assert [choose(key, b"") for key in keys] == [partition_of_key(key, 4) for key in keys]
    assert {choose(key, b"") for key in keys} == {0, 1, 2, 3}


def test_round_robin_takes_the_partitions_with_a_leader_in_turn() -> None:
    choose = make("round-robin", usable=(0, 2, 3))
    assert [choose(None, b"x") for _ in range(7)] == [0, 2, 3, 0, 2, 3, 0]


def test_sticky_stays_until_a_batch_is_full() -> None:
    choose = make(usable=(0, 1, 3))
    chosen = [choose(None, b"x" * 10) for _ in range(200)]
    runs = [chosen[at : at + 10] for at in range(0, 200, 10)]
    assert all(len(set(run)) == 1 for run in runs)
    assert all(before[0] != after[0] for before, after in itertools.pairwise(runs))
    assert set(Counter(chosen)) == {0, 1, 3}


@given(st.lists(st.binary(max_size=60), max_size=100), st.integers(1, 30))
def test_values_together_stay_as_long_as_one_by_one(values: list[bytes], at_once: int) -> None:
    choose, one_by_one = make(), make()
    assert isinstance(choose, Sticky)
    chosen: list[int] = []
    for start in range(0, len(values), at_once):
        some = values[start : start + at_once]
        while some:
            partition, count = choose.of_next(some)
            chosen += [partition] * count
            some = some[count:]
    assert chosen == [one_by_one(None, value) for value in values]


def test_one_partition_is_chosen_again_and_again() -> None:
    choose = make(partitions=1, batch=1)
    assert {choose(None, b"xx") for _ in range(5)} == {0}


@pytest.fixture
def custom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kctl_test_rules.py").write_text(
        "def by_length(key, value, partitions):\n    return len(value) % partitions\n"
        "def wrong(key, value, partitions):\n    return partitions\n"
        "number = 1\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "kctl_test_rules", raising=False)


@pytest.mark.usefixtures("custom")
def test_callable_decides() -> None:
    choose = make("kctl_test_rules:by_length")
    assert [choose(b"k", b"x" * size) for size in range(5)] == [0, 1, 2, 3, 0]


@pytest.mark.usefixtures("custom")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("kctl_test_rules:wrong", "returned 4, but the topic has partitions 0 to 3"),
        ("kctl_test_rules:absent", "cannot load"),
        ("kctl_no_such_module:f", "cannot load"),
        ("kctl_test_rules:number", "is not callable"),
        (":f", "cannot load"),
    ],
)
def test_callables_that_are_not_there_or_go_wrong(name: str, text: str) -> None:
    with pytest.raises(KctlError, match=text):
        make(name)(b"k", b"v")
