"""The metadata store of a node that has no ZooKeeper: a tree in memory, a journal on disk, ZooKeeper's semantics.

A write changes the tree at once, so that the next one is judged by it; only for what can wait (`last_room`), while the
journal is short of room, the disk is looked at first. It returns, and its watches fire, when the journal is on disk.
All writes that come while an fsync runs share the next one. A write that the disk refuses is taken back from the tree
together with all that came after it, and all of them raise ConnectionLoss. A read of a node waits for writes to it
that are on their way: nobody is told of data, versions or numbers that others may get afterwards. Only a session ends
whatever the disk says: the next `open` ends all that are left, and nobody finds one again that was over.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor

from kafkad.clock import Clock
from kafkad.directories import make_directories
from kafkad.meta.consumer_room import ConsumerRoom
from kafkad.meta.journal import Journal, sync_directory
from kafkad.meta.last_room import can_wait
from kafkad.meta.store import (
    ANY_VERSION,
    Change,
    ConnectionLoss,
    Create,
    Delete,
    MetaStore,
    MultiFailed,
    NoRoom,
    Operation,
    Result,
    SessionExpired,
    SessionListener,
    SessionState,
    Set,
    Stat,
    Watch,
    WatchEvent,
)
from kafkad.meta.tree import Applied, Node, Tree
from kafkad.names import METADATA_FILE
from kafkad.refusals import failure
from kafkad.turns import Pieces, in_turns

COMPACT_AT_LEAST = 8 << 20
COMPACT_RATIO = 4
_FULL = (errno.ENOSPC, errno.EDQUOT)

_Watchers = dict[tuple[int, Watch], None]
"""Who is told of a change, each once: the session and what it calls."""


def lost_store(directory: str, log_dirs: Collection[str], used: Collection[str]) -> str | None:
    """The problem where a new store would be made in `directory`, and none of the topics' metadata be known: another of
    the `log_dirs` has a store, or `directory` is an empty one of them, perhaps of a disk that is not mounted, while
    others have been `used`."""
    if os.path.exists(os.path.join(directory, METADATA_FILE)):
        return None
    stores = [path for each in log_dirs if os.path.exists(path := os.path.join(each, METADATA_FILE))]
    if stores:
        newest = max(stores, key=os.path.getmtime)
        found = newest if len(stores) == 1 else f"{len(stores)} of log.dirs have one, written last {newest}"
        home = os.path.dirname(newest)
        return (
            f"there is no metadata store in {directory}, and a new one would know no topics' settings, users or ACLs; "
            f"but there is {found}: set kafkad.metadata.dir to {home}, or name {home} first in log.dirs. To begin with "
            "a new store, move the old one out of log.dirs"
        )
    if directory not in log_dirs or directory in used or not used:
        return None
    first = next(iter(used))
    return (
        f"{directory} is empty, and a new metadata store would be made in it, but {first} has been used before: is the "
        f"disk of {directory} not mounted? If it is a new one, set kafkad.metadata.dir to {first}, or name {first} "
        "first in log.dirs"
    )


def cannot_open(directory: str, error: OSError) -> str:
    """Why there is no store in `directory`, and what to do."""
    problem = failure(f"cannot open the metadata store in {directory}", error, directory)
    return f"{problem}; see kafkad.metadata.dir, log.dirs"


class EmbeddedStore:
    """The tree and its journal. `open` reads the file; users talk to it through `session()`s.

    While `is_starting`, a full disk is no reason to refuse a write: what a start writes, the next one does again, and
    a broker that cannot start cannot make room. It goes to the disk with the first write that finds room.

    Once `is_broken` it takes no more writes, until it is opened again; `when_broken` is called then with the reason.
    """

    def __init__(self, tree: Tree, journal: Journal | None, clock: Clock) -> None:
        self.is_starting = False
        self.is_broken = False
        self.when_broken: Callable[[str], None] = lambda why: None
        self._tree = tree
        self._consumers = ConsumerRoom(tree)
        self._journal = journal
        self._clock = clock
        self._last_session = tree.zxid
        self._waiting: list[_Write] = []
        self._unsettled: dict[str, _Write] = {}
        """The last write to each node, or to its children, among those that the disk may still refuse."""
        self._last: asyncio.Future[None] | None = None
        self._writing = False
        self._compact_at = COMPACT_AT_LEAST
        self._executor = _thread() if journal else None
        self._watches: dict[bool, dict[str, _Watchers]] = {True: {}, False: {}}
        boot = tree.end_all_sessions(clock.now_ms())
        self._unwritten = boot.entry
        self._refusal: BaseException | None = None

    @classmethod
    def open(cls, directory: str, clock: Clock, sync: Callable[[int], None] = os.fdatasync) -> EmbeddedStore:
        """Loads the journal in `directory`, or makes one. Raises JournalError when it is damaged or in use."""
        tree = Tree()
        path = os.path.join(directory, METADATA_FILE)
        make_directories(directory, os.mkdir, lambda above: sync_directory(above, sync))
        if not os.path.exists(path):
            return cls(tree, Journal.create(path, tree.snapshot(), sync), clock)
        journal = Journal.open(path, tree.replay, sync)
        store = cls(tree, journal, clock)
        store._compact_at = _compact_at(journal)
        return store

    @classmethod
    def in_memory(cls, clock: Clock) -> EmbeddedStore:
        """Without a journal: for tests and simulations of several brokers over one tree."""
        return cls(Tree(), None, clock)

    @property
    def path(self) -> str:
        return self._journal.path if self._journal else ""

    @property
    def problem(self) -> str | None:
        """Why the disk refused the last write, in words for people; None when it took it."""
        return self.problem_told(in_full=True)

    def problem_told(self, *, in_full: bool) -> str | None:
        """The same, with its path or with that path's setting."""
        place = self.path if in_full else "kafkad.metadata.dir"
        error = self._refusal
        if error is None or (self.is_starting and self._has_no_room(error)):
            return None
        if isinstance(error, NoRoom):
            return self._almost_full(place)
        if self._has_no_room(error):
            what, until = f"the disk of {place} was full at the last change", " until there is room"
        else:
            what, until = f"{place} cannot be written ({_why(error)})", ""
        return f"{what}: changes of metadata are refused{until}"

    def _almost_full(self, place: str) -> str:
        error = None if self._journal is None else self._journal.unknown_room
        full = f"the disk of {place} is full"
        until, mend = "there is room", "; delete records or topics to make it"
        if error is not None:
            full, until, mend = (
                f"it cannot be told whether the disk of {place} has room ({_why(error)})",
                "it can",
                "",
            )
        return (
            f"{full}: no topics are created until {until}, nor partitions, delegation tokens or offsets of "
            f"version 0{mend}"
        )

    def session(self) -> EmbeddedSession:
        return EmbeddedSession(self)

    async def close(self) -> None:
        """Waits for writes under way. Ephemeral nodes that are left go at the next `open`."""
        if self._last is not None:
            await asyncio.wait([self._last])
        if self._executor is not None and self._journal is not None:
            self._executor.shutdown()
            self._journal.close()

    # For sessions.

    def begin_session(self) -> int:
        """The number of a new session."""
        self._last_session += 1
        return self._last_session

    def end_session(self, number: int) -> asyncio.Future[None]:
        """Ends a session as its own `close`, or as the loss of it, does."""
        for watches in self._watches.values():
            for path, watchers in list(watches.items()):
                watches[path] = {(session, watch): None for session, watch in watchers if session != number}
                if not watches[path]:
                    del watches[path]
        return self._submit(self._tree.end_session(number, self._clock.now_ms()), ends=number)

    def find(self, path: str) -> Node | None:
        return self._tree.find(path)

    def get(self, path: str) -> Node:
        """Raises NoNode."""
        return self._tree.get(path)

    async def settled(self, paths: Sequence[str]) -> None:
        """Returns when the disk has what is known of these nodes and of the names of their children."""
        while self._unsettled:
            write = next((self._unsettled[path] for path in paths if path in self._unsettled), None)
            if write is None:
                return
            reader: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            write.readers.append(reader)
            await reader

    def watch(self, path: str, session: int, watch: Watch | None, *, of_children: bool = False) -> None:
        if watch is not None:
            self._watches[of_children].setdefault(path, {})[session, watch] = None

    async def write(self, operations: Sequence[Operation], session: int) -> list[Result]:
        if self._consumers.too_much(operations) and (idle := self._consumers.idle(self._clock.now_ms())):
            with contextlib.suppress(MultiFailed):  # one of them has been written, or got another below it, meanwhile
                await self.write(idle, session)
        if refusal := self._consumers.too_much(operations):
            raise refusal
        journal = self._journal
        if journal is not None and journal.is_short and not self.is_starting:
            await self._find_room(journal, operations)
        applied = self._tree.apply(operations, session, self._clock.now_ms())
        await self._submit(applied)
        return applied.results

    # Writing.

    async def _find_room(self, journal: Journal, operations: Sequence[Operation]) -> None:
        """What can wait may not take all of the room that is kept."""
        waiting = next((each.path for each in operations if can_wait(each, self._data)), None)
        if waiting is None:
            return
        await asyncio.get_running_loop().run_in_executor(self._executor, journal.look_for_room)
        if journal.is_short:
            self._refusal = NoRoom(waiting, self._almost_full(self.path))
            raise self._refusal

    def _data(self, path: str) -> bytes | None:
        node = self._tree.find(path)
        return None if node is None else node.data

    def _submit(self, applied: Applied, ends: int | None = None) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._consumers.changed(applied.events)
        self._last = future
        write = _Write(applied, future, ends)
        if self._journal is None:
            self._complete([write])
        else:
            self._unsettled |= dict.fromkeys((event.path for event in applied.events), write)
            self._waiting.append(write)
            self._write_next()
        return future

    def _write_next(self) -> None:
        if self._writing or not self._waiting or self._journal is None:
            return
        batch, self._waiting = self._waiting, []
        self._writing = True
        done: asyncio.Future[None]
        if self._journal.size >= self._compact_at:
            done = asyncio.ensure_future(self._compact(self._journal, self._tree.snapshotting(), batch))
        else:
            entries = self._unwritten + b"".join([write.applied.entry for write in batch])
            done = asyncio.get_running_loop().run_in_executor(self._executor, self._journal.append, entries)
        done.add_done_callback(lambda written: self._written(batch, written))

    async def _compact(self, journal: Journal, snapshot: Pieces[bytes], batch: list[_Write]) -> None:
        """The snapshot holds the batch as well, and nothing that comes while it is made."""
        job = self._compaction(journal, await in_turns(snapshot), batch)
        await asyncio.get_running_loop().run_in_executor(self._executor, job)

    def _compaction(self, journal: Journal, snapshot: bytes, batch: list[_Write]) -> Callable[[], None]:
        """Where there is no room for the snapshot, the old file grows on."""

        def write() -> None:
            try:
                journal.replace(snapshot)
            except OSError:
                self._compact_at = 2 * journal.size
                journal.append(self._unwritten + b"".join([write.applied.entry for write in batch]))
            else:
                self._compact_at = _compact_at(journal)

        return write

    def _written(self, batch: list[_Write], written: asyncio.Future[None]) -> None:
        self._writing = False
        error = self._refusal = written.exception()
        if self._journal is not None and self._journal.is_broken and not self.is_broken:
            self.is_broken = True
            self.when_broken(f"{self.path} takes no more changes after a failed fsync ({_why(error)})")
        if error is None:
            self._unwritten = b""
            self._complete(batch)
        elif self.is_starting and self._has_no_room(error):
            self._unwritten += b"".join([write.applied.entry for write in batch])
            self._complete(batch)
        else:
            self._take_back(batch, error)
        self._write_next()

    def _has_no_room(self, error: BaseException) -> bool:
        return not self.is_broken and isinstance(error, OSError) and error.errno in _FULL

    def _complete(self, batch: list[_Write]) -> None:
        for write in batch:
            self._settle(write)
            self._fire(write.applied.events)
            if not write.future.done():
                write.future.set_result(None)

    def _take_back(self, batch: list[_Write], error: BaseException) -> None:
        undone, self._waiting = batch + self._waiting, []
        for write in reversed(undone):
            write.applied.roll_back()
            self._consumers.changed_back(write.applied.events)
        for write in undone:
            self._settle(write)
            if write.ends is not None:
                write.applied = self._tree.end_session(write.ends, self._clock.now_ms())
                self._unwritten += write.applied.entry
                self._complete([write])
                continue
            if not write.future.done():
                write.future.set_exception(ConnectionLoss("metadata", f"{self.path} cannot be written: {error}"))

    def _settle(self, write: _Write) -> None:
        """It is on the disk, or was taken back. Readers come before the next write of who waits for this one."""
        for event in write.applied.events:
            if self._unsettled.get(event.path) is write:
                del self._unsettled[event.path]
        for reader in write.readers:
            if not reader.done():
                reader.set_result(None)

    def _fire(self, events: list[WatchEvent]) -> None:
        for event in events:
            watchers: _Watchers = {}
            if event.change is not Change.CHILDREN:
                watchers |= self._watches[False].pop(event.path, {})
            if event.change in (Change.CHILDREN, Change.DELETED):
                watchers |= self._watches[True].pop(event.path, {})
            for watch in dict.fromkeys(watch for _, watch in watchers):
                watch(event)


class EmbeddedSession(MetaStore):
    """One session, a MetaStore. `expire` is what a lost connection to ZooKeeper comes to in the end."""

    def __init__(self, store: EmbeddedStore) -> None:
        self.number = store.begin_session()
        self._store = store
        self._listeners: list[SessionListener] = []
        self._expired = False

    @property
    def session_id(self) -> int:
        return self.number

    @property
    def session_timeout_ms(self) -> int:
        return 0

    @property
    def problem(self) -> str | None:
        return self._store.problem

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        result = await self._single(Create(path, data, ephemeral, sequential))
        assert isinstance(result, str)
        return result

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        await self._settled([path])
        node = self._store.get(path)
        self._store.watch(path, self.number, watch)
        return node.data, node.stat

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[tuple[bytes, Stat] | None]:
        await self._settled(paths)
        find = self._store.find
        nodes = [find(path) for path in paths]
        if watch is not None:
            for path, node in zip(paths, nodes, strict=True):
                if node is not None:
                    self._store.watch(path, self.number, watch)
        return [None if node is None else (node.data, node.stat) for node in nodes]

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        await self._settled([path])
        node = self._store.find(path)
        self._store.watch(path, self.number, watch)
        return None if node is None else node.stat

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        await self._settled([path])
        node = self._store.get(path)
        self._store.watch(path, self.number, watch, of_children=True)
        return sorted(node.children or ())

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        result = await self._single(Set(path, data, version))
        assert isinstance(result, Stat)
        return result

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._single(Delete(path, version))

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        self._alive("/")
        return await self._store.write(operations, self.number)

    def listen(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    async def renew(self) -> None:
        if self._expired:
            self._expired = False
            self.number = self._store.begin_session()
            self._tell(SessionState.CONNECTED)

    async def expire(self) -> None:
        if not self._expired:
            self._expired = True
            done = self._store.end_session(self.number)
            self._tell(SessionState.EXPIRED)
            await done

    async def close(self) -> None:
        if not self._expired:
            self._expired = True
            await self._store.end_session(self.number)

    async def _single(self, operation: Operation) -> Result:
        try:
            return (await self.multi([operation]))[0]
        except MultiFailed as e:
            raise e.cause from None

    async def _settled(self, paths: Sequence[str]) -> None:
        """The session may end meanwhile."""
        self._alive(paths[0] if paths else "/")
        await self._store.settled(paths)
        self._alive(paths[0] if paths else "/")

    def _alive(self, path: str) -> None:
        if self._expired:
            raise SessionExpired(path)

    def _tell(self, state: SessionState) -> None:
        for listener in self._listeners:
            listener(state)


def _thread() -> ThreadPoolExecutor:
    """One thread, which is there from now on: later the system may have none left. OSError if it has none now."""
    executor = ThreadPoolExecutor(1, "kafkad-metadata")
    try:
        executor.submit(threading.get_ident)
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, f"{error} (see `ulimit -u`, and TasksMax in the unit)") from error
    return executor


def _why(error: BaseException | None) -> object:
    if isinstance(error, MemoryError):
        return "not enough memory"
    return error.strerror if isinstance(error, OSError) else error


def _compact_at(journal: Journal) -> int:
    """The size from which it is compacted, whenever it grew to it: also over many starts."""
    return max(COMPACT_AT_LEAST, COMPACT_RATIO * journal.snapshot_size)


class _Write:
    """A transaction on its way to the disk; `ends` is the session that it ends, if it does that."""

    __slots__ = ("applied", "ends", "future", "readers")

    def __init__(self, applied: Applied, future: asyncio.Future[None], ends: int | None) -> None:
        self.applied = applied
        self.future = future
        self.ends = ends
        self.readers: list[asyncio.Future[None]] = []
        """Each is done when it is known whether this stays."""
