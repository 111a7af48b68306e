"""Replicas on their way to another log directory of this broker: copied a little per turn, then swapped (KIP-113)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from kafkad.errors import KafkaError, StorageError
from kafkad.log.directories import CheckpointWrite, LogDirectory
from kafkad.log.files import may_pass
from kafkad.log.log import Log
from kafkad.log.move import Moved, Moves, Step
from kafkad.names import TopicPartition
from kafkad.replica.durable import Durable
from kafkad.replica.manager import ReplicaManager
from kafkad.replica.quota import ReplicationQuota
from kafkad.timers import Pauses, Timers, sleep
from kafkad.together import cancelled
from kafkad.turns import in_turns

log = logging.getLogger(__name__)

_REST_MS = 1_000
"""Of a move that a disk is in the way of."""
_LITTLE = 16 << 20
"""Bytes of a copy that are flushed while everything else waits."""


class ReplicaMoves:
    def __init__(
        self, replicas: ReplicaManager, durable: Durable, timers: Timers, bytes_per_second: Callable[[], int]
    ) -> None:
        """`bytes_per_second`: replica.alter.log.dirs.io.max.bytes.per.second, which all moves share."""
        shared = _Shared(replicas, durable, timers, bytes_per_second, Moves(replicas.logs))
        self._logs = replicas.logs
        self._moves = shared.moves
        self._into = {directory: _MovesInto(directory, shared) for directory in self._logs.directories}

    def start(self, tp: TopicPartition, path: str) -> None:
        """Begin to move a replica to `path`. KafkaError when this broker has not the one or not the other."""
        self._moves.start(tp, path)
        self._into[self._logs.live_directory(path)].begin(tp)

    def resume(self) -> None:
        """At the start of the broker, for what a restart interrupted."""
        for moves in self._into.values():
            moves.resume()

    async def stop(self) -> None:
        await cancelled([moves.task for moves in self._into.values() if moves.task is not None])


@dataclass(frozen=True, slots=True)
class _Shared:
    """By all moves."""

    replicas: ReplicaManager
    durable: Durable
    timers: Timers
    bytes_per_second: Callable[[], int]
    moves: Moves
    quota: ReplicationQuota = field(default_factory=ReplicationQuota)
    one_step: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while some of a replica is copied, and until the end of that turn of the loop: there is no more of that in
    one, however many log directories there are."""


class _MovesInto:
    """What moves to one log directory: one task, as long as there is something. Its disk may be slow, or hang; moves to
    others go on."""

    def __init__(self, target: LogDirectory, shared: _Shared) -> None:
        self._target = target
        self._shared = shared
        self._replicas = shared.replicas
        self._durable = shared.durable
        self._clock = shared.replicas.logs.clock
        self._timers = shared.timers
        self._quota = shared.quota
        self._moves = shared.moves
        self._resting: set[TopicPartition] = set()
        """Those of which a disk has just refused something, or that met an error of ours."""
        self._failing: dict[TopicPartition, Pauses] = {}
        """Those that met an error of ours when they were last gone on with."""
        self._flushed: set[Log] = set()
        """Copies of which only what came while they were flushed, and since, may not be on the disk."""
        self._changed = asyncio.Event()
        """Set when there may be something to go on with that there was not before."""
        self.task: asyncio.Task[None] | None = None

    def begin(self, tp: TopicPartition) -> None:
        self._failing.pop(tp, None)
        self.resume()

    def resume(self) -> None:
        self._changed.set()
        if self.task is None or self.task.done():
            self.task = asyncio.create_task(self._run())

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
        while under_way := self._moves.under_way(self._target):
            going = [tp for tp in under_way if tp not in self._resting]
            for tp in going:
                try:
                    await self._go_on(tp)
                except Exception as error:
                    pauses = self._failing.setdefault(tp, Pauses(_REST_MS))
                    self._rest(tp, self._pause_ms(pauses, error, f"moving {tp} to another log directory"))
                else:
                    self._failing.pop(tp, None)
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
        future = self._target.futures.get(tp)
        if future in self._replicas.logs.cut:
            self._rest(tp)
        elif future is not None and self._stands(tp, future):
            try:
                await self._advance(tp, future)
            except KafkaError as error:
                if self._stands(tp, future):
                    self._refused(tp, error)
                elif isinstance(error, StorageError) and not isinstance(error.__cause__, FileNotFoundError):
                    self._replicas.directory_failed(error)  # else it is of files that have gone with the move

    def _stands(self, tp: TopicPartition, future: Log) -> bool:
        """False if the topic was deleted meanwhile, the move given up for another, or a log directory has failed."""
        return self._target.futures.get(tp) is future and self._replicas.logs.get(tp) is not None

    def _refused(self, tp: TopicPartition, error: KafkaError) -> None:
        if isinstance(error, StorageError):
            self._replicas.directory_failed(error)
            self._rest(tp)
        else:
            log.error("moving %s to another log directory failed; it stays where it is: %s", tp, error)
            self._give_up(tp)

    async def _settle_cut(self, tp: TopicPartition) -> None:
        """Of the copy, whose replica was cut back."""
        cuts, future = self._replicas.cuts, self._target.futures.get(tp)
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
        self._timers.at(self._clock.monotonic_ms() + pause_ms, partial(self._has_rested, tp))
        self._resting.add(tp)  # not before there is a timer to end it, for which memory may be too short

    def _has_rested(self, tp: TopicPartition) -> None:
        self._resting.discard(tp)
        self._changed.set()

    async def _advance(self, tp: TopicPartition, future: Log) -> None:
        """The copy takes the replica's place in a turn in which it has caught up, when little of it is left to flush:
        nothing comes in between."""
        await self._until_allowed(tp, future)
        async with self._shared.one_step:
            step = await self._step(tp, future)
            has_all = step is not None and step.caught_up
            if has_all and future in self._flushed and future.durability.unflushed_bytes <= _LITTLE:
                self._finish(tp)
            await asyncio.sleep(0)
        if has_all and self._stands(tp, future):
            await self._durable.flush(future)
            if self._stands(tp, future):
                await self._durable.run(self._target.path, self._target.collect_start_offsets().write)
                self._flushed.add(future)

    async def _step(self, tp: TopicPartition, future: Log) -> Step | None:
        """None if the copy stands no more."""
        if not self._stands(tp, future):
            return None
        await in_turns(self._moves.drop_beginning(tp))
        if not self._stands(tp, future):
            return None
        ahead = await in_turns(self._moves.read_ahead(tp))
        if not self._stands(tp, future):
            return None
        partition = self._replicas.find(*tp)
        high_watermark = 0 if partition is None else partition.high_watermark
        step = self._moves.step(tp, high_watermark=high_watermark, ahead=ahead)
        self._quota.take(step.copied, self._clock.monotonic_ms())
        return step

    async def _until_allowed(self, tp: TopicPartition, future: Log) -> None:
        """Keep to the rate, which may be another after each wait, where there is more to copy."""
        while (replica := self._replicas.logs.get(tp)) is not None and future.end_offset != replica.end_offset:
            now_ms = self._clock.monotonic_ms()
            self._quota.limit(self._shared.bytes_per_second(), now_ms)
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
