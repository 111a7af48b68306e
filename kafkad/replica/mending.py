"""Mends damaged stretches of logs on followers: fetches the same batches from the leader and writes them in place.

Logs with a damaged stretch (`Log.damage`) are looked at every few seconds. The batches are asked for as a consumer
asks, for a follower's own fetches say how far it is; so they are committed, and the same on every replica. For that a
broker needs no right to read (`wire/fetch.MENDER`), except at a Java leader; one that refuses is asked again less and
less often. The batches have to fill the stretch exactly, pass their checksums, and have the offsets that are missing.
Where the end of a file is lost they have to be all of these offsets: else records that are still missing would count as
there. A log that was cut back while its leader was asked is left to the next look: there may be newer records in the
place of the stretch.

A leader has nobody to ask: while others are in sync it gives the leadership away, by answering KAFKA_STORAGE_ERROR to
the LeaderAndIsr as in `lost_tails`, and mends as a follower. It does so less and less often for damage that cannot be
mended, and for a stretch that all others in sync had damage in when they led: where all have the same, the leadership
would go round for ever. Those are asked again less and less often, too.

Leaders are asked beside each other, so that one which is slow or away holds up no other: each of them for one stretch
at a time, and only so many at once, since what they send is in memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable

from kafkad.clock import Clock
from kafkad.errors import ErrorCode, KafkaError, StorageError
from kafkad.log.copied import copied_batches
from kafkad.log.indexed import Hole
from kafkad.log.mending import Mending
from kafkad.log.segment import Segment
from kafkad.model import BrokerInfo
from kafkad.names import TopicPartition
from kafkad.net.client import Link, LinkError
from kafkad.replica.manager import ReplicaManager
from kafkad.replica.partition import Partition
from kafkad.timers import Timers, every
from kafkad.together import together
from kafkad.turns import in_turns
from kafkad.wire.fetch import MENDER
from kafkad.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState

log = logging.getLogger(__name__)

LOOK_MS = 5_000
LARGEST = 64 * 1024 * 1024
"""Stretches that are larger stay: all of one is in memory while it is mended."""
LEADERS_AT_ONCE = 4
_TIMEOUT_MS = 30_000
_FIRST_PAUSE_MS = 60_000
_LONGEST_PAUSE_MS = 3_600_000
_NO_SESSION = -1

_Place = tuple[str, Hole]
"""A stretch: its segment's path, and where it is in there."""


class _Unobtainable(Exception):
    """The leader does not let this broker read, or worse. The text completes "its leader …"."""


class _Damaged(_Unobtainable):
    """The leader has damage there, too."""


class _Pauses:
    """What is done less and less often: pauses by key, each twice as long as the one before."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pauses: dict[Hashable, tuple[float, float]] = {}
        """Until when the pause lasts, and how long the next one is."""

    def is_over(self, key: Hashable) -> bool:
        """True if it is time to do it; then a longer pause begins."""
        now_ms = self._clock.monotonic_ms()
        until_ms, pause_ms = self._pauses.get(key, (now_ms, _FIRST_PAUSE_MS))
        if now_ms < until_ms:
            return False
        self._pauses[key] = now_ms + pause_ms, min(2 * pause_ms, _LONGEST_PAUSE_MS)
        return True


class Mender:
    def __init__(
        self, replicas: ReplicaManager, connect: Callable[[BrokerInfo], Link], clock: Clock, timers: Timers
    ) -> None:
        self._replicas = replicas
        self._connect = connect
        self._clock = clock
        self._timers = timers
        self._given_up: set[_Place] = set()
        """Stretches that the leader has no fitting batches for, or that wait for the next start."""
        self._unobtainable_from: dict[_Place, set[int]] = defaultdict(set)
        """Brokers that had damage there, too, when they led, or did not let this one read."""
        self._damaged_on: dict[_Place, set[int]] = defaultdict(set)
        """Those of them that had damage."""
        self._giving = _Pauses(clock)
        """Of a leadership, for a stretch that none of the others in sync is known to have."""
        self._asking = _Pauses(clock)
        """A broker in `_unobtainable_from`, for a stretch."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        looking = every(lambda: LOOK_MS, "the look for damage to mend", self._look, self._clock, self._timers)
        self._task = asyncio.get_running_loop().create_task(looking)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _look(self) -> None:
        damaged = [each for each in self._replicas if each.log.is_damaged]
        self._give_way([each for each in damaged if each.is_leader and len(each.role.isr) > 1])
        by_leader: dict[int, list[Partition]] = defaultdict(list)
        for partition in damaged:
            if partition.following is not None:
                by_leader[partition.role.leader].append(partition)
        room = asyncio.Semaphore(LEADERS_AT_ONCE)
        await together(self._mend_from(partitions, room) for partitions in by_leader.values())

    async def _mend_from(self, partitions: Iterable[Partition], room: asyncio.Semaphore) -> None:
        """These have the same leader."""
        async with room:
            for partition in partitions:
                try:
                    await self._mend(partition)
                except LinkError as error:
                    log.warning("cannot mend %s now; trying again: %s", partition.tp, error)
                except StorageError as error:
                    self._replicas.directory_failed(error)
                except KafkaError as error:
                    log.error("cannot mend %s: %s", partition.tp, error)
                except Exception:
                    log.exception("internal error while mending %s", partition.tp)

    def _give_way(self, led: list[Partition]) -> None:
        """Have the controller ask again about what is led here although it is damaged, once in each leader epoch: since
        the last look another may have led, and this one again before it was mended."""
        before = self._replicas.giving_way
        giving: set[tuple[TopicPartition, int]] = set()
        again = False
        for partition in led:
            term = partition.tp, partition.leader_epoch
            if term in before:  # the controller has not asked yet
                giving.add(term)
            for segment, hole in partition.log.damage:
                place = segment.path(""), hole
                if self._others_may_have(place, partition):
                    giving.add(term)
                elif self._giving.is_over(place):
                    giving.add(term)
                    again = True
        self._replicas.giving_way = giving
        if again or giving - before:
            self._replicas.ask_for_leader_and_isr()

    def _others_may_have(self, place: _Place, partition: Partition) -> bool:
        others = {*partition.role.isr} - {partition.role.leader} - self._damaged_on.get(place, set())
        return self._may_be_mended(place) and bool(others)

    def _may_be_mended(self, place: _Place) -> bool:
        return place not in self._given_up and 0 < place[1].end - place[1].start <= LARGEST

    def _is_to_be_asked(self, leader: int, place: _Place) -> bool:
        return leader not in self._unobtainable_from.get(place, ()) or self._asking.is_over((leader, place))

    async def _mend(self, partition: Partition) -> None:
        if partition.following is None:
            return
        leader = self._replicas.metadata.brokers.get(partition.role.leader)
        if leader is None:
            return
        for segment, hole in partition.log.damage:
            place = segment.path(""), hole
            if not self._may_be_mended(place):
                continue
            if (segment, hole) not in partition.log.damage or not self._is_to_be_asked(leader.id, place):
                continue
            history = partition.log.history
            try:
                records = await self._fetched(partition, leader, hole)
            except _Unobtainable as why:
                self._note(place, leader, why)
                log.error(
                    "cannot mend offsets %d to %d of %s now: broker %d, its leader, %s",
                    *(hole.first, hole.next - 1, partition.tp, leader.id, why),
                )
                continue
            if partition.following is None or partition.failure is not None or partition.role.leader != leader.id:
                return
            if partition.log.history != history or (segment, hole) not in partition.log.damage:
                continue
            if records is None:
                log.error(
                    "%s: broker %d, its leader, has other batches for offsets %d to %d; the damage stays",
                    *(partition.tp, leader.id, hole.first, hole.next - 1),
                )
                self._given_up.add(place)
                continue
            await self._fill(partition, leader, segment, hole, records)

    def _note(self, place: _Place, leader: BrokerInfo, why: _Unobtainable) -> None:
        self._unobtainable_from[place].add(leader.id)
        if isinstance(why, _Damaged):
            self._damaged_on[place].add(leader.id)

    async def _fill(
        self, partition: Partition, leader: BrokerInfo, segment: Segment, hole: Hole, records: bytes
    ) -> None:
        mending = Mending(partition.log, segment, hole, records)
        await in_turns(mending.write())
        synced = self._replicas.parts.durable.in_thread(partition.log.log_directory, mending.sync, lambda error: None)
        await asyncio.shield(synced)  # what it fails to write may be anybody's records: it counts if nobody waits, too
        readable = await in_turns(mending.serve())
        if readable is None:
            return
        place = segment.path(""), hole
        self._unobtainable_from.pop(place, None)
        self._damaged_on.pop(place, None)
        self._given_up |= set() if readable else {place}
        self._replicas.logs.damages.mended(segment.path(".log"), hole.start, hole.end)
        log.warning(
            "mended %s: %d bytes, offsets %d to %d, are as on broker %d again%s",
            *(partition.tp, len(records), hole.first, hole.next - 1, leader.id),
            "" if readable else "; there are transactions in them: they are served after the next start",
        )

    async def _fetched(self, partition: Partition, leader: BrokerInfo, hole: Hole) -> bytes | None:
        """The bytes for the stretch; None if those of the leader do not fit. Raises LinkError, KafkaError,
        _Unobtainable."""
        size = hole.end - hole.start
        found = bytearray()
        offset = hole.first
        link = self._connect(leader)
        try:
            while len(found) < size:
                response: FetchResponse = await link.call(_request(partition, offset, size), timeout_ms=_TIMEOUT_MS)
                [data] = [each for topic in response.responses for each in topic.partitions]
                if data.error_code == ErrorCode.CORRUPT_MESSAGE:
                    raise _Damaged("has damage there, too")
                if data.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    raise _Unobtainable("wants the right to Read the topic from this broker")
                if data.error_code:
                    raise LinkError(f"broker {leader.id} answers error {data.error_code}")
                batches = memoryview(data.records or b"")
                before = len(found)
                for batch in copied_batches(batches, offset, None):
                    if batch.last_offset >= hole.next:
                        break
                    found += batches[batch.at : batch.at + batch.size]
                    offset = batch.last_offset + 1
                if len(found) == before:
                    break
        except ValueError as error:
            raise LinkError(f"broker {leader.id} sent what cannot be used: {error}") from None
        finally:
            link.close()
        fits = len(found) == size and (offset == hole.next or not hole.lost)
        return bytes(found) if fits else None


def _request(partition: Partition, offset: int, size: int) -> FetchRequest:
    asked = FetchPartition(
        partition=partition.tp.partition,
        current_leader_epoch=partition.leader_epoch,
        fetch_offset=offset,
        partition_max_bytes=size,
    )
    topic = FetchTopic(topic=partition.tp.topic, topic_id=partition.log.topic_id, partitions=[asked])
    return FetchRequest(
        replica_state=ReplicaState(replica_id=MENDER),
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=size,
        session_epoch=_NO_SESSION,
        topics=[topic],
    )
