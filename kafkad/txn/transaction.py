"""The state of one transactional id, and what becomes of it: pure decisions about requests.

A decision is an Answer, a Write (the state that is to be recorded, and the answer once that is committed), or NEEDS_ID,
when it cannot be made without a new producer id. CONCURRENT_TRANSACTIONS as an answer means "not now": markers are
still on their way, and the same request can be decided again when they have arrived.

How a transaction goes is told by the versions of its requests. A new client (transaction version 2) ends each
transaction with a higher epoch, so that what comes late from an ended one is recognised; an old one (0) keeps its
epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, IntEnum
from typing import NamedTuple, Protocol

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition

NONE = -1
"""No producer id, no epoch, no time."""
LAST_CLIENT_EPOCH = 32_766
"""Above it is only the epoch that fences: a producer that had this one goes on with a new id."""
LAST_EPOCH = 32_767
BUMPS_EPOCH = 2
"""The transaction version of clients that get a new epoch with each end."""


class State(IntEnum):
    """As in the records. DEAD and PREPARE_EPOCH_FENCE of Kafka are never written, and not needed here."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    __hash__ = int.__hash__

    @property
    def label(self) -> str:
        """Kafka's name."""
        return _LABELS[self]


_LABELS = {
    State.EMPTY: "Empty",
    State.ONGOING: "Ongoing",
    State.PREPARE_COMMIT: "PrepareCommit",
    State.PREPARE_ABORT: "PrepareAbort",
    State.COMPLETE_COMMIT: "CompleteCommit",
    State.COMPLETE_ABORT: "CompleteAbort",
}
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = State
"""Names of their own for what every request asks: to find a member in the class of an Enum takes 0.4 us."""
PREPARED = frozenset({PREPARE_COMMIT, PREPARE_ABORT})
COMPLETE = frozenset({COMPLETE_COMMIT, COMPLETE_ABORT})
NO_PARTITIONS: frozenset[TopicPartition] = frozenset()


class Transaction(NamedTuple):
    """A transactional id as its last record says."""

    id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    state: State
    partitions: frozenset[TopicPartition]
    updated_ms: int
    started_ms: int = NONE
    """When the first partition was added to its last transaction."""
    previous_producer_id: int = NONE
    """The one before this record's change: another than `producer_id` only after the epochs of that had run out."""
    next_producer_id: int = NONE
    """The one that takes over when a transaction that ended the epochs is complete."""
    version: int = 0
    """The transaction version of the last client that changed it."""
    last_epoch: int = NONE
    """The epoch before the last change of it; not in the record. Who lost the answer asks with it again (KIP-360)."""

    @property
    def commits(self) -> bool:
        return self.state is PREPARE_COMMIT or self.state is COMPLETE_COMMIT


class Answer(NamedTuple):
    error: ErrorCode
    producer_id: int = NONE
    epoch: int = NONE


class Cause(Enum):
    """Why a transaction ended."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    TIMED_OUT = "timed out"
    FENCED = "fenced"


_COMMITTED, _ABORTED = Cause.COMMITTED, Cause.ABORTED


class Write(NamedTuple):
    """`answer` is due when the record is committed, or with the end of the transaction where it is prepared.

    CONCURRENT_TRANSACTIONS for who has to ask again, behind what this begins.
    """

    record: Transaction
    answer: Answer
    cause: Cause | None = None
    """Given where a transaction is ended."""


class NeedsId(Enum):
    NEEDS_ID = "needs a new producer id"


NEEDS_ID = NeedsId.NEEDS_ID
Decision = Answer | Write | NeedsId

_NO_ERROR = ErrorCode.NONE
OK = Answer(_NO_ERROR)
NOT_NOW = Answer(ErrorCode.CONCURRENT_TRANSACTIONS)
_UNKNOWN = Answer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
_FENCED = Answer(ErrorCode.PRODUCER_FENCED)
_WRONG_STATE = Answer(ErrorCode.INVALID_TXN_STATE)


class Moment(NamedTuple):
    """What a decision depends on beside the state and the request."""

    now_ms: int
    level: int
    """The cluster's transaction version: that of what brokers end by themselves."""
    new_id: int | None = None
    """A producer id that nobody has, if one was asked for by NEEDS_ID."""


class Asked(Protocol):
    """A request about one transactional id."""

    def decide(self, known: Transaction | None, moment: Moment) -> Decision: ...


class InitProducer(NamedTuple):
    """InitProducerId: who asks is from now on the only producer of the id; what an earlier one had open is aborted."""

    id: str
    timeout_ms: int
    producer_id: int = NONE
    epoch: int = NONE

    def decide(self, known: Transaction | None, moment: Moment) -> Decision:
        if known is None:
            return self._with_new_id(None, moment)
        if _takes_over(known, self.producer_id, self.epoch):
            return NOT_NOW
        if self.producer_id not in (NONE, known.producer_id) and not self._had_all_epochs_before(known):
            return _FENCED
        if known.state in PREPARED:
            return NOT_NOW
        if known.state is ONGOING:
            # An epoch behind is a zombie's or comes late: it must not end what the living one does.
            return _fence(known, moment, NOT_NOW, Cause.FENCED) if self.epoch in (NONE, known.epoch) else _FENCED
        if known.epoch >= LAST_CLIENT_EPOCH and self.epoch in (NONE, known.epoch):
            return self._with_new_id(known, moment)
        if self.epoch in (NONE, known.epoch):
            return self._write(known.producer_id, known.epoch + 1, known, moment)
        if self.epoch == known.last_epoch:
            if known.epoch == LAST_EPOCH:
                return self._with_new_id(known, moment)
            return self._write(known.producer_id, known.epoch, known, moment)
        return _FENCED

    def _had_all_epochs_before(self, known: Transaction) -> bool:
        return self.producer_id == known.previous_producer_id and self.epoch >= LAST_CLIENT_EPOCH

    def _with_new_id(self, known: Transaction | None, moment: Moment) -> Decision:
        return NEEDS_ID if moment.new_id is None else self._write(moment.new_id, 0, known, moment)

    def _write(self, producer_id: int, epoch: int, known: Transaction | None, moment: Moment) -> Write:
        record = Transaction(
            self.id,
            producer_id,
            epoch,
            self.timeout_ms,
            EMPTY,
            NO_PARTITIONS,
            moment.now_ms,
            previous_producer_id=producer_id if known is None else known.producer_id,
            version=0 if known is None else known.version,
            last_epoch=NONE if known is None else self.epoch,
        )
        return Write(record, Answer(_NO_ERROR, producer_id, epoch))


class AddPartitions(NamedTuple):
    """AddPartitionsToTxn, and AddOffsetsToTxn with the partition of the group's offsets."""

    producer_id: int
    epoch: int
    partitions: Sequence[TopicPartition]
    version: int

    def decide(self, known: Transaction | None, moment: Moment) -> Decision:
        refusal = _refusal(known, self.producer_id, self.epoch)
        if refusal is not None or known is None:
            return refusal or _UNKNOWN
        if known.state in PREPARED:
            return NOT_NOW
        now = moment.now_ms
        open_already = known.state is ONGOING
        if open_already and known.partitions.issuperset(self.partitions):
            return OK
        record = Transaction(
            known.id,
            known.producer_id,
            known.epoch,
            known.timeout_ms,
            ONGOING,
            known.partitions.union(self.partitions) if open_already else frozenset(self.partitions),
            now,
            known.started_ms if open_already else now,
            known.producer_id,
            known.next_producer_id,
            self.version,
            known.last_epoch,
        )
        return Write(record, OK)


def verify(
    known: Transaction | None, producer_id: int, epoch: int, partitions: Sequence[TopicPartition]
) -> ErrorCode | dict[TopicPartition, ErrorCode]:
    """For each partition whether the transaction of this producer has it, in whatever state; or why none has."""
    refusal = _refusal(known, producer_id, epoch)
    if refusal is not None or known is None:
        return (refusal or _UNKNOWN).error
    if known.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    there = known.partitions
    return {tp: _NO_ERROR if tp in there else ErrorCode.TRANSACTION_ABORTABLE for tp in partitions}


class End(NamedTuple):
    """EndTxn of a client that keeps its epoch."""

    producer_id: int
    epoch: int
    commit: bool

    def decide(self, known: Transaction | None, moment: Moment) -> Decision:
        refusal = _refusal(known, self.producer_id, self.epoch)
        if refusal is not None or known is None:
            return refusal or _UNKNOWN
        if known.state in PREPARED:
            return NOT_NOW
        if known.state is ONGOING:
            return Write(_prepared(known, self.commit, moment.now_ms, 0), OK, _cause(self.commit))
        return OK if known.state in COMPLETE and known.commits == self.commit else _WRONG_STATE


class EndAndBump(NamedTuple):
    """EndTxn of a client that goes on with the next epoch, which the answer tells; its producer id may change with it.

    Asked with the epoch before the recorded one it is a repetition. An abort of nothing is done as well: the client
    does not know whether anything of its transaction has arrived.
    """

    producer_id: int
    epoch: int
    commit: bool

    def decide(self, known: Transaction | None, moment: Moment) -> Decision:
        if known is None:
            return _UNKNOWN
        repeated = self._is_repeated(known)
        if not repeated:
            refusal = _refusal(known, self.producer_id, self.epoch)
            if refusal is not None:
                return refusal
        if known.state in PREPARED:
            return NOT_NOW
        if repeated:
            if known.commits != self.commit:
                return _WRONG_STATE
            return Answer(_NO_ERROR, known.producer_id, known.epoch)
        if known.state is not ONGOING:
            if self.commit:
                return _WRONG_STATE
            known = known._replace(partitions=NO_PARTITIONS, started_ms=moment.now_ms)
        return _bumped(known, self.commit, moment, _cause(self.commit))

    def _is_repeated(self, known: Transaction) -> bool:
        if known.state not in COMPLETE and known.state not in PREPARED:
            return False
        if self.producer_id == known.producer_id:
            return known.version >= BUMPS_EPOCH and self.epoch == known.epoch - 1
        return self.producer_id == known.previous_producer_id and self.epoch == LAST_CLIENT_EPOCH and known.epoch == 0


class TimeOut(NamedTuple):
    """Not asked by anybody: the transaction may have been open for too long."""

    def decide(self, known: Transaction | None, moment: Moment) -> Decision:
        if known is None or known.state is not ONGOING or left_ms(known, moment.now_ms) >= 0:
            return OK
        return _fence(known, moment, OK, Cause.TIMED_OUT)


def left_ms(known: Transaction, now_ms: int) -> int:
    """Until an open transaction has timed out; it has when this is below zero."""
    return known.started_ms + known.timeout_ms - now_ms


def completed(prepared: Transaction, prepared_ms: int) -> Transaction:
    """The end of a transaction all of whose markers are written; `prepared_ms` is when it was seen to be prepared."""
    overflowed = prepared.next_producer_id != NONE
    return Transaction(
        prepared.id,
        prepared.next_producer_id if overflowed else prepared.producer_id,
        0 if overflowed else prepared.epoch,
        prepared.timeout_ms,
        COMPLETE_COMMIT if prepared.commits else COMPLETE_ABORT,
        NO_PARTITIONS,
        prepared_ms,
        prepared.started_ms,
        prepared.producer_id,
        NONE,
        prepared.version,
        prepared.last_epoch,
    )


def fenced(at_rest: Transaction) -> Transaction:
    """With the epoch that no client has: every producer of the id is fenced, the next one gets a new producer id."""
    return at_rest._replace(epoch=LAST_EPOCH, last_epoch=NONE, version=0)


def is_forgettable(known: Transaction, now_ms: int, expiration_ms: int) -> bool:
    """True if nothing is open and nobody has used the id for that long."""
    at_rest = known.state is EMPTY or known.state in COMPLETE
    return at_rest and known.updated_ms <= now_ms - expiration_ms


def _refusal(known: Transaction | None, producer_id: int, epoch: int) -> Answer | None:
    """Only the epoch itself will do: one ahead was never given to anybody."""
    if known is None:
        return _UNKNOWN
    if producer_id != known.producer_id:
        return NOT_NOW if _takes_over(known, producer_id, epoch) else _UNKNOWN
    return None if epoch == known.epoch else _FENCED


def _takes_over(known: Transaction, producer_id: int, epoch: int) -> bool:
    """True for who is next once the markers are written: EndTxn may have been answered with that already."""
    if known.state not in PREPARED or known.next_producer_id == NONE:
        return False
    return (producer_id, epoch) == (known.next_producer_id, 0)


def _cause(commit: bool) -> Cause:
    return _COMMITTED if commit else _ABORTED


def _prepared(
    known: Transaction, commit: bool, now_ms: int, version: int, epoch: int | None = None, next_producer_id: int = NONE
) -> Transaction:
    """The decision to end it; with an `epoch`, its markers carry that."""
    return Transaction(
        known.id,
        known.producer_id,
        known.epoch if epoch is None else epoch,
        known.timeout_ms,
        PREPARE_COMMIT if commit else PREPARE_ABORT,
        known.partitions,
        now_ms,
        known.started_ms,
        known.producer_id,
        next_producer_id,
        version,
        known.last_epoch if epoch is None else known.epoch,
    )


def _bumped(known: Transaction, commit: bool, moment: Moment, cause: Cause) -> Decision:
    """Its markers carry the next epoch. Where there is none for clients, a new producer id takes over afterwards."""
    if known.epoch == LAST_EPOCH:
        return _FENCED
    new_id = NONE
    if known.epoch == LAST_CLIENT_EPOCH:
        if moment.new_id is None:
            return NEEDS_ID
        new_id = moment.new_id
    epoch = known.epoch + 1
    record = _prepared(known, commit, moment.now_ms, BUMPS_EPOCH, epoch, new_id)
    answer = Answer(_NO_ERROR, known.producer_id, epoch) if new_id == NONE else Answer(_NO_ERROR, new_id, 0)
    return Write(record, answer, cause)


def _fence(known: Transaction, moment: Moment, answer: Answer, cause: Cause) -> Decision:
    """Abort what is open, with an epoch that its producer does not have."""
    if moment.level >= BUMPS_EPOCH and known.epoch < LAST_EPOCH:
        bumped = _bumped(known, False, moment, cause)
        return bumped._replace(answer=answer) if isinstance(bumped, Write) else bumped
    epoch = min(known.epoch + 1, LAST_EPOCH)
    return Write(_prepared(known, False, moment.now_ms, 0, epoch), answer, cause)
