"""Replicas on their way to another log directory of this broker: copied a little per turn, then swapped (KIP-113)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from kafkad.errors import KafkaError, StorageError
from kafkad.log.directories import CheckpointWrite
from kafkad.log.files import may_pass
from kafkad.log.log import Log
from kafkad.log.move import Moved, Moves
from kafkad.names import TopicPartition
from kafkad.replica.durable import Durable
from kafkad.replica.manager import ReplicaManager
from kafkad.replica.quota import ReplicationQuota
from kafkad.timers import Pauses, Timers, sleep
from kafkad.turns import in_turns

log = logging.getLogger(__name__)

_REST_MS = 1_000
"""Of a move that a disk is in the way of."""
_LITTLE = 16 << 20
"""Bytes of a copy that are flushed while everything else waits."""


class ReplicaMoves:
    """One task, as long as there is something to move."""

    def __init__(
        self, replicas: ReplicaManager, durable: Durable, timers: Timers, bytes_per_second: Callable[[], int]
    ) -> None:
        """`bytes_per_second`: replica.alter.log.dirs.io.max.bytes.per.second, which all moves share."""
        self._replicas = replicas
        self._durable = durable
        self._clock = replicas.logs.clock
        self._timers = timers
        self._bytes_per_second = bytes_per_second
        self._quota = ReplicationQuota()
        self._moves = Moves(replicas.logs)
        self._resting: set[TopicPartition] = set()
        """Those of which a disk has just refused something, or that met an error of ours."""
        self._failing: dict[TopicPartition, Pauses] = {}
        """Those that have met an error of ours."""
        self._flushed: set[Log] = set()
        """Copies of which only what came while they were flushed, and since, may not be on the disk."""
        self._changed = asyncio.Event()
        """Set when there may be something to go on with that there was not before."""
        self._task: asyncio.Task[None] | None = None

    def start(self, tp: TopicPartition, path: str) -> None:
        """Begin to move a replica to `path`. KafkaError when this broker has not the one or not the other."""
        self._moves.start(tp, path)
        self._failing.pop(tp, None)
        self.resume()

    def resume(self) -> None:
        """Also at the start of the broker, for what a restart interrupted."""
        self._changed.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        pauses = Pauses(_REST_MS)
        while True:
            try:
                await self._move_all()
                break
            except Exception as error:
                pause_ms = self._pause_ms(pauses, error, "looking for replicas to move")
                await sleep(pause_ms, self._clock, self._timers)
        self._flushed.clear()  # also of moves that were given up
        self._failing.clear()

    async def _move_all(self) -> None:
        while under_way := list(self._moves.under_way()):
            going = [tp for tp in under_way if tp not in self._resting]
            for tp in going:
                try:
                    await self._go_on(tp)
                except Exception as error:
                    pauses = self._failing.setdefault(tp, Pauses(_REST_MS))
                    self._rest(tp, self._pause_ms(pauses, error, f"moving {tp} to another log directory"))
            if not going:
                self._changed.clear()
                await self._changed.wait()

    def _pause_ms(self, pauses: Pauses, error: Exception, what: str) -> float:
        """How long to wait after an error of ours, which is told of."""
        pause_ms, is_news = pauses.after(error)
        if is_news:
            bug = None if isinstance(error, MemoryError) else error
            why = "not enough memory for" if bug is None else "internal error in"
            log.error("%s %s; trying again", why, what, exc_info=bug)
        return pause_ms

    async def _go_on(self, tp: TopicPartition) -> None:
        if self._replicas.logs.cut:
            await self._settle_cut(tp)
        future = self._moves.future(tp)
        if future in self._replicas.logs.cut:
            self._rest(tp)
        elif future is not None and self._stands(tp, future):
            try:
                await self._advance(tp, future)
            except KafkaError as error:
                if self._stands(tp, future):
                    self._refused(tp, error)
        await asyncio.sleep(0)

    def _stands(self, tp: TopicPartition, future: Log) -> bool:
        """False if the topic was deleted meanwhile, or a log directory has failed."""
        return self._moves.future(tp) is future and self._replicas.logs.get(tp) is not None

    def _refused(self, tp: TopicPartition, error: KafkaError) -> None:
        if isinstance(error, StorageError):
            self._replicas.directory_failed(error)
            self._rest(tp)
        else:
            log.error("moving %s to another log directory failed; it stays where it is: %s", tp, error)
            self._give_up(tp)

    async def _settle_cut(self, tp: TopicPartition) -> None:
        """Of the copy, whose replica was cut back."""
        cuts, future = self._replicas.cuts, self._moves.future(tp)
        cuts.begin()
        end = None if future is None else cuts.end_of(future)
        if end is not None:
            await asyncio.wait([end])

    def _give_up(self, tp: TopicPartition) -> None:
        try:
            self._moves.cancel(tp)
        except StorageError as error:
            self._replicas.directory_failed(error)
            self._rest(tp)

    def _rest(self, tp: TopicPartition, pause_ms: float = _REST_MS) -> None:
        self._resting.add(tp)
        self._timers.at(self._clock.monotonic_ms() + pause_ms, partial(self._has_rested, tp))

    def _has_rested(self, tp: TopicPartition) -> None:
        self._resting.discard(tp)
        self._changed.set()

    async def _advance(self, tp: TopicPartition, future: Log) -> None:
        """The copy takes the replica's place in a turn in which it has caught up, when little of it is left to flush:
        nothing comes in between."""
        await self._until_allowed(tp, future)
        if not self._stands(tp, future):
            return
        await in_turns(self._moves.drop_beginning(tp))
        if not self._stands(tp, future):
            return
        ahead = await in_turns(self._moves.read_ahead(tp))
        if not self._stands(tp, future):
            return
        partition = self._replicas.find(*tp)
        high_watermark = 0 if partition is None else partition.high_watermark
        step = self._moves.step(tp, high_watermark=high_watermark, ahead=ahead)
        self._quota.take(step.copied, self._clock.monotonic_ms())
        if not step.caught_up:
            return
        if future in self._flushed and future.durability.unflushed_bytes <= _LITTLE:
            self._finish(tp)
        else:
            await self._durable.flush(future)
            target = self._replicas.logs.target_of(tp)
            if target is not None:
                await self._durable.run(target.path, target.collect_start_offsets().write)
                self._flushed.add(future)

    async def _until_allowed(self, tp: TopicPartition, future: Log) -> None:
        """Keep to the rate, which may be another after each wait, where there is more to copy."""
        while (replica := self._replicas.logs.get(tp)) is not None and future.end_offset != replica.end_offset:
            now_ms = self._clock.monotonic_ms()
            self._quota.limit(self._bytes_per_second(), now_ms)
            wait_ms = self._quota.wait_ms(now_ms)
            if not wait_ms:
                break
            await sleep(wait_ms, self._clock, self._timers)

    def _finish(self, tp: TopicPartition) -> None:
        moved = self._moves.finish(tp)
        if moved is None:
            return
        partition = self._replicas.find(*tp)
        if partition is not None:
            partition.take_log(moved.log)
        self._put_away(moved)
        log.info("moved %s to %s", tp, moved.log.directory)

    def _put_away(self, moved: Moved) -> None:
        """Until it is done, or its log directory is lost."""
        try:
            checkpoints = moved.put_away()
        except StorageError as error:
            self._replicas.directory_failed(error)
            if may_pass(error):
                self._timers.at(self._clock.monotonic_ms() + _REST_MS, partial(self._put_away, moved))
        else:
            for write in checkpoints:
                self._write(write)

    def _write(self, write: CheckpointWrite) -> None:
        """In a thread, until it is done, or its log directory is lost."""

        def written(error: StorageError | None) -> None:
            if error is not None and may_pass(error):
                self._timers.at(self._clock.monotonic_ms() + _REST_MS, partial(self._write, write))

        self._durable.in_thread(write.directory.path, write.write, written)
