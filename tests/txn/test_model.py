"""Whatever fails or comes late: a transaction is committed everywhere or nowhere, and what is fenced writes no more.

Two clients share a transactional id, old or new in their way to end transactions. They write to partitions as a broker
lets them: if the partition has their transaction open, or the coordinator says that it belongs to it. Writes of the
coordinator are refused, lost or committed in spite of an error, markers are refused, the coordinator moves, time jumps;
of new clients requests are kept back and come late, or twice. In the end everything heals, and the partitions are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kafkad.replica.markers import Codes, Marker
from kafkad.txn.transaction import PREPARED, AddPartitions, Answer, Asked, End, EndAndBump, InitProducer, State
from tests.txn.life import Life, turns

NAME = "a"
TIMEOUT_MS = 5_000
LATER = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
WRITES_FAIL = [
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.REQUEST_TIMED_OUT,
]
PARTITIONS = [0, 1, 2]


class PartitionLog:
    """What a leader keeps of producers, and the records: (producer id, transaction) or (producer id, commit)."""

    def __init__(self) -> None:
        self.records: list[tuple[int, int | bool]] = []
        self.epochs: dict[int, int] = {}
        self.open: set[int] = set()

    def takes(self, producer_id: int, epoch: int) -> bool | None:
        """None: the coordinator is to be asked."""
        known = self.epochs.get(producer_id, -1)
        if epoch < known:
            return False
        return True if producer_id in self.open and epoch == known else None

    def write(self, producer_id: int, epoch: int, transaction: int) -> None:
        self.records.append((producer_id, transaction))
        self.epochs[producer_id] = epoch
        self.open.add(producer_id)

    def mark(self, marker: Marker) -> ErrorCode:
        known = self.epochs.get(marker.producer_id, -1)
        again = marker.version == 2 and marker.producer_epoch == known
        if marker.producer_epoch < known or (again and marker.producer_id in self.open):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        self.epochs[marker.producer_id] = marker.producer_epoch
        self.open.discard(marker.producer_id)
        self.records.append((marker.producer_id, marker.commit))
        return ErrorCode.NONE

    def committed(self) -> set[int]:
        """The transactions whose records a reader of committed ones sees."""
        seen: set[int] = set()
        pending: dict[int, set[int]] = {}
        for producer_id, what in self.records:
            if isinstance(what, bool):
                ended = pending.pop(producer_id, set())
                seen |= ended if what else set()
            else:
                pending.setdefault(producer_id, set()).add(what)
        return seen


@dataclass
class Client:
    bumps: bool
    producer: tuple[int, int] | None = None
    transaction: int = -1
    wrote_to: set[int] = field(default_factory=set)
    ending: bool | None = None
    """It has asked to commit, or to abort, and does not know yet."""


class World(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.logs = {index: PartitionLog() for index in PARTITIONS}
        self.refused_markers: set[int] = set()
        self.life = self.runner.run(self._new_life(None))
        self.next_transaction = 0
        self.wrote_to: dict[int, set[int]] = {}
        self.outcome: dict[int, bool] = {}
        self.given: set[tuple[int, int]] = set()
        self.kept_back: list[Callable[[], object]] = []

    def teardown(self) -> None:
        self.runner.close()

    @initialize(bumps=st.tuples(st.booleans(), st.booleans()), epoch=st.sampled_from([0, 0, 32_760, 32_765]))
    def begin(self, bumps: tuple[bool, bool], epoch: int) -> None:
        self.clients = [Client(bumps[0]), Client(bumps[1])]
        self._start(self.clients[0])
        if epoch:
            record = self.life.known()._replace(epoch=epoch)
            self.life.disk.records.append(self.life.machine.encode(record))
            self.life.machine.apply(record)
            self.given = {(record.producer_id, epoch)}
            self.clients[0].producer = (record.producer_id, epoch)

    # What clients do

    @rule(number=st.integers(0, 1))
    def start(self, number: int) -> None:
        self._start(self.clients[number])

    @rule(
        number=st.integers(0, 1),
        partitions=st.sets(st.sampled_from(PARTITIONS), min_size=1),
        twice=st.booleans(),
        late=st.booleans(),
    )
    def send(self, number: int, partitions: set[int], twice: bool, late: bool) -> None:
        client = self.clients[number]
        if client.producer is None:
            self._start(client)
        for partition in partitions:
            self._send(client, partition, twice, late)

    def _send(self, client: Client, partition: int, twice: bool, late: bool) -> None:
        if client.producer is None or client.ending is not None:
            return
        if client.transaction < 0:
            client.transaction = self.next_transaction
            self.next_transaction += 1
        produce = partial(self._produce, client.producer, client.transaction, partition, client.bumps)
        if produce():
            client.wrote_to.add(partition)
            self.wrote_to.setdefault(client.transaction, set()).add(partition)
        if client.bumps and late:
            self.kept_back.append(produce)
        elif client.bumps and twice:
            produce()

    @rule(number=st.integers(0, 1), commit=st.booleans(), late=st.booleans(), lost=st.booleans())
    def end(self, number: int, commit: bool, late: bool, lost: bool) -> None:
        client = self.clients[number]
        if client.producer is None or client.transaction < 0:
            return
        if client.ending is None:
            client.ending = commit
        kind = EndAndBump if client.bumps else End
        asked = kind(*client.producer, client.ending)
        if client.bumps and late:
            self.kept_back.append(partial(self._ask, asked))
        answer = self._ask(asked)
        if lost or answer is None or answer.error in LATER:
            return
        if answer.error is ErrorCode.NONE:
            assert self.outcome.setdefault(client.transaction, client.ending) == client.ending
            if client.bumps:
                client.producer = answer.producer_id, answer.epoch
            client.transaction, client.ending = -1, None
        elif answer.error is ErrorCode.INVALID_TXN_STATE and not client.wrote_to:
            client.transaction, client.ending = -1, None
        else:
            client.producer, client.transaction, client.ending = None, -1, None
        client.wrote_to = set()

    @precondition(lambda self: self.kept_back)
    @rule(data=st.data())
    def deliver_late(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.kept_back) - 1))
        self.kept_back.pop(place)()

    # What goes wrong

    @rule(code=st.sampled_from(WRITES_FAIL))
    def writes_are_refused(self, code: ErrorCode) -> None:
        self.life.refuse = code

    @rule()
    def writes_are_taken(self) -> None:
        self.life.refuse = None
        self.life.hold = False
        self.life.commit()

    @rule()
    def writes_are_held(self) -> None:
        self.life.hold = True

    @rule(code=st.sampled_from(WRITES_FAIL), applied=st.booleans())
    def held_writes_fail(self, code: ErrorCode, applied: bool) -> None:
        self.life.fail(code, applied=applied)

    @rule(partitions=st.sets(st.sampled_from(PARTITIONS)))
    def leaders_refuse_markers(self, partitions: set[int]) -> None:
        self.refused_markers = partitions

    @rule(committed=st.booleans())
    def the_coordinator_moves(self, committed: bool) -> None:
        """What it was writing is committed by the next one, or lost."""
        if committed:
            self.life.fail(ErrorCode.NOT_COORDINATOR, applied=True)
        self.life.machine.unloaded()
        self.life = self.runner.run(self._new_life(self.life))

    @rule(ms=st.sampled_from([1, 50, 1_000, TIMEOUT_MS + 1]))
    def time_passes(self, ms: int) -> None:
        self.runner.run(self._pass(ms))

    # In the end

    def check(self) -> None:
        self.refused_markers.clear()
        self.writes_are_taken()
        for deliver in self.kept_back:
            deliver()
        self.time_passes(3 * TIMEOUT_MS)
        known = self.life.machine.transactions.get(NAME)
        assert known is None or (known.state not in PREPARED and known.state is not State.ONGOING)
        assert not any(log.open for log in self.logs.values()), "a transaction that nobody ends"
        committed = {index: log.committed() for index, log in self.logs.items()}
        for transaction, partitions in self.wrote_to.items():
            seen = {index for index in PARTITIONS if transaction in committed[index]}
            assert seen in (set(), partitions), f"{transaction} wrote to {partitions}, and is to be seen in {seen}"
            if transaction in self.outcome:
                assert seen == (partitions if self.outcome[transaction] else set())

    def _start(self, client: Client) -> None:
        answer = self._ask(InitProducer(NAME, TIMEOUT_MS))
        client.producer, client.transaction, client.ending, client.wrote_to = None, -1, None, set()
        if answer is not None and answer.error is ErrorCode.NONE:
            client.producer = answer.producer_id, answer.epoch
            assert client.producer not in self.given, "given to another producer before"
            self.given.add(client.producer)
            for other in self.clients:
                if other is not client and other.producer is not None:
                    self._is_fenced(other)

    def _is_fenced(self, other: Client) -> None:
        assert other.producer is not None
        for log in self.logs.values():
            assert log.takes(*other.producer) is not True, "the transaction of a fenced producer is still open"
        for partition in PARTITIONS:
            assert not self._produce(other.producer, 10**6, partition, other.bumps), "a fenced producer writes"

    def _produce(self, producer: tuple[int, int], transaction: int, partition: int, adds: bool) -> bool:
        log, tp = self.logs[partition], TopicPartition("t", partition)
        takes = log.takes(*producer)
        if takes is None:
            if not adds:
                answer = self._ask(AddPartitions(*producer, [tp], 0))
                if answer is None or answer.error:
                    return False
                found: list[Any] = []
                self.life.machine.verify(NAME, *producer, [tp], found.append)
                takes = found == [{tp: ErrorCode.NONE}]
            else:
                answer = self._ask(AddPartitions(*producer, [tp], 2))
                takes = answer is not None and not answer.error
        if takes:
            log.write(*producer, transaction)
        return takes

    def _ask(self, asked: Asked) -> Answer | None:
        """The answer that comes before the client gives up, if one does."""

        async def answered() -> Answer | None:
            answers = self.life.ask(asked, NAME)
            await turns()
            if not answers:
                await self._pass(150)
            return answers[0] if answers else None

        return self.runner.run(answered())

    async def _pass(self, ms: int) -> None:
        for _ in range(10):
            self.life.advance(ms // 10 + 1)
            await turns()

    async def _new_life(self, before: Life | None) -> Life:
        world = self

        class OfWorld(Life):
            def _append(self, markers: Sequence[Marker], done: Callable[[Codes], None]) -> None:
                done([[world._mark(marker, tp.partition) for tp in marker.partitions] for marker in markers])

        life = OfWorld() if before is None else OfWorld(before.disk, clock=before.clock)
        life.next_id += 0 if before is None else before.next_id
        await turns()
        return life

    def _mark(self, marker: Marker, partition: int) -> ErrorCode:
        if partition in self.refused_markers:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return self.logs[partition].mark(marker)


class CheckedWorld(World):
    def teardown(self) -> None:
        try:
            if hasattr(self, "clients"):
                self.check()
        finally:
            super().teardown()


class TestTransactions(CheckedWorld.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(max_examples=25, stateful_step_count=30, deadline=None)


@pytest.mark.slow
class TestManyTransactions(CheckedWorld.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(max_examples=250, stateful_step_count=30, deadline=None)
