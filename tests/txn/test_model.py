"""Whatever fails or comes late: a transaction is committed everywhere or nowhere, and what is fenced writes no more.

Two clients share a transactional id, old or new in their way to end transactions. They write to partitions as a broker
lets them: if the partition has their transaction open, or the coordinator says that it belongs to it. The last of these
partitions has the offsets of a group. Writes of the coordinator are refused, lost or committed in spite of an error;
markers are refused, or held and answered late; the coordinator moves, what was written before it has its place among
the next one's records or not; a partition is deleted, the id expires, the time of day is set anew; requests are lost,
doubled, kept back and come late. Only for an old client nothing comes late that has its present epoch: it could not be
told from what it asks now. In the end everything heals, and the partitions are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from kafkad.errors import ErrorCode
from kafkad.group.offsets import Offsets
from kafkad.group.records import OffsetCommitted
from kafkad.names import TopicPartition
from kafkad.replica.markers import Codes, Marker
from kafkad.txn.records import decode
from kafkad.txn.transaction import OK, PREPARED, AddPartitions, Answer, Asked, End, EndAndBump, InitProducer, State
from kafkad.txn.transaction import Transaction as Known
from tests.fakes import turns
from tests.txn.life import HERE, Disk, Life

NAME, GROUP, SOURCE = "a", "movers", "source"
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
OF_GROUP = 2
SOME_PARTITIONS = st.sets(st.sampled_from(PARTITIONS), min_size=1)
SENT = st.sampled_from(["once", "once", "twice", "again late", "only late"])
ENDED = st.sampled_from(["once", "once", "twice", "again late", "unheard"])
HOUR_MS = 3_600_000
RARE = [
    "partition deleted",
    "deleted partitions made again",
    "id expires",
    "no producer ids",
    "clock behind",
    "clock ahead",
]
FENCED = 10**6
"""What a fenced producer tries to write."""
Ids = tuple[int, int]
"""Producer id and epoch."""


class PartitionLog:
    """What a leader keeps of producers, and the records: (producer id, transaction) or (producer id, commit)."""

    def __init__(self) -> None:
        self.records: list[tuple[int, int | bool]] = []
        self.epochs: dict[int, int] = {}
        self.coordinators: dict[int, int] = {}
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
        if marker.coordinator_epoch < self.coordinators.get(marker.producer_id, -1):
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        self.coordinators[marker.producer_id] = marker.coordinator_epoch
        self.epochs[marker.producer_id] = marker.producer_epoch
        self.open.discard(marker.producer_id)
        self.records.append((marker.producer_id, marker.commit))
        return ErrorCode.NONE

    def committed(self) -> list[int]:
        """The transactions whose records a reader of committed ones sees, in the order of the log."""
        seen: list[int] = []
        for place, (producer_id, what) in enumerate(self.records):
            if not isinstance(what, bool):
                ends = (end for one, end in self.records[place:] if one == producer_id and isinstance(end, bool))
                if next(ends, False):
                    seen.append(what)
        return seen


class GroupLog(PartitionLog):
    """The records are offsets of a group, which has them when they are committed."""

    def __init__(self) -> None:
        super().__init__()
        self.offsets = Offsets()

    def write(self, producer_id: int, epoch: int, transaction: int) -> None:
        super().write(producer_id, epoch, transaction)
        self.offsets.apply(OffsetCommitted(GROUP, SOURCE, 0, transaction, -1, "", 0), producer_id)

    def mark(self, marker: Marker) -> ErrorCode:
        code = super().mark(marker)
        if code is ErrorCode.NONE:
            self.offsets.end_transaction(marker.producer_id, marker.commit)
        return code

    def offset(self) -> int | None:
        found = self.offsets.committed(GROUP, SOURCE, 0)
        return None if found is None else found.offset


@dataclass
class Client:
    number: int
    bumps: bool
    producer: Ids | None = None
    transaction: int = -1
    wrote: bool = False
    must_abort: bool = False
    """It does not know of all it has sent whether it has arrived."""
    ending: bool | None = None
    """It has asked to commit, or to abort, and does not know yet."""
    asks_again: InitProducer | None = None
    """It has asked for the next epoch, and does not know yet."""

    def forget_transaction(self) -> None:
        self.transaction, self.wrote, self.must_abort, self.ending = -1, False, False, None


class KeptBack(NamedTuple):
    """A request that comes late: of an old client when its epoch is over."""

    bumps: bool
    producer: Ids | None
    deliver: Callable[[], object]
    partition: int = -1
    """That is written to."""


class World(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.logs: dict[int, PartitionLog] = {0: PartitionLog(), 1: PartitionLog(), OF_GROUP: GroupLog()}
        self.refused_markers: set[int] = set()
        self.markers_are_held = False
        self.held_markers: list[Callable[[], None]] = []
        self.life = self.runner.run(self._new_life(None, 2))
        self.next_transaction = 0
        self.wrote_to: dict[int, set[int]] = {}
        self.outcome: dict[int, bool] = {}
        self.may_commit: set[int] = set()
        self.given: dict[Ids, int] = {}
        self.kept_back: list[KeptBack] = []
        self.jumped_ms = 0

    def teardown(self) -> None:
        self.runner.close()

    @initialize(
        bumps=st.tuples(st.booleans(), st.booleans()),
        epoch=st.sampled_from([0, 0, 32_760, 32_765]),
        level=st.sampled_from([2, 2, 0]),
    )
    def begin(self, bumps: tuple[bool, bool], epoch: int, level: int) -> None:
        self.clients = [Client(number, new and level == 2) for number, new in enumerate(bumps)]
        self.life.level = level
        self._start(self.clients[0])
        if epoch:
            record = self.life.known()._replace(epoch=epoch)
            self.life.disk.records.append(self.life.machine.encode(record))
            self.life.machine.apply(record)
            self.given = {(record.producer_id, epoch): 0}
            self.clients[0].producer = (record.producer_id, epoch)

    # What clients do

    @rule(number=st.integers(0, 1), late=st.booleans())
    def start(self, number: int, late: bool) -> None:
        if late:
            asked = InitProducer(NAME, TIMEOUT_MS)
            self.kept_back.append(KeptBack(True, None, partial(self._ask, asked)))
        self._start(self.clients[number])

    @rule(number=st.integers(0, 1), lost=st.booleans(), late=st.booleans())
    def go_on_with_the_next_epoch(self, number: int, lost: bool, late: bool) -> None:
        """As a producer that has given up on a batch: it names its epoch, and asks again while it is not answered."""
        client = self.clients[number]
        if client.producer is None:
            return
        asked = client.asks_again or InitProducer(NAME, TIMEOUT_MS, *client.producer)
        if late:
            self.kept_back.append(KeptBack(client.bumps, client.producer, partial(self._ask, asked)))
        answer = self._ask(asked)
        client.asks_again = asked
        client.forget_transaction()
        if lost or answer is None or answer.error in LATER:
            return
        client.asks_again = None
        client.producer = None
        if answer.error is ErrorCode.NONE:
            self._is_given(client, answer)

    @rule(number=st.integers(0, 1), partitions=SOME_PARTITIONS, sent=SENT, commit=st.booleans(), ended=ENDED)
    def transact(self, number: int, partitions: set[int], sent: str, commit: bool, ended: str) -> None:
        self.send(number, partitions, sent)
        self.end(number, commit, ended)

    @rule(number=st.integers(0, 1), partitions=SOME_PARTITIONS, how=SENT)
    def send(self, number: int, partitions: set[int], how: str) -> None:
        client = self.clients[number]
        if client.producer is None:
            self._start(client)
        for partition in sorted(partitions):
            self._send(client, partition, how)

    def _send(self, client: Client, partition: int, how: str) -> None:
        if client.producer is None or client.ending is not None or client.asks_again:
            return
        if client.transaction < 0:
            client.transaction = self.next_transaction
            self.next_transaction += 1
        produce = partial(self._produce, client.producer, client.transaction, partition, client.bumps)
        if how in ("again late", "only late"):
            self.kept_back.append(KeptBack(client.bumps, client.producer, produce, partition))
        if how == "only late":
            client.must_abort = True
            return
        if produce():
            client.wrote = True
            self.wrote_to.setdefault(client.transaction, set()).add(partition)
        if how == "twice":
            produce()

    @rule(number=st.integers(0, 1), commit=st.booleans(), how=ENDED)
    def end(self, number: int, commit: bool, how: str) -> None:
        client = self.clients[number]
        asked = self._asks_to_end(client, commit)
        if asked is None:
            return
        if how == "again late":
            self.kept_back.append(KeptBack(client.bumps, client.producer, partial(self._ask, asked)))
        answer = self._ask(asked)
        if how == "unheard" or answer is None or answer.error in LATER:
            return
        if how == "twice" and not answer.error:
            again = self._ask(asked)
            assert again is None or again == answer or again.error in LATER, "a repetition is answered otherwise"
        self._is_ended(client, answer)

    @rule(number=st.integers(0, 1), commit=st.booleans())
    def end_while_another_begins(self, number: int, commit: bool) -> None:
        """Both are asked before a record of either is written."""
        client, other = self.clients[number], self.clients[1 - number]
        asked = self._asks_to_end(client, commit)
        if asked is None or self.life.hold:
            return
        self.life.hold = True
        ended, begun = self.life.ask(asked, NAME), self.life.ask(InitProducer(NAME, TIMEOUT_MS), NAME)
        self.life.hold = False
        self.life.commit()
        self.time_passes(150)
        if ended and ended[0].error not in LATER:
            self._is_ended(client, ended[0])
        self._has_started(other, begun[0] if begun else None)

    @rule(number=st.integers(0, 1), partition=st.sampled_from(PARTITIONS))
    def end_while_a_partition_is_added(self, number: int, partition: int) -> None:
        """By a batch that comes late: it is taken if there was no marker meanwhile."""
        client = self.clients[number]
        if not client.bumps or self.life.hold or partition not in self.life.metadata.topics["t"].partitions:
            return
        transaction, producer = client.transaction, client.producer
        asked = self._asks_to_end(client, True)
        if asked is None or producer is None:
            return
        self.life.hold = True
        added = self.life.ask(AddPartitions(*producer, [TopicPartition("t", partition)], 2), NAME)
        ended = self.life.ask(asked, NAME)
        self.life.hold = False
        self.life.commit()
        self.time_passes(150)
        if added == [OK] and self.logs[partition].takes(*producer) is not False:
            self.logs[partition].write(*producer, transaction)
            self.wrote_to.setdefault(transaction, set()).add(partition)
        if ended and ended[0].error not in LATER:
            self._is_ended(client, ended[0])

    def _asks_to_end(self, client: Client, commit: bool) -> Asked | None:
        if client.producer is None or client.transaction < 0:
            return None
        if client.ending is None:
            client.ending = commit and not client.must_abort
        if client.ending:
            self.may_commit.add(client.transaction)
        return (EndAndBump if client.bumps else End)(*client.producer, client.ending)

    def _is_ended(self, client: Client, answer: Answer) -> None:
        if answer.error is ErrorCode.NONE:
            assert client.ending is not None
            assert self.outcome.setdefault(client.transaction, client.ending) == client.ending
            if client.bumps:
                self._is_given(client, answer)
        elif not (answer.error is ErrorCode.INVALID_TXN_STATE and not client.wrote):
            client.producer = None
        client.forget_transaction()

    @precondition(lambda self: self.kept_back)
    @rule(place=st.integers(0, 100))
    def deliver_late(self, place: int) -> None:
        place %= len(self.kept_back)
        if self._is_told_apart(self.kept_back[place]):
            self.kept_back.pop(place).deliver()

    def _is_told_apart(self, late: KeptBack) -> bool:
        known = self.life.machine.transactions.get(NAME)
        return late.bumps or known is None or late.producer != (known.producer_id, known.epoch)

    # What goes wrong

    @rule(how=st.sampled_from(["refused", "held"]), code=st.sampled_from(WRITES_FAIL))
    def writes_fail(self, how: str, code: ErrorCode) -> None:
        if how == "refused":
            self.life.refuse = code
        else:
            self.life.hold = True

    @rule(
        how=st.sampled_from(["committed", "lost", "committed in spite of an error"]), code=st.sampled_from(WRITES_FAIL)
    )
    def writes_go_on(self, how: str, code: ErrorCode) -> None:
        """Those that were held have this end."""
        if how != "committed":
            self.life.fail(code, applied=how != "lost")
        self.life.refuse = None
        self.life.hold = False
        self.life.commit()

    @rule(refusing=st.sets(st.sampled_from(PARTITIONS)), held=st.booleans())
    def markers_fail(self, refusing: set[int], held: bool) -> None:
        self.refused_markers = refusing
        self.markers_are_held = held

    @rule(place=st.integers(0, 100), all_of_them=st.booleans())
    def markers_go_on(self, place: int, all_of_them: bool) -> None:
        """Those that were held, in any order, whoever asked for them."""
        self.refused_markers = set()
        if self.held_markers and not all_of_them:
            self.held_markers.pop(place % len(self.held_markers))()
        else:
            self._write_held_markers()

    @rule(committed=st.booleans())
    def the_coordinator_moves(self, committed: bool) -> None:
        """What it was writing is committed by the next one, or lost."""
        if committed:
            self.life.fail(ErrorCode.NOT_COORDINATOR, applied=True)
        self.life.machine.unloaded()
        self.life = self.runner.run(self._new_life(self.life, self.life.level))

    @rule(
        what=st.sampled_from(RARE),
        partition=st.sampled_from(PARTITIONS[:OF_GROUP]),
    )
    def something_rare_happens(self, what: str, partition: int) -> None:
        if what == "partition deleted":
            self._delete(partition)
        elif what == "deleted partitions made again":
            self.life.leaders("t", [HERE] * len(PARTITIONS))
        elif what == "id expires":
            for _ in self.life.machine.forget_expired(0):
                pass
        elif what == "no producer ids":
            self.life.no_ids = ErrorCode.COORDINATOR_NOT_AVAILABLE if self.life.no_ids is None else None
        else:
            ms = -HOUR_MS if what == "clock behind" else 2_000
            self.jumped_ms += ms
            self.life.clock.jump(ms)

    def _delete(self, partition: int) -> None:
        self.life.metadata.topics["t"].partitions.pop(partition, None)
        self.logs[partition] = PartitionLog()
        self.kept_back = [late for late in self.kept_back if late.partition != partition]
        for partitions in self.wrote_to.values():
            partitions.discard(partition)

    @rule(ms=st.sampled_from([1, 50, 1_000, TIMEOUT_MS + 1]))
    def time_passes(self, ms: int) -> None:
        self.runner.run(self._pass(ms))

    # In the end

    def check(self) -> None:
        self.refused_markers = set()
        self.life.no_ids = None
        self.writes_go_on("committed", ErrorCode.NONE)
        self._write_held_markers()
        for late in self.kept_back:
            if self._is_told_apart(late):
                late.deliver()
        self.life.clock.jump(max(-self.jumped_ms, 0))
        for _ in range(2):
            self.time_passes(3 * TIMEOUT_MS)
        known = self.life.machine.transactions.get(NAME)
        assert known is None or (known.state not in PREPARED and known.state is not State.ONGOING)
        assert not any(log.open for log in self.logs.values()), "a transaction that nobody ends"
        self._check_readers()
        self._check_loading()
        self._start(self.clients[0])
        assert self.clients[0].producer is not None, "the id is stuck"

    def _check_readers(self) -> None:
        order = {index: log.committed() for index, log in self.logs.items()}
        committed = {index: set(seen) for index, seen in order.items()}
        for transaction, partitions in self.wrote_to.items():
            seen = {index for index in PARTITIONS if transaction in committed[index]}
            if transaction in self.may_commit:
                assert seen in (set(), partitions), f"{transaction} wrote to {partitions}, and is to be seen in {seen}"
            if transaction in self.outcome:
                assert seen == (partitions if self.outcome[transaction] else set())
        assert set().union(*committed.values()) <= self.may_commit, "a reader sees what nobody has committed"
        offsets = self.logs[OF_GROUP]
        assert isinstance(offsets, GroupLog)
        assert offsets.offset() == (order[OF_GROUP][-1] if order[OF_GROUP] else None)
        assert not offsets.offsets.pending(GROUP)

    def _check_loading(self) -> None:
        """From wherever the log ends, a coordinator knows what was known then."""
        records = self.life.disk.records
        for length in range(len(records) + 1):
            disk = Disk()
            disk.records = records[:length]
            life = self.runner.run(self._load(disk))
            expected = decode(*records[length - 1]) if length else None
            found = life.machine.transactions.get(NAME)
            if isinstance(expected, Known) and expected.state in PREPARED:
                assert found is not None and found.state is not State.ONGOING and found.commits == expected.commits
                assert {tp for marker in life.markers for tp in marker.partitions} == expected.partitions
            else:
                assert found == (expected if isinstance(expected, Known) else None)

    async def _load(self, disk: Disk) -> Life:
        life = Life(disk, level=self.life.level, clock=self.life.clock)
        await turns()
        return life

    def _start(self, client: Client) -> None:
        self._has_started(client, self._ask(InitProducer(NAME, TIMEOUT_MS)))

    def _has_started(self, client: Client, answer: Answer | None) -> None:
        client.producer = client.asks_again = None
        client.forget_transaction()
        if answer is not None and answer.error is ErrorCode.NONE:
            self._is_given(client, answer)
            for other in self.clients:
                if other is not client and other.producer is not None:
                    self._is_fenced(other)

    def _is_given(self, client: Client, answer: Answer) -> None:
        client.producer = answer.producer_id, answer.epoch
        assert answer.epoch < 32_767
        assert self.given.setdefault(client.producer, client.number) == client.number, (
            "given to another producer before"
        )

    def _is_fenced(self, other: Client) -> None:
        assert other.producer is not None
        for log in self.logs.values():
            assert log.takes(*other.producer) is not True, "the transaction of a fenced producer is still open"
        for partition in PARTITIONS:
            assert not self._produce(other.producer, FENCED, partition, other.bumps), "a fenced producer writes"

    def _produce(self, producer: Ids, transaction: int, partition: int, adds: bool) -> bool:
        """An old client adds the partition first."""
        if partition not in self.life.metadata.topics["t"].partitions:
            return False
        tp = TopicPartition("t", partition)
        if not adds and self._ask(AddPartitions(*producer, [tp], 0)) != OK:
            return False
        log = self.logs[partition]
        takes = log.takes(*producer)
        if takes is None and adds:
            takes = self._ask(AddPartitions(*producer, [tp], 2)) == OK
        elif takes is None:
            found: list[Any] = []
            self.life.machine.verify(NAME, *producer, [tp], found.append)
            takes = found == [{tp: ErrorCode.NONE}]
        if takes:
            log.write(*producer, transaction)
        return bool(takes)

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

    async def _new_life(self, before: Life | None, level: int) -> Life:
        world = self

        class OfWorld(Life):
            def _append(self, markers: Sequence[Marker], done: Callable[[Codes], None]) -> None:
                def write() -> None:
                    done([[world._mark(marker, tp.partition) for tp in marker.partitions] for marker in markers])

                if world.markers_are_held:
                    world.held_markers.append(write)
                else:
                    write()

        if before is None:
            life = OfWorld(level=level)
        else:
            life = OfWorld(before.disk, level=level, clock=before.clock, coordinator_epoch=before.coordinator_epoch + 1)
            life.next_id += before.next_id
            life.no_ids = before.no_ids
        await turns()
        return life

    def _write_held_markers(self) -> None:
        self.markers_are_held = False
        held, self.held_markers = self.held_markers, []
        for write in held:
            write()

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
