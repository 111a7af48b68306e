"""A broker enters the cluster: its id, the persistent nodes, its registration."""

from __future__ import annotations

import asyncio
import contextlib
import os

from kafkad.meta.store import Create, MetaStore, MultiFailed, NodeExists, NoNode, Set, Stat, ensure_path
from kafkad.meta.znodes import PERSISTENT, Broker, ClusterId
from kafkad.names import id_text


class DuplicateBroker(Exception):
    """Another process holds this broker id in the store and keeps it."""


async def cluster_id(store: MetaStore, known: str | None = None) -> str:
    """The cluster's id. A new cluster gets `known` (that of the data directories), or one that is made up."""
    await ensure_path(store, "/cluster")
    with contextlib.suppress(NodeExists):
        await store.create(ClusterId.PATH, ClusterId.encode(known or id_text(os.urandom(16))))
    return ClusterId.decode((await store.get(ClusterId.PATH))[0])


async def prepare(store: MetaStore) -> None:
    """Makes the nodes that have to exist before anything else."""
    for path in PERSISTENT:
        await ensure_path(store, path)


async def register(store: MetaStore, registration: Broker, patience_seconds: float) -> int:
    """Registers the broker and says its epoch.

    A node left by the session of this broker before its restart is waited for; a node that outlives `patience_seconds`
    (longer than a session can) belongs to somebody else: DuplicateBroker.
    """
    path = Broker.path(registration.broker.id)
    text = registration.encode()
    deadline = asyncio.get_running_loop().time() + patience_seconds
    while True:
        try:
            results = await store.multi([Create(path, text, ephemeral=True), Set(path, text)])
        except MultiFailed as e:
            if not isinstance(e.cause, NodeExists):
                raise e.cause from None
        else:
            written = results[1]
            assert isinstance(written, Stat)
            return written.czxid
        epoch = await _mine_or_gone(store, path, deadline - asyncio.get_running_loop().time())
        if epoch is not None:
            return epoch


async def _mine_or_gone(store: MetaStore, path: str, patience_seconds: float) -> int | None:
    """The epoch, if the node is this session's after all (the answer to its creation was lost)."""
    gone = asyncio.Event()
    try:
        _, stat = await store.get(path, lambda event: gone.set())
    except NoNode:
        return None
    if stat.ephemeral_owner == store.session_id:
        return stat.czxid
    try:
        await asyncio.wait_for(gone.wait(), patience_seconds)
    except TimeoutError as e:
        raise DuplicateBroker(f"{path} belongs to another live process: is the same broker.id used twice?") from e
    return None
