"""Idempotent and transactional producers of one partition: sequences, epochs, open transactions.

The rules are those of Kafka's ProducerStateManager (KIP-98, KIP-360). A leader calls `check` before it writes a batch
that carries a producer id and `update` after; a follower, and a log that is being loaded, only call `update`, because
what is in the log has been accepted. A partition that never met a producer pays four empty dicts and a list.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import islice
from operator import itemgetter
from typing import NamedTuple

from kafkad.clock import Clock
from kafkad.errors import ErrorCode, KafkaError
from kafkad.log.compaction import LastOfProducer
from kafkad.log.snapshots import Fields, ProducerEntry, Snapshots, pack
from kafkad.log.txnindex import AbortedTransaction
from kafkad.turns import Pieces, at_once
from kafkad.wire.control import ControlRecord, marker_at, read_control
from kafkad.wire.records import (
    ATTRIBUTES,
    BASE_SEQUENCE,
    CONTROL,
    LAST_OFFSET_DELTA,
    MAX_SEQUENCE,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL,
    Header,
    iter_records,
)

NONE = -1
"""Kafka's value for no epoch, no sequence, no offset."""
BATCHES_KEPT = 5
"""As many as a producer may have in flight: a retry of any of them is recognised (KIP-98)."""
DEFAULT_EXPIRATION_MS = 86_400_000
_ENTRIES_A_PIECE = 1_000
_HELD_BEHIND = 100
_HELD_AT_FIRST_MS = 3_000
"""Behind a batch that a leader before may have refused: enough for it to come, with clients that wait 100 ms."""
_MOST_AWAITED = 1_000
_EPOCHS_PER_TRANSACTION = 2
"""The transaction version in which each transaction has an epoch of its own (KIP-890)."""

_BATCH = struct.Struct("<iqiq")
_RING_SIZE = BATCHES_KEPT * _BATCH.size


class Origin(Enum):
    """Who made a batch. A coordinator writes offsets of transactions in its producer's name, but does not count them:
    all its batches have sequence 0, and none is ever sent twice."""

    CLIENT = 0
    COORDINATOR = 1


CLIENT, COORDINATOR = Origin
"""Names of their own: to find a member in the class of an Enum takes 0.4 us."""


class DuplicateBatch(Exception):
    """Not a failure: the batch is in the log already, and is answered as it was the first time."""

    def __init__(self, base_offset: int, timestamp: int) -> None:
        super().__init__(f"already appended at offset {base_offset}")
        self.base_offset = base_offset
        self.timestamp = timestamp


class KeptBatch(NamedTuple):
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        if self.last_sequence == NONE:
            return NONE
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE


class Producer:
    """One producer id: its epoch, its last five batches in a ring, and its open transaction.

    The ring is bytes, not objects: a busy partition meets many producers and remembers each for a day.
    """

    __slots__ = ("_at", "_count", "_ring", "coordinator_epoch", "epoch", "next_sequence", "timestamp", "txn_start")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.next_sequence = 0
        self.coordinator_epoch = NONE
        self.timestamp = NONE
        self.txn_start = NONE
        self._ring = bytearray()
        self._at = 0
        self._count = 0

    def add_batch(self, epoch: int, base_sequence: int, offset_delta: int, last_offset: int, timestamp: int) -> None:
        if epoch != self.epoch:
            self.take_epoch(epoch)
        last_sequence = (base_sequence + offset_delta) & MAX_SEQUENCE if base_sequence >= 0 else NONE
        self.next_sequence = (last_sequence + 1) & MAX_SEQUENCE
        self.timestamp = timestamp
        self.keep(last_sequence, last_offset, offset_delta, timestamp)

    def keep(self, last_sequence: int, last_offset: int, offset_delta: int, timestamp: int) -> None:
        at = self._at
        if not self._ring:
            self._ring = bytearray(_RING_SIZE)
        _BATCH.pack_into(self._ring, at, last_sequence, last_offset, offset_delta, timestamp)
        self._at = (at + _BATCH.size) % _RING_SIZE
        if self._count < BATCHES_KEPT:
            self._count += 1

    def take_epoch(self, epoch: int) -> None:
        """A new epoch counts from 0, and what the old one sent is no longer a duplicate of anything."""
        self.epoch = epoch
        self.next_sequence = 0
        self._at = self._count = 0

    def kept_batches(self) -> Iterator[KeptBatch]:
        """Newest first."""
        for back in range(1, self._count + 1):
            yield KeptBatch._make(_BATCH.unpack_from(self._ring, (self._at - back * _BATCH.size) % _RING_SIZE))

    def last_batch(self) -> KeptBatch | None:
        return next(self.kept_batches(), None)

    @property
    def last_offset(self) -> int:
        """Of the last batch, without an object for it: compaction asks all producers. NONE if there is none."""
        return self.fields(NONE)[3]

    def fields(self, producer_id: int) -> Fields:
        """Its entry in a snapshot."""
        sequence, offset, delta = NONE, NONE, 0
        if self._count:
            sequence, offset, delta, _ = _BATCH.unpack_from(self._ring, (self._at or _RING_SIZE) - _BATCH.size)
        times = self.timestamp, self.coordinator_epoch, self.txn_start
        return (producer_id, self.epoch, sequence, offset, delta, *times)


class Verification:
    """A question to the coordinator of a transaction that is not open here: does it go on, and with this partition?

    The answer holds while `ProducerStates` has the question. An end of the producer's transaction takes it away, and so
    does the first batch, which opens the transaction here.
    """

    __slots__ = ("epoch", "lowest_sequence", "since_ms")

    def __init__(self, epoch: int, sequence: int, now_ms: int) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        """What comes behind it has to wait: it may be that only this was not let in yet."""
        self.since_ms = now_ms


class _Awaited:
    """A batch that was refused for a passing reason: its producer sends it again, and those behind it have to wait."""

    __slots__ = ("epoch", "left", "sequence")

    def __init__(self, epoch: int, sequence: int) -> None:
        self.epoch = epoch
        self.sequence = sequence
        self.left = _HELD_BEHIND
        """So many more are held back; one that never comes must not hold them up for ever."""


class _Lead(NamedTuple):
    """That of a broker which leads after another one, or after a restart."""

    offset: int
    """Where it began."""
    until_ms: float
    """So long may come what the leader before has refused."""
    clock: Clock

    @property
    def is_young(self) -> bool:
        return self.clock.monotonic_ms() < self.until_ms


class ProducerDescription(NamedTuple):
    """One row of DescribeProducers."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    txn_start: int


class _NewSnapshot:
    """Producers as they were when this was made: one that is about to change is packed first."""

    __slots__ = ("_packed", "_unpacked", "work")

    work: Pieces[None]
    """What packs and writes it."""

    def __init__(self, producers: dict[int, Producer]) -> None:
        self._unpacked = producers.copy()
        self._packed = bytearray()

    def keep(self, producer_id: int) -> None:
        """This producer is about to change."""
        producer = self._unpacked.pop(producer_id, None)
        if producer is not None:
            self._packed += pack(producer.fields(producer_id))

    def pack(self) -> Pieces[bytearray]:
        for number, producer_id in enumerate(list(self._unpacked), start=1):
            self.keep(producer_id)
            if number % _ENTRIES_A_PIECE == 0:
                yield
        return self._packed


def _nobody_hears() -> None:
    pass


class ProducerStates:
    """Every producer of one partition, and the transactions that hold back its last stable offset.

    Not thread-safe, owned by the log. `expiration_ms` is `producer.id.expiration.ms`.
    """

    __slots__ = (
        "_awaited",
        "_knows_all",
        "_lead",
        "_new_snapshot",
        "_ongoing",
        "_producers",
        "_undecided",
        "_verifications",
        "expiration_ms",
        "on_snapshot",
        "snapshots",
    )

    def __init__(self, snapshots: Snapshots, *, expiration_ms: int = DEFAULT_EXPIRATION_MS) -> None:
        self.snapshots = snapshots
        self.expiration_ms = expiration_ms
        self._producers: dict[int, Producer] = {}
        self._ongoing: dict[int, int] = {}  # first offset -> producer id, in order of offsets
        self._undecided: list[tuple[int, int]] = []
        """First and last offset of transactions that ended at or above the high watermark, both ascending. Left out is
        one within another, which began before and ended later: whoever may pass the other may pass it."""
        self._verifications: dict[int, Verification] = {}  # by producer id
        self._awaited: dict[int, _Awaited] = {}  # by producer id
        self._lead: _Lead | None = None
        self._knows_all = True
        """Who is unknown was never here. What is in doubt once stays so, also when the log is cut back or emptied."""
        self._new_snapshot: _NewSnapshot | None = None
        """One that is not written yet."""
        self.on_snapshot: Callable[[], None] = _nobody_hears
        """Called when there is a new snapshot, whose name the disk may not know yet."""

    def __len__(self) -> int:
        return len(self._producers)

    # --- a leader, before it writes

    def check(self, header: Header, marker: ControlRecord | None = None, origin: Origin = CLIENT) -> None:
        """Refuse what Kafka refuses; DuplicateBatch for a batch that is in the log already.

        `marker` is given for control batches that end a transaction, which have no sequence.
        """
        producer = self._producers.get(header[PRODUCER_ID])
        if (
            producer is not None
            and header[BASE_SEQUENCE] == producer.next_sequence
            and header[PRODUCER_EPOCH] == producer.epoch
            and not header[ATTRIBUTES] & CONTROL
            and (producer.txn_start < 0 or header[ATTRIBUTES] & TRANSACTIONAL)
        ):
            return  # whatever is held back comes before it, and is in the log
        self._check_thoroughly(producer, header, marker, origin)

    def awaits(self, header: Header) -> None:
        """This batch of a client was refused, and will come again.

        The next ones may be on their way already, and what stood against it may be gone when they arrive. To be told
        that they are out of order makes librdkafka take a new epoch, in which it sends all that is not acknowledged
        once more, to every partition: what one of them has written by then would be there twice.
        """
        producer_id, epoch, sequence = header[PRODUCER_ID], header[PRODUCER_EPOCH], header[BASE_SEQUENCE]
        known = self._awaited.get(producer_id)
        if known is not None and known.epoch == epoch and known.sequence < sequence:
            return
        if known is None and len(self._awaited) >= _MOST_AWAITED:
            del self._awaited[next(iter(self._awaited))]
        self._awaited[producer_id] = _Awaited(epoch, sequence)

    def leads_from(self, offset: int, clock: Clock) -> None:
        """This broker begins to lead where another one may have led: what that one has refused comes again, and this
        one has not heard of it. What is behind it may come first."""
        self._lead = _Lead(offset, clock.monotonic_ms() + _HELD_AT_FIRST_MS, clock)

    def _check_thoroughly(
        self, producer: Producer | None, header: Header, marker: ControlRecord | None, origin: Origin
    ) -> None:
        if self._verifications and origin is CLIENT:
            self._check_nothing_held(header)
        if producer is None:
            if header[BASE_SEQUENCE] > 0 and (self._knows_all or self._is_awaited_before(header)):
                raise self.out_of_order(header, "its first batches are missing from this partition")
            return
        if header[ATTRIBUTES] & CONTROL:
            self._check_epoch(producer, header)
            if marker is not None and marker.coordinator_epoch < producer.coordinator_epoch:
                raise _old_coordinator(header, marker, producer)
            return
        if origin is CLIENT:
            _raise_if_duplicate(producer, header)
        self._check_epoch(producer, header)
        is_open, is_transactional = producer.txn_start >= 0, header[ATTRIBUTES] & TRANSACTIONAL
        if is_open and is_transactional and header[PRODUCER_EPOCH] != producer.epoch:
            raise _ended_elsewhere(header, producer)
        if origin is CLIENT and header[BASE_SEQUENCE] >= 0:
            self._check_sequence(producer, header)
        if is_open and not is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header[PRODUCER_ID]} has a transaction open since offset {producer.txn_start}, "
                "and sent a batch that does not belong to it",
            )

    def _check_epoch(self, producer: Producer, header: Header) -> None:
        if header[PRODUCER_EPOCH] < producer.epoch:
            raise _old_epoch(header[PRODUCER_ID], header[PRODUCER_EPOCH], producer)

    def _check_nothing_held(self, header: Header) -> None:
        verification = self._verifications.get(header[PRODUCER_ID])
        if verification is not None and header[BASE_SEQUENCE] > verification.lowest_sequence:
            raise self.out_of_order(header, f"{verification.lowest_sequence} was not let in yet")

    def _check_sequence(self, producer: Producer, header: Header) -> None:
        if header[PRODUCER_EPOCH] != producer.epoch:
            if header[BASE_SEQUENCE] != 0 and producer.epoch != NONE:
                raise self.out_of_order(header, f"a new epoch ({header[PRODUCER_EPOCH]}) counts from 0")
        elif header[BASE_SEQUENCE] != producer.next_sequence:
            raise self.out_of_order(header, f"expected {producer.next_sequence}")

    def _is_awaited_before(self, header: Header) -> bool:
        awaited = self._awaited.get(header[PRODUCER_ID])
        return (
            awaited is not None and awaited.epoch == header[PRODUCER_EPOCH] and awaited.sequence < header[BASE_SEQUENCE]
        )

    def _may_be_refused_before(self, header: Header) -> bool:
        """Whether what is missing before this batch may have been refused by the leader before: not if its producer has
        written anything since, or this one has led for long."""
        producer, lead, missing = self._producers.get(header[PRODUCER_ID]), self._lead, 0
        if lead is None or (producer is not None and producer.last_offset >= lead.offset):
            return False
        if producer is not None and producer.epoch == header[PRODUCER_EPOCH]:
            missing = producer.next_sequence
        return missing < header[BASE_SEQUENCE] and lead.is_young

    def out_of_order(self, header: Header, why: str) -> KafkaError:
        """The refusal of a batch before which another one is missing."""
        code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if self._is_awaited_before(header):
            code = ErrorCode.NOT_ENOUGH_REPLICAS
            awaited = self._awaited[header[PRODUCER_ID]]
            awaited.left -= 1
            if not awaited.left:
                del self._awaited[header[PRODUCER_ID]]
        elif self._may_be_refused_before(header):
            code = ErrorCode.NOT_ENOUGH_REPLICAS
        return KafkaError(
            code, f"sequence {header[BASE_SEQUENCE]} of producer {header[PRODUCER_ID]} is out of order: {why}"
        )

    # --- what is in the log

    def update(
        self, header: Header, base_offset: int, marker: ControlRecord | None = None
    ) -> AbortedTransaction | None:
        """Take in a batch of the log; what belongs in the transaction index, when it ended a transaction badly."""
        producer = self._producers.get(header[PRODUCER_ID])
        if producer is None:
            producer = self._producers[header[PRODUCER_ID]] = Producer(header[PRODUCER_EPOCH])
            if header[BASE_SEQUENCE] > 0:
                self._knows_all = False  # a leader took it that did not know all, either
        elif self._new_snapshot is not None:
            self._new_snapshot.keep(header[PRODUCER_ID])
        attributes = header[ATTRIBUTES]
        if attributes & CONTROL:
            return self._end_transaction(producer, header, base_offset, marker)
        if self._awaited:
            self._awaited.pop(header[PRODUCER_ID], None)
        delta = header[LAST_OFFSET_DELTA]
        producer.add_batch(
            header[PRODUCER_EPOCH], header[BASE_SEQUENCE], delta, base_offset + delta, header[MAX_TIMESTAMP]
        )
        if attributes & TRANSACTIONAL and producer.txn_start < 0:
            producer.txn_start = base_offset
            self._ongoing[base_offset] = header[PRODUCER_ID]
            if self._verifications:
                self._verifications.pop(header[PRODUCER_ID], None)
        return None

    def _end_transaction(
        self, producer: Producer, header: Header, offset: int, marker: ControlRecord | None
    ) -> AbortedTransaction | None:
        if marker is None:
            return None  # a control batch that ends no transaction
        if header[PRODUCER_EPOCH] != producer.epoch:
            producer.take_epoch(header[PRODUCER_EPOCH])
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.timestamp = header[MAX_TIMESTAMP]  # not the base timestamp: the cleaner keeps its delete horizon there
        first, producer.txn_start = producer.txn_start, NONE
        if first < 0:
            return None  # nothing was written to this partition
        self._ongoing.pop(first, None)
        undecided = self._undecided
        while undecided and undecided[-1][0] > first:
            undecided.pop()
        undecided.append((first, offset))
        if marker.commit:
            return None
        return AbortedTransaction(header[PRODUCER_ID], first, offset, next(iter(self._ongoing), offset + 1))

    # --- transactions

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """HOT. True if this producer has a transaction open here, begun with this epoch."""
        producer = self._producers.get(producer_id)
        return producer is not None and producer.txn_start >= 0 and producer.epoch == epoch

    def check_marker(self, producer_id: int, epoch: int, version: int) -> None:
        """Beside what `check` looks at. From transaction version 2 on each end takes the producer's epoch further: one
        with the epoch of the open transaction is late, and belongs to the transaction before."""
        if version >= _EPOCHS_PER_TRANSACTION and self.is_open(producer_id, epoch):
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"a marker with epoch {epoch} of producer {producer_id}, with which its transaction is still open",
            )

    def ended(self, producer_id: int, epoch: int, version: int) -> None:
        """A marker was written. What a coordinator was asked before is out of date, unless its transaction has an epoch
        of its own, which only begins with that marker."""
        verification = self._verifications.get(producer_id)
        if verification is not None and (version < _EPOCHS_PER_TRANSACTION or verification.epoch != epoch):
            del self._verifications[producer_id]

    def knows(self, producer_id: int) -> bool:
        return producer_id in self._producers

    def knows_any(self, first: int, last: int) -> bool:
        """True if an id from `first` to `last` is known."""
        return any(first <= producer_id <= last for producer_id in self._producers)

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """INVALID_PRODUCER_EPOCH if the producer has had a later one."""
        producer = self._producers.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            raise _old_epoch(producer_id, epoch, producer)

    def verify(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> Verification:
        """Its coordinator is about to be asked whether a batch with this sequence may open a transaction.

        The question of an epoch that another one has overtaken is not kept: whatever is answered, it does not count."""
        verification = self._verifications.get(producer_id)
        if verification is not None and epoch < verification.epoch:
            return Verification(epoch, sequence, now_ms)
        if verification is None or epoch > verification.epoch:
            verification = self._verifications[producer_id] = Verification(epoch, sequence, now_ms)
        if sequence < verification.lowest_sequence:
            verification.lowest_sequence = sequence
        return verification

    def is_verified(self, producer_id: int, verification: Verification) -> bool:
        """True if the answer to this question still counts."""
        return self._verifications.get(producer_id) is verification

    def forget_verification(self, producer_id: int, verification: Verification) -> None:
        """The coordinator has refused for good."""
        if self.is_verified(producer_id, verification):
            del self._verifications[producer_id]

    def forget_verifications(self) -> None:
        """Somebody else leads now, and writes the ends of transactions."""
        self._verifications = {}

    def committed_until(self, high_watermark: int) -> None:
        """Readers may pass the transactions that have ended below."""
        undecided = self._undecided
        if undecided and undecided[0][1] < high_watermark:
            del undecided[: bisect_left(undecided, high_watermark, key=itemgetter(1))]

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The start of the first transaction that is open or ends at or above the high watermark."""
        if self._undecided:
            self.committed_until(high_watermark)
        elif not self._ongoing:
            return None
        starts = [*islice(self._ongoing, 1), *[first for first, _ in self._undecided[:1]]]
        return min(starts, default=None)

    def oldest_transaction_ms(self) -> int | None:
        """The time of the last record of the oldest open transaction."""
        producer_id = next(iter(self._ongoing.values()), None)
        return None if producer_id is None else self._producers[producer_id].timestamp

    def describe(self) -> Iterator[ProducerDescription]:
        """One after the other: those that there are now, each as it is when its turn comes."""
        for producer_id in list(self._producers):
            producer = self._producers.get(producer_id)
            if producer is not None:
                yield _description(producer_id, producer)

    # --- loading, snapshots, expiry

    def reload(self, start_offset: int, end_offset: int, now_ms: int) -> int:
        """Forget everything and load the newest usable snapshot at or below `end_offset`.

        Returns the offset from which the log must be fed to `update`; call it on open and after a truncation.
        Snapshots outside the log are deleted, as are broken ones: the log can rebuild them.
        """
        return at_once(self.reloading(start_offset, end_offset, now_ms))

    def reloading(self, start_offset: int, end_offset: int, now_ms: int) -> Pieces[int]:
        self._clear()
        self.snapshots.keep_within(start_offset, end_offset)
        loaded = self.snapshots.load_newest()
        if loaded is None:
            self._knows_all &= start_offset == 0
            return start_offset
        offset, entries = loaded
        for count, entry in enumerate(entries, start=1):
            if not self._expired(entry.txn_start, entry.timestamp, now_ms):
                self._load(entry)
            if count % _ENTRIES_A_PIECE == 0:
                yield
        self._ongoing = dict(sorted(self._ongoing.items()))
        self._knows_all = False
        return max(offset, start_offset)

    def become(self, other: ProducerStates) -> None:
        """Take over what `other` has read from the log; what coordinators were asked, and who is awaited, is void."""
        self._clear()
        self._producers = other._producers
        self._ongoing = other._ongoing
        self._undecided = other._undecided
        self.know_no_more_than(other)

    @property
    def is_empty(self) -> bool:
        """True if no producer is known, and no end of a transaction may be taken back."""
        return not (self._producers or self._ongoing or self._undecided)

    def stay_empty(self, start_offset: int, end_offset: int) -> None:
        """Instead of `reload` after a truncation: nobody was known before, so nobody is now, and the log need not be
        read."""
        self._clear()
        self.snapshots.keep_within(start_offset, end_offset)

    def reset(self, offset: int) -> None:
        """Forget all producers: the log was emptied and starts again at `offset`."""
        self._clear()
        self.snapshots.keep_within(offset, offset)
        self._knows_all &= offset == 0

    def forget_past(self) -> None:
        """Producers unknown here may have sequences to go on from: the log is not whole, or had a predecessor."""
        self._knows_all = False

    def know_no_more_than(self, other: ProducerStates) -> None:
        """Who may have been here before `other` knew of any may go on here, too."""
        self._knows_all &= other._knows_all

    def take_snapshot(self, offset: int) -> None:
        """Write the state as of `offset`, the end of the log, unless there is one already, and whatever is not written
        yet. StorageError on failure."""
        self.finish_snapshot()
        taking = self.begin_snapshot(offset)
        if taking is not None:
            at_once(taking)

    def begin_snapshot(self, offset: int) -> Pieces[None] | None:
        """The same in pieces, between which the log goes on. None if there is one already, or the last one is not
        written yet: without this one, a start reads more of the log."""
        if self._new_snapshot is not None or offset <= self.snapshots.newest:
            return None
        new = self._new_snapshot = _NewSnapshot(self._producers)
        new.work = self._write(new, offset)
        return new.work

    def finish_snapshot(self) -> None:
        """Write at once what is not written yet of one that was begun."""
        if self._new_snapshot is not None:
            at_once(self._new_snapshot.work)

    def _write(self, new: _NewSnapshot, offset: int) -> Pieces[None]:
        try:
            yield from self.snapshots.write(offset, (yield from new.pack()))
            self.on_snapshot()
        finally:
            self._new_snapshot = None

    def drop_snapshot(self) -> None:
        """What is not written yet of one stays unwritten: the log was cut back, or its directory is gone."""
        if self._new_snapshot is not None:
            self._new_snapshot.work.close()
            self._new_snapshot = None

    def last_of_each(self) -> Pieces[dict[int, LastOfProducer]]:
        """The batches that compaction must keep, so that a restart from the log alone still knows these producers."""
        last: dict[int, LastOfProducer] = {}
        for number, producer_id in enumerate(list(self._producers), start=1):
            producer = self._producers.get(producer_id)
            if producer is not None:
                last[producer_id] = LastOfProducer(producer.last_offset, producer.epoch)
            if number % _ENTRIES_A_PIECE == 0:
                yield
        return last

    def expire(self, now_ms: int) -> Pieces[int]:
        """Forget producers that sent nothing for `producer.id.expiration.ms`; how many."""
        gone = 0
        for number, producer_id in enumerate(list(self._producers), start=1):
            producer = self._producers.get(producer_id)
            if producer is not None and self._expired(producer.txn_start, producer.timestamp, now_ms):
                del self._producers[producer_id]
                self._knows_all = False
                gone += 1
            if number % _ENTRIES_A_PIECE == 0:
                yield
        for number, producer_id in enumerate(list(self._verifications), start=1):
            asked = self._verifications.get(producer_id)
            if asked is not None and self._expired(NONE, asked.since_ms, now_ms):
                del self._verifications[producer_id]
            if number % _ENTRIES_A_PIECE == 0:
                yield
        return gone

    def advance_start(self, start_offset: int) -> None:
        """Records below were deleted: their producers stay known until they expire, their ended transactions do not."""
        self.committed_until(start_offset)
        if start_offset > 0:
            self._knows_all = False

    def _expired(self, txn_start: int, timestamp: int, now_ms: int) -> bool:
        return txn_start < 0 and now_ms - timestamp >= self.expiration_ms

    def _clear(self) -> None:
        self.drop_snapshot()
        self._producers = {}
        self._ongoing = {}
        self._undecided = []
        self._verifications = {}
        self._awaited = {}

    def _load(self, entry: ProducerEntry) -> None:
        producer = self._producers[entry.producer_id] = Producer(entry.epoch)
        producer.coordinator_epoch = entry.coordinator_epoch
        producer.timestamp = entry.timestamp
        producer.txn_start = entry.txn_start
        if entry.last_offset >= 0:
            producer.keep(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp)
            producer.next_sequence = (entry.last_sequence + 1) & MAX_SEQUENCE
        if entry.txn_start >= 0:
            self._ongoing[entry.txn_start] = entry.producer_id


def _old_epoch(producer_id: int, epoch: int, producer: Producer) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"epoch {epoch} of producer {producer_id} is older than {producer.epoch}, the last one seen",
    )


def _ended_elsewhere(header: Header, producer: Producer) -> KafkaError:
    """A coordinator lets a producer go on with a later epoch when all markers of its transaction are written. If it is
    open here, another leader has the marker: the producer is not fenced, and has to find that leader."""
    return KafkaError(
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        f"producer {header[PRODUCER_ID]} goes on with epoch {header[PRODUCER_EPOCH]}, and its transaction of epoch "
        f"{producer.epoch} is open here since offset {producer.txn_start}: another leader must have its end",
    )


def _old_coordinator(header: Header, marker: ControlRecord, producer: Producer) -> KafkaError:
    return KafkaError(
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        f"marker for producer {header[PRODUCER_ID]} with coordinator epoch {marker.coordinator_epoch}, "
        f"older than {producer.coordinator_epoch}, the last one seen",
    )


def _raise_if_duplicate(producer: Producer, header: Header) -> None:
    if header[PRODUCER_EPOCH] != producer.epoch:
        return
    first = header[BASE_SEQUENCE]
    last = (first + header[LAST_OFFSET_DELTA]) & MAX_SEQUENCE if first >= 0 else NONE
    for batch in producer.kept_batches():
        if batch.last_sequence == last and batch.first_sequence == first >= 0:
            raise DuplicateBatch(batch.last_offset - batch.offset_delta, batch.timestamp)


def _description(producer_id: int, producer: Producer) -> ProducerDescription:
    last = producer.last_batch()
    return ProducerDescription(
        producer_id,
        producer.epoch,
        NONE if last is None else last.last_sequence,
        producer.timestamp,
        producer.coordinator_epoch,
        producer.txn_start,
    )


def read_marker(view: memoryview, at: int, header: Header) -> ControlRecord | None:
    """The marker in the control batch at `at`; None if it ends no transaction. RecordsError if malformed."""
    marker = marker_at(view, at, header)
    if marker is not None:
        return marker
    record = next(iter_records(view, at, header), None)
    return None if record is None else read_control(record)
