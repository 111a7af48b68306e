"""The quotas and credentials of users, clients and addresses, kept in memory as the metadata store has them.

`configs` has them read at the start, and one of them again when a note names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from kafkad.cluster.notify import notify_all
from kafkad.meta.readable import readable
from kafkad.meta.store import MetaStore, NoNode, Stat
from kafkad.meta.znodes import Config
from kafkad.model import Entity
from kafkad.together import together

Overrides = Mapping[str, str]
Listener = Callable[[Entity, Overrides], None]
"""Called with all that an entity has from now on: nothing if it is gone."""

_NOTHING: Overrides = MappingProxyType({})


class EntityConfigs:
    """`all` has one entry for each entity that has anything."""

    def __init__(self, store: MetaStore) -> None:
        self._store = store
        self._entities: dict[Entity, Overrides] = {}
        self._listeners: list[Listener] = []
        self.all: Mapping[Entity, Overrides] = MappingProxyType(self._entities)

    def of(self, entity: Entity) -> Overrides:
        return self._entities.get(entity, _NOTHING)

    def listen(self, listener: Listener) -> None:
        """Listeners hear of later changes only, and of each when `of` says it already."""
        self._listeners.append(listener)

    async def read_all(self) -> None:
        """Listeners hear of what is not as it was read last."""
        kinds = await together(map(self._below, (Config.USERS, Config.CLIENTS, Config.IPS)))
        found: dict[Entity, Overrides] = {}
        users = await self._read(kinds[0], found)
        with_clients = [user for user, stat in users if stat.children]
        clients = await together(self._below(f"{user}/{Config.CLIENTS}") for user in with_clients)
        await self._read([path for paths in (*clients, *kinds[1:]) for path in paths], found)
        for entity in self._entities.keys() | found.keys():
            self._take(entity, found.get(entity, _NOTHING))

    async def changed(self, entity_path: str) -> None:
        """A note names it."""
        found: dict[Entity, Overrides] = {}
        await self._read([entity_path], found)
        entity = Config.entity_at(entity_path)
        if entity is not None:
            self._take(entity, found.get(entity, _NOTHING))

    async def _below(self, path: str) -> list[str]:
        try:
            return [f"{path}/{name}" for name in await self._store.children(Config.path(path))]
        except NoNode:
            return []

    async def _read(self, paths: Sequence[str], found: dict[Entity, Overrides]) -> list[tuple[str, Stat]]:
        """Puts what they have into `found`. Nodes that cannot be read count as empty: nobody logs in by them."""
        nodes = await self._store.get_many([Config.path(path) for path in paths])
        there = [(path, *node) for path, node in zip(paths, nodes, strict=True) if node is not None]
        for path, data, _ in there:
            overrides = readable(Config.path(path), partial(Config.decode, data))
            if overrides and (entity := Config.entity_at(path)) is not None:
                found[entity] = overrides
        return [(path, stat) for path, _, stat in there]

    def _take(self, entity: Entity, overrides: Overrides) -> None:
        if overrides == self.of(entity):
            return
        if overrides:
            self._entities[entity] = overrides
        else:
            del self._entities[entity]
        notify_all(self._listeners, entity, overrides)
