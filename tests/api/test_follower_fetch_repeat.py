"""The quick way of a follower's Fetch answers exactly what the general one does, or leaves the request to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kafkad.api.fetch import FetchApi
from kafkad.errors import ErrorCode
from kafkad.replica.partition import Partition
from kafkad.wire.records import BATCH_HEADER, Record, build_batch
from tests.api.follower_side import FOLLOWER, Side, append
from tests.fakes import FakeClock
from tests.one_broker import OneBroker

Step = tuple[str, int]


@pytest.fixture(scope="module")
def module_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneBroker]:
    broker = OneBroker(tmp_path_factory.mktemp("follower"))
    yield broker
    broker.stop()


NAMES = (
    *("fetch", "elsewhere", "both", "other", "forget"),
    *("append", "append to other", "append to both", "expire", "lead again", "out of sync", "cut"),
)
KINDS = st.sampled_from(["fetch", "append"]) | st.sampled_from(["fetch", "append"]) | st.sampled_from(NAMES)
STEPS = st.lists(st.tuples(KINDS, st.integers(0, 9)), min_size=2, max_size=30)
STEADY = [("append", 1), *[("fetch", 0), ("fetch", 0), ("append", 1)] * 6]


@given(version=st.integers(13, 17), steps=STEPS)
@example(17, STEADY)
@example(17, [*STEADY, ("append to other", 1), ("append", 1), ("fetch", 0), ("fetch", 0)])
@example(17, [*STEADY, ("fetch", 0), ("append to both", 1), ("fetch", 0)])
@example(17, [*STEADY, ("forget", 0), ("expire", 0), ("fetch", 0), ("expire", 0), ("lead again", 0), ("fetch", 0)])
@example(17, [*STEADY, ("fetch", 0), ("lead again", 0), ("append", 1)])
@example(17, [*STEADY, ("fetch", 0), ("out of sync", 0), ("append", 1)])
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_both_ways_answer_the_same(module_broker: OneBroker, version: int, steps: list[Step]) -> None:
    both_ways(module_broker, version, steps)


@pytest.mark.long
@pytest.mark.timeout(600)
@given(version=st.integers(13, 17), steps=STEPS)
@settings(max_examples=1000, derandomize=False, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_both_ways_answer_the_same_at_length(module_broker: OneBroker, version: int, steps: list[Step]) -> None:
    both_ways(module_broker, version, steps)


def both_ways(broker: OneBroker, version: int, steps: list[Step]) -> None:
    sides = Side(broker, version, general=False), Side(broker, version, general=True)
    for side in sides:
        side.fetch(0, 1)
    for kind, number in steps:
        for side in sides:
            take(side, kind, number)
        quick, general = (side.answers() for side in sides)
        assert quick == general
        assert sides[0].waits == sides[1].waits
        assert sides[0].state() == sides[1].state()
    for side in sides:
        side.frames.close()


def take(side: Side, kind: str, number: int) -> None:
    if kind in CHANGES:
        CHANGES[kind](side, number)
    elif not side.waits:
        FETCHES[kind](side, number)


def alter_isr(side: Side) -> None:
    partition = side.partition(0)
    side.broker.run(_alter(partition, (1,) if FOLLOWER in partition.role.isr else (1, FOLLOWER)))


CHANGES: dict[str, Callable[[Side, int], object]] = {
    "append": lambda side, number: append(side, 0, number * 20),
    "append to other": lambda side, number: append(side, 1, number * 20),
    "append to both": lambda side, number: side.broker.run(_append_to_both(side, number * 20)),
    "expire": lambda side, number: side.expire(),
    "lead again": lambda side, number: side.broker.lead(side.topic, 0, leader=1, isr=[1, FOLLOWER]),
    "out of sync": lambda side, number: alter_isr(side),
    "cut": lambda side, number: side.broker.run(_cut(side.partition(0), number)),
}
FETCHES: dict[str, Callable[[Side, int], object]] = {
    "fetch": lambda side, number: side.fetch(0),
    "elsewhere": lambda side, number: side.fetch(0, offset=number),
    "both": lambda side, number: side.fetch(0, 1),
    "other": lambda side, number: side.fetch(1),
    "forget": lambda side, number: side.fetch(forget=True),
}
"""While one waits there is no other."""


async def _alter(partition: Partition, isr: tuple[int, ...]) -> None:
    partition.isr_altered(isr, partition.leader_epoch, partition.role.partition_epoch + 1)


async def _append_to_both(side: Side, size: int) -> None:
    """In one turn of the loop."""
    for index in (0, 1):
        batch = build_batch([Record(0, 1_700_000_000_000, None, bytes(size))] * 3)
        side.partition(index).append(memoryview(batch), 0, len(batch), BATCH_HEADER.unpack_from(batch))


async def _cut(partition: Partition, offset: int) -> None:
    partition.delete_records(min(offset, partition.high_watermark))


def served(side: Side) -> int:
    """How many of the batches appended from now on, each fetched in its turn, get to the follower."""
    got = 0
    for _ in range(4):
        if not side.waits:
            side.fetch(0)
        append(side, 0, 10)
        got += sum("records" in partition for _, _, partitions in side.answers() for partition in partitions)
    return got


def test_a_follower_that_keeps_up_takes_the_quick_way(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    side.fetch(0)
    append(side, 0, 10)
    side.answers()
    monkeypatch.delattr(FetchApi, "serve")
    monkeypatch.delattr(FetchApi, "read_all")
    assert served(side) == 4
    side.fetch(0)
    assert side.partition(0).high_watermark == side.partition(0).log.end_offset


def test_both_ways_know_the_same_of_when_a_follower_followed(broker: OneBroker) -> None:
    sides = Side(broker, 17, general=False), Side(broker, 17, general=True)
    known = [followed(side) for side in sides]
    assert known[0] == known[1] == [-inf, 0.0, 400.0, 800.0, 1200.0, 2400.0]
    for side in sides:
        side.frames.close()


def followed(side: Side) -> list[float]:
    """By each of some fetches; each is sent and answered 400 ms after the one before. The last but one is answered
    early."""
    clock = FakeClock()
    side.frames.fetch._clock, side.frames.fetch.now_ms = clock, clock.monotonic_ms
    partition, known = side.partition(0), []

    def fetched() -> None:
        side.fetch(0)
        leading = partition.leading
        assert leading is not None
        known.append(leading.fetches[FOLLOWER].followed_ms(partition.leader_epoch))
        assert partition.is_followed(known[-1])

    for _ in range(5):
        fetched()
        append(side, 0, 10)
        side.answers()
        clock.advance(400)
    side.fetch(0)
    clock.advance(400)
    partition.ask_followers(clock.monotonic_ms())
    assert side.answers(), "with nothing, for there is nothing"
    clock.advance(400)
    fetched()
    return known


class Rights:
    """An identity whose rights may change."""

    restricted = True
    held = True

    def allows(self, *asked: object) -> bool:
        return self.held

    may = allows


def test_one_that_may_not_read_any_more_gets_nothing(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    """While its fetch waits the right to be a broker is taken away."""
    rights = Rights()
    monkeypatch.setattr(side.frames.connection.peer, "identity", rights)
    side.session = (0, 0)  # the one that it has is somebody else's
    for _ in range(3):
        side.fetch(0)
        append(side, 0, 10)
        side.answers()
    side.fetch(0)
    assert side.waits
    assert side.frames.connection.peer.prepared
    rights.held = False
    append(side, 0, 10)
    [(_, _, [answered])] = side.answers()
    assert f"error_code={ErrorCode.TOPIC_AUTHORIZATION_FAILED:d}" in answered


def test_a_client_that_has_gone_is_not_answered(side: Side) -> None:
    side.fetch(0)
    append(side, 0, 10)
    side.answers()
    side.fetch(0)
    peer = side.frames.connection.peer
    assert side.waits
    assert peer.on_close is not None
    peer.on_close()
    append(side, 0, 10)
    assert side.answers() == []
    assert side.broker.replicas.waits.fetches == 0


def test_who_says_that_it_is_the_leader_is_refused_each_time(side: Side) -> None:
    side.session = (0, 0)
    for _ in range(3):
        side.fetch(0, replica_id=1)
        [(error, _, [answered])] = side.answers()
        assert error == 0
        assert f"error_code={ErrorCode.UNKNOWN_LEADER_EPOCH:d}" in answered
    assert not side.frames.connection.peer.prepared


def test_who_asks_for_no_bytes_does_not_wait(side: Side) -> None:
    for _ in range(3):
        side.fetch(0, min_bytes=0)
        assert not side.waits
        side.answers()


def test_a_partition_that_was_forgotten_is_another_one_when_it_comes_back(side: Side) -> None:
    assert served(side) == 4
    side.fetch(forget=True)
    side.expire()
    side.answers()
    side.fetch(0)
    append(side, 0, 10)
    side.answers()
    [session] = side.frames.fetch.sessions._sessions.values()
    watching = {*side.partition(0).watchers, *side.partition(0).end_watchers, *session.moved}
    assert watching <= set(session.partitions.values())
    assert served(side) == 4


def test_its_bytes_are_not_measured_for_anybodys_quota(side: Side) -> None:
    assert served(side) == 4
    side.frames.connection.measure(lambda ns: None)
    assert served(side) == 4
    assert side.frames.connection.spent is None
