"""A bank in transactions: movers that take numbers of a source from one account to another, and readers of what counts.

Number k is taken from one partition and given to another, and the offset of the source committed with that. Two movers
have the same transactional id, and fence each other; one asks as old clients do, the other as new ones. Every fifth
transaction is aborted. Whatever happens, each partition has the numbers from 0 on, in their order, each once, for whom
reads what is committed; and the group's offset is behind the last of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafkad.errors import ErrorCode
from kafkad.wire.control import read_control
from kafkad.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafkad.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kafkad.wire.messages.end_txn import EndTxnRequest
from kafkad.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkad.wire.messages.find_coordinator import FindCoordinatorRequest
from kafkad.wire.messages.init_producer_id import InitProducerIdRequest
from kafkad.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kafkad.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkad.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kafkad.wire.records import Record, build_batch, crc_matches, iter_batches, iter_records
from tests.sim.history import BANK, Place, Violation
from tests.sim.invariants import Invariants, log_of
from tests.sim.machines import Machine
from tests.sim.workload import Client

NAME, MOVERS = "mover", "movers"
PARTITIONS = 2
TIMEOUT_MS = 2_000
_PRODUCE, _ADD_PARTITIONS, _END, _COMMIT_OFFSETS = 0, 24, 26, 28
_OLD = {_PRODUCE: (9, 11), _ADD_PARTITIONS: (0, 3), _END: (0, 4), _COMMIT_OFFSETS: (0, 4)}
_PREFIX = b"bank:"


class Accounts:
    """What clients have been told of it."""

    def __init__(self) -> None:
        self.moved = 0
        """So many numbers have been moved, as far as that was acknowledged."""
        self.seen: dict[tuple[str, Place], int] = {}
        """By reader and partition, how many numbers it has read."""


class _Unanswered(Exception):
    """No answer, or an error: to be begun anew, behind what is committed."""


class _InBank(Client):
    def places(self) -> list[Place]:
        names = self.history.names
        return sorted(place for place in self.partitions if names[place.topic_id] == BANK)


class Mover(_InBank):
    def __init__(self, *who: Any, accounts: Accounts, invariants: Invariants, new: bool) -> None:
        super().__init__(*who)
        self._accounts = accounts
        self._invariants = invariants
        self._new = new
        self.versions = {} if new else _OLD
        self._producer = -1, -1
        self._sequences: dict[Place, int] = {}

    async def run(self) -> None:
        while True:
            await self.pause(0.3)
            try:
                await self._move_some()
            except _Unanswered:
                await self.refresh()

    async def _asked(self, broker: int, request: Any) -> Any:
        answer = await self.ask(broker, request)
        if answer is None:
            raise _Unanswered
        return answer

    async def _coordinator(self, kind: int, key: str) -> int:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        [found] = (await self._asked(self.random.choice(self.brokers), request)).coordinators
        _expect(found.error_code)
        return int(found.node_id)

    async def _move_some(self) -> None:
        if len(self.places()) < PARTITIONS:
            raise _Unanswered
        coordinator, group = await self._coordinator(1, NAME), await self._coordinator(0, MOVERS)
        request = InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=TIMEOUT_MS)
        given = await self._asked(coordinator, request)
        _expect(given.error_code)
        self._begin(given.producer_id, given.producer_epoch)
        number = await self._committed(group)
        for _ in range(self.random.randrange(1, 12)):
            commits = self.random.random() < 0.8
            await self._write(coordinator, group, number)
            await self._end(coordinator, commits)
            if commits:
                number += 1
                self._accounts.moved = max(self._accounts.moved, number)
                self.world.note("moved", number, self.name)
            await self.pause(0.05)

    def _begin(self, producer_id: int, epoch: int) -> None:
        self._producer = producer_id, epoch
        self._sequences.clear()

    async def _committed(self, group: int) -> int:
        """A deposed coordinator that does not know it yet may say what it remembers: that does not count."""
        names = self.history.names
        home = Place(next((known for known, name in names.items() if name == "__consumer_offsets"), bytes(16)), 0)
        epoch = self._epoch_of(home, group)
        topic = OffsetFetchRequestTopics(name=BANK, topic_id=self.places()[0].topic_id, partition_indexes=[0])
        asked = OffsetFetchRequestGroup(group_id=MOVERS, topics=[topic])
        [answer] = (await self._asked(group, OffsetFetchRequest(groups=[asked], require_stable=True))).groups
        _expect(answer.error_code)
        _expect(answer.topics[0].partitions[0].error_code)
        if epoch != self._epoch_of(home, group):
            raise _Unanswered
        return max(int(answer.topics[0].partitions[0].committed_offset), 0)

    def _epoch_of(self, home: Place, broker: int) -> int:
        state = self._invariants.states().get(home)
        if state is None or state.leader != broker:
            raise _Unanswered
        return state.leader_epoch

    async def _write(self, coordinator: int, group: int, number: int) -> None:
        who = {"transactional_id": NAME, "producer_id": self._producer[0], "producer_epoch": self._producer[1]}
        if not self._new:
            await self._add(coordinator)
        for place, amount in zip(self.places(), (-number, number), strict=True):
            await self._produce(place, _PREFIX + b"%d:%d" % (number, amount))
        if not self._new:
            _expect((await self._asked(coordinator, AddOffsetsToTxnRequest(group_id=MOVERS, **who))).error_code)
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=number + 1)
        topic = TxnOffsetCommitRequestTopic(name=BANK, partitions=[partition])
        answer = await self._asked(group, TxnOffsetCommitRequest(group_id=MOVERS, topics=[topic], **who))
        _expect(answer.topics[0].partitions[0].error_code)

    async def _add(self, coordinator: int) -> None:
        producer_id, epoch = self._producer
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=NAME,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=BANK, partitions=list(range(PARTITIONS)))],
        )
        [topic] = (await self._asked(coordinator, request)).results_by_topic_v3_and_below
        _expect(*(one.partition_error_code for one in topic.results_by_partition))

    async def _produce(self, place: Place, value: bytes) -> None:
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = sequence + 1
        producer = {"producer_id": self._producer[0], "producer_epoch": self._producer[1], "base_sequence": sequence}
        batch = bytes(build_batch([Record(0, self.clock.now_ms(), b"", value)], transactional=True, **producer))
        data = PartitionProduceData(index=place.partition, records=batch)
        topic = TopicProduceData(name=BANK, topic_id=place.topic_id, partition_data=[data])
        request = ProduceRequest(transactional_id=NAME, acks=-1, timeout_ms=500, topic_data=[topic])
        answer = await self._asked(self.partitions[place].leader, request)
        _expect(answer.responses[0].partition_responses[0].error_code)

    async def _end(self, coordinator: int, commits: bool) -> None:
        producer_id, epoch = self._producer
        request = EndTxnRequest(transactional_id=NAME, producer_id=producer_id, producer_epoch=epoch, committed=commits)
        answer = await self._asked(coordinator, request)
        _expect(answer.error_code)
        if self._new:
            self._begin(answer.producer_id, answer.producer_epoch)


class CommittedReader(_InBank):
    """Reads the accounts from their beginning to the last stable offset, and then what comes."""

    def __init__(self, *who: Any, accounts: Accounts) -> None:
        super().__init__(*who)
        self._accounts = accounts
        self._next: dict[Place, int] = {}
        self._epochs: dict[Place, int] = {}

    async def run(self) -> None:
        while True:
            await self.pause(0.1)
            places = self.places()
            if not places or self.random.random() < 0.05 or not await self._fetch(self.random.choice(places)):
                await self.refresh()

    async def _fetch(self, place: Place) -> bool:
        """Metadata older than what was read from are not followed (KIP-320): that leader may not have it."""
        led = self.partitions.get(place)
        if led is None or led.leader < 0 or led.epoch < self._epochs.get(place, -1):
            return False
        at = self._next.get(place, 0)
        wanted = FetchPartition(
            partition=place.partition, current_leader_epoch=led.epoch, fetch_offset=at, partition_max_bytes=5_000
        )
        topic = FetchTopic(topic_id=place.topic_id, partitions=[wanted])
        request = FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=50_000, isolation_level=1, topics=[topic])
        answer = await self.ask(led.leader, request)
        if answer is None or answer.error_code or not answer.responses:
            return answer is not None and not answer.error_code
        found = answer.responses[0].partitions[0]
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise Violation(f"{place}: {self.name} read up to {at}, which broker {led.leader} says is out of range")
        if found.error_code:
            return False
        self._epochs[place] = led.epoch
        self._take(place, at, memoryview(found.records or b""), found.aborted_transactions or ())
        return True

    def _take(self, place: Place, at: int, data: memoryview, aborted: Any) -> None:
        begun = sorted((one.first_offset, one.producer_id) for one in aborted)
        dropped: set[int] = set()
        for where, header in iter_batches(data):
            while begun and begun[0][0] <= header.base_offset:
                dropped.add(begun.pop(0)[1])
            if header.is_control:
                dropped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in dropped):
                for record in iter_records(data, where, header):
                    if record.offset >= at and record.value is not None:
                        self._see(place, record.offset, record.value)
            self._next[place] = header.last_offset + 1

    def _see(self, place: Place, offset: int, value: bytes) -> None:
        if not value.startswith(_PREFIX):
            return
        number, key = _number(value), (self.name, place)
        expected = self._accounts.seen.get(key, 0)
        if number != expected:
            raise Violation(f"{place} offset {offset}: {self.name} read number {number}, and {expected} was to come")
        self._accounts.seen[key] = expected + 1


class BankInvariants:
    """What must hold in the end."""

    def __init__(self, accounts: Accounts, invariants: Invariants, machines: Sequence[Machine]) -> None:
        self._accounts = accounts
        self._invariants = invariants
        self._machines = machines

    def unfinished(self) -> str | None:
        """A transaction that is still open somewhere; they time out, or are ended."""
        for (place, broker), replica in self._invariants.replicas():
            first = replica.log.first_unstable_offset(replica.high_watermark)
            if first is not None:
                return f"a transaction is open in {place} at broker {broker} from offset {first} on"
        return None

    def check(self) -> None:
        """The numbers of both partitions, from every log, and the offset of the group."""
        offset = self._committed_offset()
        for (place, broker), replica in self._invariants.replicas():
            if replica.tp.topic != BANK:
                continue
            log = log_of(replica)
            if log.damaged:
                continue  # nobody has read it since a bit was flipped there: the other replicas tell
            numbers = _numbers(b"".join(batch.data for batch in log.sound))
            if numbers != list(range(len(numbers))):
                wrong = next((at, number) for at, number in enumerate(numbers) if at != number)
                raise Violation(f"{place}: committed number {wrong[1]} stands at broker {broker} instead of {wrong[0]}")
            if len(numbers) < self._accounts.moved:
                raise Violation(f"{place}: {self._accounts.moved} numbers were moved, {len(numbers)} are there")
            if len(numbers) != offset:
                raise Violation(f"{place}: {len(numbers)} numbers are committed, and offset {offset} of the group")

    def _committed_offset(self) -> int:
        offsets = [
            shard.machine.offsets.committed(MOVERS, BANK, 0)
            for machine in self._machines
            if machine.parts is not None
            for shard in machine.parts.coordinators.groups.shards()
        ]
        return max((one.offset for one in offsets if one is not None), default=0)


def _numbers(log: bytes) -> list[int]:
    """Those of committed transactions, in the order of the log."""
    view = memoryview(log)
    open_now: dict[int, list[tuple[int, int]]] = {}
    found: list[tuple[int, int]] = []
    for at, header in iter_batches(view):
        if not crc_matches(view, at, header):
            continue
        for record in iter_records(view, at, header):
            if header.is_control:
                marker = read_control(record)
                ended = open_now.pop(header.producer_id, [])
                found += ended if marker is not None and marker.commit else []
            elif header.is_transactional and (record.value or b"").startswith(_PREFIX):
                open_now.setdefault(header.producer_id, []).append((record.offset, _number(record.value or b"")))
    return [number for _, number in sorted(found)]


def _number(value: bytes) -> int:
    return int(value.split(b":")[1])


def _expect(*codes: int) -> None:
    if any(codes):
        raise _Unanswered
