"""Asks the coordinator of a transaction whether it goes on, and whether a partition belongs to it (KIP-890).

Without that a batch that comes late, after its transaction has ended, would open one that nobody ever ends. New clients
do not add partitions themselves: for them the same question adds what is missing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kafkad.clock import Clock
from kafkad.errors import ErrorCode, KafkaError
from kafkad.metrics import Family, counters, gauges
from kafkad.model import BrokerInfo
from kafkad.names import TopicPartition
from kafkad.timers import Timers, sleep

if TYPE_CHECKING:
    from kafkad.net.client import Link
    from kafkad.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

log = logging.getLogger(__name__)

ADDING = 2
"""The transaction version of clients for which partitions are added (KIP-890)."""
_PAUSE_MS = 20
_LONGEST_MS = 100
"""A coordinator elsewhere that says CONCURRENT_TRANSACTIONS is asked again, so often and for so long, before the client
is told."""
_MOST_IN_A_REQUEST = 500
"""Partitions."""

Verdict = Mapping[TopicPartition, ErrorCode]
OnVerdict = Callable[[Verdict], None]


class Coordinator(Protocol):
    """Of transactions."""

    def find(self, key: str) -> BrokerInfo:
        """The broker that coordinates the transactional id; KafkaError if there is none."""

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        verify_only: bool,
        version: int,
        done: OnVerdict,
        client: str,
    ) -> None:
        """On this broker. `done` is called at once, if nothing has to be waited for."""

    def lets_in(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
        client: str,
    ) -> bool:
        """True if the transaction has the partitions, or was given them, here and now; if not, nothing was done."""


class Claim(NamedTuple):
    """What a client says by writing to these partitions. `knows_abortable`: it knows TRANSACTION_ABORTABLE. `client` is
    who it is, for log lines."""

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: Sequence[TopicPartition]
    adds: bool
    knows_abortable: bool
    client: str


class Verifier:
    def __init__(
        self,
        coordinator: Callable[[], Coordinator],
        broker_id: int,
        connect: Callable[[BrokerInfo], Link] | None,
        clock: Clock,
        timers: Timers,
        timeout_ms: Callable[[], int],
    ) -> None:
        self._coordinator = coordinator
        self._broker_id = broker_id
        self._connect = connect
        self._clock = clock
        self._timers = timers
        self._timeout_ms = timeout_ms
        self._others: dict[BrokerInfo, _OtherCoordinator] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked = self._failed = 0
        self._total_ms = 0.0

    def lets_in(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
        client: str,
    ) -> bool:
        """HOT. True if the coordinator is here and lets these partitions be written to at once; if not, `ask`."""
        if not self._coordinator().lets_in(transactional_id, producer_id, epoch, partitions, adds=adds, client=client):
            return False
        self._asked += 1
        return True

    def ask(self, claim: Claim, done: OnVerdict) -> None:
        """`done` is told the error of each partition as the client is to see it: before this returns, where the
        coordinator is here and has nothing to wait for."""
        begun_ms = self._clock.monotonic_ms()
        self._asked += 1

        def told(verdict: Verdict) -> None:
            self._total_ms += self._clock.monotonic_ms() - begun_ms
            if any(verdict.values()):
                verdict = {tp: _as_client_sees_it(code, claim) for tp, code in verdict.items()}
                self._failed += 1
            done(verdict)

        try:
            broker = self._coordinator().find(claim.transactional_id)
        except KafkaError as error:
            told(dict.fromkeys(claim.partitions, error.code))
            return
        if broker.id == self._broker_id or self._connect is None:
            self._coordinator().add_partitions(
                *(claim.transactional_id, claim.producer_id, claim.epoch, claim.partitions),
                verify_only=not claim.adds,
                version=ADDING if claim.adds else 0,
                done=told,
                client=claim.client,
            )
            return
        task = asyncio.get_running_loop().create_task(self._ask(broker, claim, told))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, broker: BrokerInfo, claim: Claim, told: OnVerdict) -> None:
        other = self._other(broker)
        last_ms = self._clock.monotonic_ms() + _LONGEST_MS - _PAUSE_MS
        verdict = await other.ask(claim)
        while ErrorCode.CONCURRENT_TRANSACTIONS in verdict.values() and self._clock.monotonic_ms() <= last_ms:
            await sleep(_PAUSE_MS, self._clock, self._timers)
            verdict = await other.ask(claim)
        told(verdict)

    def _other(self, broker: BrokerInfo) -> _OtherCoordinator:
        other = self._others.get(broker)
        if other is None:
            assert self._connect is not None
            other = self._others[broker] = _OtherCoordinator(self._connect(broker), self._timeout_ms)
        return other

    def brokers_changed(self, brokers: Mapping[int, BrokerInfo]) -> None:
        """Nobody waits for one that is gone: its transactions have another coordinator by now."""
        for broker in [each for each in self._others if brokers.get(each.id) != each]:
            self._others.pop(broker).close()

    async def stop(self) -> None:
        for other in self._others.values():
            other.close()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def collect(self) -> Iterator[Family]:
        """Under the names that JMX exporters give Kafka's metrics."""
        prefix = "kafka_server_addpartitionstotxnmanager"
        asked = {"verificationfailurerate": self._failed, "verification": self._asked}
        yield from counters(
            prefix, asked, "Writes whose transaction was asked for, and those of them that were refused"
        )
        average = self._total_ms / max(self._asked, 1)
        yield from gauges(prefix, {"verificationtimems": average}, "Milliseconds that asking took, on average")


class _OtherCoordinator:
    """Another broker, which is asked one request at a time. What is to be asked meanwhile goes together into the next
    one, but of each transactional id only one claim: its answer says no more than the id."""

    def __init__(self, link: Link, timeout_ms: Callable[[], int]) -> None:
        self._link = link
        self._timeout_ms = timeout_ms
        self._waiting: deque[_Waiting] = deque()
        self._asking: asyncio.Task[None] | None = None

    async def ask(self, claim: Claim) -> Verdict:
        asked = _Waiting(claim, asyncio.get_running_loop().create_future())
        self._waiting.append(asked)
        self._go_on()
        return await asked.answered

    def close(self) -> None:
        self._link.close()

    def _go_on(self) -> None:
        if self._waiting and self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask())
            self._asking.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._asking = None
        self._go_on()

    def _next(self) -> list[_Waiting]:
        chosen: dict[str, _Waiting] = {}
        left: deque[_Waiting] = deque()
        size = 0
        for one in self._waiting:
            claim = one.claim
            if claim.transactional_id in chosen or (chosen and size + len(claim.partitions) > _MOST_IN_A_REQUEST):
                left.append(one)
            else:
                chosen[claim.transactional_id] = one
                size += len(claim.partitions)
        self._waiting = left
        return list(chosen.values())

    async def _ask(self) -> None:
        from kafkad.net.client import LinkError

        asked = self._next()
        claims = [one.claim for one in asked]
        try:
            answer = await self._link.call(_request(claims), timeout_ms=self._timeout_ms())
            verdicts = _verdicts(claims, answer)
        except LinkError:
            verdicts = _of_all(claims, ErrorCode.NETWORK_EXCEPTION)
        except Exception:
            log.exception("internal error while the coordinator of transactions was asked")
            verdicts = _of_all(claims, ErrorCode.UNKNOWN_SERVER_ERROR)
        for one, verdict in zip(asked, verdicts, strict=True):
            one.answered.set_result(verdict)


def _of_all(claims: Sequence[Claim], code: ErrorCode) -> list[Verdict]:
    return [dict.fromkeys(claim.partitions, code) for claim in claims]


class _Waiting(NamedTuple):
    claim: Claim
    answered: asyncio.Future[Verdict]


_NOT_NOW = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)


def _as_client_sees_it(code: ErrorCode, claim: Claim) -> ErrorCode:
    """Old clients know neither that they are fenced nor that a transaction can be aborted; what passes is told so that
    they send the same batch again. So is what was left out because the coordinator does not know another partition of
    the request yet: as Kafka's error for it is meant for AddPartitionsToTxn, a Produce that gets it fails for good."""
    if code in _NOT_NOW or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not claim.adds):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and not claim.knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return code


def _request(claims: Sequence[Claim]) -> AddPartitionsToTxnRequest:
    from kafkad.wire.messages.add_partitions_to_txn import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnTopic,
        AddPartitionsToTxnTransaction,
    )

    transactions = []
    for claim in claims:
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for topic, index in claim.partitions:
            topics.setdefault(topic, AddPartitionsToTxnTopic(name=topic)).partitions.append(index)
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=claim.transactional_id,
            producer_id=claim.producer_id,
            producer_epoch=claim.epoch,
            verify_only=not claim.adds,
            topics=list(topics.values()),
        )
        transactions.append(transaction)
    return AddPartitionsToTxnRequest(transactions=transactions)


def _verdicts(claims: Sequence[Claim], answer: AddPartitionsToTxnResponse) -> list[Verdict]:
    """Of each claim; what the answer leaves out is an error."""
    found = {
        transaction.transactional_id: {
            TopicPartition(topic.name, one.partition_index): ErrorCode.of(one.partition_error_code)
            for topic in transaction.topic_results
            for one in topic.results_by_partition
        }
        for transaction in answer.results_by_transaction
    }
    missing = ErrorCode.of(answer.error_code) or ErrorCode.UNKNOWN_SERVER_ERROR
    return [dict.fromkeys(claim.partitions, missing) | found.get(claim.transactional_id, {}) for claim in claims]
