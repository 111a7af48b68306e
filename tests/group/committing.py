"""An offset committer over the world of `life`: one shard, whose writes a test holds back or refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from typing import Any, TypeVar, cast

from kafkad.errors import ErrorCode, KafkaError
from kafkad.group.committing import Codes, Committer, Fetched, OffsetCommitter, OffsetSettings, OffsetToCommit
from kafkad.group.expiry import OffsetExpiry
from kafkad.group.machine import GroupMachine, OnEnd
from kafkad.group.records import GroupRecord
from kafkad.shard import NO_PRODUCER, Coordination, Prepared, Shard, TransactionalProducer
from kafkad.turns import at_once
from tests.group.life import Life

MINUTE = 60_000
T = TypeVar("T")


class LifeShard:
    def __init__(self, life: Life) -> None:
        self._life = life
        self.sequences: list[int] = []

    @property
    def commits_at_once(self) -> bool:
        return not self._life.hold

    @property
    def most_bytes(self) -> int:
        return self._life.most_bytes

    @property
    def machine(self) -> GroupMachine:
        return self._life.machine

    def write(
        self,
        records: Sequence[GroupRecord],
        on_end: OnEnd,
        base_sequence: int = -1,
        producer: TransactionalProducer = NO_PRODUCER,
        prepared: Prepared | None = None,
    ) -> None:
        self.sequences.append(base_sequence)
        self._life.write(records, on_end)


class LifeCoordination:
    """`absence` is why there is no shard."""

    def __init__(self, life: Life) -> None:
        self.the_shard = LifeShard(life)
        self.absence: ErrorCode | None = None
        self.is_served = True
        self.on_served: Callable[[LifeShard], None] = lambda shard: None

    def shard(self, key: str) -> LifeShard:
        if self.absence is not None:
            raise KafkaError(self.absence)
        return self.the_shard

    def shards(self) -> Iterable[LifeShard]:
        return [self.the_shard] if self.is_served else []

    @property
    def loading(self) -> bool:
        return not self.is_served


class Offsets(Life):
    """Committing and expiring beside the groups' own life; retention is 10 minutes, looked at every minute."""

    def __init__(self, **changed: int) -> None:
        super().__init__()
        usual = {
            "max_metadata_size": 100,
            "commit_timeout_ms": 5000,
            "retention_ms": 10 * MINUTE,
            "check_interval_ms": MINUTE,
        }
        self.coordination = LifeCoordination(self)
        coordination = cast(Coordination[GroupMachine], self.coordination)
        self.committer = OffsetCommitter(coordination, OffsetSettings(**(usual | changed)), self.clock, self.timers)
        self.made_anew: set[str] = set()
        self.expiry = OffsetExpiry(
            coordination, self.committer, lambda topic: topic in self.made_anew, self.clock, self.timers
        )
        self._runner = asyncio.Runner()

    def close(self) -> None:
        self.run(self.expiry.stop())
        self._runner.close()

    def run(self, scenario: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(scenario)

    def begin(self, *asked: OffsetToCommit, retention_ms: int = -1, **who: Any) -> Codes | asyncio.Future[Codes]:
        async def commit() -> Codes | asyncio.Future[Codes]:
            return self.committer.commit(Committer(**({"group": "g"} | who)), asked, retention_ms)

        return self.run(commit())

    def commit_offsets(self, *asked: OffsetToCommit, retention_ms: int = -1, **who: Any) -> Codes:
        codes = self.begin(*asked, retention_ms=retention_ms, **who)
        assert isinstance(codes, list), "its write has not ended"
        return codes

    def fetch(self, *positions: tuple[str, int], group: str = "g", require_stable: bool = False) -> list[Fetched]:
        return at_once(self.committer.fetch(group, positions, require_stable))

    def fetch_all(self, group: str = "g", require_stable: bool = False) -> list[Fetched]:
        return at_once(self.committer.fetch(group, None, require_stable))

    def delete_offsets(self, *positions: tuple[str, int], group: str = "g") -> Codes | ErrorCode:
        try:
            at_once(self.committer.prepare_to_delete(group))
            return self.run(self.committer.delete(group, positions))
        except KafkaError as error:
            return error.code

    def expire(self) -> set[tuple[str, str, int]]:
        """Looks through all groups now; returns the offsets that it removes."""
        before = self.everything()
        self.run(self.expiry.forget_expired())
        return before - self.everything()

    async def forget(self, topics: Collection[str], deleted_ms: int) -> None:
        """Offsets of topics that were deleted then."""
        await self.expiry.forget_topics(
            dict.fromkeys(topics, deleted_ms), cast(Iterable[Shard[GroupMachine]], self.coordination.shards())
        )

    async def served(self) -> None:
        """The partition has been loaded."""
        self.coordination.on_served(self.coordination.the_shard)
        await self.forgotten()

    async def forgotten(self) -> None:
        """All looks at offsets that have begun are over."""
        while self.expiry._tasks:
            await asyncio.sleep(0)

    def everything(self) -> set[tuple[str, str, int]]:
        offsets = self.machine.offsets
        return {(group, *position) for group in offsets.groups() for position in offsets.positions(group)}
