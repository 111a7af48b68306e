"""Which number a broker has."""

from __future__ import annotations

from kafkad.config import Config
from kafkad.meta.store import MetaStore


class StartError(Exception):
    """Why the broker cannot start, for a person to read."""


async def choose_broker_id(session: MetaStore, config: Config, known: int | None) -> int:
    """The configured id; else the one the directories were used with; else the next above the reserved ones."""
    if config.broker_id >= 0:
        return config.broker_id
    if known is not None:
        return known
    if not config.bool("broker.id.generation.enable"):
        raise StartError("broker.id is not set, and broker.id.generation.enable is false")
    return config.int("reserved.broker.max.id") + await next_broker_id(session)


async def next_broker_id(session: MetaStore) -> int:
    """A number that no broker had before, as Kafka counts them."""
    stat = await session.set("/brokers/seqid", b"")
    return stat.version
