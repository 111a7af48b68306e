"""Producer ids, and the one transaction that a transactional producer writes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kafkad.wire.schema import Request
from kctl.errors import Disconnected, KctlError, failure
from kctl.reach.session import TRANSACTION, Session
from kctl.records.batches import Producer
from kctl.texts.output import duration_text

if TYPE_CHECKING:
    from kafkad.wire.messages.add_partitions_to_txn import AddPartitionsToTxnResponse

R = TypeVar("R")

DEFAULT_TIMEOUT_MS = 60_000
_ABORTED = {ErrorCode.PRODUCER_FENCED.name, ErrorCode.INVALID_PRODUCER_EPOCH.name, ErrorCode.INVALID_TXN_STATE.name}
"""What brokers answer of a transaction that its coordinator has aborted, or another producer has taken over."""
_BACKOFF_SECONDS = 0.05
_LAST_FOR_CLIENTS = 3
"""From the next version of AddPartitionsToTxn on, only brokers ask."""
_LAST_EXPLICIT_END = 4
"""From the next version of EndTxn on, brokers add the partitions by themselves."""
_PASSING = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


def idempotent_producer(session: Session) -> Producer:
    from kafkad.wire.messages.init_producer_id import InitProducerIdRequest

    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=DEFAULT_TIMEOUT_MS)
    deadline = time.monotonic() + session.settings.timeout
    while (answer := session.call(request)).error_code:
        if answer.error_code not in _PASSING or time.monotonic() >= deadline:
            raise failure(answer.error_code, "the broker assigned no producer id")
        time.sleep(_BACKOFF_SECONDS)  # Kafka has not yet got the next thousand ids from its controller
    return Producer(answer.producer_id, answer.producer_epoch)


class Transaction:
    """Begun by `begin`, which also ends one that an earlier run with this id, or anybody else, has left open."""

    def __init__(
        self,
        session: Session,
        transactional_id: str,
        clock: Callable[[], float] = time.monotonic,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> None:
        self.id = transactional_id
        self._timeout_ms = timeout_ms
        self.producer = Producer()
        self._session = session
        self._clock = clock
        self._partitions: set[TopicPartition] = set()
        self._began: float | None = None

    def explained(self, error: KctlError) -> KctlError:
        """The error, with the time-out as its reason if it is of a transaction that took longer."""
        if error.code not in _ABORTED or self._began is None:
            return error
        if self._clock() - self._began < self._timeout_ms / 1000:
            return error
        hint = f"the transaction took longer than {duration_text(self._timeout_ms)}, and was aborted for that: "
        hints = (f"{hint}--transaction-timeout allows more",)
        return KctlError(error.what, exit_code=error.exit_code, code=error.code, hints=hints)

    def begin(self) -> Producer:
        from kafkad.wire.messages.init_producer_id import InitProducerIdRequest

        request = InitProducerIdRequest(transactional_id=self.id, transaction_timeout_ms=self._timeout_ms)
        answer = self._ask(request, lambda answer: answer.error_code, None)
        self.producer = Producer(answer.producer_id, answer.producer_epoch, transactional=True)
        return self.producer

    def add(self, where: TopicPartition) -> None:
        """Adds the partition at the coordinator, which has to know of it before the first batch is sent there."""
        from kafkad.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic

        if where in self._partitions:
            return
        if self._began is None:
            self._began = self._clock()
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=self.producer.id,
            v3_and_below_producer_epoch=self.producer.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=where.topic, partitions=[where.partition])],
        )
        self._ask(request, _partition_code, _LAST_FOR_CLIENTS)
        self._partitions.add(where)

    def end(self, *, commit: bool) -> None:
        from kafkad.wire.messages.end_txn import EndTxnRequest

        if not self._partitions:
            return
        request = EndTxnRequest(
            transactional_id=self.id,
            producer_id=self.producer.id,
            producer_epoch=self.producer.epoch,
            committed=commit,
        )
        self._ask(request, lambda answer: answer.error_code, _LAST_EXPLICIT_END)

    def _ask(self, request: Request[R], code_of: Callable[[R], int], last_version: int | None) -> R:
        """The coordinator's answer, wherever it moves within the time-out. All these requests may be repeated."""
        deadline = self._clock() + self._session.settings.timeout
        while True:
            answer = self._asked(request, code_of, last_version)
            if not isinstance(answer, KctlError):
                return answer
            passing = isinstance(answer, Disconnected) or answer.code in _PASSING_NAMES
            if not passing or self._clock() >= deadline:
                raise self.explained(answer)
            time.sleep(_BACKOFF_SECONDS)

    def _asked(self, request: Request[R], code_of: Callable[[R], int], last_version: int | None) -> R | KctlError:
        try:
            coordinator = self._session.coordinators([self.id], TRANSACTION)[self.id]
            if isinstance(coordinator, KctlError):
                return coordinator
            connection = self._session.connection(coordinator)
            version = connection.version_of(request)
            if version is not None and last_version is not None:
                version = min(version, last_version)
            answer = self._session.exchange(connection, request, version)
        except Disconnected as error:
            return error
        code = code_of(answer)
        return failure(code, f'transactional id "{self.id}"') if code else answer


_PASSING_NAMES = {code.name for code in _PASSING}


def _partition_code(answer: AddPartitionsToTxnResponse) -> int:
    codes = [
        part.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for part in topic.results_by_partition
    ]
    return next((code for code in codes if code), 0)
