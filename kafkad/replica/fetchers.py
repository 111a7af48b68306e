"""Fetches what this broker follows: for each leader `num.replica.fetchers` tasks, each with a connection of its own.

A fetch may wait at the leader; a partition that comes meanwhile, or has rested, is not to wait with it, and is fetched
over a second connection until the first fetch is answered.

What is asked and what an answer means is in `fetching`, what a follower does with it in `following`. A partition that
fails rests, at last for `replica.fetch.backoff.ms`, or goes with its log directory; the others of its fetcher go on.
Every LeaderAndIsr begins the fetching of its partitions anew: an answer to what was asked before it is not looked at. A
broker that is about to stop begins only what its leader waits for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from kafkad.clock import Clock
from kafkad.errors import ErrorCode, KafkaError, StorageError
from kafkad.log.copied import some_at_a_time
from kafkad.log.log import Log
from kafkad.model import BrokerInfo
from kafkad.names import NO_TOPIC_ID, TopicPartition, java_hash
from kafkad.net.client import Answer, FrameLink, Link, LinkError
from kafkad.replica.fetching import PASSING, FetchLimits, FetchSession, Key, Meaning, Place, meaning
from kafkad.replica.following import Following
from kafkad.replica.manager import ReplicaManager
from kafkad.replica.partition import Partition
from kafkad.timers import Pauses, Timers
from kafkad.turns import Turns, in_turns
from kafkad.wire.follower_fetch import FollowerFetch, OnePartition, read_answer
from kafkad.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData
from kafkad.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

log = logging.getLogger(__name__)

_LATEST, _EARLIEST = -1, -2
_FIRST_REST_MS = 10
_TOGETHER_MS = 10
_FEW_BYTES = 64 << 10
"""The smallest batches that fit in here are appended in one turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherSettings:
    limits: FetchLimits
    per_leader: int = 1
    """num.replica.fetchers"""
    backoff_ms: int = 1_000
    """replica.fetch.backoff.ms: the rest after a lost connection, and the longest one of a partition that fails."""
    timeout_ms: int = 30_000
    """replica.socket.timeout.ms"""


class Followed:
    """One partition in one leader epoch, in which it follows."""

    __slots__ = ("following", "has_begun", "is_behind", "key", "partition", "rests", "told")

    def __init__(self, partition: Partition, following: Following) -> None:
        self.partition = partition
        self.following = following
        self.key = Key(partition.log.topic_id, partition.tp.partition)
        self.has_begun = False
        """It has been cut off where that had to be done before anything is asked."""
        self.is_behind = partition.broker_id not in partition.role.isr
        """It has to catch up: by the last answer of its leader, or by the ISR before the first one."""
        self.rests = 0
        """How often it has rested since it last got an answer that helped."""
        self.told = ""
        """The problem that was logged last, so that it is not logged with every fetch."""

    def begin(self) -> None:
        """Once is enough, but a disk may refuse."""
        if not self.has_begun:
            self.following.begin()
            self.has_begun = True

    def rest_ms(self, longest_ms: float) -> float:
        """How long it rests now: doubled each time. A leader mostly hears of its epoch a moment after its followers."""
        self.rests += 1
        return min(_FIRST_REST_MS << min(self.rests - 1, 16), longest_ms)

    @property
    def is_current(self) -> bool:
        return self.partition.following is self.following

    @property
    def place(self) -> Place:
        offset, last_epoch, start_offset = self.following.position
        return Place(self.partition.leader_epoch, offset, last_epoch, start_offset)


class Fetchers:
    """Everything this broker fetches from others."""

    def __init__(
        self,
        replicas: ReplicaManager,
        connect: Callable[[BrokerInfo], FrameLink],
        settings: FetcherSettings,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self.replicas = replicas
        self.connect = connect
        self.settings = settings
        self.clock = clock
        self.timers = timers
        self._fetchers: dict[tuple[int, int, bool], Fetcher] = {}
        """By leader and slot; True for those of newcomers."""
        self._fetched_by: dict[Partition, Fetcher] = {}
        self._is_leaving = False
        self._stopped = False

    def follow(self, changed: Iterable[Partition]) -> None:
        """The roles of these partitions are others now, or begin again in another epoch."""
        for partition in changed:
            before = self._fetched_by.pop(partition, None)
            if before is not None:
                before.remove(partition)
            if partition.following is not None and self._is_to_fetch(partition):
                fetcher = self._fetched_by[partition] = self._fetcher(partition)
                fetcher.add(partition, partition.following)

    def _is_to_fetch(self, follower: Partition) -> bool:
        role = follower.role
        is_wanted = follower.broker_id in role.isr or not self._is_leaving
        return is_wanted and role.leader >= 0 and not self._stopped

    def brokers_changed(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.leader_changed()

    def settings_changed(self, settings: FetcherSettings) -> None:
        before, self.settings = self.settings, settings
        if settings.per_leader != before.per_leader:
            self.follow(list(self._fetched_by))

    def leave(self) -> None:
        """This broker is about to stop. From now on it begins to follow only where its leader waits for it, as one in
        sync: anywhere else the leader would take it for one that is about to join the ISR, and wait for it, too."""
        self._is_leaving = True

    async def stop(self) -> None:
        """For good."""
        self._stopped = True
        for fetcher in self._fetchers.values():
            await fetcher.stop()
        self._fetchers.clear()
        self._fetched_by.clear()

    def take_newcomers(self, leader: int, slot: int) -> list[Followed]:
        """What has come while a fetch waited; its fetcher takes it over."""
        newcomers = self._fetchers.get((leader, slot, True))
        if newcomers is None:
            return []
        taken = newcomers.release()
        fetcher = self._fetchers[leader, slot, False]
        for followed in taken:
            self._fetched_by[followed.partition] = fetcher
        return taken

    def tell_again(self, handed_over: Iterable[Followed]) -> None:
        """A fetch is over that began before these were handed to another fetcher: if the leader has looked at it later
        than at that one's, it takes them for further behind than they are."""
        for followed in handed_over:
            fetcher = self._fetched_by.get(followed.partition)
            if fetcher is not None and followed.is_current:
                fetcher.tell_again(followed)

    def resume(self, rested: Followed, at: Fetcher) -> None:
        """Fetch it again; elsewhere, if a fetch waits where it has rested."""
        if self._stopped:
            return
        fetcher = self._fetcher(rested.partition)
        if fetcher is not at:
            at.remove(rested.partition)
            self._fetched_by[rested.partition] = fetcher
        fetcher.take(rested)

    def _fetcher(self, partition: Partition) -> Fetcher:
        slot = slot_of(partition.tp.topic, partition.tp.partition, self.settings.per_leader)
        fetcher = self._at(partition.role.leader, slot)
        if not fetcher.is_waiting:
            return fetcher
        newcomers = self._at(partition.role.leader, slot, newcomers=True)
        newcomers.interrupt()
        return newcomers

    def _at(self, leader: int, slot: int, *, newcomers: bool = False) -> Fetcher:
        known = self._fetchers.get((leader, slot, newcomers))
        if known is None:
            arrivals = list if newcomers else partial(self.take_newcomers, leader, slot)
            known = self._fetchers[leader, slot, newcomers] = Fetcher(self, leader, arrivals)
        return known


def slot_of(topic: str, partition: int, slots: int) -> int:
    return 0 if slots == 1 else (31 * java_hash(topic) + partition & 0x7FFF_FFFF) % slots


class Fetcher:
    """One connection to one leader, and the partitions that are fetched over it."""

    def __init__(self, fetchers: Fetchers, leader: int, arrivals: Callable[[], list[Followed]]) -> None:
        """`arrivals` hands over what came while a fetch was waiting."""
        self._all = fetchers
        self._leader = leader
        self._arrivals = arrivals
        self.is_waiting = False
        """A fetch has been sent and is not answered yet."""
        self._asked: FetchRequest | FollowerFetch | None = None
        """The last fetch; None once its answer has been taken."""
        self._handed_over: list[Followed] = []
        """What another fetcher has taken while a fetch of it was under way here."""
        replicas = fetchers.replicas
        self._session = FetchSession(replicas.broker_id, lambda: replicas.broker_epoch)
        self._settled: list[Followed] = []
        """What the disks know of by now that was cut off, and is fetched again in a moment."""
        self._followed: dict[Key, Followed] = {}
        self._catching_up: dict[Key, Followed] = {}
        """Throttled ones that are behind: they are not asked for while the follower's quota is owed."""
        self._link: FrameLink | None = None
        self._endpoint: BrokerInfo | None = None
        self._changed = asyncio.Event()
        """Set when there is something to ask that there was not before."""
        self._pauses = Pauses(fetchers.settings.backoff_ms)
        """Between errors of ours."""
        self._told = ""
        """What is in the way, once it has been told of; nothing when an answer has been taken."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def add(self, partition: Partition, following: Following) -> None:
        followed = Followed(partition, following)
        if followed.key.topic_id == NO_TOPIC_ID:
            self._tell(followed, "cannot be fetched: its topic has no id")
            return
        self.take(followed)

    def take(self, followed: Followed) -> None:
        """New here, of another fetcher, or after a rest."""
        self._followed[followed.key] = followed
        try:
            followed.begin()
        except KafkaError as error:
            self._failed(followed, error)
            return
        self._session.want(followed.key, followed.place)
        if followed.is_behind and followed.partition.fetches_throttled:
            self._catching_up[followed.key] = followed
        self._changed.set()

    def remove(self, partition: Partition) -> None:
        key = Key(partition.log.topic_id, partition.tp.partition)
        self._session.forget(key)
        self._followed.pop(key, None)
        self._catching_up.pop(key, None)

    def interrupt(self) -> None:
        """Ask anew, for there is more to ask for: the fetch that waits is given up with its connection."""
        if self.is_waiting:
            self._disconnect()

    def release(self) -> list[Followed]:
        """All its partitions, which it then has no more."""
        released = [followed for followed in self._followed.values() if followed.is_current]
        for key in self._followed:
            self._session.forget(key)
        self._followed, self._catching_up = {}, {}
        if self.is_waiting:
            self._handed_over += released
        return released

    def tell_again(self, followed: Followed) -> None:
        self._session.doubt(followed.key)

    def leader_changed(self) -> None:
        """Brokers have come or gone, or have another address, at which a request that waits is not answered."""
        now = self._all.replicas.metadata.brokers.get(self._leader)
        if now is not None and now != self._endpoint:
            self._changed.set()
            self._disconnect()

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        self._disconnect()
        self._followed = {}

    # -- asking ----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                await self._fetch()
            except LinkError as error:
                if self._link is None:
                    continue  # disconnected here
                self._session.lost()
                self._tell_once(f"cannot fetch from broker {self._leader}: {error}; trying again")
                await self._rest(self._all.settings.backoff_ms)
            except Exception as error:
                self._session.lost()
                pause_ms, is_news = self._pauses.after(error)
                self._told = f"internal error while fetching from broker {self._leader}; trying again"
                if is_news:
                    log.exception("%s", self._told)
                await self._rest(pause_ms)

    async def _fetch(self) -> None:
        """Asks, as soon as there is something to ask, until there is an answer that `_go_on` leaves to this task.

        What is asked is decided when it can leave: while a connection is opened, partitions come and go."""
        link = self._connected()
        while link is None or not self._session:
            await self._changed.wait()
            self._changed.clear()
            link = self._connected()
        self._changed.clear()
        settings = self._all.settings
        await link.open(timeout_ms=settings.timeout_ms)
        if self._has_cut():
            self._leave_out_cut()
        if self._catching_up:
            self._leave_out_throttled()
        if link is not self._link or not self._session:
            return
        self._changed.clear()
        request = self._asked = self._session.request(settings.limits)
        self.is_waiting = True
        try:
            answer = await link.exchange(request, timeout_ms=settings.timeout_ms, go_on=self._go_on)
        finally:
            self.is_waiting = False
            handed_over, self._handed_over = self._handed_over, []
            self._all.tell_again(handed_over)
        self._take_newcomers()
        if self._asked is not None:
            await self._take(link, link.read(self._asked, answer))

    def _has_cut(self) -> bool:
        cut = self._all.replicas.logs.cut
        return bool(cut) and any(self._fetched_into(log) for log in cut)

    def _fetched_into(self, log: Log) -> Followed | None:
        """What of this session is appended to `log`; None for one that another fetcher, or a move, has."""
        followed = self._followed.get(Key(log.topic_id, log.topic_partition.partition))
        if followed is None or followed.partition.log is not log or followed.key not in self._session:
            return None
        return followed

    def _leave_out_cut(self) -> None:
        """Nothing may be appended to a log that was cut back before its disk knows of it: until then, or until the disk
        has refused it, its partition is not fetched. Then it rests."""
        replicas = self._all.replicas
        replicas.cuts.begin()
        refused = []
        for cut in list(replicas.logs.cut):
            followed = self._fetched_into(cut)
            if followed is None:
                continue
            end = replicas.cuts.end_of(cut)
            if end is None:
                refused.append(followed)
            else:
                self._session.forget(followed.key)
                end.add_done_callback(partial(self._settled_one, followed))
        self._postpone(refused)

    def _leave_out_throttled(self) -> None:
        for followed in self._held(each for each in self._catching_up.values() if each.key in self._session):
            self._session.forget(followed.key)
            del self._catching_up[followed.key]

    def _held(self, behind: Iterable[Followed]) -> list[Followed]:
        """Those that have to wait until what is owed has been paid. They are looked at again then, or in a second, when
        another rate may be in force, and other replicas may be throttled."""
        now_ms = self._all.clock.monotonic_ms()
        wait_ms = self._all.replicas.parts.follower_quota.wait_ms(now_ms)
        if not wait_ms:
            return []
        held = [followed for followed in behind if followed.partition.fetches_throttled]
        if held:
            self._all.timers.at(now_ms + wait_ms, partial(self._look_again, held))
        return held

    def _look_again(self, held: list[Followed]) -> None:
        here = [followed for followed in held if self._is_still_here(followed)]
        still_held = set(self._held(here))
        for followed in here:
            if followed not in still_held:
                self.take(followed)

    def _settled_one(self, followed: Followed, end: object) -> None:
        """Those that follow within a moment are fetched again together: each may have a waiting fetch given up."""
        self._settled.append(followed)
        if len(self._settled) == 1:
            due_ms = self._all.clock.monotonic_ms() + _TOGETHER_MS
            self._all.timers.at(due_ms, self._resume_settled)

    def _resume_settled(self) -> None:
        settled, self._settled = self._settled, []
        self._resume(settled)

    def _go_on(self, answer: Answer) -> FetchRequest | FollowerFetch | None:
        """HOT. Take an answer about one partition alone, in the turn in which it arrives, and ask for what comes next.
        What has to wait for something else is left to `_fetch`."""
        asked = self._asked
        if not isinstance(asked, FollowerFetch):
            return None
        alone = read_answer(asked, memoryview(answer.frame), answer.body_at)
        if alone is None or (
            len(alone.records) > _FEW_BYTES and len(next(some_at_a_time(alone.records))) < len(alone.records)
        ):
            return None
        self._asked = None
        self.is_waiting = False
        self._take_newcomers()
        self._take_alone(self._session.answered_alone(asked), alone)
        if self._catching_up:
            self._leave_out_throttled()
        if not self._session or self._has_cut():
            return None
        self._changed.clear()
        self.is_waiting = True
        self._asked = self._session.request(self._all.settings.limits)
        return self._asked

    def _take_newcomers(self) -> None:
        for followed in self._arrivals():
            self.take(followed)

    def _connected(self) -> FrameLink | None:
        """A leader that the metadata do not know is waited for."""
        broker = self._all.replicas.metadata.brokers.get(self._leader)
        if broker is not self._endpoint and broker is not None and broker != self._endpoint:
            self._disconnect()
            self._link, self._endpoint = self._all.connect(broker), broker
        return self._link

    def _disconnect(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = self._endpoint = None
            self._session.lost()

    async def _rest(self, pause_ms: float) -> None:
        """Or until there is something new to ask."""
        due_ms = self._all.clock.monotonic_ms() + pause_ms
        timer = self._all.timers.at(due_ms, self._changed.set)
        await self._changed.wait()
        timer.cancel()

    # -- taking ----------------------------------------------------------------------------------------------------

    async def _take(self, link: Link, response: FetchResponse) -> None:
        if response.error_code:
            list(self._session.answered(response))
            if response.error_code not in _SESSION_ERRORS:
                self._tell_once(f"broker {self._leader} refuses to be fetched from: {_name(response.error_code)}")
                await self._rest(self._all.settings.backoff_ms)
            return
        turns = Turns()
        lost: list[Followed] = []
        later: list[Followed] = []
        for key, data in self._session.answered(response):
            followed = self._followed[key]
            if not followed.is_current:
                continue
            try:
                await self._take_one(followed, data, turns, lost, later)
            except Exception as error:
                self._failed(followed, error, later)
            await turns.give_way()
        self._postpone(later)
        if lost:
            await self._find_range(link, lost)
        if self._told:
            self._has_taken()

    def _take_alone(self, key: Key | None, answer: OnePartition) -> None:
        followed = None if key is None else self._followed[key]
        if followed is not None and followed.is_current:
            try:
                self._take_records(followed, *answer, len(answer.records))
            except Exception as error:
                self._failed(followed, error)
        if self._told:
            self._has_taken()

    def _has_taken(self) -> None:
        """Nothing is in the way any more."""
        self._told = ""
        self._pauses.succeeded()

    async def _take_one(
        self, followed: Followed, data: PartitionData, turns: Turns, lost: list[Followed], later: list[Followed]
    ) -> None:
        what = meaning(data)
        if what is Meaning.RECORDS:
            records = memoryview(data.records or b"")
            await self._take_in_turns(followed, data.high_watermark, data.log_start_offset, records, turns)
        elif what is Meaning.DIVERGED:
            before = followed.place
            await self._truncate(followed, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            if followed.place == before:
                later.append(followed)  # the same question would get the same answer
        elif what is Meaning.OUT_OF_RANGE:
            lost.append(followed)
        elif what is Meaning.FENCED:
            self._session.forget(followed.key)
        else:
            if data.error_code not in PASSING:
                self._tell(
                    followed, f"broker {self._leader}, its leader, answers {_name(data.error_code)}; trying again"
                )
            later.append(followed)

    async def _take_in_turns(
        self, followed: Followed, high_watermark: int, start_offset: int, records: memoryview, turns: Turns
    ) -> None:
        """A megabyte may be thousands of batches. In between the partition may come to another fetcher, or lead."""
        *first, last = some_at_a_time(records)
        for some in first:
            followed.following.append(some, high_watermark, start_offset)
            await turns.give_way()
            if not self._is_still_here(followed):
                return
        self._take_records(followed, high_watermark, start_offset, last, len(records))

    def _take_records(
        self, followed: Followed, high_watermark: int, start_offset: int, records: memoryview, taken: int
    ) -> None:
        """HOT. These are the last of `taken` bytes."""
        following = followed.following
        try:
            following.append(records, high_watermark, start_offset)
            followed.told, followed.rests = "", 0
        finally:
            self._session.want(followed.key, followed.place)
        was_behind, followed.is_behind = followed.is_behind, following.lag > 0
        if self._catching_up or followed.partition.fetches_throttled:
            self._count(followed, was_behind, taken)

    def _count(self, followed: Followed, was_behind: bool, taken: int) -> None:
        """What a throttled replica fetches until it has caught up counts for the follower's quota."""
        throttled = followed.partition.fetches_throttled
        if throttled and (was_behind or followed.is_behind):
            self._all.replicas.parts.follower_quota.take(taken, self._all.clock.monotonic_ms())
        if throttled and followed.is_behind:
            self._catching_up[followed.key] = followed
        else:
            self._catching_up.pop(followed.key, None)

    async def _truncate(self, followed: Followed, epoch: int, end_offset: int) -> None:
        before = followed.place.offset
        if not await self._cut(followed, followed.following.parting(epoch, end_offset)):
            return
        place = followed.place
        if place.offset < before:  # otherwise only an epoch in which the leader wrote nothing is forgotten
            log.info(
                "truncated %s from offset %d to %d: its leader, broker %d, has epoch %d up to %d",
                *(followed.partition.tp, before, place.offset, self._leader, epoch, end_offset),
            )
        self._session.want(followed.key, place)

    async def _cut(self, followed: Followed, offset: int) -> bool:
        """False if it is not fetched here any more, once it is known what to cut off."""
        ahead = await in_turns(followed.following.read_ahead(offset))
        if not self._is_still_here(followed):
            return False
        followed.following.truncate_to(offset, ahead)
        return True

    async def _find_range(self, link: Link, lost: list[Followed]) -> None:
        """The leader's log does not have the offset they go on from, or nothing is known there of their last epoch:
        where does it end, and where does it begin?"""
        ends = await self._offsets(link, lost, _LATEST)
        ahead = [followed for followed in lost if ends.get(followed, -1) >= followed.place.offset]
        starts = await self._offsets(link, ahead, _EARLIEST) if ahead else {}
        unknown: list[Followed] = []
        turns = Turns()
        for followed in lost:
            await turns.give_way()
            if not self._is_still_here(followed):
                continue
            try:
                before = followed.place
                await self._move_into(followed, ends.get(followed), starts.get(followed))
            except KafkaError as error:
                self._failed(followed, error, unknown)
            else:
                if followed.place == before:
                    unknown.append(followed)
        self._postpone(unknown)

    async def _move_into(self, followed: Followed, end: int | None, start: int | None) -> None:
        place = followed.place
        if end is not None and end < place.offset:
            log.warning(
                "truncating %s from offset %d to %d: the log of its leader, broker %d, ends there",
                *(followed.partition.tp, place.offset, end, self._leader),
            )
            if not await self._cut(followed, end):
                return
        elif start is not None and start > place.offset:
            log.warning(
                "emptying %s, which ends at offset %d: the log of its leader, broker %d, begins at %d",
                *(followed.partition.tp, place.offset, self._leader, start),
            )
            await in_turns(followed.following.empty())
            if not self._is_still_here(followed):
                return
            followed.following.start_again(start)
        elif end is not None and start is not None:
            self._tell(
                followed,
                f"cannot go on at offset {place.offset} behind epoch {place.last_epoch}: broker {self._leader}, its "
                "leader, has that offset, and knows nothing of that epoch; fetching it again, without epochs that have "
                "no record",
            )
            followed.following.forget_unused_epochs()
        self._session.want(followed.key, followed.place)

    async def _offsets(self, link: Link, wanted: list[Followed], at: int) -> dict[Followed, int]:
        """One end of each partition's log on the leader, where it says it."""
        topics: dict[str, ListOffsetsTopic] = {}
        asked = {}
        for followed in wanted:
            tp = followed.partition.tp
            asked[tp] = followed
            topics.setdefault(tp.topic, ListOffsetsTopic(name=tp.topic)).partitions.append(
                ListOffsetsPartition(
                    partition_index=tp.partition,
                    current_leader_epoch=followed.partition.leader_epoch,
                    timestamp=at,
                )
            )
        request = ListOffsetsRequest(replica_id=self._all.replicas.broker_id, topics=list(topics.values()))
        response: ListOffsetsResponse = await link.call(request, timeout_ms=self._all.settings.timeout_ms)
        return {
            asked[tp]: one.offset
            for topic in response.topics
            for one in topic.partitions
            if not one.error_code and (tp := TopicPartition(topic.name, one.partition_index)) in asked
        }

    # -- problems --------------------------------------------------------------------------------------------------

    def _failed(self, followed: Followed, error: Exception, later: list[Followed] | None = None) -> None:
        """Of a disk that is lost the replica manager tells all its partitions; everything else is tried again."""
        if isinstance(error, StorageError):
            self._all.replicas.directory_failed(error)
        elif isinstance(error, KafkaError):
            self._tell(
                followed, f"cannot take what broker {self._leader}, its leader, sent: {error}; fetching it again"
            )
        else:
            problem = f"has not taken what was fetched for it, for an internal error: {error!r}; trying again"
            self._tell(followed, problem, error)
        if later is None:
            self._postpone([followed])
        else:
            later.append(followed)

    def _postpone(self, partitions: list[Followed]) -> None:
        """Those that follow in another epoch by now, or elsewhere, do not rest."""
        if not partitions:
            return
        now_ms, longest_ms = self._all.clock.monotonic_ms(), self._all.settings.backoff_ms
        resting: dict[float, list[Followed]] = {}
        for followed in partitions:
            if self._followed.get(followed.key) is followed:
                self._session.forget(followed.key)
                resting.setdefault(followed.rest_ms(longest_ms), []).append(followed)
        for rest_ms, together in resting.items():
            self._all.timers.at(now_ms + rest_ms, partial(self._resume, together))

    def _resume(self, partitions: list[Followed]) -> None:
        for followed in partitions:
            if self._is_still_here(followed):
                self._all.resume(followed, self)

    def _is_still_here(self, followed: Followed) -> bool:
        return self._followed.get(followed.key) is followed and followed.is_current

    def _tell(self, followed: Followed, what: str, bug: Exception | None = None) -> None:
        if what != followed.told:
            followed.told = what
            log.error("%s %s", followed.partition.tp, what, exc_info=bug)

    def _tell_once(self, what: str) -> None:
        if what != self._told:
            self._told = what
            log.warning("%s", what)


_SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
