"""What a broker asks a leader for, and how long a partition rests whose leader or whose own disk is in the way."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafkad.config import LONG_MAX
from kafkad.errors import ErrorCode, StorageError
from kafkad.log.log import Log
from kafkad.log.move import Moves
from kafkad.log.truncation import Ahead, truncate_to
from kafkad.model import BrokerInfo
from kafkad.net.client import LinkError
from kafkad.replica.fetchers import Fetchers, FetcherSettings, Followed
from kafkad.replica.fetching import FetchLimits
from kafkad.replica.following import Following
from kafkad.replica.partition import Partition
from kafkad.timers import Timers
from kafkad.turns import Pieces
from kafkad.wire.follower_fetch import FollowerFetch, OnePartition
from kafkad.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kafkad.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kafkad.wire.records import Record, build_batch
from tests.fakes import FakeClock
from tests.full_disk import FullDisk
from tests.one_broker import OneBroker

LEADER = 2
BACKOFF_MS = FetcherSettings(limits=FetchLimits()).backoff_ms


class SilentLeader:
    """Notes what it is asked for, partition and offset, and answers nothing."""

    def __init__(self, asked: list[tuple[int, int]]) -> None:
        self._asked = asked

    async def open(self, **how: object) -> None:
        pass

    async def exchange(self, request: FetchRequest, **how: object) -> Any:
        self._asked += [(p.partition, p.fetch_offset) for topic in request.topics for p in topic.partitions]
        return await asyncio.get_running_loop().create_future()

    def close(self) -> None:
        pass


class RefusingLeader(SilentLeader):
    """Takes no connection."""

    def __init__(self) -> None:
        super().__init__([])
        self.opened = 0

    async def open(self, **how: object) -> None:
        self.opened += 1
        raise LinkError("connection refused")


class SlowLeader:
    """Opens a connection and answers when it is told to; notes what each request asks for, partition and offset."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.asked: list[list[tuple[int, int]]] = []
        self._answers: list[asyncio.Future[FetchResponse]] = []
        self._ends: asyncio.Future[ListOffsetsResponse]

    async def open(self, **how: object) -> None:
        await self.opened.wait()

    async def exchange(self, request: FetchRequest | FollowerFetch, **how: object) -> FetchResponse:
        if isinstance(request, FollowerFetch):
            self.asked.append([(request.partition, request.offset)])
        else:
            self.asked.append([(p.partition, p.fetch_offset) for topic in request.topics for p in topic.partitions])
        self._answers.append(asyncio.get_running_loop().create_future())
        return await self._answers[-1]

    def answer_with_nothing(self) -> None:
        """In a session of its own for each connection."""
        self.answer(FetchResponse(session_id=1 + id(self) % 1_000))

    def answer(self, response: FetchResponse) -> None:
        self._answers.pop().set_result(response)

    async def call(self, request: ListOffsetsRequest, **how: object) -> ListOffsetsResponse:
        self._ends = asyncio.get_running_loop().create_future()
        return await self._ends

    def answer_with_end(self, offset: int) -> None:
        """Of partition 1."""
        partition = ListOffsetsPartitionResponse(partition_index=1, offset=offset)
        topic = ListOffsetsTopicResponse(name="t", partitions=[partition])
        self._ends.set_result(ListOffsetsResponse(topics=[topic]))

    def read(self, request: object, answer: FetchResponse) -> FetchResponse:
        return answer

    def close(self) -> None:
        pass


class Follower:
    """A broker with a partition of five records in each of its two log directories, where another broker leads."""

    def __init__(self, directory: Path) -> None:
        self._broker = OneBroker(directory)
        self.clock, self.timers = FakeClock(), Timers()
        self.replicas = self._broker.replicas
        self.replicas.logs.clock = self.clock
        self._broker.create("t", 2)
        self.replicas.metadata.brokers[LEADER] = BrokerInfo(id=LEADER, endpoints=())
        self.partitions = [self.replicas.get("t", index) for index in range(2)]
        for partition in self.partitions:
            for _ in range(5):
                self._broker.append(*partition.tp, Record(0, 100, None, b"value"))
            self._broker.run(self._broker.durable.flush(partition.log))
        self.write_recovery_points()
        for partition in self.partitions:
            self._broker.lead(*partition.tp, leader=LEADER)
        self.asked: list[tuple[int, int]] = []
        self.connect: Callable[[], SilentLeader | SlowLeader] = lambda: SilentLeader(self.asked)
        self._fetchers = self._broker.run(self._made())

    async def _made(self) -> Fetchers:
        settings = FetcherSettings(limits=FetchLimits())
        return Fetchers(self.replicas, lambda leader: cast(Any, self.connect()), settings, self.clock, self.timers)

    def write_recovery_points(self) -> None:
        for write in self.replicas.logs.collect_recovery_points():
            write.write()

    def follow(self, *partitions: Partition) -> None:
        self._broker.run(self._follow(partitions or self.partitions))
        self.work()

    async def _follow(self, partitions: Iterable[Partition]) -> None:
        self._fetchers.follow(partitions)

    def lead(self, index: int) -> None:
        self._broker.lead("t", index, leader=1)

    def follow_anew(self, index: int, *, isr: tuple[int, ...] = (LEADER,)) -> None:
        self._broker.lead("t", index, leader=LEADER, isr=isr)
        self.follow(self.partitions[index])

    def throttle(self, *replicas: str, rate: float = 1_000) -> None:
        self.replicas.parts.follower_quota.limit(rate, self.clock.monotonic_ms())
        for partition in self.partitions:
            throttled = replace(partition.log.config, follower_replication_throttled_replicas=frozenset(replicas))
            partition.update_config(throttled)

    def work(self, after_ms: int = 0) -> None:
        self._broker.work(self.clock, self.timers, after_ms)

    def stop_fetching(self) -> None:
        self._broker.run(self._fetchers.stop())

    def stop(self) -> None:
        self.stop_fetching()
        self._broker.stop()


@pytest.fixture
def follower(tmp_path: Path) -> Iterator[Follower]:
    follower = Follower(tmp_path)
    yield follower
    follower.stop()


def test_a_full_disk_that_cannot_note_a_cut_holds_up_only_what_was_cut(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is appended before the checkpoint says that it was cut."""
    for partition in follower.partitions:
        assert partition.following is not None
        partition.following.truncate_to(2)
    disk = FullDisk(os.path.dirname(follower.partitions[0].log.directory), monkeypatch)
    follower.follow()
    follower.work(after_ms=10)
    assert follower.asked == [(1, 2)]
    assert [*follower.replicas.logs.cut] == [follower.partitions[0].log]
    follower.work(after_ms=989)
    assert (follower.asked, disk.refused) == ([(1, 2)], 1)
    follower.work(after_ms=1_000)
    assert (follower.asked, disk.refused) == ([(1, 2)], 2)
    disk.is_full = False
    for _ in range(2):  # until it has rested, and until the next try
        follower.work(after_ms=1_000)
    assert follower.asked == [(1, 2), (0, 2)]
    assert not follower.replicas.logs.cut


def test_nothing_is_written_over_what_was_cut_off_before_the_disk_has_forgotten_it(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power failure may leave the older records between newer ones, with true checksums and epochs in order."""
    partition = follower.partitions[0]
    assert partition.following is not None
    partition.following.truncate_to(2)
    path = partition.log.segments[-1].path(".log")
    synced: list[int] = []

    def sync(fd: int) -> None:
        if os.path.sameopenfile(fd, reading.fileno()):
            assert os.fstat(fd).st_size == partition.log.segments[-1].size
            assert (0, 2) not in follower.asked
            synced.append(fd)

    with open(path, "rb") as reading:
        monkeypatch.setattr(follower.replicas.logs.files, "sync", sync)
        follower.follow()
        follower.work(after_ms=10)
    assert len(synced) == 1
    assert sorted(follower.asked) == [(0, 2), (1, 5)]


def test_a_leader_does_not_write_over_what_was_cut_off_either(follower: Follower) -> None:
    """It was cut a moment ago, and leads before it has fetched again."""
    log = follower.partitions[0].log
    assert follower.partitions[0].following is not None
    follower.partitions[0].following.truncate_to(2)
    assert log.cut_may_return
    follower.lead(0)
    follower.work()
    assert not log.cut_may_return
    assert not follower.replicas.logs.cut


def test_a_copy_that_cannot_note_a_cut_does_not_hold_up_its_replica(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving, other = follower.partitions
    moves = Moves(follower.replicas.logs)
    moves.start(moving.tp, os.path.dirname(other.log.directory))
    while not moves.step(moving.tp).caught_up:
        pass
    copy = moves.future(moving.tp)
    assert copy is not None
    copy.flush()
    follower.write_recovery_points()
    assert moving.following is not None
    moving.following.truncate_to(2)
    moves.step(moving.tp)
    FullDisk(os.path.dirname(other.log.directory), monkeypatch)
    follower.follow()
    follower.work(after_ms=10)
    assert sorted(follower.asked) == [(0, 2), (1, 5)]
    assert [*follower.replicas.logs.cut] == [copy]


def test_nothing_is_fetched_any_more_once_fetching_has_stopped(follower: Follower) -> None:
    """Logs are being closed then."""
    partition = follower.partitions[0]
    assert partition.following is not None
    partition.following.truncate_to(2)
    follower.follow(partition)
    follower.stop_fetching()
    asked = list(follower.asked)
    for ms in (10, 100, 1_000, 2_000):
        follower.work(after_ms=ms)
    follower.follow(*follower.partitions)
    assert follower.asked == asked


def test_a_partition_whose_first_cut_fails_is_not_fetched_before_it_was_made(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log would go on from an end that its leader does not know."""
    cut = follower.partitions[0].log
    monkeypatch.setattr(
        Log, "whole_until", property(lambda log: min(2, log.end_offset) if log is cut else log.end_offset)
    )
    refusals = [errno.EMFILE, errno.EMFILE]

    def truncate(log: Log, offset: int, ahead: Ahead | None) -> None:
        if refusals:
            error = OSError(refusals.pop(), "too many")
            raise StorageError(os.path.dirname(log.directory), "truncating failed") from error
        truncate_to(log, offset, ahead)

    monkeypatch.setattr("kafkad.replica.following.truncate_to", truncate)
    follower.follow()
    assert follower.asked == [(1, 5)]
    follower.work(after_ms=10)
    assert (follower.asked, refusals) == ([(1, 5)], [])
    follower.work(after_ms=20)
    follower.work(after_ms=10)  # once the disk knows of it, with others of which that is true by then
    assert follower.asked == [(1, 5), (0, 2)]


def two_leaders(follower: Follower, *, is_open: bool = True) -> tuple[SlowLeader, SlowLeader]:
    """The same one over two connections, of which the second may have to be opened by the test.

    What comes while a fetch waits has one of its own.
    """
    usual, newcomers = SlowLeader(), SlowLeader()
    usual.opened.set()
    if is_open:
        newcomers.opened.set()
    follower.connect = iter((usual, newcomers)).__next__
    return usual, newcomers


def alone(follower: Follower, monkeypatch: pytest.MonkeyPatch, records: bytes) -> AtOnce:
    """A leader that answers who asks for one partition alone with these records."""
    leader = AtOnce()
    leader.opened.set()
    follower.connect = lambda: leader
    answer = OnePartition(10_000, 0, memoryview(records))
    monkeypatch.setattr("kafkad.replica.fetchers.read_answer", lambda *arguments: answer)
    return leader


def test_a_leader_that_takes_no_connection_is_tried_once_in_the_back_off(follower: Follower) -> None:
    """Or when there is more to ask for."""
    leader = RefusingLeader()
    follower.connect = lambda: leader
    follower.follow(follower.partitions[0])
    for tries in range(1, 5):
        assert leader.opened == tries
        follower.work(after_ms=BACKOFF_MS - 1)
        assert leader.opened == tries
        follower.work(after_ms=1)
    follower.follow(follower.partitions[1])
    assert leader.opened == 6


def test_an_error_of_ours_is_told_once_and_its_pauses_grow_until_an_answer_is_taken(
    follower: Follower, caplog: pytest.LogCaptureFixture
) -> None:
    leader = SlowLeader()
    tried: list[float] = []
    begun_ms = follower.clock.monotonic_ms()
    follower.connect = lambda: leader

    async def fail(**how: object) -> None:
        tried.append((follower.clock.monotonic_ms() - begun_ms) / BACKOFF_MS)
        raise ZeroDivisionError("ours")

    leader.open, opens = fail, leader.open  # type: ignore[method-assign]
    leader.opened.set()
    follower.follow(follower.partitions[0])
    for _ in range(6):
        follower.work(after_ms=BACKOFF_MS)
    assert tried == [0, 1, 3]
    leader.open = opens  # type: ignore[method-assign]
    follower.work(after_ms=BACKOFF_MS)
    leader.open = fail  # type: ignore[method-assign]
    leader.answer_with_nothing()
    follower.work()
    follower.work(after_ms=BACKOFF_MS)
    assert tried == [0, 1, 3, 7, 8]
    said = "internal error while fetching from broker 2; trying again"
    assert [(record.message, bool(record.exc_info)) for record in caplog.records] == [(said, True)] * 2


def test_what_was_handed_over_while_a_connection_was_opened_is_not_asked_for_there(follower: Follower) -> None:
    """The leader would take the later of two fetches for the truth, and the follower for further behind than it is."""
    usual, newcomers = two_leaders(follower, is_open=False)
    first, second = follower.partitions
    follower.follow(first)
    follower.follow(second)
    usual.answer_with_nothing()
    follower.work()
    newcomers.opened.set()
    follower.work()
    assert (usual.asked, newcomers.asked) == ([[(0, 5)], [(1, 5)]], [])


def test_the_leader_is_told_again_of_what_was_handed_over_while_it_was_fetched(follower: Follower) -> None:
    usual, newcomers = two_leaders(follower)
    first, second = follower.partitions
    follower.follow(first)
    follower.follow(second)
    assert (usual.asked, newcomers.asked) == ([[(0, 5)]], [[(1, 5)]])
    usual.answer_with_nothing()
    follower.work()
    newcomers.answer_with_nothing()
    follower.work()
    usual.answer_with_nothing()
    follower.work()
    assert (usual.asked, newcomers.asked) == ([[(0, 5)], [(1, 5)], [(1, 5)]], [[(1, 5)]])


def test_it_rests_a_little_at_first_for_its_leader_may_hear_of_the_epoch_later() -> None:
    log, tp, role = SimpleNamespace(topic_id=b"i" * 16), SimpleNamespace(partition=0), SimpleNamespace(isr=())
    partition = SimpleNamespace(log=log, tp=tp, role=role, broker_id=1)
    followed = Followed(cast(Partition, partition), cast(Following, None))
    assert [followed.rest_ms(1_000) for _ in range(9)] == [10, 20, 40, 80, 160, 320, 640, 1_000, 1_000]
    assert Followed(cast(Partition, partition), cast(Following, None)).rest_ms(5) == 5


def test_what_was_handed_over_while_the_leader_said_where_its_log_begins_is_left_to_who_took_it(
    follower: Follower,
) -> None:
    """Its place may be another by then, and it is not in this fetcher's session any more."""
    usual, newcomers = two_leaders(follower)
    first, second = follower.partitions
    follower.follow(first)
    follower.follow(second)
    newcomers.answer(
        FetchResponse(
            session_id=7,
            responses=[
                FetchableTopicResponse(
                    topic_id=second.log.topic_id,
                    partitions=[PartitionData(partition_index=1, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)],
                )
            ],
        )
    )
    follower.work()
    usual.answer_with_nothing()
    follower.work()
    newcomers.answer_with_end(3)
    follower.work()
    assert second.log.end_offset == 5
    assert usual.asked == [[(0, 5)], [(1, 5)]]


def many(first: int, count: int) -> bytes:
    """Batches of one small record, as the leader sends them."""
    return b"".join(
        build_batch([Record(offset, 100, None, b"v")], base_offset=offset) for offset in range(first, first + count)
    )


def fetched(
    partition: Partition, records: bytes, *, high_watermark: int = 10_000, error_code: int = 0
) -> FetchResponse:
    data = PartitionData(
        partition_index=partition.tp.partition,
        error_code=error_code,
        high_watermark=high_watermark,
        records=records,
    )
    topic = FetchableTopicResponse(topic_id=partition.log.topic_id, partitions=[data])
    return FetchResponse(session_id=7, responses=[topic])


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many batches were appended at once, each time."""
    appended: list[int] = []

    def append_copied(log: Log, view: memoryview, epoch: int | None = None) -> None:
        before = log.end_offset
        append(log, view, epoch)
        appended.append(log.end_offset - before)

    append = Log.append_copied
    monkeypatch.setattr(Log, "append_copied", append_copied)
    monkeypatch.setattr("kafkad.turns.TURN_S", 0)
    monkeypatch.setattr("kafkad.turns.LEAST_S", 0)
    return appended


def test_many_small_batches_are_appended_in_several_turns(follower: Follower, ends: list[int]) -> None:
    usual, _ = two_leaders(follower)
    first = follower.partitions[0]
    follower.follow(first)
    usual.answer(fetched(first, many(5, 2_500) + b"part of another"))
    follower.work()
    assert ends == [1_000, 1_000, 500]
    assert (first.log.end_offset, first.high_watermark) == (2_505, 2_505)
    assert usual.asked == [[(0, 5)], [(0, 2_505)]]


def test_an_internal_error_with_what_was_fetched_is_told_once(
    follower: Follower, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def append_copied(log: Log, view: memoryview, epoch: int | None = None) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(Log, "append_copied", append_copied)
    usual, _ = two_leaders(follower)
    first = follower.partitions[0]
    follower.follow(first)
    for _ in range(3):
        usual.answer(fetched(first, many(5, 1)))
        follower.work()
        follower.work(after_ms=BACKOFF_MS)
    assert usual.asked == [[(0, 5)]] * 4
    [record] = [record for record in caplog.records if record.exc_info]
    assert record.getMessage() == (
        "t-0 has not taken what was fetched for it, for an internal error: ZeroDivisionError('ours'); trying again"
    )


class AtOnce(SlowLeader):
    """What it answers is to be taken in the turn in which it arrives."""

    async def exchange(self, request: FetchRequest | FollowerFetch, **how: Any) -> FetchResponse:
        answer = await super().exchange(request)
        how["go_on"](SimpleNamespace(frame=b"", body_at=0))
        return answer


def test_many_small_batches_of_a_partition_alone_are_not_taken_in_the_turn_in_which_they_arrive(
    follower: Follower, ends: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = follower.partitions[0]
    records = many(10, 2_500)
    leader = alone(follower, monkeypatch, records)
    follower.follow(first)
    leader.answer(fetched(first, many(5, 5)))
    follower.work()
    leader.answer(fetched(first, records))
    follower.work()
    assert ends == [5, 1_000, 1_000, 500]
    assert leader.asked == [[(0, 5)], [(0, 10)], [(0, 2_510)]]


def test_the_rest_of_many_small_batches_is_left_to_who_has_their_partition_by_then(
    follower: Follower, ends: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, _ = two_leaders(follower)
    first = follower.partitions[0]
    follower.follow(first)
    monkeypatch.setattr(Followed, "is_current", property(lambda followed: not ends))
    usual.answer(fetched(first, many(5, 2_500)))
    follower.work()
    assert ends == [1_000]


def test_what_is_not_followed_here_any_more_once_a_cut_has_been_read_for_is_not_cut(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, _ = two_leaders(follower)
    first = follower.partitions[0]
    has_read: list[int] = []

    def read_ahead(following: Following, offset: int) -> Pieces[None]:
        has_read.append(offset)
        yield

    monkeypatch.setattr(Following, "read_ahead", read_ahead)
    monkeypatch.setattr(Followed, "is_current", property(lambda followed: not has_read))
    follower.follow(first)
    response = fetched(first, b"")
    response.responses[0].partitions[0].diverging_epoch = EpochEndOffset(epoch=0, end_offset=3)
    usual.answer(response)
    follower.work()
    assert has_read == [3]
    assert first.log.end_offset == 5


@pytest.fixture
def owing(follower: Follower) -> SlowLeader:
    """A leader of which the first of two throttled replicas has fetched ten seconds' worth. Both have to catch up."""
    usual, _ = two_leaders(follower)
    first = follower.partitions[0]
    records = many(5, 100)
    follower.throttle("*", rate=len(records) / 10)
    follower.follow()
    assert usual.asked == [[(0, 5), (1, 5)]]
    usual.answer(fetched(first, records))
    follower.work()
    assert first.log.end_offset == 105
    return usual


def test_no_throttled_replica_that_has_to_catch_up_is_fetched_before_what_is_owed_is_paid(
    follower: Follower, owing: SlowLeader
) -> None:
    for _ in range(9):
        follower.work(after_ms=1_000)
    follower.work(after_ms=999)
    assert owing.asked == [[(0, 5), (1, 5)]]
    follower.work(after_ms=1)
    assert owing.asked[1:] == [[(0, 105), (1, 5)]]


@pytest.mark.parametrize(
    "change",
    [
        lambda follower: follower.throttle("*", rate=LONG_MAX),
        lambda follower: follower.throttle("*", rate=1_000_000),
        lambda follower: follower.throttle(rate=1),
        lambda follower: follower.throttle("0:2", rate=1),
    ],
    ids=["no rate", "a higher one", "no throttled replicas", "others"],
)
def test_another_throttle_holds_within_a_second(
    follower: Follower, owing: SlowLeader, change: Callable[[Follower], None]
) -> None:
    follower.work(after_ms=500)
    change(follower)
    follower.work(after_ms=500)
    assert owing.asked[1:] == [[(0, 105), (1, 5)]]


def test_what_waits_until_what_is_owed_is_paid_is_left_alone_once_fetching_has_stopped(
    follower: Follower, owing: SlowLeader
) -> None:
    follower.stop_fetching()
    follower.work(after_ms=1_000)
    assert not len(follower.timers)


def test_what_begins_anew_in_another_epoch_waits_as_well_until_what_is_owed_is_paid(
    follower: Follower, owing: SlowLeader
) -> None:
    follower.follow_anew(1)
    follower.work(after_ms=3_000)
    assert owing.asked == [[(0, 5), (1, 5)]]


def test_a_throttled_replica_that_is_in_sync_waits_for_nothing_and_counts_for_nothing(
    follower: Follower, owing: SlowLeader
) -> None:
    second = follower.partitions[1]
    follower.follow_anew(1, isr=(LEADER, 1))
    for offset in range(5, 8):
        assert owing.asked[-1] == [(1, offset)]
        owing.answer(fetched(second, many(offset, 1), high_watermark=offset))
        follower.work()
    for _ in range(10):
        assert owing.asked[1:] == [[(1, 5)], [(1, 6)], [(1, 7)], [(1, 8)]]
        follower.work(after_ms=1_000)
    owing.answer(FetchResponse(session_id=7))
    follower.work()
    assert owing.asked[5:] == [[(0, 105)]]


def test_what_has_caught_up_before_it_was_throttled_waits_for_nothing_and_counts_for_nothing(
    follower: Follower,
) -> None:
    leader, _ = two_leaders(follower)
    first, second = follower.partitions
    follower.follow(first)
    for offset in (5, 6):
        leader.answer(fetched(first, many(offset, 1), high_watermark=offset + 1))
        follower.work()
        follower.throttle("*", rate=0)
    follower.follow(second)
    leader.answer(fetched(first, b"", error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    follower.work()
    assert leader.asked[-1] == [(1, 5)], "nothing is owed yet"
    leader.answer(fetched(second, many(5, 1)))
    follower.work(after_ms=100)
    assert leader.asked[-1] == [(0, 7)]


def test_what_follows_in_sync_in_a_later_epoch_does_not_wait_as_it_would_have_in_the_one_before(
    follower: Follower,
) -> None:
    leader, newcomers = two_leaders(follower, is_open=False)
    first, _ = follower.partitions
    follower.throttle("*", rate=0)
    follower.follow()
    follower.follow_anew(1, isr=(LEADER, 1))
    leader.answer(fetched(first, many(5, 1)))
    follower.work()
    assert (leader.asked, newcomers.asked) == ([[(0, 5), (1, 5)], [(1, 5)]], [])


def test_what_was_handed_over_and_comes_again_in_sync_does_not_wait_as_it_would_have_before(
    follower: Follower,
) -> None:
    leader, newcomers = two_leaders(follower)
    first, second = follower.partitions
    follower.throttle("1:1", rate=0)
    follower.follow(first)
    follower.follow(second)
    leader.answer_with_nothing()
    follower.work()
    newcomers.answer_with_nothing()
    leader.answer(fetched(second, many(5, 1)))
    follower.work()
    follower.follow_anew(1, isr=(LEADER, 1))
    assert newcomers.asked == [[(1, 5)], [(1, 6)]]


def test_what_is_owed_since_an_answer_about_one_partition_alone_is_paid_as_well(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = follower.partitions[0]
    records = many(10, 100)
    leader = alone(follower, monkeypatch, records)
    follower.throttle("*", rate=1_000)
    follower.work(after_ms=1_000)
    follower.follow(first)
    leader.answer(fetched(first, many(5, 5)))
    follower.work()
    leader.answer(fetched(first, records))
    follower.work(after_ms=1_000)
    assert leader.asked == [[(0, 5)], [(0, 10)]]
    for _ in range(len(records) // 1_000):
        follower.work(after_ms=1_000)
    assert leader.asked[2:] == [[(0, 110)]]
