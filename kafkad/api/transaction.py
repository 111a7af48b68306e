"""The transaction that one Produce request belongs to: where its batches may be appended, and why not elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from kafkad.api.verifier import Claim, Verdict, Verifier
from kafkad.errors import ErrorCode, KafkaError
from kafkad.log.producers import ProducerStates, Verification
from kafkad.names import TopicPartition
from kafkad.replica.partition import Partition
from kafkad.wire.records import (
    ATTRIBUTES,
    BASE_SEQUENCE,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL,
    Header,
)

FIRST_ADDING: Final = 12
"""The version of Produce that adds its partitions to the transaction (KIP-890)."""
FIRST_ABORTABLE: Final = 11
"""The version of Produce whose clients know TRANSACTION_ABORTABLE."""
_PASSING = frozenset({ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CONCURRENT_TRANSACTIONS})
"""The client sends the same batch again."""


class _Question(NamedTuple):
    """What was asked, with whom it is remembered, and in which leader epoch."""

    verification: Verification
    producers: ProducerStates
    leader_epoch: int


def is_transactional(header: Header) -> bool:
    """In a request with a transactional id, Kafka takes a batch that names no producer for a plain one, whatever its
    flag says."""
    return bool(header[ATTRIBUTES] & TRANSACTIONAL) and header[PRODUCER_ID] >= 0


class Admission(Protocol):
    """The transaction of a request, as far as its batches are concerned."""

    def admits(self, partition: Partition, header: Header) -> bool:
        """HOT. True if this batch may be appended now; KafkaError or False for what has to be looked into."""


class RepeatedTransaction:
    """The transaction of a request for one partition that a producer repeats, in one transaction after the other."""

    __slots__ = ("_adds", "_client", "_id", "_verifier")

    def __init__(self, transactional_id: str, version: int, verifier: Verifier, client: str) -> None:
        self._id = transactional_id
        self._client = client
        self._adds = version >= FIRST_ADDING
        self._verifier = verifier

    def admits(self, partition: Partition, header: Header) -> bool:
        """The first batch of a transaction as well, where its coordinator can answer on the spot: nothing can come
        between the answer and the append."""
        producer_id, epoch = header[PRODUCER_ID], header[PRODUCER_EPOCH]
        producers = partition.log.producers
        if producer_id < 0 or producers.is_open(producer_id, epoch):
            return True
        producers.check_epoch(producer_id, epoch)
        if self._adds and header[BASE_SEQUENCE] > 0 and not producers.knows(producer_id):
            return False
        return self._verifier.lets_in(
            self._id, producer_id, epoch, (partition.tp,), adds=self._adds, client=self._client
        )


class Transaction:
    """Made for one request. First it `meets` all batches. It may be that all are `let_in` on the spot; else what its
    `claim` was answered is `told`. After that `refusal` says of each batch whether it may be appended."""

    __slots__ = (
        "_asked",
        "_begins",
        "_client_text",
        "_conflict",
        "_epoch",
        "_id",
        "_let_in",
        "_producer_id",
        "_refused",
        "_verified",
        "_version",
        "answered",
    )

    def __init__(self, transactional_id: str, version: int, client_text: Callable[[], str]) -> None:
        self._id = transactional_id
        self._version = version
        self._client_text = client_text
        self._producer_id = self._epoch = -1
        self._begins: list[tuple[Partition, Header]] = []
        """The batches whose partitions do not have it open yet."""
        self._let_in = False
        self._asked: dict[TopicPartition, _Question] = {}
        self._verified: dict[TopicPartition, _Question] = {}
        self._refused: dict[TopicPartition, KafkaError] = {}
        self._conflict: KafkaError | None = None
        self.answered = False

    @property
    def adds(self) -> bool:
        return self._version >= FIRST_ADDING

    def repeated(self, verifier: Verifier) -> RepeatedTransaction:
        """That of requests that are like this one."""
        return RepeatedTransaction(self._id, self._version, verifier, self._client_text())

    def meets(self, partition: Partition | None, header: Header) -> None:
        """HOT. A batch, and where it is to go, if that can be written to."""
        producer_id, epoch = header[PRODUCER_ID], header[PRODUCER_EPOCH]
        if self._producer_id < 0:
            self._producer_id, self._epoch = producer_id, epoch
        elif producer_id != self._producer_id:
            self._conflict = KafkaError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING, "one transaction, and batches of several producers"
            )
        if partition is None or not partition.is_leader or partition.failure is not None:
            return
        producers = partition.log.producers
        if producers.is_open(producer_id, epoch):
            return
        try:
            self._check(producers, header)
        except KafkaError as error:
            self._refused[partition.tp] = error.with_traceback(None)
        else:
            self._begins.append((partition, header))

    def _check(self, producers: ProducerStates, header: Header) -> None:
        producer_id, epoch, sequence = header[PRODUCER_ID], header[PRODUCER_EPOCH], header[BASE_SEQUENCE]
        producers.check_epoch(producer_id, epoch)
        if epoch != self._epoch:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, "one transaction, and batches of several epochs")
        if sequence > 0 and self.adds and not producers.knows(producer_id):
            raise producers.out_of_order(header, "its producer's transaction begins here with 0")

    def let_in(self, verifier: Verifier) -> bool:
        """True if the coordinator is here and lets all batches in. They are to be appended before anything else can
        happen: nothing remembers the answer, unless `keep` is called. When False, nothing was done."""
        if not self._begins or self._refused or self._conflict is not None:
            return False
        partitions = [partition.tp for partition, _ in self._begins]
        self._let_in = verifier.lets_in(
            *(self._id, self._producer_id, self._epoch, partitions), adds=self.adds, client=self._client_text()
        )
        return self._let_in

    def keep(self, now_ms: int) -> None:
        """Some of what was let in is appended later, unless an end of its producer's transaction comes before."""
        if self._let_in:
            self._let_in = False
            self.trusted(now_ms)

    def claim(self, now_ms: int) -> Claim | None:
        """What the coordinator has to be asked, if anything."""
        self._ask(now_ms)
        if self._conflict is not None or not self._asked:
            return None
        return Claim(
            self._id,
            self._producer_id,
            self._epoch,
            list(self._asked),
            adds=self.adds,
            knows_abortable=self._version >= FIRST_ABORTABLE,
            client=self._client_text(),
        )

    def told(self, verdict: Verdict) -> None:
        self.answered = True
        if not any(verdict.values()):
            self._verified = self._asked
            return
        for tp, question in self._asked.items():
            code = verdict[tp]
            if code is ErrorCode.NONE:
                self._verified[tp] = question
                continue
            self._refused[tp] = KafkaError(code, self._why(code, tp))
            if code not in _PASSING:
                question.producers.forget_verification(self._producer_id, question.verification)

    def _why(self, code: ErrorCode, tp: TopicPartition) -> str:
        if code is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            return f"producer {self._producer_id} is not that of transactional id {self._id!r}"
        if code in (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE):
            return f"{tp} was not added to the transaction of {self._id!r}"
        return f"the coordinator of {self._id!r} says {code.name}"

    def trusted(self, now_ms: int) -> None:
        """Nobody is asked."""
        self._ask(now_ms)
        self._verified = self._asked

    def _ask(self, now_ms: int) -> None:
        for partition, header in self._begins:
            producers = partition.log.producers
            if not producers.is_open(self._producer_id, header[PRODUCER_EPOCH]):
                question = producers.verify(self._producer_id, header[PRODUCER_EPOCH], header[BASE_SEQUENCE], now_ms)
                self._asked[partition.tp] = _Question(question, producers, partition.leader_epoch)

    def admits(self, partition: Partition, header: Header) -> bool:
        return header[PRODUCER_ID] < 0 or self.refusal(partition, header) is None

    def refusal(self, partition: Partition, header: Header) -> KafkaError | None:
        """HOT. The reason why this batch must not be appended."""
        if self._let_in:
            return None
        if self._conflict is not None:
            return self._conflict
        producers, tp = partition.log.producers, partition.tp
        asked = self._verified.get(tp)
        stands = asked is not None and asked.producers is producers and asked.leader_epoch == partition.leader_epoch
        if asked is not None and stands and producers.is_verified(header[PRODUCER_ID], asked.verification):
            return None
        if producers.is_open(header[PRODUCER_ID], header[PRODUCER_EPOCH]):
            return None
        if tp in self._refused:
            return self._refused[tp]
        if asked is not None and not stands:
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{tp} was led or kept elsewhere meanwhile")
        return KafkaError(
            ErrorCode.INVALID_TXN_STATE, f"the transaction of producer {header[PRODUCER_ID]} ended before it had {tp}"
        )
