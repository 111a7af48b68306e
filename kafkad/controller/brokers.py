"""Reacts to brokers that come, go or lose log directories: elects new leaders for the partitions concerned."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator
from functools import partial

from kafkad.controller.active import ActiveController
from kafkad.controller.deletion import Deletions
from kafkad.controller.election import FewestLeaders, for_shutdown, without_replica
from kafkad.controller.requests import RequestBatch
from kafkad.controller.state import PartitionEntry
from kafkad.errors import ErrorCode, KafkaError
from kafkad.meta.readable import readable
from kafkad.meta.store import Delete, NoNode, Watch
from kafkad.meta.znodes import BROKER_IDS, Broker, LogDirEvent
from kafkad.model import NO_EPOCH, NO_LEADER, BrokerInfo, PartitionState
from kafkad.names import TopicPartition
from kafkad.together import together
from kafkad.turns import Turns
from kafkad.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse

_SERVES = (ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH)
"""Answers of a broker that can open the replica: it has taken the role, or had taken it before, when the same request
came over a connection that broke."""


async def read_brokers(active: ActiveController, watch: Watch, on_written: Watch) -> dict[int, BrokerInfo]:
    """All registered brokers with their epochs. `watch` hears of others, `on_written` of what becomes of these."""
    ids = [int(name) for name in await active.store.children(BROKER_IDS, watch) if name.isdecimal()]
    nodes = await active.store.get_many([Broker.path(broker) for broker in ids], on_written)
    found = [
        readable(Broker.path(broker), partial(Broker.decode, broker, node[0], node[1].czxid))
        for broker, node in zip(ids, nodes, strict=True)
        if node is not None
    ]
    return {registration.broker.id: registration.broker for registration in found if registration is not None}


class Brokers:
    """The part of a controller's term that follows the brokers."""

    def __init__(self, active: ActiveController, deletions: Deletions) -> None:
        self._active = active
        self._state = active.state
        self._deletions = deletions

    async def changed(self, now: dict[int, BrokerInfo]) -> list[int]:
        """Compares `now` with what was known; returns new brokers. A higher epoch means it died and came back."""
        before = self._state.brokers
        for broker, known in list(self._state.unreachable.items()):
            if broker in now and now[broker].epoch == known.epoch:
                now = {id_: info for id_, info in now.items() if id_ != broker}
            else:
                del self._state.unreachable[broker]
                await self._active.remove_broker(broker)
        bounced = {b for b in now if b in before and now[b].epoch > before[b].epoch}
        dead = (before.keys() - now.keys()) | bounced
        new = sorted((now.keys() - before.keys()) | bounced)
        moved = {b: info for b, info in now.items() if b in before and b not in bounced and info != before[b]}
        before.update(moved)
        if moved:  # to other listeners, as a Java broker may while it runs
            batch = self._active.batch()
            batch.metadata([])
            await self._active.send(batch)
        if dead:
            await self.died(dead)
        if new:
            await self.came([now[broker] for broker in new])
        return new

    async def died(self, brokers: Iterable[int]) -> None:
        brokers = list(brokers)
        for broker in brokers:
            await self._active.remove_broker(broker)
        await self.removed(brokers)

    async def removed(self, brokers: Collection[int]) -> None:
        """Others lead first. Then topics that the store had refused to remove may go, with their partitions."""
        await self.repair(self._state.replicas_on(brokers))
        for broker in brokers:
            await self._deletions.broker_lost(broker)

    async def came(self, brokers: list[BrokerInfo]) -> None:
        """The others learn of a new broker; it learns of all brokers and partitions, and then of its own replicas.

        So its first UpdateMetadata holds the whole cluster, and it can answer clients from then on. One that was only
        away still has what it knew, and learns what is gone.
        """
        for broker in brokers:
            self._active.add_broker(broker)
        ids = [broker.id for broker in brokers]
        introduction = self._active.batch()
        introduction.metadata([], self._state.brokers.keys() - ids)
        introduction.all_metadata(ids)
        await self._active.send(introduction)
        affected = self._state.replicas_on(ids)
        batch = await self._repaired(affected)
        await self._tell_of_their_own(batch, ids, affected)
        await self._active.send(batch)

    async def _tell_of_their_own(
        self, batch: RequestBatch, brokers: Collection[int], partitions: Iterable[TopicPartition]
    ) -> None:
        """Adds to `batch` what these brokers have to hear of their own replicas of `partitions`."""
        turns = Turns()
        for tp in self._hosted(partitions):
            await turns.give_way()
            here = [r for r in self._state.entry(tp).assignment.replicas if r in brokers]
            batch.leader_and_isr(here, tp, tell_all=False)

    def _hosted(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Without topics that are being deleted: their logs must not be created again."""
        return [tp for tp in partitions if not self._state.going(tp.topic)]

    async def repair(self, partitions: Iterable[TopicPartition]) -> None:
        """Elects and shrinks where a replica is gone, and tells everybody, also of what did not change."""
        await self._active.send(await self._repaired(partitions))

    async def _repaired(self, partitions: Iterable[TopicPartition]) -> RequestBatch:
        """What `repair` has to tell."""
        partitions = self._hosted(partitions)
        changed = await self._active.repair(partitions)
        batch = await self._active.tell_changed(self._active.batch(), changed)
        batch.metadata(partitions)
        return batch

    # Log directories.

    async def log_dir_events(self, watch: Watch) -> None:
        """Sends LeaderAndIsr again to brokers that ask for it; their answers say which replicas are offline."""
        names = await self._active.store.children(LogDirEvent.PARENT, watch)
        paths = [f"{LogDirEvent.PARENT}/{name}" for name in names]
        nodes = await self._active.store.get_many(paths)
        noted = [
            readable(path, partial(LogDirEvent.decode, node[0]))
            for path, node in zip(paths, nodes, strict=True)
            if node is not None
        ]
        brokers = [broker for broker in noted if broker is not None]
        batch = self._active.batch()
        await self._tell_of_their_own(batch, brokers, self._state.replicas_on(brokers))
        await self._active.send(batch)
        await together(map(self._forget, paths))

    async def _forget(self, path: str) -> None:
        with contextlib.suppress(NoNode):
            await self._active.write([Delete(path)])

    async def leader_and_isr_answered(
        self, broker: int, request: LeaderAndIsrRequest, response: LeaderAndIsrResponse
    ) -> None:
        """Replicas that the broker cannot open are as good as dead; those it answers for again are not.

        The broker hears of the present state of these: what was written after the request that it answers was not told
        to it. Where it has been made the leader since, its answer to that is what counts.
        """
        if response.error_code or broker not in self._state.brokers:
            return
        failed = self._state.failed_replicas.setdefault(broker, set())
        before = set(failed)
        refused = self._state.refused
        for tp, error_code in self._answers(broker, request, response):
            if error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                if tp not in failed and self._is_led_by(broker, tp):
                    refused.add(broker, tp)
                failed.add(tp)
                continue
            if error_code in _SERVES:
                failed.discard(tp)
                if tp in refused:
                    refused.serves(broker, tp)
            if tp in refused and self._is_led_by(broker, tp):  # though it may say that it knows that already
                refused.leads(broker, tp)
        if not failed:
            del self._state.failed_replicas[broker]
        if failed != before:
            batch = await self._repaired(sorted(failed ^ before))
            await self._tell_of_their_own(batch, [broker], sorted(before - failed))
            await self._active.send(batch)

    def _answers(
        self, broker: int, request: LeaderAndIsrRequest, response: LeaderAndIsrResponse
    ) -> Iterator[tuple[TopicPartition, int]]:
        """Of the partitions that there are, but for those that it leads in a later epoch than it was told of."""
        epochs = {
            (topic.topic_id, state.partition_index): state.leader_epoch
            for topic in request.topic_states
            for state in topic.partition_states
        }
        for topic in response.topics:
            name = self._state.names.get(topic.topic_id)
            for partition in topic.partition_errors if name is not None else ():
                tp = TopicPartition(name or "", partition.partition_index)
                told = epochs.get((topic.topic_id, tp.partition))
                if told is None or not self._is_led_by(broker, tp) or self._epoch_of(tp) <= told:
                    yield tp, partition.error_code

    def _epoch_of(self, tp: TopicPartition) -> int:
        state = self._state.entry(tp).state
        return NO_EPOCH if state is None else state.leader_epoch

    def _is_led_by(self, broker: int, tp: TopicPartition) -> bool:
        return self._state.has(tp) and self._state.leader(tp) == broker

    # Controlled shutdown.

    async def shut_down(self, broker: int, broker_epoch: int) -> list[TopicPartition]:
        """Takes `broker` out of all leaderships and ISRs that have another replica; returns those that have none."""
        known = self._state.brokers.get(broker)
        if known is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"There is no broker {broker}")
        if broker_epoch < known.epoch:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH, f"Broker {broker} has started again since: its epoch is {known.epoch}"
            )
        self._state.leaving.add(broker)
        led: list[TopicPartition] = []
        followed: list[TopicPartition] = []
        turns = Turns()
        for tp in self._hosted(self._state.replicas_on([broker])):
            await turns.give_way()
            if len(self._state.entry(tp).assignment.replicas) > 1:
                (led if self._state.leader(tp) == broker else followed).append(tp)
        moved = await self._active.change(led, partial(self._moved_for_shutdown, preference=self._active.preference()))
        await self._active.send(await self._active.tell_changed(self._active.batch(), moved))
        shrunk = await self._active.change(followed, lambda tp, entry: self._without(broker, entry))
        batch = await self._active.tell_changed(self._active.batch(), shrunk, except_at=broker)
        for tp in followed:
            batch.stop(broker, tp, delete=False)
        await self._active.send(batch)
        return [tp for tp in led if self._state.leader(tp) == broker]

    def _moved_for_shutdown(
        self, tp: TopicPartition, entry: PartitionEntry, preference: FewestLeaders | None
    ) -> PartitionState | None:
        if entry.state is None or entry.state.leader not in self._state.leaving:
            return None
        replicas = entry.assignment.replicas if preference is None else preference.order(entry.assignment.replicas)
        live = {r for r in replicas if self._state.online(r, tp)}
        elected = for_shutdown(replicas, entry.state, live, self._state.leaving)
        if elected is not None and preference is not None:
            preference.elected(elected.leader, entry.state.leader)
        return elected and elected.state(entry.state, self._active.epoch)

    def _without(self, broker: int, entry: PartitionEntry) -> PartitionState | None:
        state = entry.state
        if state is None or broker not in state.isr or state.leader in (broker, NO_LEADER):
            return None
        return without_replica(state, broker, self._active.epoch, unclean=False)
