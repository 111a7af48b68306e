"""The tree of the embedded store: transactions over nodes in memory, each with its undo and its form for the journal.

No I/O and no clock. `apply` either does a whole transaction or nothing. What it did goes into an entry, which `replay`
carries out again after a restart without looking at versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from sys import intern

from kafkad.meta.store import (
    ANY_VERSION,
    BadPath,
    BadVersion,
    Change,
    Check,
    Create,
    Delete,
    MetaError,
    MultiFailed,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Result,
    Set,
    Stat,
    WatchEvent,
)
from kafkad.turns import Pieces, at_once

_ENTRY = Struct("<BQQQI")
"""kind, zxid, time in ms, session, number of operations"""
_OPERATION = Struct("<BHI")
"""kind, length of the path, length of the data"""
_NODE = Struct("<HIQQQQIIQ")
"""length of the path, of the data; czxid, mzxid, ctime, mtime, version, children ever made, owner"""

TRANSACTION, SESSION_ENDS, ALL_SESSIONS_END, SNAPSHOT = range(1, 5)
_CREATE, _CREATE_EPHEMERAL, _SET, _DELETE = range(1, 5)

_NODES_A_PIECE = 100

Effect = tuple[int, str, bytes]
Undo = Callable[[], None]


class Node:
    __slots__ = ("children", "ctime_ms", "czxid", "data", "made", "mtime_ms", "mzxid", "owner", "version")

    def __init__(self, data: bytes, zxid: int, time_ms: int, owner: int = 0) -> None:
        self.data = data
        self.czxid = self.mzxid = zxid
        self.ctime_ms = self.mtime_ms = time_ms
        self.version = 0
        self.made = 0
        self.owner = owner
        self.children: dict[str, Node] | None = None

    @property
    def stat(self) -> Stat:
        count = len(self.children) if self.children else 0
        return Stat(
            self.czxid,
            self.mzxid,
            self.ctime_ms,
            self.mtime_ms,
            self.version,
            2 * self.made - count,
            self.owner,
            count,
        )


class Applied:
    """One transaction that was carried out in memory: its results, events, journal entry, and the way back."""

    __slots__ = ("entry", "events", "results", "undo")

    def __init__(self) -> None:
        self.results: list[Result] = []
        self.events: list[WatchEvent] = []
        self.undo: list[Undo] = []
        self.entry = b""

    def roll_back(self) -> None:
        for undo in reversed(self.undo):
            undo()


class Tree:
    def __init__(self) -> None:
        self.root = Node(b"", 0, 0)
        self.zxid = 0
        self._ephemerals: dict[int, set[str]] = {}
        """Of sessions that have any."""
        self._snapshot: _Snapshot | None = None
        """The one that is being made."""

    def find(self, path: str) -> Node | None:
        node: Node | None = self.root
        if path != "/":
            for name in path.split("/")[1:]:
                if node is None or node.children is None:
                    return None
                node = node.children.get(name)
        return node

    def get(self, path: str) -> Node:
        node = self.find(path)
        if node is None:
            raise NoNode(path)
        return node

    def apply(self, operations: Sequence[Operation], session: int, now_ms: int) -> Applied:
        """Raises MultiFailed, and then nothing has changed."""
        applied = Applied()
        effects: list[Effect] = []
        zxid = self.zxid + 1
        for index, operation in enumerate(operations):
            try:
                effect = self._validate(operation)
            except MetaError as e:
                applied.roll_back()
                raise MultiFailed(index, e) from e
            applied.results.append(self._perform(effect, zxid, now_ms, session, applied) if effect else None)
            if effect:
                effects.append(effect)
        self.zxid = zxid
        applied.entry = _entry(TRANSACTION, zxid, now_ms, session, effects)
        return applied

    def end_session(self, session: int, now_ms: int) -> Applied:
        applied = Applied()
        self._drop_ephemerals([session], applied, now_ms)
        applied.entry = _entry(SESSION_ENDS, self.zxid, now_ms, session, [])
        return applied

    def end_all_sessions(self, now_ms: int) -> Applied:
        """Called after a restart: no earlier session can still be there."""
        applied = Applied()
        self._drop_ephemerals(list(self._ephemerals), applied, now_ms)
        applied.entry = _entry(ALL_SESSIONS_END, self.zxid, now_ms, 0, [])
        return applied

    def _drop_ephemerals(self, sessions: list[int], applied: Applied, now_ms: int) -> None:
        self.zxid += 1
        for session in sessions:
            for path in sorted(self._ephemerals.get(session, ())):
                self._perform((_DELETE, path, b""), self.zxid, now_ms, session, applied)

    def _validate(self, operation: Operation) -> Effect | None:
        match operation:
            case Create():
                return self._validate_create(operation)
            case Set(path, data, version):
                _check_version(path, self.get(path), version)
                return (_SET, path, data)
            case Delete(path, version):
                node = self.get(path)
                _check_version(path, node, version)
                if node.children:
                    raise NotEmpty(path)
                if path == "/":
                    raise BadPath(path, "the root of the metadata tree cannot be deleted")
                return (_DELETE, path, b"")
            case Check(path, version):
                _check_version(path, self.get(path), version)
                return None

    def _validate_create(self, create: Create) -> Effect:
        path = create.path
        above, name = _split(path)
        parent = self.find(above)
        if parent is None:
            raise NoNode(path, f"its parent {above} does not exist")
        if parent.owner:
            raise NoChildrenForEphemerals(path)
        if create.sequential:
            path = f"{path}{parent.made:010d}"
            name = f"{name}{parent.made:010d}"
        _check_name(path, name)
        if parent.children is not None and name in parent.children:
            raise NodeExists(path)
        return (_CREATE_EPHEMERAL if create.ephemeral else _CREATE, path, create.data)

    def _perform(self, effect: Effect, zxid: int, now_ms: int, session: int, applied: Applied) -> Result:
        kind, path, data = effect
        if kind == _SET:
            return self._set(path, data, zxid, now_ms, applied)
        if kind == _DELETE:
            self._delete(path, applied)
            return None
        self._create(path, Node(data, zxid, now_ms, session if kind == _CREATE_EPHEMERAL else 0), applied)
        return path

    def _create(self, path: str, node: Node, applied: Applied) -> None:
        above, name = _split(path)
        parent = self.get(above)
        if self._snapshot is not None:
            self._snapshot.keep(above)
            self._snapshot.leave_out(node)
        if parent.children is None:
            parent.children = {}
        siblings = parent.children
        siblings[intern(name)] = node
        parent.made += 1
        self._note_owner(path, node)

        def undo() -> None:
            del siblings[name]
            parent.made -= 1
            self._forget_owner(path, node)

        applied.undo.append(undo)
        applied.events.append(WatchEvent(Change.CREATED, path))
        applied.events.append(WatchEvent(Change.CHILDREN, above))

    def _set(self, path: str, data: bytes, zxid: int, now_ms: int, applied: Applied) -> Stat:
        node = self.get(path)
        if self._snapshot is not None:
            self._snapshot.keep(path)
        before = (node.data, node.mzxid, node.mtime_ms, node.version)

        def undo() -> None:
            node.data, node.mzxid, node.mtime_ms, node.version = before

        node.data, node.mzxid, node.mtime_ms, node.version = data, zxid, now_ms, node.version + 1
        applied.undo.append(undo)
        applied.events.append(WatchEvent(Change.CHANGED, path))
        return node.stat

    def _delete(self, path: str, applied: Applied) -> None:
        above, name = _split(path)
        siblings = self.get(above).children
        if siblings is None or name not in siblings:
            raise NoNode(path)
        if self._snapshot is not None:
            self._snapshot.keep(path)
        node = siblings.pop(name)
        self._forget_owner(path, node)

        def undo() -> None:
            siblings[name] = node
            self._note_owner(path, node)

        applied.undo.append(undo)
        applied.events.append(WatchEvent(Change.DELETED, path))
        applied.events.append(WatchEvent(Change.CHILDREN, above))

    def _note_owner(self, path: str, node: Node) -> None:
        if node.owner:
            self._ephemerals.setdefault(node.owner, set()).add(path)

    def _forget_owner(self, path: str, node: Node) -> None:
        if node.owner:
            owned = self._ephemerals[node.owner]
            owned.discard(path)
            if not owned:
                del self._ephemerals[node.owner]

    # The journal's form.

    def replay(self, payload: bytes) -> None:
        """Carries out the entries of one journal frame."""
        view = memoryview(payload)
        at = 0
        while at < len(view):
            kind, zxid, now_ms, session, count = _ENTRY.unpack_from(view, at)
            at += _ENTRY.size
            if kind == SNAPSHOT:
                at = self._load(view, at, count)
                self.zxid = zxid
                continue
            at = self._replay_entry(view, at, count, (kind, zxid, now_ms, session))
            self.zxid = zxid

    def _replay_entry(self, view: memoryview, at: int, count: int, head: tuple[int, int, int, int]) -> int:
        kind, zxid, now_ms, session = head
        applied = Applied()
        if kind == SESSION_ENDS:
            self._drop_ephemerals([session], applied, now_ms)
        elif kind == ALL_SESSIONS_END:
            self._drop_ephemerals(list(self._ephemerals), applied, now_ms)
        elif kind != TRANSACTION:
            raise ValueError(f"unknown kind of entry {kind}")
        for _ in range(count):
            operation, path_size, data_size = _OPERATION.unpack_from(view, at)
            at += _OPERATION.size
            path = str(view[at : at + path_size], "utf-8")
            at += path_size
            self._perform((operation, path, bytes(view[at : at + data_size])), zxid, now_ms, session, applied)
            at += data_size
        return at

    def walk(self, top: str = "/") -> Iterator[tuple[str, Node]]:
        """The node with this path, if there is one, and all below it."""
        node = self.find(top)
        return iter(()) if node is None else _walk(top, node)

    def snapshot(self) -> bytes:
        """The whole tree as one entry, parents before children."""
        return at_once(self.snapshotting())

    def snapshotting(self) -> Pieces[bytes]:
        """The same, of the tree as it is now: transactions may change it between two pieces, but none be taken back
        that is older than this. One at a time."""
        self._snapshot = _Snapshot(self.root, self.zxid)
        return self._finish(self._snapshot)

    def _finish(self, snapshot: _Snapshot) -> Pieces[bytes]:
        try:
            return (yield from snapshot.pack())
        finally:
            self._snapshot = None

    def _load(self, view: memoryview, at: int, count: int) -> int:
        for _ in range(count):
            path_size, data_size, czxid, mzxid, ctime, mtime, version, made, owner = _NODE.unpack_from(view, at)
            at += _NODE.size
            path = str(view[at : at + path_size], "utf-8")
            at += path_size
            node = Node(bytes(view[at : at + data_size]), czxid, ctime, owner)
            at += data_size
            node.mzxid, node.mtime_ms, node.version, node.made = mzxid, mtime, version, made
            self._attach(path, node)
        return at

    def _attach(self, path: str, node: Node) -> None:
        if path == "/":
            self.root = node
            return
        above, name = _split(path)
        parent = self.get(above)
        if parent.children is None:
            parent.children = {}
        parent.children[intern(name)] = node
        self._note_owner(path, node)


class _Snapshot:
    """A tree as it was when this was made: a node that is about to change is packed first, those above it before it."""

    __slots__ = ("_content", "_count", "_done", "_root", "_zxid")

    def __init__(self, root: Node, zxid: int) -> None:
        self._root = root
        self._zxid = zxid
        self._content = bytearray(_ENTRY.size)
        self._count = 0
        self._done: set[Node] = set()
        """Those that are packed, and those that are younger."""

    def keep(self, path: str) -> None:
        """The node there is about to change."""
        node, above = self._root, ""
        self._pack("/", node)
        for name in path.split("/")[1:] if path != "/" else ():
            assert node.children is not None
            node, above = node.children[name], f"{above}/{name}"
            self._pack(above, node)

    def leave_out(self, node: Node) -> None:
        self._done.add(node)

    def pack(self) -> Pieces[bytes]:
        for number, (path, node) in enumerate(_walk("/", self._root), start=1):
            self._pack(path, node)
            if number % _NODES_A_PIECE == 0:
                yield
        _ENTRY.pack_into(self._content, 0, SNAPSHOT, self._zxid, 0, 0, self._count)
        return bytes(self._content)

    def _pack(self, path: str, node: Node) -> None:
        if node in self._done:
            return
        self._done.add(node)
        self._count += 1
        name = path.encode()
        data = node.data
        self._content += _NODE.pack(
            len(name),
            len(data),
            node.czxid,
            node.mzxid,
            node.ctime_ms,
            node.mtime_ms,
            node.version,
            node.made,
            node.owner,
        )
        self._content += name
        self._content += data


def _walk(top: str, node: Node) -> Iterator[tuple[str, Node]]:
    """This node and all below it, parents before children, with their paths."""
    yield top, node
    above = [("/" if top == "/" else top + "/", _children(node))]
    while above:
        prefix, children = above[-1]
        for name, node in children:
            path = prefix + name
            yield path, node
            if node.children:
                above.append((path + "/", _children(node)))
                break
        else:
            above.pop()


def _children(node: Node) -> Iterator[tuple[str, Node]]:
    """As they are now."""
    return iter(list(node.children.items()) if node.children else ())


def _entry(kind: int, zxid: int, now_ms: int, session: int, effects: list[Effect]) -> bytes:
    parts = [_ENTRY.pack(kind, zxid, now_ms, session, len(effects))]
    for operation, path, data in effects:
        name = path.encode()
        parts.append(_OPERATION.pack(operation, len(name), len(data)) + name + data)
    return b"".join(parts)


def _split(path: str) -> tuple[str, str]:
    above, _, name = path.rpartition("/")
    return above or "/", name


def _check_version(path: str, node: Node, version: int) -> None:
    if version not in (ANY_VERSION, node.version):
        raise BadVersion(path, f"expected version {version}, but it is {node.version}")


def _check_name(path: str, name: str) -> None:
    if not path.startswith("/") or name in ("", ".", "..") or "\0" in name or len(path) > 0xFFFF // 4:
        raise BadPath(path, "this is not a path of the metadata tree")
