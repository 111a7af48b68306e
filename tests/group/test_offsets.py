"""Committed and pending offsets, against a model that reads the whole log anew."""

from __future__ import annotations

import sys
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from kafkad.group.offsets import Committed, Offsets, kept
from kafkad.group.records import OffsetCommitted, OffsetForgotten
from tests.work import lines

PRODUCERS = (7, 8, 9)
GROUPS = ("a", "b")
PARTITIONS = (0, 1)


class Commit(NamedTuple):
    group: str
    partition: int
    producer: int = -1


class Forget(NamedTuple):
    group: str
    partition: int


class Marker(NamedTuple):
    producer: int
    committed: bool


Event = Commit | Forget | Marker
EVENTS = st.lists(
    st.builds(Commit, st.sampled_from(GROUPS), st.sampled_from(PARTITIONS), st.just(-1) | st.sampled_from(PRODUCERS))
    | st.builds(Forget, st.sampled_from(GROUPS), st.sampled_from(PARTITIONS))
    | st.builds(Marker, st.sampled_from(PRODUCERS), st.booleans()),
    max_size=30,
)


def committed(group: str, partition: int, offset: int, metadata: str = "") -> OffsetCommitted:
    return OffsetCommitted(group, "t", partition, offset, 3, metadata, 1700000000000 + offset)


def outcome(log: list[Event], at: int, producer: int) -> bool | None:
    """The end of the transaction to which the commit at `at` belongs."""
    for event in log[at:]:
        if isinstance(event, Marker) and event.producer == producer:
            return event.committed
    return None


def model_offset(log: list[Event], group: str, partition: int) -> int | None:
    """The place in the log of the last commit that counts, unless it was forgotten behind that."""
    for at in reversed(range(len(log))):
        event = log[at]
        if isinstance(event, Marker) or event[:2] != (group, partition):
            continue
        if isinstance(event, Forget):
            return None
        if event.producer < 0 or outcome(log, at, event.producer):
            return at
    return None


def model_pending(log: list[Event], group: str, partition: int) -> bool:
    return any(
        isinstance(event, Commit)
        and event[:2] == (group, partition)
        and event.producer >= 0
        and outcome(log, at, event.producer) is None
        and Forget(group, partition) not in log[at:]
        for at, event in enumerate(log)
    )


def applied(log: list[Event]) -> Offsets:
    offsets = Offsets()
    for at, event in enumerate(log):
        if isinstance(event, Marker):
            offsets.end_transaction(event.producer, event.committed)
        elif isinstance(event, Forget):
            offsets.apply(OffsetForgotten(event.group, "t", event.partition))
        elif at % 2 and event.producer < 0:  # as one of many
            offsets.put_all(event.group, dict([kept(committed(event.group, event.partition, at))]))
        else:
            offsets.apply(committed(event.group, event.partition, at), event.producer)
    return offsets


@given(EVENTS)
def test_order_in_the_log_decides(log: list[Event]) -> None:
    offsets = applied(log)
    there = 0
    for group in GROUPS:
        expected = {p: model_offset(log, group, p) for p in PARTITIONS}
        pending = {p: model_pending(log, group, p) for p in PARTITIONS}
        for partition in PARTITIONS:
            found = offsets.committed(group, "t", partition)
            assert (found and found.offset) == expected[partition]
        assert {p: c.offset for (_, p), c in offsets.of_group(group)} == {
            p: offset for p, offset in expected.items() if offset is not None
        }
        assert offsets.pending(group) == {("t", p) for p in PARTITIONS if pending[p]}
        assert {p for p in PARTITIONS if offsets.is_pending(group, ("t", p))} == {p for p in PARTITIONS if pending[p]}
        positions = {("t", p) for p in PARTITIONS if expected[p] is not None or pending[p]}
        assert offsets.positions(group) == positions
        assert (group in offsets) == (group in offsets.groups()) == bool(positions)
        there += len(list(offsets.of_group(group)))
    assert len(offsets) == there


@given(EVENTS)
def test_nothing_is_left_when_all_is_forgotten(log: list[Event]) -> None:
    """No entry stays behind for a group, a producer or a transaction that nobody can see any more."""
    offsets = applied(log)
    for group in GROUPS:
        for topic, partition in offsets.positions(group):
            offsets.apply(OffsetForgotten(group, topic, partition))
    assert vars(offsets) == vars(Offsets()) | {"_order": vars(offsets)["_order"]}


def test_many_offsets_are_put_as_each_of_them() -> None:
    one_by_one, together = Offsets(), Offsets()
    records = [committed("g", partition % 70, partition, "why") for partition in range(100)]
    for offsets in (one_by_one, together):
        offsets.apply(committed("g", 3, 1))
        offsets.apply(committed("g", 5, 1), 7)
    for record in records:
        one_by_one.apply(record)
    together.put_all("g", dict(map(kept, records)))
    assert vars(together) == vars(one_by_one)


def test_what_is_sent_in_a_transaction_is_pending_since_then_unless_something_behind_it_counts() -> None:
    offsets = Offsets()
    offsets.apply(committed("g", 0, 1), 7)
    offsets.apply(committed("g", 1, 1), 7)
    offsets.apply(committed("g", 1, 2))
    sent_ms = 1700000000001
    for group, partition in (("g", 1), ("g", 2), ("h", 0)):
        assert not offsets.is_pending_since(group, ("t", partition), range(sent_ms, sent_ms + 1))
    assert offsets.is_pending_since("g", ("t", 0), range(sent_ms, sent_ms + 1))
    assert not offsets.is_pending_since("g", ("t", 0), range(sent_ms + 1, sent_ms + 9))
    assert not offsets.is_pending_since("g", ("t", 0), range(sent_ms - 9, sent_ms))


def test_what_other_producers_have_pending_costs_nothing() -> None:
    taken = set()
    for producers in (3, 300):
        offsets = Offsets()
        for producer in range(producers):
            offsets.apply(committed("g", producer, 5), producer)
        end = lines(offsets.end_transaction, 1, True)
        put = lines(offsets.put, "g", ("t", 0), b"")
        forget = lines(offsets.apply, OffsetForgotten("g", "t", 0))
        taken.add((end, put, forget))
    assert len(taken) == 1


def test_what_many_have_pending_at_one_position_costs_who_commits_there_nothing() -> None:
    taken = set()
    for producers in (3, 300):
        offsets = Offsets()
        for producer in range(producers):
            offsets.apply(committed("g", 0, producer), producer)
        end = lines(offsets.end_transaction, 1, True)
        put = lines(offsets.put, "g", ("t", 0), b"")
        put_all = lines(offsets.put_all, "g", {("t", 0): b""})
        taken.add((end, put, put_all))
    assert len(taken) == 1


def test_an_offset_comes_back_whole() -> None:
    offsets = Offsets()
    offsets.apply(OffsetCommitted("g", "t", 3, 42, 5, "é" * 1000, 17, 99))
    assert offsets.committed("g", "t", 3) == Committed(42, 5, "é" * 1000, 17, 99)
    assert offsets.committed("g", "t", 4) is None
    assert offsets.committed("h", "t", 3) is None


def test_an_offset_is_small() -> None:
    """The memory of one of very many offsets, beside the entry of its dict."""
    offsets = Offsets()
    offsets.apply(committed("g", 1000, 1 << 40))
    [[(position, value)]] = [of_group.items() for of_group in vars(offsets)["_committed"].values()]
    assert sys.getsizeof(value) + sys.getsizeof(position) <= 130
