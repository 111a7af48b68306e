"""The quick way of Fetch answers exactly what the general one does, or leaves the request to it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kafkad.api.fetch import FetchApi
from kafkad.errors import ErrorCode
from kafkad.net.reply import Reply
from kafkad.replica.partition import Partition
from kafkad.wire.control import ControlRecord, build_marker
from kafkad.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkad.wire.records import BATCH_HEADER, Record
from tests.api.frames import Frames
from tests.one_broker import OneBroker

Step = tuple[str, int]
_topics = count()


@dataclass(frozen=True)
class Reader:
    """The parameters of one consumer's fetches that stay the same from fetch to fetch."""

    version: int
    in_session: bool
    isolation_level: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int
    states_epoch: bool

    def request(self, topic: FetchTopic, offset: int, leader_epoch: int, session: tuple[int, int]) -> FetchRequest:
        partition = FetchPartition(fetch_offset=offset, partition_max_bytes=self.partition_max_bytes)
        named = FetchTopic(topic=topic.topic, topic_id=topic.topic_id, partitions=[partition])
        if self.states_epoch and self.version >= 9:
            partition.current_leader_epoch = leader_epoch
        request = FetchRequest(topics=[named] if offset >= 0 else [])
        if self.version >= 7:
            request.session_id, request.session_epoch = session
        for name in ("isolation_level", "max_wait_ms", "min_bytes", "max_bytes"):
            setattr(request, name, getattr(self, name))
        return request


READERS = st.builds(
    Reader,
    version=st.integers(4, 18),
    in_session=st.booleans(),
    isolation_level=st.integers(0, 1),
    max_wait_ms=st.sampled_from([0, 60_000]),
    min_bytes=st.sampled_from([0, 1, 500, 5000]),
    max_bytes=st.sampled_from([1, 3000, 1 << 20]),
    partition_max_bytes=st.sampled_from([1, 700, 3000, 1 << 20]),
    states_epoch=st.booleans(),
)
FETCH = st.tuples(st.just("fetch"), st.integers(0, 70))
OTHERS = st.sampled_from(["go on", "say nothing", "append", "open", "end", "lead", "cut"])
STEPS = st.lists(FETCH | FETCH | st.tuples(OTHERS, st.integers(0, 60)), min_size=2, max_size=25)


class Side:
    """One client of one broker, which has its own connection and sessions; `general` ones never take the quick way."""

    def __init__(self, broker: OneBroker, general: bool) -> None:
        self.frames = Frames(broker)
        self.general = general
        self.session = (0, -1)

    def fetch(self, reader: Reader, topic: FetchTopic, offset: int, leader_epoch: int) -> bytes | None:
        peer = self.frames.connection.peer
        if self.general:
            peer.forget()
        reply = self.frames.begin(reader.request(topic, offset, leader_epoch, self.session), reader.version)
        if reply is None:
            assert peer.on_close is not None
            peer.on_close()
            peer.on_close = None
        elif self.session[1] >= 0:
            message: Any = self.frames.decode(reply, 1, reader.version)
            self.session = message.session_id, self.session[1] + 1
        return None if reply is None else content(reply)


def content(reply: Reply) -> bytes:
    parts = reply if isinstance(reply, list) else [reply]
    return b"".join(
        bytes(part) if isinstance(part, bytes | bytearray) else os.pread(part.file.fd, part.length, part.position)
        for part in parts
    )


@pytest.fixture(scope="module")
def module_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneBroker]:
    broker = OneBroker(tmp_path_factory.mktemp("repeat"))
    yield broker
    broker.stop()


def append(broker: OneBroker, topic: str, size: int, **fields: Any) -> None:
    broker.append(topic, 0, *(Record(i, 1_700_000_000_000, None, bytes(size * 10)) for i in range(3)), **fields)


def change(broker: OneBroker, partition: Partition, kind: str, number: int) -> None:
    if kind == "lead":
        broker.lead(*partition.tp, leader=1)
    else:
        broker.run(_change(partition, kind, number))


async def _change(partition: Partition, kind: str, number: int) -> None:
    if kind == "cut":
        partition.delete_records(min(number, partition.high_watermark))
    else:
        marker = build_marker(
            ControlRecord(number % 2 == 0, 0), producer_id=5, producer_epoch=0, timestamp=1_700_000_000_000
        )
        partition.append(memoryview(marker), 0, len(marker), BATCH_HEADER.unpack_from(marker))


GOING_BACK = Reader(
    version=7,
    in_session=True,
    isolation_level=0,
    max_wait_ms=0,
    min_bytes=0,
    max_bytes=1,
    partition_max_bytes=1,
    states_epoch=False,
)
"""From the end of the log, where there was nothing to say."""


@given(reader=READERS, steps=STEPS)
@example(GOING_BACK, [("fetch", 0), ("fetch", 0), ("fetch", 60), ("fetch", 0), ("say nothing", 0)])
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_both_ways_answer_the_same_bytes(module_broker: OneBroker, reader: Reader, steps: list[Step]) -> None:
    both_ways(module_broker, reader, steps)


@pytest.mark.long
@pytest.mark.timeout(600)
@given(reader=READERS, steps=STEPS)
@settings(max_examples=1000, derandomize=False, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_both_ways_answer_the_same_bytes_at_length(module_broker: OneBroker, reader: Reader, steps: list[Step]) -> None:
    both_ways(module_broker, reader, steps)


def both_ways(broker: OneBroker, reader: Reader, steps: list[Step]) -> None:
    name = f"t{next(_topics)}"
    broker.create(name, configs={"segment.bytes": "2000"})
    for size in range(20):
        append(broker, name, size * 3)
    partition = broker.replicas.leader(name, 0)
    topic_id = broker.replicas.metadata.topics[name].id
    topic = FetchTopic(topic_id=topic_id) if reader.version >= 13 else FetchTopic(topic=name)
    sides = Side(broker, general=False), Side(broker, general=True)
    if reader.in_session and reader.version >= 7:
        for side in sides:
            side.session = 0, 0
    first_epoch = partition.leader_epoch
    offset = transactions = 0
    for kind, number in steps:
        if kind in ("fetch", "go on", "say nothing"):
            if kind != "say nothing" or sides[0].session[1] <= 0:
                offset = number if kind == "fetch" else min(offset + 3, partition.log.end_offset)
            asked = -1 if kind == "say nothing" and sides[0].session[1] > 0 else offset
            quick, general = (side.fetch(reader, topic, asked, first_epoch) for side in sides)
            assert quick == general
        elif kind == "append":
            append(broker, name, number)
        elif kind == "open":
            append(broker, name, number, producer_id=5 + transactions, transactional=True)
            transactions += 1
        else:
            change(broker, partition, kind, number)
    for side in sides:
        side.frames.close()
    assert sides[0].frames.probes[1].errors == sides[1].frames.probes[1].errors


@pytest.fixture
def frames(broker: OneBroker) -> Iterator[Frames]:
    broker.create("t")
    for _ in range(4):
        append(broker, "t", 10)
    frames = Frames(broker)
    yield frames
    frames.close()


READER = Reader(
    version=12,
    in_session=False,
    isolation_level=0,
    max_wait_ms=500,
    min_bytes=1,
    max_bytes=1 << 20,
    partition_max_bytes=400,
    states_epoch=True,
)


def answered(frames: Frames, reader: Reader, offset: int, session: tuple[int, int] = (0, -1)) -> Any:
    topic_id = frames.broker.replicas.metadata.topics["t"].id
    topic = FetchTopic(topic_id=topic_id) if reader.version >= 13 else FetchTopic(topic="t")
    return frames.ask(reader.request(topic, offset, 0, session), reader.version)


def partition_of(response: Any) -> Any:
    [topic] = response.responses
    [partition] = topic.partitions
    return partition


@pytest.mark.parametrize("version", range(7, 19))
@pytest.mark.parametrize("isolation_level", [0, 1])
def test_a_repeated_fetch_takes_the_quick_way(
    frames: Frames, version: int, isolation_level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = replace(READER, version=version, isolation_level=isolation_level)
    answered(frames, reader, 0)
    monkeypatch.delattr(FetchApi, "serve")
    for offset in (3, 6, 0, 9):
        assert partition_of(answered(frames, reader, offset)).records
    probe = frames.broker.replicas.leader("t", 0).probe
    assert (probe.total_fetch, probe.bytes_out > 0) == (5, True)


@pytest.mark.parametrize("version", range(7, 19))
def test_so_does_a_session_of_one_partition(frames: Frames, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = replace(READER, version=version, max_wait_ms=0)
    session = answered(frames, reader, 0, (0, 0)).session_id
    answered(frames, reader, 3, (session, 1))
    append(frames.broker, "t", 10)
    with monkeypatch.context() as patch:
        patch.delattr(FetchApi, "serve")
        assert answered(frames, reader, 6, (session, 2)).session_id == session
    assert answered(frames, reader, -1, (session, 3)).responses[0].partitions[0].records, "from offset 6 again"
    append(frames.broker, "t", 10)
    answered(frames, reader, 12, (session, 4))
    assert answered(frames, reader, 18, (session, 5)).responses == [], "the high watermark had been told"


@pytest.mark.parametrize(
    ("version", "states_epoch", "refusal"),
    [(10, False, ErrorCode.NOT_LEADER_OR_FOLLOWER), (12, True, ErrorCode.FENCED_LEADER_EPOCH), (12, False, 0)],
)
def test_a_partition_that_is_led_elsewhere_by_now_is_looked_at_anew(
    frames: Frames, version: int, states_epoch: bool, refusal: int
) -> None:
    """A follower serves consumers of versions with KIP-392 that know nothing of earlier leaders."""
    reader = replace(READER, version=version, states_epoch=states_epoch)
    answered(frames, reader, 0)
    frames.broker.lead("t", 0, leader=2)
    assert partition_of(answered(frames, reader, 3)).error_code == refusal


def test_the_bytes_of_a_whole_answer_may_be_limited_at_any_time(frames: Frames) -> None:
    reader = replace(READER, partition_max_bytes=1 << 20)
    whole = len(partition_of(answered(frames, reader, 0)).records)
    frames.fetch.max_bytes = 400
    assert 0 < len(partition_of(answered(frames, reader, 0)).records) <= 400 < whole


def test_transactions_are_left_to_the_general_way(frames: Frames) -> None:
    reader = replace(READER, isolation_level=1, max_wait_ms=0)
    for offset in (0, 3):
        answered(frames, reader, offset)
    append(frames.broker, "t", 10, producer_id=5, transactional=True)
    append(frames.broker, "t", 10)
    assert not partition_of(answered(frames, reader, 12)).records, "a transaction is open"
    assert partition_of(answered(frames, reader, 3)).last_stable_offset == 12
    frames.broker.run(_change(frames.broker.replicas.leader("t", 0), "end", 1))
    [aborted] = partition_of(answered(frames, reader, 12)).aborted_transactions
    assert (aborted.producer_id, aborted.first_offset) == (5, 12)


def test_a_topic_made_anew_is_not_mistaken_for_the_old_one(frames: Frames) -> None:
    for offset in (0, 3):
        answered(frames, READER, offset)
    frames.broker.run(frames.broker.controller.delete_topics(["t"], timeout_ms=5_000))
    frames.broker.create("t")
    append(frames.broker, "t", 1)
    assert partition_of(answered(frames, READER, 0)).high_watermark == 3
