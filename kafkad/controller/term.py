"""One term of an active controller: its parts, what it does when it begins, and what it does when something is heard.

Nothing here runs by itself: `Controller` calls it, one call at a time. The read that follows a watch sets it again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from kafkad.controller.active import ActiveController, Answers
from kafkad.controller.brokers import Brokers, read_brokers
from kafkad.controller.channel import Request, Response
from kafkad.controller.deletion import ASKED_AGAIN_MS, Deletions
from kafkad.controller.elect_leaders import ElectionKind, Elections
from kafkad.controller.isr import Isr, IsrResult
from kafkad.controller.loading import ReturnedMembers, bring_online, load_more_partitions, load_topics
from kafkad.controller.reachability import Reachability
from kafkad.controller.reassignments import Reassignments
from kafkad.controller.registration import prepare
from kafkad.controller.settings import Balance, ControllerSettings
from kafkad.controller.state import PartitionEntry
from kafkad.controller.topics import CheckConfig, Topics
from kafkad.errors import ErrorCode, KafkaError
from kafkad.meta.readable import readable
from kafkad.meta.store import Change, Delete, NodeExists, NoNode, Watch, WatchEvent
from kafkad.meta.znodes import TOPICS, Features, IsrChange, LogDirEvent, Partition, PreferredElections
from kafkad.model import NO_LEADER, BrokerInfo, PartitionState, WantedIsr
from kafkad.names import TopicId, TopicPartition
from kafkad.timers import Timer
from kafkad.together import together
from kafkad.turns import Turns
from kafkad.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from kafkad.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse

Enqueue = Callable[[Callable[[], Awaitable[None]]], None]
After = Callable[[float, Callable[[], None]], Timer]
"""Calls something after so many milliseconds."""

FIRST_BALANCE_MS = 5_000
_GREETING_MS = 1_000
"""Everything waits for it, but only after brokers went and came while there was no controller."""


Handler = Callable[["Term"], Awaitable[None]]
Heard = Callable[[Handler], None]
"""Has something handled in the present term, if there is one."""


@dataclass(frozen=True, slots=True)
class _Watch:
    """Equal to that of another term, so that the store has no more of them with each new one."""

    heard: Heard
    handler: Handler

    def __call__(self, event: WatchEvent) -> None:
        self.heard(self.handler)


@dataclass(frozen=True, slots=True)
class _WatchOfNode:
    """Hears of the path of a node that was written anew."""

    heard: Heard
    handler: Callable[[Term, str], Awaitable[None]]

    def __call__(self, event: WatchEvent) -> None:
        if event.change is Change.CHANGED:
            self.heard(lambda term: self.handler(term, event.path))


class Term:
    """`begin` once, `end` once."""

    def __init__(
        self,
        active: ActiveController,
        settings: ControllerSettings,
        check: CheckConfig,
        random: Random,
        enqueue: Enqueue,
        heard: Heard,
        *,
        after: After,
    ) -> None:
        self.active = active
        self.state = active.state
        self.deletions = Deletions(active, settings.deletes_topics, self._go_on_deleting_later)
        self.topics = Topics(active, check, settings.topics, random, settings.left_alone)
        self.brokers = Brokers(active, self.deletions)
        self.elections = Elections(active)
        self.reassignments = Reassignments(active, self.deletions)
        self._settings = settings
        self._balancing: Timer | None = None
        self._checking: Timer | None = None
        self._deleting: Timer | None = None
        self._reachability: Reachability | None = None
        if settings.patience is not None:
            self._reachability = Reachability(active, self.brokers, settings.patience, self._answers_again)
        self.isr = Isr(active, lambda broker: self._reachability is None or self._reachability.hears(broker))
        self._watched: dict[str, TopicId] = {}
        """Topics that are known and whose nodes are watched, with their ids, for another topic of that name has another
        node; all others are read again with the next one that comes."""
        self._enqueue = enqueue
        self._after = after
        self._heard = heard

    async def begin(self) -> Answers:
        """Reads everything, repairs it and tells all brokers; the answers are those of the last and largest requests.

        Brokers hear of each other before they hear of partitions: a follower has to find its leader.
        """
        store, active = self.active.store, self.active
        await prepare(store)
        await self._finalize_features()
        await self._drop_notes(LogDirEvent.PARENT, self._watch(Term._log_dirs_failed))
        await self._drop_notes(IsrChange.PARENT, self._watch(Term._isr_noted))
        for broker in (await self._read_brokers()).values():
            active.add_broker(broker)
        names = await store.children(TOPICS, self._watch(Term._topics_changed))
        returned = await load_topics(active, names, self._watch_topic, self._settings.known_topic)
        self._watched = self._ids(names)
        introduction = active.batch()
        introduction.metadata([], self.state.brokers)
        await active.send(introduction)
        await self.deletions.mark(self._watch(Term._deletions_asked))
        answers = await self._tell_everything(returned)
        await self.reassignments.go_on()
        await self._reassignments_asked()
        await self.deletions.go_on()
        await self._elections_asked()
        if self._settings.balance is not None:
            self._balance_after(FIRST_BALANCE_MS, self._settings.balance)
        if self._reachability is not None:
            self._check_later(self._reachability)
        return answers

    async def end(self) -> None:
        self.deletions.end()
        for timer in (self._balancing, self._checking, self._deleting):
            if timer is not None:
                timer.cancel()
        if self._reachability is not None:
            await self._reachability.close()
        await self.active.close()
        self.reassignments.end()
        self._watched = {}
        self.state.clear()

    async def _finalize_features(self) -> None:
        with contextlib.suppress(NodeExists):
            await self.active.store.create(Features.path(), Features({}).encode())

    async def _drop_notes(self, parent: str, watch: Watch | None = None) -> None:
        """Notes to the controller of before: all that they tell is read after this. `watch` hears of later ones."""
        for name in await self.active.store.children(parent, watch):
            with contextlib.suppress(NoNode):
                await self.active.write([Delete(f"{parent}/{name}")])

    async def _tell_everything(self, returned: ReturnedMembers) -> Answers:
        active = self.active
        hosted = [tp for tp, _ in self.state.partitions() if not self.state.going(tp.topic)]
        await self._leave_out(returned)
        await active.repair(await self._unhealthy(hosted))
        self.state.failed_replicas.clear()  # they are here, and are told to follow
        made = set(await bring_online(active))
        batch = active.batch()
        turns = Turns()
        for tp in hosted:
            await turns.give_way()
            batch.leader_and_isr(self.state.entry(tp).assignment.replicas, tp, is_new=tp in made, tell_all=False)
        batch.all_metadata(self.state.brokers)
        return await active.send(batch)

    async def _leave_out(self, returned: ReturnedMembers) -> None:
        """Members that have returned count as failed where there are others to go on with: such as answer, for a
        registration outlives its process for a while, and who dies with all others may have lost more than they.

        Elsewhere all go on, and the state is written anew: who returns later than that is told from them.
        """
        states = {tp: state for tp in returned if (state := self.state.entry(tp).state) is not None}
        present = {member for tp, state in states.items() for member in {*state.isr} - returned[tp]}
        stayed = await self._answering(present)
        all_returned = []
        for tp, brokers in returned.items():
            if tp in states and stayed.isdisjoint({*states[tp].isr} - brokers):
                all_returned.append(tp)
                continue
            for broker in brokers:
                self.state.failed_replicas.setdefault(broker, set()).add(tp)
        await self.active.change(all_returned, self._next_epoch)

    async def _answering(self, brokers: set[int]) -> set[int]:
        """Those that are registered and answer within a moment."""

        async def answers(broker: BrokerInfo) -> bool:
            try:
                await self.active.greet(broker, _GREETING_MS)
            except (OSError, KafkaError):
                return False
            return True

        registered = [self.state.brokers[broker] for broker in sorted(brokers) if broker in self.state.brokers]
        answered = await together(answers(broker) for broker in registered)
        return {broker.id for broker, is_there in zip(registered, answered, strict=True) if is_there}

    def _next_epoch(self, tp: TopicPartition, entry: PartitionEntry) -> PartitionState | None:
        """The same leader once more; None where another one is to be elected."""
        state = entry.state
        if state is None or state.leader not in state.isr:
            return None
        return replace(state, leader_epoch=state.leader_epoch + 1, controller_epoch=self.active.epoch)

    async def _unhealthy(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Those that `change` would change: with 10,000 partitions it is not asked about each."""
        repaired, entry = self.active.repaired, self.state.entry
        turns = Turns()
        found = []
        for tp in partitions:
            await turns.give_way()
            if repaired(tp, entry(tp)) is not None:
                found.append(tp)
        return found

    async def configs_changed(self, topic: str | None) -> None:
        """Elects a leader where there is none and any is allowed to lead now; None for all topics."""
        topics = self.state.topics if topic is None else [topic] if topic in self.state.topics else []
        leaderless = [
            TopicPartition(name, number)
            for name in topics
            for number, entry in self.state.topics[name].partitions.items()
            if entry.state is not None and entry.state.leader == NO_LEADER and not self.state.going(name)
        ]
        if leaderless:
            changed = await self.active.repair(leaderless)
            await self.active.send(await self.active.tell_changed(self.active.batch(), changed))

    # What is heard.

    def _watch(self, handler: Handler) -> Watch:
        return _Watch(self._heard, handler)

    @property
    def _watch_topic(self) -> Watch:
        return _WatchOfNode(self._heard, Term._topic_written)

    def answered(self, broker: int, request: Request, response: Response) -> None:
        self._enqueue(lambda: self._take_answer(broker, request, response))

    async def _take_answer(self, broker: int, request: Request, response: Response) -> None:
        """What was asked of a process that has been replaced since says nothing of the one that is asked now."""
        known = self.state.brokers.get(broker)
        if known is None or request.broker_epoch < known.epoch:
            return
        if isinstance(request, StopReplicaRequest) and isinstance(response, StopReplicaResponse):
            await self.deletions.answered(broker, request, response)
        elif isinstance(request, LeaderAndIsrRequest) and isinstance(response, LeaderAndIsrResponse):
            await self.brokers.leader_and_isr_answered(broker, request, response)

    async def _read_brokers(self) -> dict[int, BrokerInfo]:
        written = _WatchOfNode(self._heard, Term._broker_written)
        return await read_brokers(self.active, self._watch(Term._brokers_changed), written)

    async def _broker_written(self, path: str) -> None:
        await self._brokers_changed()

    async def _brokers_changed(self) -> None:
        new = await self.brokers.changed(await self._read_brokers())
        if new:
            await self._go_on_with(new)

    async def _go_on_with(self, brokers: Sequence[int]) -> None:
        """What could not be done without these brokers."""
        await self._new_partitions()
        await self.reassignments.go_on(brokers)
        await self.deletions.go_on()

    def _check_later(self, reachability: Reachability) -> None:
        async def run() -> None:
            self._check_later(reachability)
            await reachability.check()

        self._checking = self._after(reachability.interval_ms, lambda: self._enqueue(run))

    def _answers_again(self, broker: int) -> None:
        async def run() -> None:
            if self._reachability is not None and await self._reachability.returned(broker):
                await self._go_on_with([broker])

        self._enqueue(run)

    async def _topics_changed(self) -> None:
        """Topics that this controller makes or removes itself are no news here."""
        names = await self.active.store.children(TOPICS, self._watch(Term._topics_changed))
        gone = self.state.topics.keys() - names
        for name in gone - self.state.deleting.keys():
            self.state.remove_topic(name)
        self.state.unreadable.intersection_update(names)
        known = self._ids(names)
        await self._read_topics([name for name in names if name not in known or self._watched.get(name) != known[name]])
        self._watched = self._ids(names)

    def _ids(self, names: Iterable[str]) -> dict[str, TopicId]:
        """Of those that are known."""
        topics = self.state.topics
        return {name: topics[name].topic_id for name in names if name in topics}

    async def _topic_written(self, path: str) -> None:
        await self._read_topics([path.removeprefix(f"{TOPICS}/")])

    async def _read_topics(self, names: Sequence[str]) -> None:
        """Takes in topics and partitions that somebody wrote into the store, and watches the nodes of `names`."""
        new = [name for name in names if name not in self.state.topics]
        await load_topics(self.active, new, self._watch_topic)
        topics = self.state.topics
        found = [TopicPartition(n, number) for n in new if n in topics for number in topics[n].partitions]
        for name in names:
            if name not in new and name in topics:
                found += await load_more_partitions(self.active, name, self._watch_topic)
        if names:
            await self._new_partitions(found)

    async def _new_partitions(self, found: Iterable[TopicPartition] = ()) -> None:
        """Also tells of partitions that were `found`, whose first states somebody else may have written: this
        controller itself, by a write that it had no answer to, or of which a part was refused."""
        made = await bring_online(self.active)
        batch = self.active.batch()
        for tp in found:
            batch.leader_and_isr(self.state.entry(tp).assignment.replicas, tp)
        for tp in made:
            batch.leader_and_isr(self.state.entry(tp).assignment.replicas, tp, is_new=True)
        await self.active.send(batch)

    async def _deletions_asked(self) -> None:
        await self.deletions.mark(self._watch(Term._deletions_asked))
        await self.deletions.go_on()

    def _go_on_deleting_later(self) -> None:
        async def run() -> None:
            self._deleting = None
            await self.deletions.go_on()

        if self._deleting is None:
            self._deleting = self._after(ASKED_AGAIN_MS, lambda: self._enqueue(run))

    async def _reassignments_asked(self) -> None:
        await self.reassignments.take_over(self._watch(Term._reassignments_asked))

    async def _elections_asked(self) -> None:
        """Runs elections requested by a tool from before Kafka 2.4, which waits for the node to disappear."""
        if await self.active.store.exists(PreferredElections.PATH, self._watch(Term._elections_asked)):
            data, _ = await self.active.store.get(PreferredElections.PATH)
            asked = readable(PreferredElections.PATH, lambda: PreferredElections.decode(data))
            await self.elections.elect(ElectionKind.PREFERRED, asked or [])
            with contextlib.suppress(NoNode):
                await self.active.write([Delete(PreferredElections.PATH)])

    def _balance_after(self, ms: float, balance: Balance) -> None:
        async def run() -> None:
            self._balance_after(balance.interval_ms, balance)
            await self.elections.balance(balance.percentage)

        self._balancing = self._after(ms, lambda: self._enqueue(run))

    async def alter_isr(
        self, broker: int, broker_epoch: int, wanted: Mapping[TopicPartition, WantedIsr]
    ) -> dict[TopicPartition, IsrResult]:
        """A reassignment that waited for the new ISR is completed with it."""
        outcomes = await self.isr.alter(broker, broker_epoch, wanted)
        await self.reassignments.in_sync_changed(wanted)
        return outcomes

    async def alter_isr_by_id(
        self, broker: int, broker_epoch: int, wanted: Mapping[tuple[TopicId, int], WantedIsr]
    ) -> dict[tuple[TopicId, int], IsrResult]:
        names = self.state.names
        known = {key: TopicPartition(names[key[0]], key[1]) for key in wanted if key[0] in names}
        outcomes = await self.alter_isr(broker, broker_epoch, {tp: wanted[key] for key, tp in known.items()})
        unknown = KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        return {key: outcomes[known[key]] if key in known else unknown for key in wanted}

    async def _log_dirs_failed(self) -> None:
        await self.brokers.log_dir_events(self._watch(Term._log_dirs_failed))

    async def _isr_noted(self) -> None:
        """Brokers below protocol version 2.7 write ISRs themselves: reads those partitions and tells everybody."""
        names = await self.active.store.children(IsrChange.PARENT, self._watch(Term._isr_noted))
        paths = [f"{IsrChange.PARENT}/{name}" for name in names]
        nodes = await self.active.store.get_many(paths)
        lists = [
            readable(path, partial(IsrChange.decode, node[0]))
            for path, node in zip(paths, nodes, strict=True)
            if node is not None
        ]
        noted = dict.fromkeys(tp for listed in lists for tp in listed or ())
        known = [tp for tp in noted if self.state.has(tp) and not self.state.going(tp.topic)]
        await self._read_states(known)
        batch = self.active.batch()
        batch.metadata(known)
        await self.active.send(batch)
        for path in paths:
            with contextlib.suppress(NoNode):
                await self.active.write([Delete(path)])
        await self.reassignments.in_sync_changed(known)

    async def _read_states(self, partitions: Sequence[TopicPartition]) -> None:
        paths = [Partition.path(*tp) for tp in partitions]
        for tp, path, node in zip(partitions, paths, await self.active.store.get_many(paths), strict=True):
            state = None if node is None else readable(path, partial(Partition.decode, node[0], node[1].version))
            if state is not None:
                self.state.entry(tp).state = state
