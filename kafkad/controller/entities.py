"""Changes the quotas and credentials of users, clients and addresses in the store, with a note to all brokers.

Credentials and quotas of a user are in one node: each change reads it first, and is made anew if another was quicker.
A node that has nothing more goes, and with it the parents that were there for its sake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from kafkad.meta.readable import required
from kafkad.meta.refusals import storage_refused
from kafkad.meta.store import (
    BadVersion,
    Create,
    Delete,
    MetaError,
    MetaStore,
    MultiFailed,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Set,
    Stat,
    parent_of,
)
from kafkad.meta.znodes import Config, ConfigChange
from kafkad.model import Entity

Overrides = Mapping[str, str]

_OTHERS_WERE_QUICKER = (BadVersion, NodeExists, NoNode, NotEmpty)


class EntityAlterer:
    """Any broker may do this, whether it is the controller or not."""

    def __init__(self, store: MetaStore) -> None:
        self._store = store

    async def change(self, entity: Entity, change: Callable[[Overrides], Overrides]) -> None:
        """`change` is given all that the entity has, and says what it is to have. Raises KafkaError."""
        path = Config.path_of(entity)
        try:
            while not await self._changed(path, change):
                pass
        except MetaError as e:
            raise storage_refused(e) from e

    async def _changed(self, entity_path: str, change: Callable[[Overrides], Overrides]) -> bool:
        """False if another change came in between."""
        path = Config.path(entity_path)
        found = await self._found(path)
        before: Overrides = {} if found is None else required(path, partial(Config.decode, found[0]))
        after = change(before)
        if after == before:
            return True
        if after or (found is not None and found[1].children):
            operations = await self._to_write(path, Config.encode(after), found)
        else:
            operations = await self._to_delete(path, found)
        note = Create(ConfigChange.PREFIX, ConfigChange.encode(entity_path), sequential=True)
        try:
            await self._store.multi([*operations, note])
        except MultiFailed as e:
            if isinstance(e.cause, _OTHERS_WERE_QUICKER) and e.index < len(operations):
                return False
            raise e.cause from None
        return True

    async def _found(self, path: str) -> tuple[bytes, Stat] | None:
        [found] = await self._store.get_many([path])
        return found

    async def _to_write(self, path: str, text: bytes, found: tuple[bytes, Stat] | None) -> list[Operation]:
        if found is not None:
            return [Set(path, text, found[1].version)]
        missing: list[Operation] = [Create(path, text)]
        above = parent_of(path)
        while await self._store.exists(above) is None:
            missing.insert(0, Create(above))
            above = parent_of(above)
        return missing

    async def _to_delete(self, path: str, found: tuple[bytes, Stat] | None) -> list[Operation]:
        """The node, then what is above it for as long as that has nothing else: a user's clients, and the user."""
        operations: list[Operation] = []
        while found is not None:
            operations.append(Delete(path, found[1].version))
            path = parent_of(path)
            found = await self._found(path) if Config.is_of_one_user(path) else None
            if found is not None and (found[1].children > 1 or required(path, partial(Config.decode, found[0]))):
                break
        return operations
