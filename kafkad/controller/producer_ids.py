"""Blocks of producer ids: each is given to one broker, once, and the last one given is in the store.

Where that may say too little, ids are passed over up to the present time in milliseconds: no cluster ever gave out that
many. One that is given twice makes a new producer's records look like duplicates of an old one's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from kafkad.controller.active import ActiveController
from kafkad.errors import ErrorCode, KafkaError
from kafkad.meta.readable import required
from kafkad.meta.store import BadVersion, MetaStore, Operation, Set, Stat, Unreadable
from kafkad.meta.znodes import ProducerIdBlock

BLOCK_SIZE = 1000
_LAST_ID = 2**63 - 1


async def allocate(active: ActiveController, broker: int, broker_epoch: int) -> ProducerIdBlock:
    """Raises BROKER_ID_NOT_REGISTERED or STALE_BROKER_EPOCH for a broker that is not that one now."""
    known = active.state.brokers.get(broker)
    if known is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"There is no broker {broker}")
    if known.epoch != broker_epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"Epoch {broker_epoch} is not that of broker {broker} now")
    while True:
        first, stat = await _next(active.store)
        if first > _LAST_ID - BLOCK_SIZE:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids have been given out")
        block = ProducerIdBlock(broker, first, first + BLOCK_SIZE - 1)
        try:
            await active.write([Set(ProducerIdBlock.path(), block.encode(), stat.version)])
        except BadVersion:
            continue
        return block


async def pass_over_known(store: MetaStore, broker: int, now_ms: int, known: Callable[[int, int], bool]) -> bool:
    """Passes ids over where the logs know one that would be given out: the store is older than they are. False if not.

    `known` is asked for the ids from one to another. Those above the present time were given out by nobody: clients may
    make up any.
    """
    while True:
        passed = await _passed_over(store, broker, now_ms)
        if passed is None or not known(*passed.ids):
            return False
        with contextlib.suppress(BadVersion):
            await store.set(*passed.write)
            return True


async def pass_over(store: MetaStore, broker: int, now_ms: int) -> list[Operation]:
    """The write by which ids are passed over; none if as many were given out. Where nobody can read how many, all of
    those are."""
    try:
        passed = await _passed_over(store, broker, now_ms)
    except Unreadable:
        return [Set(ProducerIdBlock.path(), _block_before(broker, now_ms).encode())]
    return [] if passed is None else [passed.write]


class _PassedOver(NamedTuple):
    """`ids` are the first and the last of those that are not given out."""

    ids: tuple[int, int]
    write: Set


async def _passed_over(store: MetaStore, broker: int, now_ms: int) -> _PassedOver | None:
    first, stat = await _next(store)
    block = _block_before(broker, now_ms)
    if first > block.last:
        return None
    return _PassedOver((first, block.last), Set(ProducerIdBlock.path(), block.encode(), stat.version))


def _block_before(broker: int, now_ms: int) -> ProducerIdBlock:
    last = now_ms - now_ms % BLOCK_SIZE - 1
    return ProducerIdBlock(broker, last - BLOCK_SIZE + 1, last)


async def _next(store: MetaStore) -> tuple[int, Stat]:
    """The first id of the next block, and the node of the last one."""
    data, stat = await store.get(ProducerIdBlock.path())
    last = required(ProducerIdBlock.path(), partial(ProducerIdBlock.decode, data))
    return 0 if last is None else last.last + 1, stat
