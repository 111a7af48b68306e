"""The end of a move between log directories: the copy takes the replica's place, and what it was moved from goes.

Disks are waited for in threads. Before, that of the replica is to know that it is marked (`log/marks`), and that of the
copy to have all that the replica's is known to have.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple, TypeVar

from kafkad.errors import StorageError
from kafkad.log.directories import CheckpointWrite
from kafkad.log.files import may_pass
from kafkad.log.log import Log
from kafkad.log.marks import Mark
from kafkad.log.move import Moved, Moves
from kafkad.names import TopicPartition
from kafkad.replica.durable import Durable
from kafkad.replica.manager import ReplicaManager
from kafkad.timers import Pauses, Timer, Timers, sleep

log = logging.getLogger(__name__)

T = TypeVar("T")

REST_MS = 1_000
"""Of a move that a disk is in the way of."""


class Copy(NamedTuple):
    """Of a replica that is being moved."""

    tp: TopicPartition
    log: Log
    stands: Callable[[], bool]
    """False once it is not to be used any more."""
    step: Callable[[Callable[[], Moved | None]], Awaitable[Moved | None]]
    """Copy some more; what the callback returns in the turn in which the copy has all, in which nothing else comes."""


class Exchanges:
    """Of all moves; each is in a task of its own."""

    def __init__(self, replicas: ReplicaManager, durable: Durable, timers: Timers, moves: Moves) -> None:
        self._replicas = replicas
        self._durable = durable
        self._timers = timers
        self._moves = moves
        self._one_mark: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Of each log directory: held while a replica there is marked and its disk told, so that others find a thread
        that is free, and no more than one is marked of which the disk does not know."""
        self._marks: dict[Log, Mark] = {}
        """Those that replicas have, of the exchanges that began last."""

    async def take_place(self, copy: Copy, patience_ms: float) -> Moved | None:
        """None if that takes too long, or the copy stands no more."""
        mark, replica = self._moves.mark_of(copy.tp), self._replicas.logs.logs[copy.tp]
        directory = replica.log_directory
        try:
            async with self._one_mark[directory]:
                if not copy.stands():
                    return None
                self._marks[replica] = mark
                mark.put()
                await self._durable.run(directory, mark.sync)
            return await self._replace(replica, copy, patience_ms)
        finally:
            self._end_mark(replica, mark)

    async def _replace(self, replica: Log, copy: Copy, patience_ms: float) -> Moved | None:
        """The disk of the replica gets no more than it has, or that of the copy might never have as much; but only for
        a while, for others wait for it. Before that the copy's gets all but what comes meanwhile."""
        await copy.step(lambda: None)
        await self._durable.synced(copy.log)
        if not self.is_whole(copy):
            return None  # another exchange may hold the replica by now
        moved, is_held = None, True
        hold = self._durable.hold(replica)
        let_go = partial(self._durable.let_go, hold)
        patience: Timer | None = None
        try:
            patience = self._timers.at(self._replicas.logs.clock.monotonic_ms() + patience_ms, let_go)
            while moved is None and is_held and self.is_whole(copy):
                moved = await copy.step(partial(self._finish, copy.tp))
                if moved is None and copy.log.flushed_until < replica.flushed_until:
                    await self._durable.synced(copy.log)
                is_held = self._durable.holds(hold)
        finally:
            let_go()
            if patience is not None:
                patience.cancel()
        return moved

    def is_whole(self, copy: Copy) -> bool:
        """It stands, and was not cut back."""
        return copy.stands() and copy.log not in self._replicas.logs.cut

    def _finish(self, tp: TopicPartition) -> Moved | None:
        moved = self._moves.finish(tp)
        if moved is not None:
            partition = self._replicas.find(*tp)
            if partition is not None:
                partition.take_log(moved.log)
            log.info("moved %s to %s", tp, moved.log.directory)
        return moved

    def _end_mark(self, replica: Log, mark: Mark) -> None:
        """The replica was replaced, has gone, or goes on working. What another exchange has begun with is left."""
        if self._marks.get(replica) is mark:
            del self._marks[replica]
            if not replica.closed:
                try:
                    mark.take_away()
                except StorageError as error:
                    self._replicas.directory_failed(error)
                else:
                    self._durable.in_thread(replica.log_directory, mark.sync, lambda error: None)

    async def put_away(self, moved: Moved) -> None:
        """What was replaced, and what checkpoints say of it."""
        tp = moved.log.topic_partition
        for write in await self._insist(tp, partial(self._put_away, moved)) or ():
            await self._insist(tp, partial(self._durable.run, write.directory.path, write.write))

    async def _put_away(self, moved: Moved) -> list[CheckpointWrite]:
        """Once the replica is on the disk, which another move may have brought elsewhere meanwhile."""
        await self._durable.synced(self._replicas.logs.get(moved.log.topic_partition) or moved.log)
        return moved.put_away()

    async def _insist(self, tp: TopicPartition, step: Callable[[], Awaitable[T]]) -> T | None:
        """Again and again, until it is done; None if its log directory is lost."""
        pauses = Pauses(REST_MS)
        while True:
            pause_ms: float = REST_MS
            try:
                return await step()
            except StorageError as error:
                self._replicas.directory_failed(error)
                if not may_pass(error):
                    return None
            except Exception as error:
                pause_ms = told_pause_ms(pauses, error, f"removing what {tp} was moved from")
            await sleep(pause_ms, self._replicas.logs.clock, self._timers)


def told_pause_ms(pauses: Pauses, error: Exception, what: str) -> float:
    """How long to wait after an error of ours, which is told of."""
    pause_ms, is_news = pauses.after(error)
    if is_news:
        bug = None if isinstance(error, MemoryError) else error
        why = "not enough memory for" if bug is None else "internal error in"
        log.error("%s %s; trying again", why, what, exc_info=bug)
    return pause_ms
