"""Expiry of offsets: of groups without members after their retention (KIP-211), and of deleted topics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence

from kafkad.clock import Clock
from kafkad.group.committing import OffsetCommitter, Writing
from kafkad.group.events import State
from kafkad.group.group import Group
from kafkad.group.machine import GroupMachine
from kafkad.group.offsets import Committed, Position
from kafkad.group.records import NO_TIMESTAMP
from kafkad.shard import Coordination, Shard, level_of_refusal
from kafkad.timers import Timer, Timers
from kafkad.turns import Turns, in_turns

_MOST_AT_ONCE = 500
"""Number of a group's offsets that are looked at before others get their turn."""

Choose = Callable[[GroupMachine, str, Sequence[Position]], Awaitable[set[Position]]]
"""Chooses those of a group's offsets that are to be removed."""

log = logging.getLogger(__name__)


def expired(
    group: Group | None, offsets: Mapping[Position, Committed], now_ms: int, retention_ms: int
) -> set[Position]:
    """The offsets of a group that have expired.

    Without members: that long after the last one left, or for who never had any, after the commit. With members:
    only topics that they do not consume. What carries a time to expire at goes by that, in the same groups.
    """
    since: int | None = None
    in_use: Collection[str] = ()
    if group is not None and group.protocol_type is not None:
        if group.state is State.EMPTY:
            since = None if group.state_timestamp == NO_TIMESTAMP else group.state_timestamp
        elif group.state is State.STABLE and group.is_consumer and group.subscriptions.topics is not None:
            in_use = group.subscriptions.topics
        else:
            return set()
    return {
        position
        for position, committed in offsets.items()
        if position[0] not in in_use and _is_due(committed, since, now_ms, retention_ms)
    }


def _is_due(committed: Committed, since: int | None, now_ms: int, retention_ms: int) -> bool:
    if committed.expire_timestamp != NO_TIMESTAMP:
        return now_ms >= committed.expire_timestamp
    return now_ms - (committed.commit_timestamp if since is None else since) >= retention_ms


class OffsetExpiry:
    """Looks through all groups, again and again, without keeping others from the event loop."""

    def __init__(
        self,
        coordination: Coordination[GroupMachine],
        committer: OffsetCommitter,
        exists: Callable[[str], bool],
        clock: Clock,
        timers: Timers,
    ) -> None:
        """`exists` tells whether there is a topic of a name now."""
        self._coordination = coordination
        self._exists = exists
        self._committer = committer
        self._clock = clock
        self._timers = timers
        self._timer: Timer | None = None
        self._deleted: dict[str, int] = {}
        """Topics that were deleted, and when, until a look has found none of their offsets left: a partition that was
        loaded meanwhile has some, and so has one whose tombstones could not be written."""
        self._just_deleted: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        coordination.on_served = self._served

    def start(self) -> None:
        due = self._clock.monotonic_ms() + self._committer.settings.check_interval_ms
        self._timer = self._timers.at(due, self._look_again)

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _look_again(self) -> None:
        self.start()
        self._run(self._look())

    async def _look(self) -> None:
        deleted = self._not_made_anew()
        was_loading = self._coordination.loading
        if deleted:
            are_gone = await self.forget_topics(deleted, self._coordination.shards())
            if are_gone and not was_loading and not self._coordination.loading:
                self._deleted = {topic: ms for topic, ms in self._deleted.items() if deleted.get(topic) != ms}
        await self.forget_expired()

    def _not_made_anew(self) -> dict[str, int]:
        """Of a topic that is there again only offsets of before its deletion were to go, and when that was, others than
        this broker know: those who have coordinated meanwhile took commits to the new one before it was told."""
        self._deleted = {topic: ms for topic, ms in self._deleted.items() if not self._exists(topic)}
        return dict(self._deleted)

    def topic_gone(self, topic: str) -> None:
        """It was deleted, and may have been made anew under the same name."""
        if not self._just_deleted:
            self._run(self._forget_just_deleted())
        self._just_deleted[topic] = self._deleted[topic] = self._clock.now_ms()

    async def _forget_just_deleted(self) -> None:
        """Those of one turn of the event loop together."""
        topics, self._just_deleted = self._just_deleted, {}
        await self.forget_topics(topics, self._coordination.shards())

    def _served(self, shard: Shard[GroupMachine]) -> None:
        if deleted := self._not_made_anew():
            self._run(self._forget_in(shard, deleted))

    async def _forget_in(self, shard: Shard[GroupMachine], deleted: Mapping[str, int]) -> None:
        await self.forget_topics(deleted, [shard])

    async def forget_expired(self) -> None:
        """Not of groups that are just committing, and not where a transaction is about to commit another."""
        settings, probe = self._committer.settings, self._committer.probe

        async def choose(machine: GroupMachine, name: str, positions: Sequence[Position]) -> set[Position]:
            group = machine.groups.get(name)
            if group is not None and group.state is State.STABLE:
                await in_turns(group.subscriptions.read())
            if name in self._committer.waiting:
                return set()
            offsets = machine.offsets
            settled = [position for position in positions if not offsets.is_pending(name, position)]
            found = {position: offsets.committed(name, *position) for position in settled}
            committed = {position: one for position, one in found.items() if one is not None}
            return expired(machine.groups.get(name), committed, self._clock.now_ms(), settings.retention_ms)

        removed, _ = await self._forget(choose, self._coordination.shards())
        probe.expired += removed
        if removed:
            log.info("removed %d offsets that had expired after %d minutes", removed, settings.retention_ms // 60_000)

    async def forget_topics(self, topics: Mapping[str, int], shards: Iterable[Shard[GroupMachine]]) -> bool:
        """By the time of each deletion; False if not all could be removed.

        Not what was committed after it: a topic may be made anew before all groups have been looked at. Where that is
        under way, or waits for the end of its transaction, older offsets stay as well. A time that is still to come
        says nothing: the clock was set back since, or the client has named it.
        """

        async def choose(machine: GroupMachine, name: str, positions: Sequence[Position]) -> set[Position]:
            offsets, waiting = machine.offsets, self._committer.waiting.get(name, ())
            until_ms = self._clock.now_ms() + 1
            since = {
                position: range(topics[position[0]] + 1, until_ms) for position in positions if position[0] in topics
            }
            settled = [
                position
                for position, times in since.items()
                if position not in waiting and not offsets.is_pending_since(name, position, times)
            ]
            found = {position: offsets.committed(name, *position) for position in settled}
            return {
                position
                for position, one in found.items()
                if one is None or one.commit_timestamp not in since[position]
            }

        removed, refused = await self._forget(choose, shards)
        if removed:
            log.info("removed %d offsets of %d deleted topics", removed, len(topics))
        return not refused

    async def _forget(self, choose: Choose, shards: Iterable[Shard[GroupMachine]]) -> tuple[int, int]:
        """Returns the numbers of offsets that were removed, and that could not be. A group without members is removed
        with its last offset."""
        removed = refused = 0
        turns = Turns()
        for shard in shards:
            machine = shard.machine
            for name in machine.names():
                positions = list(machine.offsets.positions(name))
                for at in range(0, len(positions), _MOST_AT_ONCE):
                    chosen = await choose(machine, name, positions[at : at + _MOST_AT_ONCE])
                    if chosen and await self._written(machine, name, chosen):
                        removed += len(chosen)
                    else:
                        refused += len(chosen)
                    await turns.give_way()
                if name not in machine.offsets and name not in self._committer.waiting:
                    await self._written(machine, name, set())
                    await turns.give_way()
        return removed, refused

    async def _written(self, machine: GroupMachine, name: str, positions: set[Position]) -> bool:
        writing = Writing()
        machine.forget_offsets(name, positions, writing.end)
        error = await self._committer.end_of(writing)
        if error is None:
            return True
        log.log(level_of_refusal(error), "could not remove %d offsets of group %s: %s", len(positions), name, error)
        return False

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
