"""Registration of a broker: writes the persistent nodes, the cluster's id and the broker's own node."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import NamedTuple

from kafkad.meta.readable import readable, required
from kafkad.meta.store import Create, MetaError, MetaStore, MultiFailed, NodeExists, NoNode, Set, Stat, ensure_path
from kafkad.meta.znodes import PERSISTENT, Broker, ClusterId
from kafkad.names import id_text


class Occupied(NamedTuple):
    """A registration that is there; `gone` is set when it goes, or changes.

    `registration` is None where its text cannot be read.
    """

    path: str
    registration: Broker | None
    epoch: int
    version: int
    session: int
    gone: asyncio.Event


async def cluster_id(store: MetaStore, known: str | None = None) -> str:
    """The cluster's id. A new cluster gets `known` (that of the data directories), or one that is made up."""
    await ensure_path(store, "/cluster")
    with contextlib.suppress(NodeExists):
        await store.create(ClusterId.PATH, ClusterId.encode(known or id_text(os.urandom(16))))
    data, _ = await store.get(ClusterId.PATH)
    return required(ClusterId.PATH, lambda: ClusterId.decode(data))


class OtherCluster(MetaError):
    """The store is not that of the cluster to which the broker belongs."""


async def refuse_other_cluster(store: MetaStore, mine: str) -> None:
    """OtherCluster where the store has lost its data, or is another's: a broker that joined it would be a stranger.

    Its partitions are in no node there, and the first controller would know nothing of any.
    """
    if await store.exists(ClusterId.PATH) is None:
        raise OtherCluster(ClusterId.PATH, f"does not exist, and this broker belongs to cluster {mine}")
    found = await cluster_id(store)
    if found != mine:
        raise OtherCluster(ClusterId.PATH, f"is {found}, and this broker belongs to cluster {mine}")


async def prepare(store: MetaStore) -> None:
    """Makes the nodes that have to exist before anything else."""
    for path in PERSISTENT:
        await ensure_path(store, path)


async def register(store: MetaStore, registration: Broker) -> int | Occupied:
    """Register the broker, and return its epoch; or what stands in the way."""
    path = Broker.path(registration.broker.id)
    text = registration.encode()
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
        found = await present(store, registration.broker.id)
        if found is not None:
            mine = found.session == store.session_id  # the answer to its creation was lost
            return found.epoch if mine else found


async def present(store: MetaStore, broker: int) -> Occupied | None:
    """Who is registered under this id."""
    gone = asyncio.Event()
    path = Broker.path(broker)
    try:
        data, stat = await store.get(path, lambda event: gone.set())
    except NoNode:
        return None
    registration = readable(path, lambda: Broker.decode(broker, data, stat.czxid))
    return Occupied(path, registration, stat.czxid, stat.version, stat.ephemeral_owner, gone)
