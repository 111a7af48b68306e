"""Brings the ends of transactions to their partitions: each leader is asked for a marker until that is written.

A partition that is led here gets its marker at once, without a request. Each other broker has one queue and at most one
request on its way, with all markers that wait for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from kafkad.clock import Clock
from kafkad.cluster.metadata import MetadataCache
from kafkad.errors import ErrorCode
from kafkad.model import BrokerInfo
from kafkad.names import TopicPartition, some
from kafkad.net.client import Link, LinkError
from kafkad.replica.markers import Codes, Marker
from kafkad.timers import Timer, Timers
from kafkad.txn.gone import GonePartitions
from kafkad.txn.transaction import Transaction
from kafkad.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

log = logging.getLogger(__name__)

Append = Callable[[Sequence[Marker], Callable[[Codes], None]], object]
"""Appends markers to partitions led here; see `replica.markers.Markers.append`."""

_SHORTEST_PAUSE_MS = 100
_LONGEST_PAUSE_MS = 1_000
_TOLD_AFTER_MS = 1_000
_MOST_IN_A_REQUEST = 5_000
_RESTS_AT_ONCE = 10
_MOST_NAMED = 10
_UNREACHED = ErrorCode.NETWORK_EXCEPTION

_NOTHING_TO_WRITE = {
    ErrorCode.NONE: "",
    ErrorCode.INVALID_PRODUCER_EPOCH: "the partition has seen a later epoch of this producer",
    ErrorCode.UNSUPPORTED_VERSION: "its leader does not know markers",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "its message format has no markers",
}
"""After these answers a partition needs no marker any more."""


@dataclass(frozen=True, slots=True, eq=False)
class _Rest:
    """Partitions whose markers are tried again a little later."""

    ending: Ending
    partitions: list[TopicPartition]
    tries: int
    leaderless: bool


class Ending:
    """The markers of one prepared transaction: one attempt to bring all of them out.

    Whatever is queued, or answered late, belongs to this attempt and to no other of the same id.
    """

    __slots__ = ("alarm", "begun_ms", "done", "marker", "over", "transaction", "waiting")

    def __init__(
        self, prepared: Transaction, coordinator_epoch: int, begun_ms: float, done: Callable[[Ending], None]
    ) -> None:
        """`done` is called with it once, when all partitions have their markers; holding it would make a cycle."""
        self.transaction = prepared
        self.marker = Marker(
            prepared.producer_id, prepared.epoch, prepared.commits, coordinator_epoch, prepared.version, ()
        )
        self.waiting = set(prepared.partitions)
        """The partitions that still lack their marker."""
        self.begun_ms = begun_ms
        self.done = done
        self.over = False
        self.alarm: Timer | None = None

    def drop(self) -> None:
        """It is not this broker's business any more; answers that are still to come change nothing."""
        self.over = True
        if self.alarm is not None:
            self.alarm.cancel()


class MarkerQueues:
    def __init__(
        self,
        metadata: MetadataCache,
        broker_id: int,
        append: Append,
        connect: Callable[[BrokerInfo], Link] | None,
        *,
        timeout_ms: int,
        clock: Clock,
        timers: Timers,
        later: Callable[[Callable[[], None]], None],
        gone: GonePartitions,
    ) -> None:
        """`connect` is None where there can be no other broker; `timeout_ms` is that of a request. `later` runs
        something when it is its turn among work that may wait. `gone` tells deleted partitions from others that this
        broker does not know."""
        self.without_leader = 0
        """Partitions whose markers wait because nobody leads them, or they are not known here yet."""
        self._metadata = metadata
        self._broker_id = broker_id
        self._append = append
        self._connect = connect
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._timers = timers
        self._later = later
        self._gone = gone
        self._destinations: dict[int, _Destination] = {}
        self._resting: dict[_Rest, Timer] = {}
        metadata.on_brokers_changed.append(self._brokers_changed)

    def _brokers_changed(self) -> None:
        """Nobody waits for one that is gone, nor before partitions are tried that may have another leader by now."""
        brokers = self._metadata.brokers
        for gone in [one for one in self._destinations.values() if brokers.get(one.broker.id) != one.broker]:
            del self._destinations[gone.broker.id]
            gone.close()
        self._try_now(deque(self._resting))

    def _try_now(self, rests: deque[_Rest]) -> None:
        """The first of these, and later the others, unless their time has come before."""
        for _ in range(min(_RESTS_AT_ONCE, len(rests))):
            rest = rests.popleft()
            timer = self._resting.get(rest)
            if timer is not None:
                timer.cancel()
                self._try_again(rest, 0)
        if rests:
            self._later(partial(self._try_now, rests))

    def knows(self, tp: TopicPartition) -> bool:
        """HOT. False for a partition that may be deleted, and would get no marker then."""
        topic = self._metadata.topics.get(tp.topic)
        return topic is not None and tp.partition in topic.partitions

    def send(self, ending: Ending) -> None:
        """HOT. It may have ended when this returns."""
        self._route(ending, sorted(ending.waiting), 0)
        if not ending.over:
            ending.alarm = self._timers.at(ending.begun_ms + _TOLD_AFTER_MS, partial(self._tell, ending))

    def close(self) -> None:
        for destination in self._destinations.values():
            destination.close()
        self._destinations.clear()
        self._gone.close()

    def _route(self, ending: Ending, partitions: Iterable[TopicPartition], tries: int) -> None:
        """HOT."""
        if ending.over:
            return
        here, leaderless, unknown = [], [], []
        metadata, broker_id = self._metadata, self._broker_id
        for tp in partitions:
            topic = metadata.topics.get(tp.topic)
            state = topic.partitions.get(tp.partition) if topic is not None else None
            if state is None and metadata.is_here.is_set():
                unknown.append(tp)
            elif state is not None and state.leader == broker_id:
                here.append(tp)
            else:
                leader = metadata.brokers.get(state.leader) if state is not None else None
                if leader is None:
                    leaderless.append(tp)
                else:
                    self._destination(leader).put(ending, tp, tries)
        if leaderless:
            self._wait_for_leader(ending, leaderless, tries)
        if unknown:
            self._gone.find(unknown, partial(self._found_gone, ending, unknown, tries))
        if here:
            pid, epoch, commit, coordinator_epoch, version, _ = ending.marker
            marker = Marker(pid, epoch, commit, coordinator_epoch, version, here)
            self._append((marker,), partial(self._appended, ending, here, tries))
        else:
            _end_if_done(ending)

    def _found_gone(
        self, ending: Ending, asked: Sequence[TopicPartition], tries: int, gone: Collection[TopicPartition]
    ) -> None:
        """What is gone needs no marker. The controller will tell of the others, if it has not yet."""
        if ending.over:
            return
        ending.waiting.difference_update(gone)
        left = [tp for tp in asked if tp in ending.waiting]
        if left:
            self._wait_for_leader(ending, left, tries)
        _end_if_done(ending)

    def _wait_for_leader(self, ending: Ending, partitions: list[TopicPartition], tries: int) -> None:
        self.without_leader += len(partitions)
        self._rest(_Rest(ending, partitions, tries + 1, True))

    def _rest(self, rest: _Rest) -> None:
        pause_ms = min(_SHORTEST_PAUSE_MS << min(rest.tries - 1, 10), _LONGEST_PAUSE_MS)
        due_ms = self._clock.monotonic_ms() + pause_ms
        self._resting[rest] = self._timers.at(due_ms, partial(self._try_again, rest, rest.tries))

    def _try_again(self, rest: _Rest, tries: int) -> None:
        del self._resting[rest]
        if rest.leaderless:
            self.without_leader -= len(rest.partitions)
        self._route(rest.ending, rest.partitions, tries)

    def _destination(self, broker: BrokerInfo) -> _Destination:
        known = self._destinations.get(broker.id)
        if known is not None:
            return known
        assert self._connect is not None
        made = _Destination(broker, self._connect(broker), self._timeout_ms, self.settle)
        self._destinations[broker.id] = made
        return made

    def _appended(self, ending: Ending, partitions: list[TopicPartition], tries: int, codes: Codes) -> None:
        if ending.over:
            return
        if not any(codes[0]):
            ending.waiting.difference_update(partitions)
        else:
            for tp, code in zip(partitions, codes[0], strict=True):
                self.settle(ending, tp, tries, code)
        _end_if_done(ending)

    def settle(self, ending: Ending, tp: TopicPartition, tries: int, code: ErrorCode) -> None:
        """What a leader says of one marker, or that it says nothing."""
        if ending.over:
            return
        reason = _NOTHING_TO_WRITE.get(code)
        if reason is not None:
            ending.waiting.discard(tp)
            if reason:
                log.warning("transactional id %s: no marker was written to %s: %s", ending.transaction.id, tp, reason)
        elif code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            log.warning("transactional id %s: another broker coordinates it, %s says", ending.transaction.id, tp)
            ending.drop()
        else:
            self._rest(_Rest(ending, [tp], tries + 1, False))
        _end_if_done(ending)

    def _tell(self, ending: Ending) -> None:
        where = [f"{tp} ({self._described(tp)})" for tp in islice(sorted(ending.waiting), _MOST_NAMED)]
        log.warning(
            "transactional id %s is to be %s, but cannot be yet: it waits for %s",
            ending.transaction.id,
            "committed" if ending.transaction.commits else "aborted",
            some(where, most=_MOST_NAMED, of=len(ending.waiting)),
        )

    def _described(self, tp: TopicPartition) -> str:
        state, brokers = self._metadata.state_of(tp), self._metadata.brokers
        if state is None:
            return "not known yet"
        if state.leader >= 0:
            return f"leader {state.leader}{'' if state.leader in brokers else ', which is down'}"
        down = [f"broker {broker} is down" for broker in state.isr or state.replicas if broker not in brokers]
        return ": ".join(filter(None, ("no leader", ", ".join(down))))


def _end_if_done(ending: Ending) -> None:
    if not ending.waiting and not ending.over:
        ending.drop()
        ending.done(ending)


_Settle = Callable[[Ending, TopicPartition, int, ErrorCode], None]
_Queued = tuple[Ending, TopicPartition, int]


class _Destination:
    """The queue of one other broker."""

    def __init__(self, broker: BrokerInfo, link: Link, timeout_ms: int, settle: _Settle) -> None:
        self.broker = broker
        self._link = link
        self._timeout_ms = timeout_ms
        self._settle = settle
        self._queue: deque[_Queued] = deque()
        self._sending: asyncio.Task[None] | None = None
        self._closed = False

    def put(self, ending: Ending, tp: TopicPartition, tries: int) -> None:
        self._queue.append((ending, tp, tries))
        self._go_on()

    def close(self) -> None:
        """Nothing that waits is lost: it is routed again, and soon."""
        self._closed = True
        self._link.close()

    def _go_on(self) -> None:
        if self._queue and self._sending is None:
            self._sending = asyncio.ensure_future(self._send())
            self._sending.add_done_callback(self._sent)

    def _sent(self, sending: asyncio.Task[None]) -> None:
        self._sending = None
        self._go_on()

    async def _send(self) -> None:
        """What has come by now. Whatever goes wrong, in asking or in what is told that all of a transaction is done,
        keeps no other one from its end."""
        count = min(len(self._queue), _MOST_IN_A_REQUEST)
        queued = [one for one in (self._queue.popleft() for _ in range(count)) if not one[0].over]
        if not queued:
            return
        left = deque(queued)
        try:
            codes = await self._ask(queued)
            while left:
                ending, tp, tries = left.popleft()
                code = codes.get((ending.marker.producer_id, *tp), _UNREACHED)
                self._settle(ending, tp, 0 if self._closed else tries, code)
        finally:
            for ending, tp, tries in left:
                self._settle(ending, tp, tries, _UNREACHED)

    async def _ask(self, queued: Iterable[_Queued]) -> dict[tuple[int, str, int], ErrorCode]:
        """Empty when there is no answer."""
        try:
            return _codes(await self._link.call(_request(queued), timeout_ms=self._timeout_ms))
        except LinkError:
            return {}


def _request(queued: Iterable[_Queued]) -> WriteTxnMarkersRequest:
    markers: dict[Ending, WritableTxnMarker] = {}
    topics: dict[tuple[Ending, str], WritableTxnMarkerTopic] = {}
    for ending, (topic, partition), _ in queued:
        if ending not in markers:
            said = ending.marker
            markers[ending] = WritableTxnMarker(
                producer_id=said.producer_id,
                producer_epoch=said.producer_epoch,
                transaction_result=said.commit,
                coordinator_epoch=said.coordinator_epoch,
                transaction_version=said.version,
            )
        if (ending, topic) not in topics:
            topics[ending, topic] = WritableTxnMarkerTopic(name=topic)
            markers[ending].topics.append(topics[ending, topic])
        topics[ending, topic].partition_indexes.append(partition)
    return WriteTxnMarkersRequest(markers=list(markers.values()))


def _codes(answer: WriteTxnMarkersResponse) -> dict[tuple[int, str, int], ErrorCode]:
    """An id has one transaction at a time, and a producer id one transactional id."""
    return {
        (marker.producer_id, topic.name, partition.partition_index): ErrorCode.of(partition.error_code)
        for marker in answer.markers
        for topic in marker.topics
        for partition in topic.partitions
    }
