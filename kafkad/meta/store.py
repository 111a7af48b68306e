"""The metadata store as its users see it: ZooKeeper's tree, and nothing that only one implementation could give.

A node has data, a version that each write raises, and children. `czxid` (the transaction that created it) and `mzxid`
(the last one that wrote it) grow over the life of the store and are never used twice, restarts included: a broker's
epoch is the czxid of its registration. An ephemeral node goes with the session that made it. A parent must exist before
its child, and an ephemeral node has no children.

A watch is a callback for one event: the next change after the read that set it. It is called on the event loop, in the
order of the changes, and should only put something in a queue. It may be told of a change that the read already showed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import NamedTuple, Protocol

from kafkad.together import together

ANY_VERSION = -1
_NODES_AT_ONCE = 200
"""More reads side by side would be no faster, and hold up the event loop."""


class MetaError(Exception):
    """The store refused an operation or could not carry it out. `path` is the node that it is about."""

    def __init__(self, path: str, message: str = "") -> None:
        super().__init__(f"{path}: {message or type(self).__name__}")
        self.path = path


class OutOfReach(MetaError):
    """The store did not answer. What it was asked to do may have been done."""


class Refused(MetaError):
    """The store has answered, and nothing was done."""


class NoNode(Refused):
    """The node, or the parent of a node to be created, does not exist."""


class NodeExists(Refused):
    pass


class BadVersion(Refused):
    """The node was written since the version that the caller names."""


class NotEmpty(Refused):
    """A node with children cannot be deleted."""


class NoChildrenForEphemerals(Refused):
    pass


class BadPath(Refused):
    """There can be no node with this path: it is too long, or has a name in it that the store does not take."""


class Unreadable(Refused):
    """The node's text is not what belongs there."""


class SessionExpired(OutOfReach):
    """This session's ephemeral nodes are gone; nothing works before `renew`."""


class ConnectionLoss(OutOfReach):
    """The store could not be reached or could not write."""


class TooLarge(Refused):
    """The store takes no request of this size. `path` is the node that has the largest part in it."""


class NoRoom(Refused):
    """The store's disk is full, and the room that it has left is kept for changes that make more; or there is as much
    of this kind as there may be."""


class MultiFailed(Refused):
    """A `multi` changed nothing, because of its operation number `index`."""

    def __init__(self, index: int, cause: MetaError) -> None:
        super().__init__(cause.path, f"operation {index} of a transaction: {type(cause).__name__}")
        self.index = index
        self.cause = cause


class Stat(NamedTuple):
    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    cversion: int
    ephemeral_owner: int
    children: int


class Create(NamedTuple):
    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class Set(NamedTuple):
    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    path: str
    version: int


Operation = Create | Set | Delete | Check
Result = str | Stat | None
"""The result of one operation in a `multi`: the path of a Create, the Stat of a Set, None of the others."""


class Change(Enum):
    CREATED = auto()
    DELETED = auto()
    CHANGED = auto()
    CHILDREN = auto()


class WatchEvent(NamedTuple):
    change: Change
    path: str


class SessionState(Enum):
    CONNECTED = auto()
    SUSPENDED = auto()
    EXPIRED = auto()


Watch = Callable[[WatchEvent], None]
SessionListener = Callable[[SessionState], None]


class MetaStore(Protocol):
    """One session with the store. Every method but `listen` may raise SessionExpired or ConnectionLoss."""

    @property
    def session_id(self) -> int: ...

    @property
    def session_timeout_ms(self) -> int:
        """The time for which a session outlives its process; 0 where they end together."""

    @property
    def problem(self) -> str | None:
        """Why the store takes no changes now, in words for people; None while it does, as far as is known, and where
        another process tells of it."""

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        """The path made; with `sequential`, `path` and ten digits that no earlier sibling had."""

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """`watch` hears of the next write or the deletion."""

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[tuple[bytes, Stat] | None]:
        """As many `get`s in one go, each with the same watch; None, and no watch, where there is no node."""

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """`watch` hears of the next creation, write or deletion."""

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names, sorted. `watch` hears of the next child made or deleted, or of the deletion of `path`."""

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat: ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None: ...

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """All of them in one transaction, or MultiFailed and none. They see each other's effects in their order."""

    def listen(self, listener: SessionListener) -> None:
        """`listener` is called at each change of the session's state."""

    async def renew(self) -> None:
        """A new session after the old one expired; nothing while it has not."""

    async def close(self) -> None:
        """Ends the session: its ephemeral nodes go at once."""


def parent_of(path: str) -> str:
    return path[: path.rindex("/")] or "/"


async def ensure_path(store: MetaStore, path: str) -> None:
    """Creates the persistent node `path` and what is missing above it."""
    try:
        await store.create(path)
    except NodeExists:
        pass
    except NoNode:
        await ensure_path(store, parent_of(path))
        await ensure_path(store, path)


async def put(store: MetaStore, path: str, data: bytes) -> None:
    """Writes a persistent node, and makes it where it is missing, with what is missing above it. It is never there
    without its data: this may end anywhere."""
    try:
        await store.set(path, data)
    except NoNode:
        await ensure_path(store, parent_of(path))
        try:
            await store.create(path, data)
        except NodeExists:
            await store.set(path, data)


async def subtree(store: MetaStore, path: str) -> list[str]:
    """`path` and all below it, deepest first, so that they can be deleted in this order. Empty if there is nothing."""
    found: list[str] = []
    level = [path]
    while level:
        below: list[str] = []
        for begin in range(0, len(level), _NODES_AT_ONCE):
            some = level[begin : begin + _NODES_AT_ONCE]
            answers = await together(_names_below(store, node) for node in some)
            for node, names in zip(some, answers, strict=True):
                if names is not None:
                    found.append(node)
                    below += [f"{node}/{name}" for name in names]
        level = below
    return found[::-1]


async def _names_below(store: MetaStore, path: str) -> list[str] | None:
    try:
        return await store.children(path)
    except NoNode:
        return None
