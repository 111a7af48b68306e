"""The ACLs as the metadata store has them, in memory: read at the start, changed there, and followed by notes.

Each pattern has a node, `/kafka-acl/Topic/orders` or `/kafka-acl-extended/prefixed/Topic/ord`, and each change leaves a
sequential note that names it; brokers then read that node again. A node that cannot be read is named in the log, and
nothing that it is about is allowed to anybody until it is mended; the other ACLs hold.

A node has all ACLs of its resource, ten thousand in 1 MB, and each change of one reads or writes them all. That is done
in pieces; at the end everything is decided by them at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from kafkad.clock import Clock
from kafkad.cluster.notify import notify_all
from kafkad.errors import ErrorCode, Guard, KafkaError, unguarded
from kafkad.meta.notes import Note, Notes, follow
from kafkad.meta.readable import UNREADABLE
from kafkad.meta.refusals import storage_refused
from kafkad.meta.security_znodes import ACL_CHANGE_PREFIXES, AclChange, AclEntry
from kafkad.meta.security_znodes import Acls as Node
from kafkad.meta.store import (
    BadVersion,
    Create,
    Delete,
    MetaError,
    MetaStore,
    MultiFailed,
    NodeExists,
    NoNode,
    OutOfReach,
    Set,
    Stat,
    TooLarge,
    ensure_path,
)
from kafkad.security.acl import Acl, AclAuthorizer, Entries, Pattern, Rules
from kafkad.security.authorizer import Operation, PatternType, PermissionType, ResourceType, kafka_name
from kafkad.timers import Timers
from kafkad.turns import Pieces, Turns, in_turns
from kafkad.wire.primitives import MAX_STRING

log = logging.getLogger(__name__)

_NOTHING: Entries = ()
_TRIES = 10
"""Others write the same node at the same time."""
_AT_ONCE = 200
"""ACLs of one node that are read before others get a turn."""
_NAMES_OF_TYPES = {kind: kafka_name(kind) for kind in ResourceType}
_TYPES = {name: kind for kind, name in _NAMES_OF_TYPES.items()}
_NAMES_OF_OPERATIONS = {operation: kafka_name(operation) for operation in Operation}
_OPERATIONS = {name: operation for operation, name in _NAMES_OF_OPERATIONS.items()}
_NAMES_OF_PERMISSIONS = {permission: kafka_name(permission) for permission in PermissionType}
_PERMISSIONS = {name: permission for permission, name in _NAMES_OF_PERMISSIONS.items()}

Change = Callable[[Entries], Entries]


class _Known(NamedTuple):
    """What a node says, and its text: one with the same text is not read again."""

    text: bytes
    entries: Entries | None
    """None if it cannot be read."""


_NOTHING_KNOWN = _Known(b"", None)


class Acls:
    """All ACLs of the cluster, which it adds to, removes from, and keeps `authorizer.index` up to date with."""

    def __init__(self, store: MetaStore, authorizer: AclAuthorizer, clock: Clock, timers: Timers) -> None:
        self.on_change: list[Callable[[], None]] = [authorizer.changed]
        """Called after every change: what was decided before may not be relied on."""
        self._store = store
        self._index = authorizer.index
        self._clock = clock
        self._timers = timers
        self._known: dict[Pattern, _Known] = {}
        self._news = asyncio.Event()
        self._notes = [Notes(store, prefix, clock, self._news) for prefix in ACL_CHANGE_PREFIXES]
        """Of literal patterns, and of prefixed ones."""
        self._reading = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def __iter__(self) -> Iterator[tuple[Pattern, Acl]]:
        """Every ACL, but those of damaged nodes."""
        for pattern in list(self._known):
            known = self._known.get(pattern, _NOTHING_KNOWN)
            for acl in known.entries or ():
                yield pattern, acl

    @property
    def damaged(self) -> list[str]:
        """The paths of the nodes that cannot be read."""
        return [_path(pattern) for pattern, known in self._known.items() if known.entries is None]

    async def start(self) -> None:
        resources = [f"{parent}/{name}" for parent in Node.PARENTS for name in Node.RESOURCE_TYPES]
        for path in (*resources, *(notes.parent for notes in self._notes)):
            await ensure_path(self._store, path)
        await self._read_all()
        self._task = asyncio.create_task(
            follow(self._news, self.catch_up, "read changes of ACLs", self._clock, self._timers)
        )

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def session_renewed(self) -> None:
        """Reads all there is again: notes may have come and gone while there was no session."""
        async with self._reading:
            await self._read_all()

    async def catch_up(self) -> None:
        """Takes in all changes written before this call."""
        async with self._reading:
            for prefixed, notes in enumerate(self._notes):
                await notes.take(partial(self._read_again, prefixed=bool(prefixed)))

    async def add(self, pattern: Pattern, acls: Iterable[Acl], guard: Guard = unguarded) -> None:
        """Raises KafkaError if the store cannot be reached or refuses it, or others keep changing the same node."""
        await self._change(pattern, lambda entries: tuple(dict.fromkeys((*entries, *acls))), guard)

    async def remove(self, pattern: Pattern, acls: Collection[Acl], guard: Guard = unguarded) -> None:
        await self._change(pattern, lambda entries: tuple(acl for acl in entries if acl not in acls), guard)

    async def _change(self, pattern: Pattern, change: Change, guard: Guard) -> None:
        """When this returns, this broker decides by the change."""
        try:
            async with self._reading:  # what is being read now would be older than what is written
                for _ in range(_TRIES):
                    guard()
                    if await self._written(pattern, change):
                        return
        except OutOfReach as error:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"the metadata store is out of reach: {error}; try again"
            ) from error
        except TooLarge as error:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"{pattern.name} would have more ACLs than the metadata store takes: {error}"
            ) from error
        except MetaError as error:
            raise storage_refused(error) from error
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"others keep changing {_path(pattern)}; try again")

    async def _written(self, pattern: Pattern, change: Change) -> bool:
        """The node and the note in one transaction: a change of which there is no note is known to nobody else. False
        if another change came in between."""
        path = _path(pattern)
        [node] = await self._store.get_many([path])
        before = await self._said(pattern, node)
        if before is not None and before.entries is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"the ACLs in {path} cannot be read: mend or delete the node"
            )
        entries = _NOTHING if before is None or before.entries is None else before.entries
        after = change(entries)
        if after == entries:
            await self._keep({pattern: before})
            return True
        text = await in_turns(_encoded(after))
        note = AclChange(pattern.resource.name, pattern.name, pattern.type is PatternType.PREFIXED)
        told = Create(note.prefix, note.encode(), sequential=True)
        try:
            await self._store.multi([_replacement(path, node, text if after else None), told])
        except MultiFailed as error:
            if isinstance(error.cause, BadVersion | NodeExists | NoNode):
                return False
            raise error.cause from None
        await self._keep({pattern: _Known(text, after) if after else None})
        return True

    async def _said(self, pattern: Pattern, node: tuple[bytes, Stat] | None) -> _Known | None:
        """What a node says, if there is one."""
        if node is None:
            return None
        known = self._known.get(pattern)
        if known is not None and known.text == node[0]:
            return known
        return await in_turns(_decoded(_path(pattern), node[0]))

    async def _keep(self, found: Mapping[Pattern, _Known | None]) -> None:
        changed = {pattern: said for pattern, said in found.items() if said != self._known.get(pattern)}
        rules = {
            pattern: await in_turns(Rules.of(_NOTHING if said is None else said.entries))
            for pattern, said in changed.items()
        }
        for pattern, said in changed.items():
            self._index.put(pattern, rules[pattern])
            if said is None:
                del self._known[pattern]
            else:
                self._known[pattern] = said
        if changed:
            self._tell()

    def _tell(self) -> None:
        notify_all(self.on_change)

    async def _read_all(self) -> None:
        last = [await notes.newest() for notes in self._notes]
        patterns = [
            Pattern(_TYPES[kind], name, pattern_type)
            for parent, pattern_type in zip(Node.PARENTS, PatternType, strict=True)
            for kind in Node.RESOURCE_TYPES
            for name in await self._store.children(f"{parent}/{kind}")
        ]
        found = await self._read(patterns)
        for notes, number in zip(self._notes, last, strict=True):
            notes.skip(number)
        known = {pattern: said for pattern, said in found.items() if said is not None}
        await in_turns(self._index.replace((pattern, said.entries) for pattern, said in known.items()))
        self._known = known
        self._tell()

    async def _read(self, patterns: list[Pattern]) -> dict[Pattern, _Known | None]:
        nodes = await self._store.get_many([_path(pattern) for pattern in patterns])
        found: dict[Pattern, _Known | None] = {}
        turns = Turns()
        for pattern, node in zip(patterns, nodes, strict=True):
            found[pattern] = await self._said(pattern, node)
            await turns.give_way()
        return found

    async def _read_again(self, notes: list[Note], *, prefixed: bool) -> None:
        named = [None if data is None else _named(path, data, prefixed) for path, data in notes]
        if None in named:
            await self._read_all()
        else:
            await self._keep(await self._read(list(dict.fromkeys(pattern for pattern in named if pattern is not None))))


def _replacement(path: str, node: tuple[bytes, Stat] | None, text: bytes | None) -> Create | Set | Delete:
    if node is None:
        assert text is not None
        return Create(path, text)
    version = node[1].version
    return Delete(path, version) if text is None else Set(path, text, version)


def _path(pattern: Pattern) -> str:
    return Node.path(_NAMES_OF_TYPES[pattern.resource], pattern.name, prefixed=pattern.type is PatternType.PREFIXED)


def _encoded(entries: Entries) -> Pieces[bytes]:
    return Node.encode(
        AclEntry(acl.principal, _NAMES_OF_PERMISSIONS[acl.permission], acl.host, _NAMES_OF_OPERATIONS[acl.operation])
        for acl in entries
    )


def _decode(data: bytes) -> Pieces[Entries]:
    acls: list[Acl] = []
    for principal, permission, host, operation in (yield from Node.decode(data)):
        acls.append(Acl(_principal(principal), _text(host), _OPERATIONS[operation], _PERMISSIONS[permission]))
        if not len(acls) % _AT_ONCE:
            yield
    return tuple(acls)


def _principal(text: str) -> str:
    if ":" not in _text(text):
        raise ValueError(f"{text!r} is no principal, such as User:alice")
    return text


def _text(text: str) -> str:
    """Raises one of UNREADABLE for what could not be told to a client."""
    if len(text.encode()) > MAX_STRING:
        raise ValueError(f"{len(text)} characters are too many for a principal or a host")
    return text


def _decoded(path: str, text: bytes) -> Pieces[_Known]:
    try:
        return _Known(text, (yield from _decode(text)))
    except UNREADABLE as error:
        log.error(
            "the ACLs in %s cannot be read, and nobody but super.users may do anything that they are about until the "
            "node is mended or deleted: %r",
            path,
            error,
        )
        return _Known(text, None)


def _named(path: str, data: bytes, prefixed: bool) -> Pattern | None:
    try:
        note = AclChange.decode(data, prefixed=prefixed)
        pattern_type = PatternType.PREFIXED if prefixed else PatternType.LITERAL
        return Pattern(ResourceType[note.resource_type], note.name, pattern_type)
    except UNREADABLE as error:
        log.error("the note %s cannot be read, so all ACLs are read again: %r", path, error)
        return None
