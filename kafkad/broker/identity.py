"""The identity of a broker: its id, and the log directories that belong to it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from kafkad.config import Config
from kafkad.log.directories import LogDirectory
from kafkad.log.manager import LogManager
from kafkad.meta.embedded import lost_store
from kafkad.meta.readable import readable, required
from kafkad.meta.security_znodes import LoginSecret
from kafkad.meta.store import MetaStore, NodeExists, ensure_path, put
from kafkad.meta.znodes import LogDirs


class StartError(Exception):
    """The reason that the broker cannot start, in words for people."""


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


def refuse_lost_store(metadata_dir: str, directories: Sequence[LogDirectory]) -> None:
    """StartError where `lost_store` knows a problem."""
    path = os.path.abspath(metadata_dir)
    place = next((each for each in directories if each.path == path), None)
    if place is not None and place.failure is not None:
        return
    used = [each.path for each in directories if each.meta is not None or (each is place and any(each.partitions()))]
    problem = lost_store(path, [each.path for each in directories], used)
    if problem is not None:
        raise StartError(problem)


async def login_secret(session: MetaStore) -> bytes:
    """The secret of the cluster's brokers by which they make up users who do not exist. The first one draws it."""
    path = LoginSecret.PATH
    if await session.exists(path) is None:
        await ensure_path(session, "/kafkad")
        with suppress(NodeExists):
            await session.create(path, LoginSecret.encode(os.urandom(32)))
    data, _ = await session.get(path)
    return required(path, lambda: LoginSecret.decode(data))


async def known_directories(session: MetaStore, broker_id: int) -> tuple[LogDirs, int]:
    """Those that were this broker's when it started last, none at its first start; and the transaction since which the
    store has them."""
    path = LogDirs.path(broker_id)
    [node] = await session.get_many([path])
    if node is None:
        return LogDirs(), 0
    return readable(path, lambda: LogDirs.decode(node[0])) or LogDirs(), node[1].mzxid


async def claim_directories(
    session: MetaStore, logs: LogManager, cluster_id: str, broker_id: int, *, alone: bool
) -> int:
    """Make the log directories this broker's, but for those that were and are empty now; remember them. `alone`: behind
    `refuse_partial_adoption`, which cannot look into those that are offline.

    Returns the transaction since which no directory has come, gone or been replaced by a new disk: what was in such a
    one is of earlier topics."""
    known, since = await known_directories(session, broker_id)
    logs.refuse_unmounted(known.paths, cluster_id, broker_id)
    logs.claim(cluster_id, broker_id)
    unused = logs.unused()
    here = tuple(each.path for each in logs.directories if each.failure is None or each.path in known.paths)
    all_seen = known.are_guarded or all(each.failure is None for each in logs.directories)
    used = LogDirs(here, are_guarded=alone and all_seen)
    are_others = {*used.paths} != {*known.paths}  # their order has no meaning
    if are_others or used.are_guarded != known.are_guarded or unused:
        path = LogDirs.path(broker_id)
        await put(session, path, used.encode())
        since = (await session.get(path))[1].mzxid
    logs.take_into_use(unused)
    return since
