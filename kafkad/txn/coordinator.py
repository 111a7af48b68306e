"""The transactions that this broker coordinates, wherever among the partitions of `__transaction_state` they are kept.

Codes are those between brokers: 90 for a fenced producer, 120 for a partition that is not in the transaction. The APIs
translate them for clients that do not know these.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kafkad.clock import Clock
from kafkad.config import Config
from kafkad.errors import ErrorCode, KafkaError
from kafkad.metrics import PAUSE, Family, counters, gauges
from kafkad.model import BrokerInfo
from kafkad.names import TopicPartition
from kafkad.shard import Coordination
from kafkad.timers import Timers, every
from kafkad.turns import Turns
from kafkad.txn.machine import Codes, OnAnswer, TransactionMachine, TransactionProbe
from kafkad.txn.markers import MarkerQueues
from kafkad.txn.transaction import (
    BUMPS_EPOCH,
    PREPARED,
    AddPartitions,
    Answer,
    Asked,
    Cause,
    End,
    EndAndBump,
    InitProducer,
    State,
    Transaction,
)

log = logging.getLogger(__name__)

_METRICS = "kafka_server_transaction_coordinator_metrics"
_MARKER_METRICS = "kafka_coordinator_transaction_transactionmarkerchannelmanager"
_OWN_METRICS = "kafkad_transactions"
_OPEN = PREPARED | {State.ONGOING}
_READ_AT_ONCE = 500
"""Transactional ids, for metrics."""

OnCodes = Callable[[Codes], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    max_timeout_ms: int
    expiration_ms: int
    check_interval_ms: int

    @classmethod
    def of(cls, config: Config) -> TransactionSettings:
        return cls(
            max_timeout_ms=config.int("transaction.max.timeout.ms"),
            expiration_ms=config.int("transactional.id.expiration.ms"),
            check_interval_ms=config.int("transaction.remove.expired.transaction.cleanup.interval.ms"),
        )


class Described(NamedTuple):
    """A transactional id, with the partitions that its transaction has, or of an ended one still has to reach."""

    transaction: Transaction
    partitions: Collection[TopicPartition]


class TransactionCoordinator:
    def __init__(
        self,
        coordination: Coordination[TransactionMachine],
        queues: MarkerQueues,
        settings: TransactionSettings,
        probe: TransactionProbe,
        offsets_partition: Callable[[str], TopicPartition],
        *,
        clock: Clock,
        timers: Timers,
    ) -> None:
        """`offsets_partition` is where the offsets of a group are kept; KafkaError while that is not known."""
        self.coordination = coordination
        self._queues = queues
        self._settings = settings
        self._probe = probe
        self._offsets_partition = offsets_partition
        self._clock = clock
        self._timers = timers
        self._expiring: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.coordination.start()
        expiring = every(
            lambda: self._settings.check_interval_ms,
            "the search for expired transactional ids",
            self.forget_expired,
            self._clock,
            self._timers,
        )
        self._expiring = asyncio.ensure_future(expiring)

    async def stop(self) -> None:
        if self._expiring is not None:
            self._expiring.cancel()
            await asyncio.wait([self._expiring])
        await self.coordination.stop()
        self._queues.close()

    def find(self, transactional_id: str) -> BrokerInfo:
        """The broker that coordinates it; COORDINATOR_NOT_AVAILABLE if there is none."""
        return self.coordination.find(transactional_id)

    # What is asked. `done` is called once, and at once where nothing has to be waited for.

    def init_producer(
        self, transactional_id: str, timeout_ms: int, producer_id: int, epoch: int, done: OnAnswer, client: str = ""
    ) -> None:
        longest_ms = self._settings.max_timeout_ms
        if not 0 < timeout_ms <= longest_ms:
            log.warning(
                "transactional id %s: %s wants a time-out of %d ms; it must be between 1 and %d, which is "
                "transaction.max.timeout.ms",
                transactional_id,
                client,
                timeout_ms,
                longest_ms,
            )
            done(Answer(ErrorCode.INVALID_TRANSACTION_TIMEOUT))
            return
        self._ask(transactional_id, InitProducer(transactional_id, timeout_ms, producer_id, epoch), done, client)

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        verify_only: bool,
        version: int,
        done: OnCodes,
        client: str = "",
        waits_for_markers: bool = True,
    ) -> None:
        """A code for each partition. `version` is the transaction version of who asks: 2 where the
        request itself adds the partition, 0 where AddPartitionsToTxn came before. What this broker has not been told
        of yet is not added, for it would get no marker; nor is anything with it. While markers are on their
        way, who does not wait for them is told at once to ask again."""

        def answered(found: ErrorCode | Codes) -> None:
            done(dict.fromkeys(partitions, found) if isinstance(found, ErrorCode) else found)

        if not verify_only:
            unknown = [tp for tp in partitions if not self._queues.knows(tp)]
            if unknown:
                codes = dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED)
                done(codes | dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                return
            added = AddPartitions(producer_id, epoch, partitions, version)
            self._ask(
                transactional_id,
                added,
                lambda answer: answered(answer.error),
                client,
                waits_for_markers=waits_for_markers,
            )
            return
        try:
            machine = self._machine(transactional_id)
        except KafkaError as error:
            answered(error.code)
        else:
            machine.verify(
                transactional_id, producer_id, epoch, partitions, answered, waits_for_markers=waits_for_markers
            )

    def lets_in(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
        client: str = "",
    ) -> bool:
        """HOT. True if the transaction of this producer has the partitions, or can be given them at once with `adds`.
        Otherwise nothing is done, and `add_partitions` says why."""
        try:
            machine = self._machine(transactional_id)
        except KafkaError:
            return False
        if not all(map(self._queues.knows, partitions)):
            return False
        if machine.has(transactional_id, producer_id, epoch, partitions):
            return True
        asked = AddPartitions(producer_id, epoch, partitions, BUMPS_EPOCH)
        return adds and machine.adds_at_once(transactional_id, asked, client)

    def adds_at_once(self, transactional_id: str, asked: AddPartitions, client: str) -> bool:
        """HOT. True if these partitions have been added. Otherwise nothing is done, and `add_partitions` says why."""
        try:
            machine = self._machine(transactional_id)
        except KafkaError:
            return False
        return machine.adds_at_once(transactional_id, asked, client)

    def add_offsets(
        self, transactional_id: str, producer_id: int, epoch: int, group: str, done: OnAnswer, client: str = ""
    ) -> None:
        try:
            partition = self._offsets_partition(group)
        except KafkaError as error:
            done(Answer(error.code))
            return
        added = AddPartitions(producer_id, epoch, [partition], 0)
        self._ask(transactional_id, added, done, client)

    def end(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        commit: bool,
        bump: bool,
        done: OnAnswer,
        client: str = "",
    ) -> None:
        """With `bump` the answer is the producer id and epoch to go on with."""
        kind = EndAndBump if bump else End
        self._ask(transactional_id, kind(producer_id, epoch, commit), done, client)

    def describe(self, transactional_id: str) -> Described:
        machine = self._machine(transactional_id)
        if (why := machine.damaged.get(transactional_id)) is not None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{transactional_id} cannot be used: {why}")
        known = machine.transactions.get(transactional_id)
        if known is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"there is no transactional id {transactional_id}")
        return Described(known, machine.lacking(transactional_id))

    def list(
        self, states: Collection[State], producer_ids: Collection[int], open_for_ms: int
    ) -> Iterator[Transaction | None]:
        """Those in one of the states and with one of the producer ids (empty: any), whose transaction is open for
        longer than that (-1: whether it is open or not); None for each of the others.
        As in Kafka also of a partition that has been read and waits until all of that is committed."""
        now_ms = self._clock.now_ms()
        for machine in [shard.machine for shard in self.coordination.read_shards()]:
            for known in list(machine.transactions.values()):
                wanted = (
                    (not states or known.state in states)
                    and (not producer_ids or known.producer_id in producer_ids)
                    and (open_for_ms < 0 or (known.state in _OPEN and now_ms - known.started_ms > open_for_ms))
                )
                yield known if wanted else None

    def _ask(
        self, transactional_id: str, asked: Asked, done: OnAnswer, client: str, *, waits_for_markers: bool = True
    ) -> None:
        """HOT."""
        try:
            machine = self._machine(transactional_id)
        except KafkaError as error:
            done(Answer(error.code))
        else:
            machine.ask(transactional_id, asked, done, client, waits_for_markers=waits_for_markers)

    def _machine(self, transactional_id: str) -> TransactionMachine:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id cannot be empty")
        return self.coordination.shard(transactional_id).machine

    def _machines(self) -> Iterator[TransactionMachine]:
        return (shard.machine for shard in self.coordination.shards())

    # Expiry

    async def forget_expired(self) -> None:
        """Forget the ids that nobody has used for `transactional.id.expiration.ms`."""
        turns = Turns()
        for machine in self._machines():
            for _ in machine.forget_expired(self._settings.expiration_ms):
                await turns.give_way()
            await turns.give_way()

    # Metrics

    def collect(self) -> Iterator[Family | None]:
        """Kafka's, under the names that JMX exporters give them, and some that Kafka does not have."""
        yield from self.coordination.load_times.collect(_METRICS)
        machines = list(self._machines())
        waiting = {
            "unknowndestinationqueuesize": self._queues.without_leader,
            "logappendretryqueuesize": sum(machine.waits_to_complete for machine in machines),
        }
        yield from gauges(_MARKER_METRICS, waiting, "Ends of transactions that wait")
        now_ms = self._clock.now_ms()
        began = []
        read = 0
        for machine in machines:
            for known in list(machine.transactions.values()):
                if known.state in _OPEN:
                    began.append(known.started_ms)
                read += 1
                if not read % _READ_AT_ONCE:
                    yield PAUSE
        probe = self._probe
        open_now = {"open": len(began), "oldest_open_ms": max(now_ms - min(began), 0) if began else 0}
        yield from gauges(_OWN_METRICS, open_now, "Transactions")
        ended = {cause.value.replace(" ", "_"): probe.ended[cause] for cause in Cause}
        ended |= {"held_requests": probe.held, "completions": probe.completions}
        yield from counters(_OWN_METRICS, ended, "Transactions")
        yield from counters(
            _OWN_METRICS,
            {"completion_ms": round(probe.completion_ms)},
            "Milliseconds from the decision to end a transaction until all of it was done",
        )
