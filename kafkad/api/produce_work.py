"""One Produce request under way: the answers for its partitions, given now or later."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any

from kafkad.api.delayed_produce import DelayedProduce
from kafkad.api.peer import Peer
from kafkad.api.throttling import Throttle
from kafkad.api.transaction import Transaction
from kafkad.errors import KafkaError
from kafkad.wire.produce import FIRST_WITH_LEADERS, Answer, ProduceFrame, TopicData, pack_answer
from kafkad.wire.records import ATTRIBUTES, CODEC_MASK, RECORD_COUNT, Header

_MOST_RECORDS = 4000
"""That one request may have looked into on the event loop, in batches that are not ordinary."""
_DECOMPRESSING = 100
"""The number of records that take as long to check as one batch to decompress."""


Outcome = Answer | Coroutine[Any, Any, Answer]
"""The answer for one partition: now, or when something that takes time has happened."""


class Work:
    """One request under way: packed answers in the order of its partitions, and by place what they wait for."""

    __slots__ = (
        "_left",
        "allow_internal",
        "correlation_id",
        "delayed",
        "error",
        "failed",
        "is_transactional",
        "leaders",
        "packed",
        "request",
        "sender",
        "throttle",
        "transaction",
        "version",
        "waiting",
    )

    def __init__(self, request: ProduceFrame, version: int, correlation_id: int, *, allow_internal: bool) -> None:
        self.request = request
        self.version = version
        self.correlation_id = correlation_id
        self.allow_internal = allow_internal
        self.packed: list[bytes] = []
        self.waiting: dict[int, Coroutine[Any, Any, Answer]] = {}
        self.delayed: DelayedProduce | None = None
        """The coroutine that its answers have to wait for, if any."""
        self.failed = False
        self.is_transactional = False
        """True if one of its batches is known to be of a transaction: it is looked for only where that matters."""
        self.leaders: dict[int, None] = {}
        """Brokers that lead partitions which this one does not lead."""
        self.sender: Peer | None = None
        """Where its rights have to be asked for."""
        self.error: KafkaError | None = None
        """Given where the request as a whole is refused."""
        self.throttle: Throttle | None = None
        """Measures what is done later, for a client that has quotas."""
        self.transaction: Transaction | None = None
        self._left = _MOST_RECORDS

    def affords(self, header: Header) -> bool:
        """True if one more batch may be looked into on the event loop; after that it counts."""
        self._left -= header[RECORD_COUNT] + (_DECOMPRESSING if header[ATTRIBUTES] & CODEC_MASK else 0)
        return self._left >= 0

    def partitions(self) -> list[tuple[TopicData, int]]:
        return [(topic, data[0]) for topic in self.request.topics for data in topic.partitions]

    def take(self, outcome: Outcome) -> None:
        """Add the answer of the next partition, or its promise."""
        at = len(self.packed)
        self.packed.append(b"")
        if isinstance(outcome, Coroutine):
            self.waiting[at] = outcome
        else:
            self.settle(at, outcome)

    def settle(self, at: int, answer: Answer) -> None:
        if answer.error_code:
            self.failed = True
            if self.delayed is not None:
                self.delayed.forget(at)
            if answer.leader is not None and self.version >= FIRST_WITH_LEADERS:
                self.leaders[answer.leader.broker] = None
        self.packed[at] = pack_answer(answer, self.version)


async def after(synced: Coroutine[Any, Any, None], answer: Answer) -> Answer:
    await synced
    return answer


async def within(timeout_s: float | None, awaited: Awaitable[Answer]) -> Answer:
    async with asyncio.timeout(timeout_s):
        return await awaited
