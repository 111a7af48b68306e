"""Asks the controller for other in-sync replicas of the partitions led here (AlterPartition, KIP-497).

One request at a time, with the partitions that want a change by then, hundreds at most. A partition waits with its
change pending (`leading.proposed`) until the controller has written it or refuses it for good; it waits on, for the
next LeaderAndIsr, where the controller is ahead of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import islice
from typing import NamedTuple
from weakref import WeakKeyDictionary

from kafkad.clock import Clock
from kafkad.errors import ErrorCode, KafkaError
from kafkad.model import NO_EPOCH, PartitionState, WantedIsr
from kafkad.names import TopicPartition, some
from kafkad.replica.leading import IsrChange
from kafkad.replica.manager import ReplicaManager
from kafkad.replica.partition import Partition
from kafkad.timers import Timers, sleep
from kafkad.turns import Turns

log = logging.getLogger(__name__)

_RETRY_MS = 50
_MOST_AT_ONCE = 500
"""Partitions in one request, which is made and read in one turn of the loop."""
_REFUSED = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
"""The partition stays as it is."""
_OVERTAKEN = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
"""The controller has another state of it, which a LeaderAndIsr will bring: nothing is asked for again. All other
refusals are asked again, for nothing has to come after them: the controller may not have read the topic yet, may be
behind, or this broker may not have heard of the topic's id."""
_WHY = {
    ErrorCode.INELIGIBLE_REPLICA: "a follower that would join shuts down, has just started, or has its disk offline",
    ErrorCode.OPERATION_NOT_ATTEMPTED: "the metadata store does not take it, or one of the two may be cut off",
    ErrorCode.FENCED_LEADER_EPOCH: "it has a later leader epoch",
    ErrorCode.INVALID_UPDATE_VERSION: "it has another ISR by now",
    ErrorCode.INVALID_REQUEST: "it has another leader",
    ErrorCode.NEW_LEADER_ELECTED: "it has elected another leader",
    ErrorCode.NOT_CONTROLLER: "it has not read as late a state as this broker has",
    ErrorCode.UNKNOWN_TOPIC_ID: "it does not know the topic",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "it does not know the partition",
}
_MOST_NAMED = 3
"""Partitions in one line of the log."""

AlterIsr = Callable[
    [Mapping[TopicPartition, WantedIsr]], Awaitable[Mapping[TopicPartition, PartitionState | KafkaError]]
]


class _Refusal(NamedTuple):
    epochs: tuple[int, int]
    """Of the leader and of the partition, which changes with the ISR."""
    isr: tuple[int, ...]
    code: ErrorCode


class IsrChanges:
    def __init__(self, replicas: ReplicaManager, alter: AlterIsr, clock: Clock, timers: Timers) -> None:
        self._replicas = replicas
        self._alter = alter
        self._clock = clock
        self._timers = timers
        self._wanted: dict[Partition, IsrChange] = {}
        self._sending: asyncio.Task[None] | None = None
        self._looking = asyncio.get_running_loop().create_task(self._look_for_laggards())
        self._told = ""
        self._refusals: WeakKeyDictionary[Partition, set[_Refusal]] = WeakKeyDictionary()
        """What was refused since the ISR changed, so that it is not logged each time it is asked for again."""
        self._closed = False

    def want(self, partition: Partition, change: IsrChange) -> bool:
        """Takes over a change that is pending at the partition; False when this broker stops."""
        if self._closed:
            return False
        self._wanted[partition] = change
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send())
        return True

    async def stop(self) -> None:
        self._closed = True
        tasks = [task for task in (self._looking, self._sending) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    async def _send(self) -> None:
        """Until nothing is wanted any more."""
        try:
            while self._wanted:
                if not await self._ask():
                    await sleep(_RETRY_MS, self._clock, self._timers)
        finally:
            self._sending = None

    async def _ask(self) -> bool:
        """False if some of it has to be asked for again."""
        taken = {partition: self._wanted.pop(partition) for partition in list(islice(self._wanted, _MOST_AT_ONCE))}
        asked = {p.tp: (p, change) for p, change in taken.items() if _is_pending(p, change)}
        if not asked:
            return True
        again = []
        refused: list[tuple[Partition, _Refusal]] = []
        turns = Turns()
        try:
            results = await self._alter({tp: self._request(change) for tp, (_, change) in asked.items()})
            for tp, wanted in asked.items():
                await turns.give_way()
                if not self._settled(*wanted, results[tp], refused):
                    again.append(wanted)
            self._tell(refused)
        except Exception as error:
            if str(error) != self._told:
                self._told = str(error)
                bug = None if isinstance(error, KafkaError) else error
                log.warning("cannot change the ISR of %d partitions: %s; trying again", len(asked), error, exc_info=bug)
            self._again(asked.values())
            return False
        self._told = ""
        self._again(again)
        return not again

    def _again(self, changes: Iterable[tuple[Partition, IsrChange]]) -> None:
        for partition, change in changes:
            self._wanted.setdefault(partition, change)

    def _request(self, change: IsrChange) -> WantedIsr:
        replicas = self._replicas
        epochs = {replicas.broker_id: replicas.broker_epoch, **dict(change.joining)}
        return WantedIsr(
            members={member: epochs.get(member, NO_EPOCH) for member in change.isr},
            leader_epoch=change.leader_epoch,
            partition_epoch=change.partition_epoch,
        )

    def _settled(
        self,
        partition: Partition,
        change: IsrChange,
        result: PartitionState | KafkaError,
        refused: list[tuple[Partition, _Refusal]],
    ) -> bool:
        """False if it has to be asked for again. A refusal to tell of is added to `refused`."""
        if isinstance(result, PartitionState):
            before = len(change.before)
            self._replicas.isr_shrinks += len(change.isr) < before
            self._replicas.isr_expands += len(change.isr) > before
            log.info("ISR of %s is %s now, was %s", partition.tp, list(result.isr), list(change.before))
            partition.isr_altered(result.isr, result.leader_epoch, result.partition_epoch)
            self._refusals.pop(partition, None)
            return True
        self._replicas.isr_failures += 1
        if result.code not in _REFUSED or partition.isr_kept(change):
            refused.append(
                (partition, _Refusal((change.leader_epoch, change.partition_epoch), change.isr, result.code))
            )
        return result.code in _REFUSED | _OVERTAKEN

    def _tell(self, refused: Iterable[tuple[Partition, _Refusal]]) -> None:
        """One line for all partitions of which the same is refused, and none for what is known."""
        news: dict[tuple[tuple[int, ...], ErrorCode], list[TopicPartition]] = defaultdict(list)
        for partition, refusal in refused:
            known = {each for each in self._refusals.get(partition, ()) if each.epochs == refusal.epochs}
            self._refusals[partition] = known | {refusal}
            if refusal not in known:
                news[refusal.isr, refusal.code].append(partition.tp)
        for (isr, code), partitions in news.items():
            why = f"{_WHY[code]} ({code.name})" if code in _WHY else code.name
            log.info(
                "the controller does not make %s the ISR of %s: %s", list(isr), some(partitions, most=_MOST_NAMED), why
            )

    async def _look_for_laggards(self) -> None:
        """Every half of `replica.lag.time.max.ms`."""
        replicas = self._replicas
        while True:
            await sleep(replicas.parts.lag.ms / 2, self._clock, self._timers)
            turns = Turns()
            for partition in list(replicas):
                try:
                    partition.expel_laggards()
                except Exception:
                    log.exception("internal error: cannot look for followers of %s that lag behind", partition.tp)
                await turns.give_way()


def _is_pending(partition: Partition, change: IsrChange) -> bool:
    leading = partition.leading
    return leading is not None and leading.proposed == change.isr and partition.leader_epoch == change.leader_epoch
