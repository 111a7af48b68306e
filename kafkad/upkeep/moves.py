"""Replicas on their way to another log directory of this broker: copied a little per turn, then swapped (KIP-113)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from kafkad.errors import KafkaError, StorageError
from kafkad.log.directories import LogDirectory
from kafkad.log.log import Log
from kafkad.log.move import Moves, Step
from kafkad.names import TopicPartition
from kafkad.replica.durable import Durable
from kafkad.replica.manager import ReplicaManager
from kafkad.replica.prompt_disks import PromptDisks
from kafkad.replica.quota import ReplicationQuota
from kafkad.timers import Pauses, Timer, Timers, sleep
from kafkad.together import cancelled
from kafkad.turns import in_turns
from kafkad.upkeep.exchange import REST_MS, Copy, Exchanges, told_pause_ms

log = logging.getLogger(__name__)

T = TypeVar("T")

_LITTLE = 16 << 20
"""Bytes of a copy that may not be flushed when its exchange begins, in which those wait who want its replica on the
disk."""
_PATIENCE_MS = 3_000
"""For which they do; after each exchange that was not in time, twice as long."""
_LONGEST_PATIENCE_MS = 4 * _PATIENCE_MS
_PAUSE = 10
"""Behind such an exchange the move rests for so many times the patience: they wait rarely."""


class ReplicaMoves:
    def __init__(
        self, replicas: ReplicaManager, durable: Durable, timers: Timers, bytes_per_second: Callable[[], int]
    ) -> None:
        """`bytes_per_second`: replica.alter.log.dirs.io.max.bytes.per.second, which all moves share."""
        moves = Moves(replicas.logs)
        exchanges = Exchanges(replicas, durable, timers, moves)
        self._shared = _Shared(replicas, durable, timers, bytes_per_second, moves, exchanges)
        self._into = {directory: _MovesInto(directory, self._shared) for directory in replicas.logs.directories}
        self._disks = PromptDisks(durable, replicas.logs.clock, timers)
        self._one_request = asyncio.Lock()
        """Held while disks are waited for: one that is about to be through does not hang for the next request."""

    async def forget_predecessors(self, wanted: Mapping[TopicPartition, str]) -> None:
        """Of replicas that are to move to these paths. Nothing starts where checkpoints still have one: the disk has
        failed, or hangs."""
        async with self._one_request:
            await self._disks.do(self._shared.moves.forget_predecessors(wanted))

    def start(self, tp: TopicPartition, path: str) -> None:
        """Begin to move a replica to `path`, where it was before once what is there of it is put away. KafkaError when
        this broker has not the one or not the other."""
        logs = self._shared.replicas.logs
        target, replica = logs.live_directory(path), logs.get(tp)
        back = replica if tp in target.replaced else None
        if back is not None:
            self._shared.moves.cancel(tp)
        else:
            self._shared.moves.start(tp, path)
        for directory, moves in self._into.items():
            if directory is not target:
                moves.forget(tp)
        self._into[target].begin(tp, back)

    def resume(self) -> None:
        """At the start of the broker, for what a restart interrupted."""
        for moves in self._into.values():
            moves.resume()

    async def stop(self) -> None:
        await cancelled(task for moves in self._into.values() for task in moves.tasks)


@dataclass(frozen=True, slots=True)
class _Shared:
    """By all moves."""

    replicas: ReplicaManager
    durable: Durable
    timers: Timers
    bytes_per_second: Callable[[], int]
    moves: Moves
    exchanges: Exchanges
    quota: ReplicationQuota = field(default_factory=ReplicationQuota)
    one_step: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while some of a replica is copied, and until the end of that turn of the loop: there is no more of that in
    one, however many log directories there are."""

    def now_ms(self) -> float:
        return self.replicas.logs.clock.monotonic_ms()

    def after(self, ms: float, action: Callable[[], None]) -> Timer:
        return self.timers.at(self.now_ms() + ms, action)

    async def sleep(self, ms: float) -> None:
        await sleep(ms, self.replicas.logs.clock, self.timers)


@dataclass(eq=False, slots=True)
class _Move:
    """What is known of one, from when it was last asked for."""

    back: Log | None = None
    """The replica, if it is to move to where it was before once what is there of it is put away."""
    is_resting: bool = False
    """A disk has just refused something, or it met an error of ours."""
    failing: Pauses | None = None
    """If it met an error of ours when it was last gone on with."""
    is_flushed: bool = False
    """Of the copy, only what came while it was flushed, and since, may not be on the disk."""
    exchanging: Log | None = None
    """The copy, while its exchange is tried."""
    patience_ms: float = _PATIENCE_MS
    """For the next exchange."""


class _MovesInto:
    """What moves to one log directory: one task, as long as there is something, and one for each exchange. Disks may be
    slow, or hang: what others are not in the way of goes on."""

    def __init__(self, target: LogDirectory, shared: _Shared) -> None:
        self._target = target
        self._shared = shared
        self._moves: dict[TopicPartition, _Move] = {}
        self._exchanges: dict[TopicPartition, asyncio.Task[None]] = {}
        """Also of moves that were given up, and until what was replaced has gone."""
        self._changed = asyncio.Event()
        """Set when there may be something to go on with that there was not before."""
        self._task: asyncio.Task[None] | None = None

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        return [*([] if self._task is None else [self._task]), *self._exchanges.values()]

    def begin(self, tp: TopicPartition, back: Log | None = None) -> None:
        """Where the move's exchange is being tried, what that learns is kept."""
        move = self._moves.get(tp)
        if move is None or move.exchanging is None or move.exchanging is not self._target.futures.get(tp):
            self._moves[tp] = _Move(back)
        self.resume()

    def forget(self, tp: TopicPartition) -> None:
        self._moves.pop(tp, None)

    def resume(self) -> None:
        self._changed.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        pauses = Pauses(REST_MS)
        while True:
            try:
                await self._move_all()
                break
            except Exception as error:
                pause_ms = told_pause_ms(pauses, error, "looking for replicas to move")
                await self._shared.sleep(pause_ms)

    async def _move_all(self) -> None:
        while self._take_stock():
            going = [tp for tp, move in self._moves.items() if not move.is_resting and tp not in self._exchanges]
            for tp in going:
                move = self._moves.get(tp)
                if move is None:
                    continue  # given up meanwhile
                if await self._has_done(tp, move, self._go_on(tp, move)) and tp not in self._exchanges:
                    move.failing = None
            if not going:
                self._changed.clear()
                await self._changed.wait()

    def _take_stock(self) -> bool:
        """Of the moves under way: from then on nothing is known of any other. False if there are none."""
        back = [tp for tp, move in self._moves.items() if move.back is not None]
        under_way = [*self._shared.moves.under_way(self._target), *back]
        self._moves = {tp: self._moves.get(tp) or _Move() for tp in under_way}
        return bool(under_way)

    async def _has_done(self, tp: TopicPartition, move: _Move, work: Awaitable[None]) -> bool:
        """False if it met an error of ours."""
        try:
            await work
        except Exception as error:
            move.failing = move.failing or Pauses(REST_MS)
            self._rest(move, told_pause_ms(move.failing, error, f"moving {tp} to another log directory"))
            return False
        return True

    async def _go_on(self, tp: TopicPartition, move: _Move) -> None:
        if tp in self._target.replaced:
            self._rest(move)
            return
        if move.back is not None:
            await self._start_back(tp, move)
        if self._shared.replicas.logs.cut:
            await self._settle_cut(tp)
        future = self._target.futures.get(tp)
        if future in self._shared.replicas.logs.cut:
            self._rest(move)
        elif future is not None and self._stands(tp, future):
            await self._with_refusals(tp, move, future, self._advance(tp, move, future))

    async def _with_refusals(self, tp: TopicPartition, move: _Move, future: Log, work: Awaitable[None]) -> None:
        try:
            await work
        except KafkaError as error:
            if self._stands(tp, future):
                self._refused(tp, move, error)
            elif isinstance(error, StorageError) and not isinstance(error.__cause__, FileNotFoundError):
                self._shared.replicas.directory_failed(error)  # else it is of files that have gone with the move

    async def _start_back(self, tp: TopicPartition, move: _Move) -> None:
        """Nothing if something else is asked for meanwhile, or the topic was deleted."""
        shared = self._shared
        try:
            for directory, forget in shared.moves.forget_predecessors({tp: self._target.path}):
                await shared.durable.run(directory.path, forget)
            if self._moves.get(tp) is move and shared.replicas.logs.get(tp) is move.back:
                shared.moves.start(tp, self._target.path)
        except StorageError as error:
            shared.replicas.directory_failed(error)
            self._rest(move)
            return
        except KafkaError as error:
            log.error("moving %s back to another log directory failed; it stays where it is: %s", tp, error)
        move.back = None

    def _stands(self, tp: TopicPartition, future: Log) -> bool:
        """False if the topic was deleted meanwhile, the move given up for another, or a log directory has failed."""
        return self._target.futures.get(tp) is future and self._shared.replicas.logs.get(tp) is not None

    def _refused(self, tp: TopicPartition, move: _Move, error: KafkaError) -> None:
        if isinstance(error, StorageError):
            self._shared.replicas.directory_failed(error)
            self._rest(move)
        else:
            log.error("moving %s to another log directory failed; it stays where it is: %s", tp, error)
            self._give_up(tp, move)

    async def _settle_cut(self, tp: TopicPartition) -> None:
        """Of the copy, whose replica was cut back."""
        cuts, future = self._shared.replicas.cuts, self._target.futures.get(tp)
        cuts.begin()
        end = None if future is None else cuts.end_of(future)
        if end is not None:
            await asyncio.wait([end])

    def _give_up(self, tp: TopicPartition, move: _Move) -> None:
        try:
            self._shared.moves.cancel(tp)
        except StorageError as error:
            self._shared.replicas.directory_failed(error)
            self._rest(move)

    def _rest(self, move: _Move, pause_ms: float = REST_MS) -> None:
        self._shared.after(pause_ms, partial(self._has_rested, move))
        move.is_resting = True  # not before there is a timer to end it, for which memory may be too short

    def _has_rested(self, move: _Move) -> None:
        move.is_resting = False
        self._changed.set()

    # -- copying ---------------------------------------------------------------------------------------------------

    async def _advance(self, tp: TopicPartition, move: _Move, future: Log) -> None:
        """Copy some more. Once the copy has all, and little of that is to be flushed, its exchange begins."""
        await self._until_allowed(tp, future)
        has_all = await self._step(tp, future, lambda: True)
        if not has_all or not self._stands(tp, future):
            return
        if move.is_flushed and future.durability.unflushed_bytes <= _LITTLE:
            self._exchanges[tp] = asyncio.create_task(self._try_exchange(tp, move, future))
            move.exchanging = future
            return
        await self._shared.durable.flush(future)
        if self._stands(tp, future):
            await self._shared.durable.run(self._target.path, self._target.collect_start_offsets().write)
            move.is_flushed = True

    async def _step(self, tp: TopicPartition, future: Log, then: Callable[[], T | None]) -> T | None:
        """Copy some more; what `then` returns in the turn in which the copy has all, in which nothing else comes."""
        result = None
        async with self._shared.one_step:
            step = await self._copy_some(tp, future)
            if step is not None and step.caught_up:
                result = then()
            await asyncio.sleep(0)
        return result

    async def _copy_some(self, tp: TopicPartition, future: Log) -> Step | None:
        """None if the copy stands no more."""
        if not self._stands(tp, future):
            return None
        await in_turns(self._shared.moves.drop_beginning(tp))
        if not self._stands(tp, future):
            return None
        ahead = await in_turns(self._shared.moves.read_ahead(tp))
        if not self._stands(tp, future):
            return None
        partition = self._shared.replicas.find(*tp)
        high_watermark = 0 if partition is None else partition.high_watermark
        step = self._shared.moves.step(tp, high_watermark=high_watermark, ahead=ahead)
        self._shared.quota.take(step.copied, self._shared.now_ms())
        return step

    async def _until_allowed(self, tp: TopicPartition, future: Log) -> None:
        """Keep to the rate, which may be another after each wait, where there is more to copy."""
        while (replica := self._shared.replicas.logs.get(tp)) is not None and future.end_offset != replica.end_offset:
            now_ms = self._shared.now_ms()
            self._shared.quota.limit(self._shared.bytes_per_second(), now_ms)
            wait_ms = self._shared.quota.wait_ms(now_ms)
            if not wait_ms:
                break
            await self._shared.sleep(wait_ms)

    # -- the exchange ----------------------------------------------------------------------------------------------

    async def _try_exchange(self, tp: TopicPartition, move: _Move, future: Log) -> None:
        try:
            await self._has_done(tp, move, self._with_refusals(tp, move, future, self._exchange(tp, move, future)))
        finally:
            move.exchanging = None
            del self._exchanges[tp]
            self._changed.set()

    async def _exchange(self, tp: TopicPartition, move: _Move, future: Log) -> None:
        """If the copy cannot take the replica's place soon, another one is to be waited for."""
        exchanges = self._shared.exchanges
        copy = Copy(tp, future, partial(self._stands, tp, future), partial(self._step, tp, future))
        moved = await exchanges.take_place(copy, move.patience_ms)
        if moved is not None:
            await exchanges.put_away(moved)
        elif exchanges.is_whole(copy):
            self._rest(move, _PAUSE * move.patience_ms)
            move.patience_ms = min(2 * move.patience_ms, _LONGEST_PATIENCE_MS)
