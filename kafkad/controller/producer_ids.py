"""Blocks of producer ids: each is given to one broker, once, and the last one given is in the store."""

from __future__ import annotations

from functools import partial

from kafkad.controller.leadership import Leadership
from kafkad.errors import ErrorCode, KafkaError
from kafkad.meta.readable import required
from kafkad.meta.store import BadVersion, Set
from kafkad.meta.znodes import ProducerIdBlock

BLOCK_SIZE = 1000
_LAST_ID = 2**63 - 1


async def allocate(lead: Leadership, broker: int, broker_epoch: int) -> ProducerIdBlock:
    """Raises BROKER_ID_NOT_REGISTERED or STALE_BROKER_EPOCH for a broker that is not that one now."""
    known = lead.state.brokers.get(broker)
    if known is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"There is no broker {broker}")
    if known.epoch != broker_epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"Epoch {broker_epoch} is not that of broker {broker} now")
    while True:
        data, stat = await lead.store.get(ProducerIdBlock.path())
        last = required(ProducerIdBlock.path(), partial(ProducerIdBlock.decode, data))
        first = 0 if last is None else last.last + 1
        if first > _LAST_ID - BLOCK_SIZE:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids have been given out")
        block = ProducerIdBlock(broker, first, first + BLOCK_SIZE - 1)
        try:
            await lead.write([Set(ProducerIdBlock.path(), block.encode(), stat.version)])
        except BadVersion:
            continue
        return block
