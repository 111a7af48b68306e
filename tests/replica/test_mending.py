"""Leaders are asked for what a log lost beside each other, and only so many at once; a damaged leader gives way; what
they answer is written only where it belongs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from kafkad.errors import ErrorCode, StorageError
from kafkad.log.indexed import Hole
from kafkad.model import BrokerInfo
from kafkad.names import TopicPartition
from kafkad.replica.mending import LARGEST, LEADERS_AT_ONCE, LOOK_MS, Mender
from kafkad.timers import Timers
from kafkad.turns import Pieces
from kafkad.wire.fetch import MENDER
from kafkad.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kafkad.wire.records import Record, build_batch
from tests.fakes import FakeClock, turns


def followed(leader: int) -> Any:
    hole = Hole(start=0, end=100, first=0, next=10)
    log = SimpleNamespace(is_damaged=True, damage=[(SimpleNamespace(path=str), hole)], topic_id=bytes(16), history=0)
    tp = TopicPartition("t", leader)
    role = SimpleNamespace(leader=leader)
    return SimpleNamespace(tp=tp, role=role, log=log, following=object(), is_leader=False, leader_epoch=1)


class AtOnce:
    """Does what is for a thread."""

    async def _run(self, work: Callable[[], None]) -> None:
        work()

    def in_thread(
        self, directory: str, work: Callable[[], None], on_done: Callable[[StorageError | None], None]
    ) -> Awaitable[None]:
        return self._run(work)


class Replicas(list[Any]):
    def __init__(self, leaders: range) -> None:
        super().__init__(followed(leader) for leader in leaders)
        self.ask_for_leader_and_isr: Any = None
        self.logs: Any = None
        self.parts = SimpleNamespace(durable=AtOnce())
        self.failed: list[StorageError] = []
        self.directory_failed = self.failed.append
        self.giving_way: Any = frozenset()
        self.metadata = SimpleNamespace(brokers={id_: BrokerInfo(id=id_, endpoints=()) for id_ in leaders})


class Silent:
    """A leader that is asked and says nothing; `asked` has all that were."""

    def __init__(self, leader: int, asked: list[int]) -> None:
        self._leader, self._asked = leader, asked

    async def call(self, request: object, *, timeout_ms: int) -> object:
        self._asked.append(self._leader)
        return await asyncio.get_running_loop().create_future()

    def close(self) -> None:
        pass


async def look(clock: FakeClock, timers: Timers) -> None:
    """The next look for damage, with what follows from it at once."""
    await asyncio.sleep(0)
    clock.advance(LOOK_MS)
    timers.expire(clock.monotonic_ms())
    await turns()


def test_a_silent_leader_holds_up_no_other_and_not_all_are_asked_at_once() -> None:
    async def run() -> list[int]:
        asked: list[int] = []
        clock = FakeClock()
        timers = Timers()
        replicas = Replicas(range(LEADERS_AT_ONCE + 2))
        mender = Mender(replicas, lambda broker: Silent(broker.id, asked), clock, timers)  # type: ignore[arg-type]
        mender.start()
        await look(clock, timers)
        await mender.stop()
        return asked

    assert asyncio.run(run()) == list(range(LEADERS_AT_ONCE))


def test_a_look_that_fails_is_not_the_last(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> list[int]:
        asked: list[int] = []
        clock, timers = FakeClock(), Timers()
        replicas = Replicas(range(1))
        mender = Mender(replicas, lambda broker: Silent(broker.id, asked), clock, timers)  # type: ignore[arg-type]
        log, replicas[0].log = replicas[0].log, None
        mender.start()
        for _ in range(2):
            await look(clock, timers)
            replicas[0].log = log
        await mender.stop()
        return asked

    assert asyncio.run(run()) == [0]
    assert "internal error in the look for damage to mend" in caplog.text


def epochs_in_which_another_is_to_lead(hole: Hole, epochs: Sequence[int]) -> list[int]:
    """Of these, in which it is led here at one look after the other."""
    led = followed(leader=1)
    led.log.damage = [(SimpleNamespace(path=str), hole)]
    led.following, led.is_leader, led.role.isr = None, True, (1, 2)
    asked: list[int] = []
    replicas = Replicas(range(0))
    replicas.append(led)
    replicas.ask_for_leader_and_isr = lambda: asked.append(led.leader_epoch)

    async def run() -> None:
        clock, timers = FakeClock(), Timers()
        mender = Mender(replicas, lambda broker: Silent(broker.id, []), clock, timers)  # type: ignore[arg-type]
        mender.start()
        for led.leader_epoch in epochs:
            await look(clock, timers)
        await mender.stop()

    asyncio.run(run())
    return asked


def test_a_damaged_log_is_to_be_led_elsewhere_whenever_it_is_led_here_again() -> None:
    hole = Hole(start=0, end=100, first=0, next=10)
    assert epochs_in_which_another_is_to_lead(hole, (1, 1, 3, 3)) == [1, 3]


def test_a_log_that_cannot_be_mended_is_to_be_led_elsewhere_less_and_less_often() -> None:
    """All others in sync may have such damage, too."""
    hole = Hole(start=0, end=LARGEST + 1, first=0, next=10)
    assert epochs_in_which_another_is_to_lead(hole, range(1, 50)) == [1, 13, 37]


LEADER = 2


def records(offset: int) -> bytes:
    return bytes(build_batch([Record(offset, 1, None, b"value")]))


SIZE = len(records(0))


class DamagedLog:
    """`written` has the offsets of the stretches that were mended."""

    is_damaged = True
    topic_id = bytes(16)
    log_directory = "/logs"

    def __init__(self, *holes: Hole) -> None:
        segment = SimpleNamespace(path=str)
        self.left = [(segment, hole) for hole in holes]
        self.history = 0
        self.written: list[int] = []

    @property
    def damage(self) -> list[tuple[object, Hole]]:
        return list(self.left)


class NotedMending:
    def __init__(self, log: DamagedLog, segment: object, hole: Hole, records: bytes) -> None:
        self._log, self._hole = log, hole

    def write(self) -> Pieces[None]:
        self._log.written.append(self._hole.first)
        yield

    def sync(self) -> None:
        pass

    def serve(self) -> Pieces[bool | None]:
        yield
        return True


@pytest.fixture(autouse=True)
def only_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkad.replica.mending.Mending", NotedMending)


class Whole:
    """A leader with one record in each batch; `asked` has the offsets, and `meanwhile` happens before an answer."""

    def __init__(self, asked: list[int], meanwhile: Callable[[], None]) -> None:
        self._asked, self._meanwhile = asked, meanwhile

    async def call(self, request: FetchRequest, *, timeout_ms: int) -> FetchResponse:
        [asked] = request.topics[0].partitions
        self._asked.append(asked.fetch_offset)
        count = request.max_bytes // SIZE
        found = b"".join(records(offset) for offset in range(asked.fetch_offset, asked.fetch_offset + count))
        self._meanwhile()
        data = PartitionData(high_watermark=100, records=found)
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])

    def close(self) -> None:
        pass


def looked_once(log: DamagedLog, meanwhile: Callable[[Any], None] = lambda partition: None) -> list[int]:
    """The offsets that the leader of a replica with this log was asked for at one look."""
    partition = followed(LEADER)
    partition.log, partition.failure = log, None
    replicas = Replicas(range(0))
    replicas.append(partition)
    return looked_once_at(replicas, lambda: meanwhile(partition))


def looked_once_at(replicas: Replicas, meanwhile: Callable[[], None] = lambda: None) -> list[int]:
    replicas.metadata.brokers[LEADER] = BrokerInfo(id=LEADER, endpoints=())
    replicas.logs = SimpleNamespace(damages=SimpleNamespace(mended=lambda path, start, end: None))
    asked: list[int] = []

    async def run() -> None:
        clock, timers = FakeClock(), Timers()
        leader = Whole(asked, meanwhile)
        mender = Mender(replicas, lambda broker: leader, clock, timers)  # type: ignore[arg-type]
        mender.start()
        await look(clock, timers)
        await mender.stop()

    asyncio.run(run())
    return asked


def test_the_lost_end_of_a_file_has_no_bytes_that_could_be_filled() -> None:
    log = DamagedLog(Hole(SIZE, SIZE, first=1, next=3, lost=True))
    assert looked_once(log) == []
    assert log.written == []


@pytest.mark.parametrize("lost", [0, 1])
def test_what_is_left_of_a_lost_end_is_filled_only_if_all_of_it_is_there_then(lost: int) -> None:
    log = DamagedLog(Hole(SIZE, 3 * SIZE, first=1, next=3 + lost, lost=True))
    assert looked_once(log) == [1]
    assert log.written == ([] if lost else [1])


def hole(first: int) -> Hole:
    return Hole(first * SIZE, (first + 1) * SIZE, first, first + 1)


def test_a_disk_that_fails_while_a_stretch_is_filled_costs_the_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel tells of a failed write once: others may have waited for the same file."""

    def sync(mending: NotedMending) -> None:
        raise failure

    failure = StorageError("/logs", "records were lost")
    monkeypatch.setattr(NotedMending, "sync", sync)
    partition = followed(LEADER)
    partition.log, partition.failure = DamagedLog(hole(1)), None
    replicas = Replicas(range(0))
    replicas.append(partition)
    assert looked_once_at(replicas) == [1]
    assert replicas.failed == [failure]


def test_a_log_that_is_cut_back_while_its_leader_is_asked_is_left_as_it_is() -> None:
    """Newer records may be where the stretch was, or another stretch in the same place."""
    log = DamagedLog(hole(1), hole(3), hole(5))

    def cut(partition: Any) -> None:
        if log.history == 0:
            log.history = 1
            del log.left[1]

    assert looked_once(log, cut) == [1, 5]
    assert log.written == [5]


def test_a_stretch_that_is_gone_meanwhile_is_not_filled() -> None:
    """Retention has deleted it, or the replica is in another log directory now."""
    log = DamagedLog(hole(1), hole(3))
    assert looked_once(log, lambda partition: log.left.clear()) == [1]
    assert log.written == []


def test_what_a_leader_of_before_answers_is_not_used() -> None:
    log = DamagedLog(hole(1), hole(3))

    def lead_elsewhere(partition: Any) -> None:
        partition.role = SimpleNamespace(leader=LEADER + 1)

    assert looked_once(log, lead_elsewhere) == [1]
    assert log.written == []


class DamagedToo:
    """It may be a Java broker as well, to which this one is a consumer without a right to read."""

    def __init__(self, error: ErrorCode = ErrorCode.CORRUPT_MESSAGE) -> None:
        self._error = error
        self.asked = 0

    async def call(self, request: FetchRequest, *, timeout_ms: int) -> FetchResponse:
        assert request.replica_state.replica_id == MENDER
        self.asked += 1
        data = PartitionData(error_code=self._error)
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("isr", "epochs"),
    [((1, LEADER), [1, 13]), ((1, LEADER, 3), list(range(1, 20)))],
    ids=["all are known to be damaged there", "one may have what is missing"],
)
def test_who_is_known_to_be_damaged_too_is_given_the_leadership_less_and_less_often(
    isr: tuple[int, ...], epochs: list[int]
) -> None:
    """Of a replica that was to be mended while 2 led, and leads in the epochs after that."""
    replica = followed(LEADER)
    replica.log, replica.failure = DamagedLog(hole(1)), None
    asked: list[int] = []
    replicas = Replicas(range(0))
    replicas.append(replica)
    replicas.metadata.brokers[LEADER] = BrokerInfo(id=LEADER, endpoints=())
    replicas.ask_for_leader_and_isr = lambda: asked.append(replica.leader_epoch)

    async def run() -> None:
        clock, timers = FakeClock(), Timers()
        mender = Mender(replicas, lambda broker: DamagedToo(), clock, timers)  # type: ignore[arg-type, return-value]
        mender.start()
        for replica.leader_epoch in range(20):
            await look(clock, timers)
            replica.following, replica.is_leader = None, True
            replica.role = SimpleNamespace(leader=1, isr=isr)
        await mender.stop()

    asyncio.run(run())
    assert asked == epochs


def test_a_leader_that_does_not_let_it_read_is_asked_again_less_and_less_often(
    caplog: pytest.LogCaptureFixture,
) -> None:
    replica = followed(LEADER)
    replica.log, replica.failure = DamagedLog(hole(1)), None
    replicas = Replicas(range(0))
    replicas.append(replica)
    replicas.metadata.brokers[LEADER] = BrokerInfo(id=LEADER, endpoints=())
    refusing = DamagedToo(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    async def run() -> None:
        clock, timers = FakeClock(), Timers()
        mender = Mender(replicas, lambda broker: refusing, clock, timers)  # type: ignore[arg-type, return-value]
        mender.start()
        for _ in range(20):
            await look(clock, timers)
        await mender.stop()

    asyncio.run(run())
    assert refusing.asked == 3, "at once, at the next look, and after a minute"
    told = f"cannot mend offsets 1 to 1 of {replica.tp} now: broker {LEADER}, its leader, wants the right to Read"
    assert [message.startswith(told) for message in caplog.messages] == [True] * 3
