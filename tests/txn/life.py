"""One partition of `__transaction_state` on a clock that a test moves; writes and markers are held back or refused."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import cast

from kafkad.cluster.metadata import MetadataCache, TopicMetadata
from kafkad.errors import ErrorCode, KafkaError
from kafkad.model import BrokerInfo, Endpoint
from kafkad.names import TopicPartition
from kafkad.net.client import Link
from kafkad.replica.markers import Codes, Marker
from kafkad.timers import Timers
from kafkad.turns import at_once
from kafkad.txn.gone import GonePartitions, OnGone
from kafkad.txn.machine import OnEnd, TransactionMachine, TransactionProbe
from kafkad.txn.markers import MarkerQueues
from kafkad.txn.records import Record, decode
from kafkad.txn.transaction import AddPartitions, Answer, Asked, End, EndAndBump, InitProducer, Transaction
from kafkad.wire.messages.update_metadata import UpdateMetadataPartitionState
from tests.fakes import FakeClock, turns

HERE, ELSEWHERE = 1, 2
COORDINATOR_EPOCH = 5
WRITE_TIMEOUT_MS = 2_000


class Disk:
    """The committed records, which outlive a machine."""

    def __init__(self) -> None:
        self.records: list[tuple[bytes, bytes | None]] = []
        self.damaged_at: int | None = None
        """Some could not be read ahead of the record with this number."""

    def load(self, life: Life) -> None:
        self._apply(life, self.records[: self.damaged_at])
        if self.damaged_at is not None:
            at_once(life.machine.missed("a damaged batch"))
            self._apply(life, self.records[self.damaged_at :])
        life.machine.loaded()

    def _apply(self, life: Life, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        for key, value in dict(records).items():
            record = decode(key, value)
            assert record is not None
            life.machine.apply(record)


class Life:
    def __init__(
        self,
        disk: Disk | None = None,
        *,
        level: int = 2,
        clock: FakeClock | None = None,
        connect: Callable[[BrokerInfo], Link] | None = None,
        coordinator_epoch: int = COORDINATOR_EPOCH,
    ) -> None:
        self.clock = clock or FakeClock()
        self.timers = Timers()
        self.level = level
        self.disk = disk or Disk()
        self.hold_later = False
        """What is to be done later waits for `turn`."""
        self._laters: list[Callable[[], None]] = []
        self.hold = False
        """Writes wait for `commit`."""
        self.doubts: list[Callable[[bool], None]] | None = None
        """Told whether this broker leads, when a test says so; None while it surely does."""
        self.refuse: ErrorCode | None = None
        """What is said to writes."""
        self.hold_markers = False
        self.codes: dict[TopicPartition, ErrorCode] = {}
        """What leaders here say of markers, other than NONE."""
        self.markers: list[Marker] = []
        self.coordinator_epoch = coordinator_epoch
        self.next_id = 100
        self.no_ids: Exception | ErrorCode | None = None
        """What comes instead of a producer id."""
        self._waiting: list[tuple[Sequence[Record], OnEnd]] = []
        self._waiting_markers: list[Callable[[], None]] = []
        self.metadata = MetadataCache()
        self.unheard_of: set[TopicPartition] = set()
        """Partitions that the store has, although the controller may not have told of them."""
        self.metadata.is_here.set()
        self.metadata.brokers = {broker: _broker(broker) for broker in (HERE, ELSEWHERE)}
        self.leaders("t", [HERE, HERE, HERE])
        self.queues = MarkerQueues(
            self.metadata,
            HERE,
            self._append,
            connect,
            timeout_ms=1000,
            clock=self.clock,
            timers=self.timers,
            later=self._later,
            gone=cast(GonePartitions, self),
        )
        self.probe = TransactionProbe()
        self.machine = TransactionMachine(
            self._write,
            self._write,
            self.queues,
            writes_at_once=lambda: not self.hold,
            when_sure=self._when_sure,
            coordinator_epoch=lambda: self.coordinator_epoch,
            take_producer_id=self._take_producer_id,
            level=lambda: self.level,
            clock=self.clock,
            timers=self.timers,
            later=self._later,
            write_timeout_ms=WRITE_TIMEOUT_MS,
            probe=self.probe,
        )
        self.disk.load(self)

    def leaders(self, topic: str, leaders: Iterable[int]) -> None:
        states = {
            index: UpdateMetadataPartitionState(partition_index=index, leader=leader)
            for index, leader in enumerate(leaders)
        }
        self.metadata.topics[topic] = TopicMetadata(topic, b"", states)

    def find(self, partitions: Sequence[TopicPartition], done: OnGone) -> None:
        """Those that are gone."""
        done([tp for tp in partitions if tp not in self.unheard_of])

    def close(self) -> None:
        pass

    def advance(self, ms: int) -> None:
        """Step by step, so that what one timer sets goes off as well."""
        end_ms = self.clock.monotonic_ms() + ms
        while (due_ms := self.timers.next_deadline_ms()) is not None and due_ms <= end_ms:
            self.clock.advance(max(int(due_ms - self.clock.monotonic_ms()), 0))
            self.timers.expire(self.clock.monotonic_ms())
        self.clock.advance(int(end_ms - self.clock.monotonic_ms()))

    def _when_sure(self, then: Callable[[bool], None]) -> None:
        if self.doubts is None:
            then(True)
        else:
            self.doubts.append(then)

    def _later(self, action: Callable[[], None]) -> None:
        if self.hold_later:
            self._laters.append(action)
        else:
            action()

    def turn(self) -> None:
        """A later turn of the event loop."""
        laters, self._laters = self._laters, []
        for action in laters:
            action()

    # The log and the partitions

    def _write(self, records: Sequence[Record], on_end: OnEnd) -> None:
        if self.refuse is not None:
            on_end(KafkaError(self.refuse))
        elif self.hold:
            self._waiting.append((records, on_end))
        else:
            self._commit(records, on_end)

    def _commit(self, records: Sequence[Record], on_end: OnEnd) -> None:
        for record in records:
            self.disk.records.append(self.machine.encode(record))
            self.machine.apply(record)
        on_end(None)

    def commit(self) -> None:
        """What has been written so far is committed."""
        waiting, self._waiting = self._waiting, []
        for records, on_end in waiting:
            self._commit(records, on_end)

    def fail(self, code: ErrorCode, *, applied: bool = False) -> None:
        """What has been written so far gets an error, and stays in the log if it is applied."""
        waiting, self._waiting = self._waiting, []
        for records, on_end in waiting:
            if applied:
                for record in records:
                    self.disk.records.append(self.machine.encode(record))
                    self.machine.apply(record)
            on_end(KafkaError(code))

    def _append(self, markers: Sequence[Marker], done: Callable[[Codes], None]) -> None:
        self.markers += markers
        codes = [[self.codes.get(tp, ErrorCode.NONE) for tp in marker.partitions] for marker in markers]
        if self.hold_markers:
            self._waiting_markers.append(lambda: done(codes))
        else:
            done(codes)

    def write_markers(self) -> None:
        waiting, self._waiting_markers = self._waiting_markers, []
        for write in waiting:
            write()

    async def _take_producer_id(self) -> int:
        if self.no_ids is not None:
            raise KafkaError(self.no_ids) if isinstance(self.no_ids, ErrorCode) else self.no_ids
        self.next_id += 1
        return self.next_id

    # What is asked

    def ask(self, asked: Asked, name: str = "a", *, waits_for_markers: bool = True) -> list[Answer]:
        """The answer, as soon as there is one."""
        answers: list[Answer] = []
        self.machine.ask(name, asked, answers.append, "a test", waits_for_markers=waits_for_markers)
        return answers

    async def new(self, name: str = "a", timeout_ms: int = 60_000) -> tuple[int, int]:
        answers = self.ask(InitProducer(name, timeout_ms), name)
        await turns()
        [(error, producer_id, epoch)] = answers
        assert error is ErrorCode.NONE
        return producer_id, epoch

    def add(self, producer: tuple[int, int], *partitions: int, waits_for_markers: bool = True) -> list[Answer]:
        added = AddPartitions(*producer, [TopicPartition("t", index) for index in partitions], 0)
        return self.ask(added, waits_for_markers=waits_for_markers)

    def end(self, producer: tuple[int, int], commit: bool, *, bump: bool = False) -> list[Answer]:
        return self.ask((EndAndBump if bump else End)(*producer, commit))

    def known(self, name: str = "a") -> Transaction:
        return self.machine.transactions[name]


def _broker(broker: int) -> BrokerInfo:
    endpoint = Endpoint(listener="PLAINTEXT", host=f"b{broker}", port=9092, protocol="PLAINTEXT")
    return BrokerInfo(id=broker, endpoints=(endpoint,), rack=None)


def scenario(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """A test on an event loop of its own."""

    @functools.wraps(test)
    def run() -> None:
        asyncio.run(test())  # type: ignore[arg-type]

    del run.__wrapped__
    return run
