"""The active controller's tools: fenced writes, the cluster's state, and the queues to the brokers.

Every write is a transaction that first checks the version of `/controller_epoch`, so that a controller that was
replaced without noticing can change nothing: it gets ControllerMoved and has to resign.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from kafkad.controller.channel import BrokerQueue, Connect, Request, Response, Sleep
from kafkad.controller.election import FewestLeaders, after_failure
from kafkad.controller.requests import RequestBatch, Sender
from kafkad.controller.settings import ControllerSettings
from kafkad.controller.state import ClusterState, PartitionEntry
from kafkad.errors import ErrorCode, KafkaError
from kafkad.meta.readable import readable
from kafkad.meta.store import (
    BadVersion,
    Check,
    ConnectionLoss,
    MetaStore,
    MultiFailed,
    NoNode,
    Operation,
    Refused,
    Result,
    Set,
    Stat,
)
from kafkad.meta.znodes import ControllerEpoch, Partition
from kafkad.model import NO_LEADER, Asked, BrokerInfo, PartitionState
from kafkad.names import TopicPartition
from kafkad.together import together
from kafkad.turns import Turns

log = logging.getLogger(__name__)

_STATES_PER_WRITE = 100
"""Elections go to the store in transactions of so many."""

Decide = Callable[[TopicPartition, PartitionEntry], PartitionState | None]
"""The state that a partition shall have, None for the one that it has."""


class ControllerMoved(KafkaError):
    """Another broker is the controller now."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.NOT_CONTROLLER, "Another broker has become the controller")


class InDoubt(ConnectionLoss):
    """The store could not be reached while states were written: some may have been, and nobody was told of them."""


class ControllerParts(NamedTuple):
    """The parts of the broker that the controller is handed.

    `on_response` hears every answer to a LeaderAndIsr or StopReplica, `on_unclean` of every leader that may lack
    records: it was not in sync, or has refused to lead before.
    """

    settings: ControllerSettings
    store: MetaStore
    connect: Connect
    on_response: Callable[[int, Request, Response], None]
    sleep: Sleep
    now_ms: Callable[[], float]
    on_unclean: Callable[[TopicPartition, int], None] = lambda tp, leader: None


class ActiveController:
    """One term as the controller."""

    def __init__(self, parts: ControllerParts, epoch: int, epoch_version: int) -> None:
        self.parts = parts
        self.store = parts.store
        self.epoch = epoch
        self.state = ClusterState()
        self._fence = Check(ControllerEpoch.PATH, epoch_version)
        self._queues: dict[int, BrokerQueue] = {}

    # Writing.

    async def write(self, operations: Sequence[Operation]) -> list[Result]:
        """All of them, or an error and none: ControllerMoved, or what the operation at fault raised."""
        try:
            return (await self.store.multi([self._fence, *operations]))[1:]
        except MultiFailed as e:
            if e.index == 0:
                raise ControllerMoved from e
            raise e.cause from None

    async def change(
        self, partitions: Iterable[TopicPartition], decide: Decide
    ) -> dict[TopicPartition, PartitionState | None]:
        """Writes what `decide` says for each partition; decides again if somebody else wrote first. Raises InDoubt.

        A partition whose state the store refuses stays as it is, and keeps no other back. A few are decided on in each
        turn of the loop, while those before them are written: all of a term is one event after the other, so that
        nothing else changes meanwhile.
        """
        partitions = list(partitions)
        parts: list[asyncio.Task[dict[TopicPartition, PartitionState | BaseException | None]]] = []
        async with asyncio.TaskGroup() as writing:
            for at in range(0, len(partitions), _STATES_PER_WRITE):
                part = partitions[at : at + _STATES_PER_WRITE]
                parts.append(writing.create_task(self._try_to_change(part, decide)))
                await asyncio.sleep(0)
        changed: dict[TopicPartition, PartitionState | None] = {}
        failed: list[BaseException] = []
        for done in parts:
            for tp, state in done.result().items():
                if isinstance(state, BaseException):
                    failed.append(state)
                else:
                    changed[tp] = state
        if failed:
            first = next((e for e in failed if isinstance(e, ControllerMoved)), failed[0])
            if isinstance(first, ConnectionLoss):
                raise InDoubt(first.path, str(first)) from first
            raise first
        return changed

    async def _try_to_change(
        self, partitions: Sequence[TopicPartition], decide: Decide
    ) -> dict[TopicPartition, PartitionState | BaseException | None]:
        """Raises nothing, so that all the other parts are written as well."""
        try:
            return await self._change_together(partitions, decide)
        except Exception as e:
            return dict.fromkeys(partitions, e)

    async def _change_together(
        self, partitions: Sequence[TopicPartition], decide: Decide
    ) -> dict[TopicPartition, PartitionState | BaseException | None]:
        """In one transaction, or each by itself where one of them stops the others."""
        decided = {tp: decide(tp, self.state.entry(tp)) for tp in partitions}
        wanted = {tp: state for tp, state in decided.items() if state is not None}
        if not wanted:
            return {**decided}
        try:
            stats = await self.write([_setting(tp, state) for tp, state in wanted.items()])
        except Refused:
            alone = [self._change(tp, decide, state) for tp, state in wanted.items()]
            outcomes = await asyncio.gather(*alone, return_exceptions=True)
            return {**decided, **dict(zip(wanted, outcomes, strict=True))}
        return {**decided, **{tp: self._written(tp, wanted[tp], stat) for tp, stat in zip(wanted, stats, strict=True)}}

    async def _change(self, tp: TopicPartition, decide: Decide, wanted: PartitionState | None) -> PartitionState | None:
        while wanted is not None:
            try:
                stat = await self._set(tp, wanted)
            except NoNode:
                path = Partition.path(*tp)
                log.error("%s is gone from the metadata store: %s stays as it is until it is there again", path, tp)
                return None
            except Refused as e:
                log.error("the metadata store does not take the state of %s, which stays as it is: %s", tp, e)
                return None
            else:
                if stat is not None:
                    return self._written(tp, wanted, stat)
                wanted = decide(tp, self.state.entry(tp))
        return None

    async def _set(self, tp: TopicPartition, state: PartitionState) -> Result | None:
        """None, and it is read again, where somebody else wrote first."""
        try:
            (stat,) = await self.write([_setting(tp, state)])
        except BadVersion:
            await self._read_again(Partition.path(*tp), self.state.entry(tp))
            return None
        return stat

    def _written(self, tp: TopicPartition, state: PartitionState, stat: Result) -> PartitionState:
        assert isinstance(stat, Stat)
        entry = self.state.entry(tp)
        before, leader = entry.state, state.leader
        in_sync = leader == NO_LEADER or before is None or leader in before.isr
        is_elected = before is None or leader != before.leader or not self.state.online(leader, tp)
        if is_elected and self.state.note_elected(leader, tp, in_sync=in_sync):
            self.parts.on_unclean(tp, leader)
        if tp in self.state.refused and before is not None and leader == before.leader:
            self._note_joined({*state.isr} - {*before.isr}, leader, tp)
        entry.state = replace(state, partition_epoch=stat.version)
        return entry.state

    def _note_joined(self, joined: Collection[int], leader: int, tp: TopicPartition) -> None:
        """Who is taken into the ISR has all records, and who takes in leads, whatever they had refused before."""
        refused = self.state.refused
        for broker in joined:
            refused.joins_isr(broker, tp)
        if joined:
            refused.leads(leader, tp)

    async def _read_again(self, path: str, entry: PartitionEntry) -> None:
        data, stat = await self.store.get(path)
        entry.state = readable(path, lambda: Partition.decode(data, stat.version))
        if entry.state is not None and entry.state.controller_epoch > self.epoch:
            raise ControllerMoved

    async def repair(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionState | None]:
        """Writes what `repaired` says of each."""
        partitions = list(partitions)
        await self.parts.settings.load_configs({tp.topic for tp in partitions if self._none_in_sync(tp)})
        return await self.change(partitions, partial(self.repaired, preference=self.preference()))

    def preference(self) -> FewestLeaders | None:
        """The order in which replicas are candidates of the next elections; None for that of their assignment."""
        if not self.parts.settings.fewest_leaders():
            return None
        return FewestLeaders(entry.state.leader for _, entry in self.state.partitions() if entry.state is not None)

    def _none_in_sync(self, tp: TopicPartition) -> bool:
        state = self.state.entry(tp).state
        return state is not None and not self.state.electable(tp, state.isr)

    def repaired(
        self, tp: TopicPartition, entry: PartitionEntry, preference: FewestLeaders | None = None
    ) -> PartitionState | None:
        """After replicas came or went: elects a live leader if there can be one, and drops dead brokers from the ISR.

        With nobody left in sync the ISR stays as it is, for only its members have all records; unless the topic allows
        any leader, or the leader was asked by an unclean election and has just refused: that election goes on.
        """
        state = entry.state
        if state is None:
            return None
        present = tuple(r for r in state.isr if self.state.online(r, tp))
        if state.leader in present:
            if present == state.isr:
                return None
            return replace(state, isr=present, leader_epoch=state.leader_epoch + 1, controller_epoch=self.epoch)
        replicas = entry.assignment.replicas if preference is None else preference.order(entry.assignment.replicas)
        goes_on = self.state.refused.asked(state.leader, tp) is not Asked.IN_SYNC
        elected = after_failure(
            replicas,
            state,
            self.state.electable(tp, replicas),
            unclean=goes_on or self.parts.settings.unclean(tp.topic),
            refused=self.state.refusals(tp),
            leaving=self.state.leaving_and_unasked(tp, replicas),
        )
        if elected is not None:
            if preference is not None:
                preference.elected(elected.leader, state.leader)
            return elected.state(state, self.epoch)
        if state.leader == NO_LEADER:
            return None
        return replace(
            state,
            leader=NO_LEADER,
            isr=present or state.isr,
            leader_epoch=state.leader_epoch + 1,
            controller_epoch=self.epoch,
        )

    # Telling.

    def batch(self) -> RequestBatch:
        return RequestBatch(self.state)

    async def tell_changed(
        self,
        batch: RequestBatch,
        changed: Mapping[TopicPartition, PartitionState | None],
        except_at: int | None = None,
    ) -> RequestBatch:
        """Adds to `batch` what replicas and brokers have to hear of partitions whose state was written.

        A replica that its broker cannot open hears of it when the broker says that it may be able to; one at the broker
        `except_at`, which is to stop it, does not.
        """
        turns = Turns()
        for tp, state in changed.items():
            await turns.give_way()
            if state is not None:
                replicas = self.state.entry(tp).assignment.replicas
                batch.leader_and_isr([r for r in replicas if r != except_at and self.state.online(r, tp)], tp)
        return batch

    async def send(self, batch: RequestBatch) -> Answers:
        """Send the requests of `batch`; this broker's own answers can be awaited."""
        answers = await batch.send(self._sender())
        return Answers([answer for broker, answer in answers if broker == self.parts.settings.broker])

    def _sender(self) -> Sender:
        parts = self.parts
        return Sender(parts.settings.broker, self.epoch, parts.settings.listener, self._queues, parts.on_response)

    @property
    def requests_waiting(self) -> dict[int, int]:
        """How many requests each broker has not answered."""
        return {broker: queue.waiting for broker, queue in self._queues.items()}

    def add_broker(self, broker: BrokerInfo) -> None:
        self.state.brokers[broker.id] = broker
        self._queues[broker.id] = self._queue(broker)

    def _queue(self, broker: BrokerInfo) -> BrokerQueue:
        return BrokerQueue(broker.id, self.parts.connect(broker), self.parts.sleep, self.parts.now_ms)

    def unanswered_ms(self, broker: int) -> float:
        return self._queues[broker].unanswered_ms

    def has_answered(self, broker: int) -> bool:
        """In this term, and since it registered."""
        return self._queues[broker].has_answered

    async def greet(self, broker: BrokerInfo, timeout_ms: float) -> None:
        """Over a connection of its own. OSError when the broker does not answer."""
        channel = self.parts.connect(broker)
        try:
            await channel.greet(timeout_ms)
        finally:
            await channel.close()

    async def ask_idle(self, brokers: Iterable[int], idle_ms: float) -> None:
        """Sends brokers that had nothing to answer for so long the list of all brokers, which they have already."""
        idle = [broker for broker in brokers if self._queues[broker].idle_ms >= idle_ms]
        batch = self.batch()
        batch.metadata([], idle)
        await self.send(batch)

    async def probe(self, broker: BrokerInfo, on_answer: Callable[[int], None]) -> None:
        """Over a new connection, until it answers. It is told nothing but who is there."""
        queue = self._queues.pop(broker.id, None)
        if queue is not None:
            await queue.close()
        queue = self._queues[broker.id] = self._queue(broker)
        request = self.batch().brokers_only(self._sender(), broker)
        queue.put(request, lambda response: on_answer(broker.id))

    async def remove_broker(self, broker: int) -> None:
        self.state.brokers.pop(broker, None)
        self.state.leaving.discard(broker)
        self.state.failed_replicas.pop(broker, None)
        self.state.refused.forget_broker(broker)
        queue = self._queues.pop(broker, None)
        if queue is not None:
            await queue.close()

    async def close(self) -> None:
        queues, self._queues = self._queues, {}
        await together(queue.close() for queue in queues.values())


def _setting(tp: TopicPartition, state: PartitionState) -> Set:
    """If nobody has written the partition's state since it was read."""
    return Set(Partition.path(*tp), Partition.encode(state), state.partition_epoch)


class Answers:
    """The answers to a batch of requests, or to several."""

    def __init__(self, own: Sequence[asyncio.Future[None]] = ()) -> None:
        self._own = own

    def __add__(self, other: Answers) -> Answers:
        return Answers([*self._own, *other._own])

    async def own_answers(self) -> None:
        """Waits until the broker in this process has carried out all of it, so that it answers clients accordingly."""
        if self._own:
            await asyncio.wait(self._own)
