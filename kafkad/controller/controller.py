"""The controller: one queue, one consumer, so that each decision is made after the one before it was carried out.

Every broker has one of these. It elects itself when there is no controller, and then begins a `Term`; watches and
public operations only put something in the queue. Operations raise NOT_CONTROLLER elsewhere.
They take and return plain values; an error that concerns one item of a request is in that item's result.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from random import Random
from typing import NamedTuple, TypeVar

from kafkad.clock import Clock
from kafkad.controller import features, producer_ids
from kafkad.controller.active import ActiveController, Answers, ControllerMoved, ControllerParts, InDoubt
from kafkad.controller.channel import Connect
from kafkad.controller.elect_leaders import ElectionKind, Outcomes
from kafkad.controller.features import FeatureUpdate
from kafkad.controller.isr import IsrResult
from kafkad.controller.reachability import CutOff, is_minority
from kafkad.controller.reassignments import Target
from kafkad.controller.settings import ControllerSettings
from kafkad.controller.term import Handler, Term
from kafkad.controller.topics import Admit, CheckConfig, MorePartitions, NewTopic, TopicResult, admit_all
from kafkad.errors import ErrorCode, Guard, KafkaError, unguarded
from kafkad.meta.readable import readable, required
from kafkad.meta.refusals import storage_refused
from kafkad.meta.store import (
    BadVersion,
    ConnectionLoss,
    Create,
    MetaError,
    MetaStore,
    MultiFailed,
    NodeExists,
    NoNode,
    OutOfReach,
    SessionExpired,
    SessionState,
    Set,
    Stat,
    Unreadable,
    WatchEvent,
)
from kafkad.meta.znodes import BROKER_IDS, ControllerEpoch, Features, ProducerIdBlock
from kafkad.meta.znodes import Controller as ControllerNode
from kafkad.model import PartitionAssignment, WantedIsr
from kafkad.names import NO_TOPIC_ID, TopicId, TopicPartition
from kafkad.timers import Timer, Timers, sleep
from kafkad.turns import Turns

log = logging.getLogger(__name__)

ELECTION_RETRY_MS = 1_000

T = TypeVar("T")
Event = Callable[[], Awaitable[None]]


class DeletedTopic(NamedTuple):
    """The result for one topic in a request to delete. The name is None for an unknown id."""

    name: str | None
    topic_id: TopicId = NO_TOPIC_ID
    error: KafkaError | None = None


class Controller:
    """`controller_id` is the controller as far as this broker knows; None if there is none."""

    def __init__(
        self,
        store: MetaStore,
        settings: ControllerSettings,
        *,
        connect: Connect,
        check_config: CheckConfig,
        clock: Clock,
        timers: Timers,
        random: Random,
    ) -> None:
        self.controller_id: int | None = None
        self._store = store
        self._settings = settings
        self._connect = connect
        self._check_config = check_config
        self._clock = clock
        self._timers = timers
        self._random = random
        self._queue: asyncio.Queue[Event] = asyncio.Queue()
        self._consumer: asyncio.Task[None] | None = None
        self._term: Term | None = None
        self._retry: Timer | None = None
        self._aside: Timer | None = None
        self._unreached: frozenset[int] = frozenset()
        self._aside_until_ms = 0.0
        """Until then this broker does not stand for election, for it was cut off as controller."""
        self._stopped = False
        self.unclean_elections = 0
        """Leaders elected here, in any term, that were not in sync."""

    async def start(self) -> None:
        """Returns when somebody is the controller; if it is this broker, when it has told itself all there is.

        Also where the metadata store goes out of reach meanwhile: then this broker stands again when it is back.
        """
        self._store.listen(self._session_changed)
        self._consumer = asyncio.create_task(self._consume())
        try:
            answers = await self._enqueue(self._elect)
        except (ControllerMoved, SessionExpired):
            return  # somebody was elected while this one began its term, or will be; the queue goes on with that
        except OutOfReach as error:
            log.error("controller election failed; retrying: %s", error)
            self._look_later()
            return
        if answers is not None:
            await answers.own_answers()

    async def stop(self) -> None:
        """Ends the term, if any, and refuses what still waits, and all that is asked later.

        `/controller` disappears with the session.
        """
        self._stopped = True
        for timer in (self._retry, self._aside):
            if timer is not None:
                timer.cancel()
        if self._consumer is not None:
            self._consumer.cancel()
            await asyncio.wait([self._consumer])
        await self._resign()
        while not self._queue.empty():
            await self._queue.get_nowait()()

    @property
    def active(self) -> bool:
        return self._term is not None

    @property
    def is_telling(self) -> bool:
        """True while a broker has not answered what this controller has to tell it."""
        return any(self.requests_waiting.values())

    @property
    def requests_waiting(self) -> Mapping[int, int]:
        """How many requests each broker has not answered; of none where this is not the controller."""
        return {} if self._term is None else self._term.active.requests_waiting

    @property
    def events_waiting(self) -> int:
        """Events that the controller has not begun to handle."""
        return self._queue.qsize()

    # Operations.

    async def create_topics(
        self, topics: Sequence[NewTopic], *, timeout_ms: int, validate_only: bool = False, admit: Admit = admit_all
    ) -> list[TopicResult]:
        """Results in the order of `topics`. Without error, clients find the topic at this broker."""
        results, answers = await self._operate(
            lambda term: term.topics.create(topics, validate_only=validate_only, admit=admit)
        )
        return await self._in_time(results, answers, timeout_ms, validate_only)

    async def create_partitions(
        self,
        requests: Sequence[MorePartitions],
        *,
        timeout_ms: int,
        validate_only: bool = False,
        admit: Admit = admit_all,
    ) -> list[TopicResult]:
        results, answers = await self._operate(
            lambda term: term.topics.add_partitions(requests, validate_only=validate_only, admit=admit)
        )
        return await self._in_time(results, answers, timeout_ms, validate_only)

    async def delete_topics(
        self, topics: Sequence[str | TopicId], *, timeout_ms: int, admit: Admit = admit_all
    ) -> list[DeletedTopic]:
        """Deletes topics by name or id. Without error, the topic is gone, except on brokers that are down."""
        results, waiting = await self._operate(lambda term: self._delete(term, topics, admit))
        done = await _within(_all_done(waiting), timeout_ms) and not any(settled.cancelled() for settled in waiting)
        return results if done else [_late_deletion(result) for result in results]

    async def _delete(
        self, term: Term, topics: Sequence[str | TopicId], admit: Admit
    ) -> tuple[list[DeletedTopic], list[asyncio.Future[None]]]:
        turns = Turns()
        found = []
        for topic in topics:
            await turns.give_way()
            found.append(_found(term, topic))
        asked = dict.fromkeys(result.name for result in found if result.error is None and result.name is not None)
        refused = _not_admitted(term, asked, admit)
        names = [name for name in asked if name not in refused]
        refused |= await term.deletions.ask(names)
        results = [r._replace(error=refused[r.name]) if r.name in refused else r for r in found]
        return results, [term.deletions.settled(name) for name in names if name in term.state.deleting]

    async def _in_time(
        self, results: list[TopicResult], answers: Answers, timeout_ms: int, validate_only: bool
    ) -> list[TopicResult]:
        if validate_only or await _within(answers.own_answers(), timeout_ms):
            return results
        late = KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"Written, but not known to the broker within {timeout_ms} ms")
        return [r if r.error else TopicResult(name=r.name, topic_id=r.topic_id, error=late) for r in results]

    async def elect_leaders(
        self,
        kind: ElectionKind,
        partitions: Sequence[TopicPartition] | None,
        *,
        timeout_ms: int,
        guard: Guard = unguarded,
    ) -> Outcomes:
        """None for all partitions; then those that need no election are left out."""
        outcomes, answers = await self._operate(lambda term: term.elections.elect(kind, partitions, guard))
        await _within(answers.own_answers(), timeout_ms)
        return outcomes

    async def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, Target], guard: Guard = unguarded
    ) -> Outcomes:
        """Without error, a move has begun (or was called off); it may take long."""
        return await self._operate(lambda term: term.reassignments.alter(targets, guard))

    async def list_partition_reassignments(
        self, partitions: Sequence[TopicPartition] | None, guard: Guard = unguarded
    ) -> dict[TopicPartition, PartitionAssignment]:
        """Those under way, of `partitions` or of all."""

        async def under_way(term: Term) -> dict[TopicPartition, PartitionAssignment]:
            guard()
            return term.reassignments.under_way(partitions)

        return await self._operate(under_way)

    async def update_features(
        self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False, guard: Guard = unguarded
    ) -> dict[str, KafkaError | None]:
        return await self._operate(
            lambda term: features.update(term.active, updates, validate_only=validate_only, guard=guard)
        )

    async def finalized_features(self) -> Features:
        """As the store has them; any broker may ask."""
        data, _ = await self._store.get(Features.path())
        return required(Features.path(), lambda: Features.decode(data))

    async def allocate_producer_ids(self, broker: int, broker_epoch: int) -> ProducerIdBlock:
        """A block of ids that no other broker ever gets."""
        return await self._operate(lambda term: producer_ids.allocate(term.active, broker, broker_epoch))

    async def alter_isr(
        self, broker: int, broker_epoch: int, wanted: Mapping[TopicPartition, WantedIsr]
    ) -> dict[TopicPartition, IsrResult]:
        """AlterPartition. Raises STALE_BROKER_EPOCH for the whole request."""
        return await self._operate(lambda term: term.alter_isr(broker, broker_epoch, wanted))

    async def alter_isr_by_id(
        self, broker: int, broker_epoch: int, wanted: Mapping[tuple[TopicId, int], WantedIsr]
    ) -> dict[tuple[TopicId, int], IsrResult]:
        """The same for partitions by the ids of their topics, which this controller may know before any broker does."""
        return await self._operate(lambda term: term.alter_isr_by_id(broker, broker_epoch, wanted))

    async def controlled_shutdown(self, broker: int, broker_epoch: int) -> list[TopicPartition]:
        """The partitions that `broker` still leads because no other replica can."""
        return await self._operate(lambda term: term.brokers.shut_down(broker, broker_epoch))

    def configs_changed(self, topic: str | None) -> None:
        """Settings of a topic, or the defaults of all, are others now: `unclean.leader.election.enable` may be."""
        term = self._term
        if term is not None:
            self._during(term, lambda: term.configs_changed(topic))

    # The queue.

    async def _operate(self, operation: Callable[[Term], Awaitable[T]]) -> T:
        async def run() -> T:
            if self._term is None:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, f"The controller is broker {self.controller_id}")
            return await operation(self._term)

        try:
            return await self._enqueue(run)
        except OutOfReach as e:
            raise storage_refused(e) from e
        except Unreadable as e:  # clients may see no more of it than a code
            log.error("a request to the controller is refused until somebody mends %s", e)
            raise storage_refused(e) from e
        except MetaError as e:
            log.error("the metadata store refuses what a request to the controller needs: %s", e)
            raise storage_refused(e) from e

    async def _enqueue(self, run: Callable[[], Awaitable[T]]) -> T:
        """ControllerMoved once this controller has stopped, also for what was in the queue then."""
        if self._stopped:
            raise ControllerMoved
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def event() -> None:
            if done.done():
                return  # nobody waits for it any more
            if self._stopped:
                done.set_exception(ControllerMoved())
                return
            try:
                result = await run()
            except (Exception, asyncio.CancelledError) as e:
                if not done.done():
                    done.set_exception(ControllerMoved() if isinstance(e, asyncio.CancelledError) else e)
                if not isinstance(e, (KafkaError, MetaError)) or isinstance(e, (ControllerMoved, InDoubt)):
                    raise
            else:
                if not done.done():
                    done.set_result(result)

        self._queue.put_nowait(event)
        return await done

    async def _consume(self) -> None:
        while True:
            event = await self._queue.get()
            try:
                await event()
            except ControllerMoved:
                log.info("broker %d is no longer the controller", self._settings.broker)
                await self._resign()
                self._queue.put_nowait(self._look)
            except CutOff as e:
                await self._stand_aside(e)
            except ConnectionLoss as e:
                log.error("the controller lost the metadata store amid a change, and begins a new term: %s", e)
                await self._resign()
                self._look_later()
            except SessionExpired:
                pass  # the term is over with the session, and this broker looks again in its next one
            except MetaError as e:
                log.error("the controller failed to carry out a change: %s", e)
            except Exception:
                log.exception("internal error: the controller failed to carry out a change")

    # Election.

    async def _elect(self) -> Answers | None:
        """Becomes the controller unless there is one. Says what the brokers were told then."""
        while True:
            stat = await self._store.exists(ControllerNode.path(), self._controller_changed)
            if stat is not None:
                return None if await self._see_controller() else await self._elect()
            epoch, version = await self._last_epoch()
            me = ControllerNode(self._settings.broker, self._clock.now_ms())
            try:
                results = await self._store.multi(
                    [
                        Create(ControllerNode.path(), me.encode(), ephemeral=True),
                        Set(ControllerEpoch.PATH, ControllerEpoch.encode(epoch + 1), version),
                    ]
                )
            except MultiFailed as e:
                if isinstance(e.cause, (NodeExists, BadVersion)):
                    continue
                raise e.cause from None
            written = results[1]
            assert isinstance(written, Stat)
            return await self._begin(epoch + 1, written.version)

    async def _last_epoch(self) -> tuple[int, int]:
        try:
            data, stat = await self._store.get(ControllerEpoch.PATH)
        except NoNode:
            try:
                await self._store.create(ControllerEpoch.PATH, ControllerEpoch.encode(0))
            except NodeExists:
                return await self._last_epoch()
            return 0, 0
        return required(ControllerEpoch.PATH, lambda: ControllerEpoch.decode(data)), stat.version

    async def _begin(self, epoch: int, version: int) -> Answers:
        self.controller_id = self._settings.broker
        log.info("broker %d is the controller, epoch %d", self._settings.broker, epoch)
        parts = ControllerParts(
            settings=self._settings,
            store=self._store,
            connect=self._connect,
            on_response=lambda broker, request, response: term.answered(broker, request, response),
            sleep=partial(sleep, clock=self._clock, timers=self._timers),
            now_ms=self._clock.monotonic_ms,
            on_unclean=self._count_unclean,
        )
        active = ActiveController(parts, epoch, version)
        term = Term(
            active,
            self._settings,
            self._check_config,
            self._random,
            lambda event: self._during(term, event),
            self._heard,
            after=self._after,
        )
        self._term = term
        try:
            return await term.begin()
        except BaseException:
            await self._resign()
            raise

    def _count_unclean(self, tp: TopicPartition, leader: int) -> None:
        self.unclean_elections += 1
        log.warning(
            "unclean leader election: broker %d, not in sync or after it refused, is to lead %s; records may be lost",
            leader,
            tp,
        )

    def _during(self, term: Term, event: Event) -> None:
        """Queues an event that means nothing after the end of `term`."""

        async def run() -> None:
            if self._term is term:
                await event()

        self._queue.put_nowait(run)

    async def _resign(self) -> None:
        term, self._term = self._term, None
        if term is not None:
            await term.end()

    # What is heard.

    def _heard(self, handler: Handler) -> None:
        """What the store's watches call. It is the same in each term, so that the store keeps none that has ended."""
        if (term := self._term) is not None:
            self._during(term, partial(handler, term))

    def _controller_changed(self, event: WatchEvent) -> None:
        self._queue.put_nowait(self._look)

    async def _look(self) -> None:
        """Finds the present controller; stands for election if there is none."""
        if self._stopped or self._retry is not None:
            return
        try:
            if not await self._see_controller() and not await self._stands_aside():
                await self._elect()
        except (ControllerMoved, SessionExpired):
            raise
        except Exception as e:
            self._look_later()
            if not isinstance(e, MetaError):
                raise
            log.error("controller election failed; retrying: %s", e)

    async def _stand_aside(self, reason: CutOff) -> None:
        """Resigns, and gives the others time to elect one of them."""
        assert self._settings.patience is not None
        log.error("broker %d resigns as controller, for it is cut off: %s", self._settings.broker, reason)
        await self._resign()
        self._unreached = reason.silent
        self._aside_until_ms = self._clock.monotonic_ms() + self._settings.patience.silent_ms
        self._queue.put_nowait(self._look)

    async def _stands_aside(self) -> bool:
        remaining_ms = self._aside_until_ms - self._clock.monotonic_ms()
        if remaining_ms <= 0 or await self._store.exists(ControllerNode.path(), self._controller_changed) is not None:
            return False
        names = await self._store.children(BROKER_IDS, self._controller_changed)
        registered = {int(name) for name in names if name.isdecimal()}
        if not is_minority(len(registered - self._unreached), len(registered)):
            return False  # those that did not answer were dead, and their sessions are over now
        if self._aside is not None:
            self._aside.cancel()
        self._aside = self._after(remaining_ms, lambda: self._queue.put_nowait(self._look))
        return True

    def _look_later(self) -> None:
        if self._retry is None:
            self._retry = self._after(ELECTION_RETRY_MS, self._look_again)

    def _after(self, ms: float, action: Callable[[], None]) -> Timer:
        return self._timers.at(self._clock.monotonic_ms() + ms, action)

    def _look_again(self) -> None:
        self._retry = None
        self._queue.put_nowait(self._look)

    async def _see_controller(self) -> bool:
        """True if there is a controller. This broker resigns if it thought to be it and is not."""
        try:
            data, stat = await self._store.get(ControllerNode.path(), self._controller_changed)
        except NoNode:
            self.controller_id = None
            await self._resign()
            return False
        controller = readable(ControllerNode.path(), lambda: ControllerNode.decode(data))
        self.controller_id = None if controller is None else controller.broker
        if stat.ephemeral_owner != self._store.session_id:
            await self._resign()
        elif self._term is None:
            await self._store.delete(ControllerNode.path(), stat.version)  # elected, but unable to begin
            return False
        return True

    def _session_changed(self, state: SessionState) -> None:
        """Without a session this broker is not the controller."""
        if state is SessionState.EXPIRED:
            term, self._term = self._term, None
            if term is not None:
                self._queue.put_nowait(term.end)

    async def session_renewed(self) -> None:
        """Called after the broker has registered again: it may stand for election."""
        self._queue.put_nowait(self._look)


def _found(term: Term, topic: str | TopicId) -> DeletedTopic:
    if isinstance(topic, bytes):
        name = term.state.names.get(topic)
        if name is None:
            error = KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            return DeletedTopic(name=None, topic_id=topic, error=error)
        return DeletedTopic(name=name, topic_id=topic)
    entry = term.state.topics.get(topic)
    if entry is None:
        error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return DeletedTopic(name=topic, error=error)
    return DeletedTopic(name=topic, topic_id=entry.topic_id)


def _not_admitted(term: Term, topics: Iterable[str], admit: Admit) -> dict[str, KafkaError]:
    """Those of `topics` that may not be deleted, and why."""
    refused: dict[str, KafkaError] = {}
    for name in topics:
        if name in term.state.topics:
            try:
                admit(name, len(term.state.topics[name].partitions))
            except KafkaError as error:
                refused[name] = error.with_traceback(None)
    return refused


def _late_deletion(result: DeletedTopic) -> DeletedTopic:
    if result.error is not None:
        return result
    error = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The deletion goes on")
    return DeletedTopic(name=result.name, topic_id=result.topic_id, error=error)


async def _all_done(waiting: Sequence[asyncio.Future[None]]) -> None:
    if waiting:
        await asyncio.wait(waiting)


async def _within(waiting: Awaitable[object], timeout_ms: int) -> bool:
    """True if `waiting` ended in time. What it waits for goes on in any case."""
    task = asyncio.ensure_future(waiting)
    if timeout_ms > 0:
        await asyncio.wait([task], timeout=timeout_ms / 1000)
    in_time = timeout_ms > 0 and task.done()
    task.cancel()
    return in_time
