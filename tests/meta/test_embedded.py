"""The embedded store: the contract in memory and over a journal, restarts, and a disk that refuses."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkad.clock import SystemClock
from kafkad.meta import embedded
from kafkad.meta.consumer_znodes import ConsumerOffset
from kafkad.meta.embedded import EmbeddedSession, EmbeddedStore, cannot_open, lost_store
from kafkad.meta.journal import JournalError
from kafkad.meta.last_room import can_wait
from kafkad.meta.notes import Notes
from kafkad.meta.security_znodes import DelegationToken, DelegationTokenChange
from kafkad.meta.store import (
    Check,
    ConnectionLoss,
    Create,
    Delete,
    MetaStore,
    NoNode,
    NoRoom,
    Operation,
    SessionExpired,
    Set,
    ensure_path,
)
from kafkad.meta.znodes import Config, ConfigChange, Partition, Topic, TopicDeletion
from kafkad.model import PartitionAssignment
from kafkad.names import METADATA_FILE
from kafkad.turns import Turns
from tests.fakes import FakeClock, no_more_threads, turns

from .contract import MetaStoreContract, in_loop


class TestInMemory(MetaStoreContract):
    store: EmbeddedStore

    async def start(self) -> None:
        self.store = EmbeddedStore.in_memory(SystemClock())

    async def stop(self) -> None:
        await self.store.close()

    async def connect(self) -> MetaStore:
        return self.store.session()

    async def expire(self, session: MetaStore) -> None:
        assert isinstance(session, EmbeddedSession)
        await session.expire()

    async def settle(self) -> None:
        pass

    @in_loop
    async def test_a_watch_that_is_set_again_is_kept_once(self) -> None:
        news = asyncio.Event()
        notes = [Notes(self.store.session(), ConfigChange.PREFIX, SystemClock(), news) for _ in range(2)]
        await ensure_path(self.store.session(), ConfigChange.PARENT)
        for _ in range(10):
            for each in notes:
                await each.newest()
        assert len(self.store._watches[True][ConfigChange.PARENT]) == 2, "one for each session"


class TestJournalled(TestInMemory):
    directory: tempfile.TemporaryDirectory[str]

    async def start(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.store = EmbeddedStore.open(self.directory.name, SystemClock())

    async def stop(self) -> None:
        await self.store.close()
        EmbeddedStore.open(self.directory.name, SystemClock())._journal.close()  # type: ignore[union-attr]
        self.directory.cleanup()


def with_store(
    directory: Path,
    use: Callable[[MetaStore], Coroutine[Any, Any, None]],
    sync: Callable[[int], None] = os.fdatasync,
    when_broken: Callable[[str], None] = lambda why: None,
) -> None:
    """Opens the store of `directory`, lets `use` work with it, and closes it."""

    async def whole() -> None:
        store = EmbeddedStore.open(str(directory), SystemClock(), sync)
        store.when_broken = when_broken
        try:
            await use(store.session())
        finally:
            await store.close()

    asyncio.run(whole())


async def dump(store: MetaStore, path: str = "/") -> dict[str, tuple[bytes, tuple[int, ...]]]:
    data, stat = await store.get(path)
    tree = {path: (data, tuple(stat))}
    for name in await store.children(path):
        tree |= await dump(store, f"{path.rstrip('/')}/{name}")
    return tree


async def fill(store: MetaStore) -> None:
    await ensure_path(store, "/brokers/topics")
    for n in range(20):
        await store.multi([Create(f"/brokers/topics/t{n}", b"x" * n), Set(f"/brokers/topics/t{n}", b"y")])
    await store.delete("/brokers/topics/t7")
    await store.create("/brokers/topics/s_", sequential=True)


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    trees = []

    async def write(store: MetaStore) -> None:
        await fill(store)
        trees.append(await dump(store))

    async def read(store: MetaStore) -> None:
        trees.append(await dump(store))

    with_store(tmp_path, write)
    with_store(tmp_path, read)
    assert len(trees[0]) == 23
    assert trees[0] == trees[1]


def test_ephemeral_nodes_are_gone_after_a_restart_and_epochs_only_grow(tmp_path: Path) -> None:
    czxids = []

    async def register(store: MetaStore) -> None:
        assert await store.exists("/me") is None
        await store.create("/me", ephemeral=True)
        stat = await store.exists("/me")
        assert stat is not None
        czxids.append(stat.czxid)

    for _ in range(4):
        with_store(tmp_path, register)
    assert czxids == sorted(set(czxids))


def test_the_file_is_compacted_and_keeps_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "COMPACT_AT_LEAST", 8_000)
    trees = []

    async def write(store: MetaStore) -> None:
        await fill(store)
        await store.create("/me", ephemeral=True)
        for n in range(250):
            await asyncio.gather(store.set("/brokers", str(n).encode()), store.set("/brokers/topics", b"z" * 20))
        await store.delete("/me")
        trees.append(await dump(store))

    async def read(store: MetaStore) -> None:
        trees.append(await dump(store))

    with_store(tmp_path, write)
    assert (tmp_path / METADATA_FILE).stat().st_size < 15_000
    assert os.listdir(tmp_path) == [METADATA_FILE]
    with_store(tmp_path, read)
    assert trees[0] == trees[1]


def test_the_snapshot_is_made_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What changes meanwhile is written behind it."""
    trees, ended = [], [0]

    async def give_way(self: Turns) -> None:
        ended[0] += 1
        await asyncio.sleep(0)

    for name in ("COMPACT_AT_LEAST", "COMPACT_RATIO"):
        monkeypatch.setattr(embedded, name, 0)
    monkeypatch.setattr("kafkad.meta.tree._NODES_A_PIECE", 1)
    monkeypatch.setattr(Turns, "give_way", give_way)

    async def write(store: MetaStore) -> None:
        await fill(store)
        before = ended[0]
        compacting = asyncio.ensure_future(store.set("/brokers", b"with it"))
        await turns(5)
        await asyncio.gather(store.delete("/brokers/topics/t0"), store.create("/brokers/topics/new"))
        assert compacting.done()
        assert ended[0] > before + 20, "as many as there are nodes"
        trees.append(await dump(store))

    async def read(store: MetaStore) -> None:
        trees.append(await dump(store))

    with_store(tmp_path, write)
    with_store(tmp_path, read)
    assert trees[0] == trees[1]


def test_a_file_that_grew_over_many_starts_is_compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "COMPACT_AT_LEAST", 2_000)

    async def write(store: MetaStore) -> None:
        await store.create("/me", b"x" * 500, ephemeral=True)

    for _ in range(20):
        with_store(tmp_path, write)
    assert (tmp_path / METADATA_FILE).stat().st_size < 4_000


def test_without_room_for_a_new_file_the_old_one_grows_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "COMPACT_AT_LEAST", 1_000)
    opened = os.open

    def refuse(path: str, flags: int, mode: int = 0o777) -> int:
        if str(path).endswith(".new"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return opened(path, flags, mode)

    async def write(store: MetaStore) -> None:
        await store.create("/a")
        monkeypatch.setattr(os, "open", refuse)
        for n in range(100):
            await store.set("/a", str(n).encode())
        monkeypatch.setattr(os, "open", opened)
        for n in range(100):
            await store.set("/a", str(n).encode())

    async def read(store: MetaStore) -> None:
        data, stat = await store.get("/a")
        assert (data, stat.version) == (b"99", 200)

    with_store(tmp_path, write)
    with_store(tmp_path, read)
    assert os.listdir(tmp_path) == [METADATA_FILE]


WRITER = """
import asyncio, sys
from kafkad.clock import SystemClock
from kafkad.meta import embedded
from kafkad.meta.embedded import EmbeddedStore

embedded.COMPACT_AT_LEAST = 20_000

async def main():
    store = EmbeddedStore.open(sys.argv[1], SystemClock()).session()
    if await store.exists("/n") is None:
        await store.create("/n")
    async def write():
        while True:
            stat = await store.set("/n", b"x" * 50)
            print(stat.version, flush=True)
    await asyncio.gather(*[write() for _ in range(3)])

asyncio.run(main())
"""


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    last = 0
    versions = []

    async def read(store: MetaStore) -> None:
        versions.append((await store.get("/n"))[1].version)

    for turn in range(20):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for _ in range(50 + 37 * turn):
            last = max(last, int(process.stdout.readline()))
        process.kill()
        last = max([last, *(int(line) for line in process.stdout.read().split("\n")[:-1])])
        process.stdout.close()
        process.wait()
        with_store(tmp_path, read)
        assert versions[-1] >= last


class Disk:
    """An fsync that can be told to fail."""

    def __init__(self) -> None:
        self.failures = 0

    def sync(self, fd: int) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EIO, "Input/output error")
        os.fdatasync(fd)


def test_after_a_failed_fsync_nothing_is_acknowledged(tmp_path: Path) -> None:
    disk = Disk()
    told: list[str] = []

    async def use(store: MetaStore) -> None:
        await store.create("/kept", b"1")
        assert told == []
        disk.failures = 1
        with pytest.raises(ConnectionLoss, match=METADATA_FILE):
            await store.create("/lost")
        with pytest.raises(ConnectionLoss):
            await store.create("/refused")
        assert await store.exists("/lost") is None
        assert await store.exists("/refused") is None
        assert await store.exists("/kept") is not None
        assert [why.endswith("(Input/output error)") for why in told] == [True], "once"

    async def read(store: MetaStore) -> None:
        assert await store.children("/") == ["kept"]

    with_store(tmp_path, use, disk.sync, told.append)
    with_store(tmp_path, read)


def test_a_full_disk_takes_back_all_that_waited_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = os.pwrite
    full = [False]

    def write(fd: int, data: bytes, at: int) -> int:
        if not full[0]:
            return pwrite(fd, data, at)
        if len(data) < 8:
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(fd, data[: len(data) // 2], at)

    monkeypatch.setattr(os, "pwrite", write)

    async def use(store: MetaStore) -> None:
        await store.create("/a", b"old")
        full[0] = True
        outcomes = await asyncio.gather(
            store.set("/a", b"new"),
            store.create("/a/b"),
            store.create("/a/b/c"),
            store.delete("/a", version=9),
            return_exceptions=True,
        )
        assert [type(o).__name__ for o in outcomes] == ["ConnectionLoss"] * 3 + ["BadVersion"]
        full[0] = False
        assert (await store.get("/a"))[0] == b"old"
        assert await store.children("/a") == []
        assert store.problem is not None
        assert store.problem.endswith(
            f"{METADATA_FILE} was full at the last change: changes of metadata are refused until there is room"
        )
        await store.create("/a/d")
        assert store.problem is None

    async def read(store: MetaStore) -> None:
        assert (await store.get("/a"))[0] == b"old"
        assert await store.children("/a") == ["d"]
        with pytest.raises(NoNode):
            await store.get("/a/b")

    with_store(tmp_path, use)
    with_store(tmp_path, read)


@pytest.mark.parametrize("is_starting", [False, True])
def test_a_full_disk_keeps_its_last_room_from_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_starting: bool
) -> None:
    """Others make room with it. A start writes what is there already."""

    async def use() -> None:
        store = EmbeddedStore.open(str(tmp_path), SystemClock())
        session = store.session()
        await ensure_path(session, "/brokers/topics/old")
        with monkeypatch.context() as full:
            full.setattr("kafkad.meta.journal.allocate", lambda fd, at, length: False)
            full.setattr("os.fstatvfs", lambda fd: SimpleNamespace(f_bavail=0, f_frsize=4096))
            await session.set("/brokers/topics/old", bytes(600_000))
            store.is_starting = is_starting
            creation = session.multi([Create("/made"), Create("/brokers/topics/new")])
            if is_starting:
                await creation
            else:
                with pytest.raises(NoRoom, match="is full: no topics are created until there is room"):
                    await creation
                assert await session.exists("/made") is None
                assert store.problem is not None
                assert "is full: no topics are created until there is room, nor partitions" in store.problem
            await session.create("/brokers/topics/old/partitions")
            assert store.problem is None
        await session.create("/brokers/topics/another")
        await store.close()

    asyncio.run(use())


OFFSET, TOKEN = ConsumerOffset.path("g", "t", 0), DelegationToken.path("a")


def topic(partitions: int, *adding: int) -> bytes:
    return Topic(
        bytes(16), {index: PartitionAssignment(replicas=(1,), adding=adding) for index in range(partitions)}
    ).encode()


@pytest.mark.parametrize("path, data", [(OFFSET, b"1"), (TOKEN, b"{}"), (Topic.path("t"), topic(2))])
def test_a_full_disk_keeps_its_last_room_from_what_clients_add(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, data: bytes
) -> None:
    async def use() -> None:
        store = EmbeddedStore.open(str(tmp_path), SystemClock())
        session = store.session()
        await ensure_path(session, path)
        await session.set(path, topic(1))
        with monkeypatch.context() as full:
            full.setattr("kafkad.meta.journal.allocate", lambda fd, at, length: False)
            full.setattr("os.fstatvfs", lambda fd: SimpleNamespace(f_bavail=0, f_frsize=4096))
            await session.create("/large", bytes(600_000))
            for write in (session.set(path, data), session.multi([Create("/made"), Set(path, data)])):
                with pytest.raises(NoRoom, match="nor partitions, delegation tokens or offsets of version 0"):
                    await write
            assert await session.exists("/made") is None
            await session.delete(path)
        await session.create(path, data)
        await store.close()

    asyncio.run(use())


def test_what_makes_room_or_keeps_the_cluster_going_does_not_wait() -> None:
    now = {Topic.path("t"): topic(2), Topic.path("broken"): b"{"}
    for goes_on in (
        Delete(Topic.path("t")),
        Delete(OFFSET),
        Delete(TOKEN),
        Check(Topic.path("t"), 1),
        Set(Topic.path("t"), topic(2, 2)),
        Set(Topic.path("broken"), b"{}"),
        Create(TopicDeletion.path("t")),
        Create(DelegationTokenChange.PREFIX, sequential=True),
        Create(Partition.path("t", 0)),
        Set(Config.path("topics/t"), b"{}"),
        Create(Config.path("clients/c"), b"{}"),
        Create("/kafka-acl/Topic/t"),
        Create("/brokers/ids/1", ephemeral=True),
    ):
        assert not can_wait(goes_on, now.get), goes_on
    for waits in (
        Create(Topic.path("new")),
        Set(Topic.path("t"), topic(3)),
        Create("/consumers/g"),
        Create(OFFSET),
        Set(OFFSET, b"1"),
        Create(TOKEN),
        Set(TOKEN, b"{}"),
    ):
        assert can_wait(waits, now.get), waits


def test_another_error_is_told_until_a_write_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the store starts, when only a full disk refuses nothing."""

    def refuse(fd: int, data: bytes, at: int) -> int:
        raise OSError(errno.EIO, "Input/output error")

    async def use() -> None:
        store = EmbeddedStore.open(str(tmp_path), SystemClock())
        store.is_starting = True
        session = store.session()
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", refuse)
            with pytest.raises(ConnectionLoss):
                await session.create("/a")
            told = f"{store.path} cannot be written (Input/output error): changes of metadata are refused"
            assert session.problem == store.problem == told
            assert store.problem_told(in_full=False) == told.replace(store.path, "kafkad.metadata.dir")
        await session.create("/a")
        assert session.problem is None
        await store.close()

    asyncio.run(use())


def test_nobody_reads_what_the_disk_may_still_refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others get its versions and numbers afterwards."""
    pwrite, may_write, full = os.pwrite, threading.Event(), [False]
    may_write.set()

    def write(fd: int, data: bytes, at: int) -> int:
        may_write.wait(10)
        if full[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(fd, data, at)

    monkeypatch.setattr(os, "pwrite", write)
    change: list[Operation] = [Set("/a", b"new"), Create("/notes/n_", sequential=True)]

    async def begin(store: MetaStore) -> tuple[asyncio.Future[Any], list[asyncio.Future[Any]]]:
        """The change, which the disk is slow to take, and who reads meanwhile."""
        may_write.clear()
        writing = asyncio.ensure_future(store.multi(change))
        await asyncio.sleep(0)
        assert await store.children("/other") == [], "of another node"
        reads = (
            store.get("/a"),
            store.get_many(["/other", "/a"]),
            store.children("/notes"),
            store.exists("/notes/n_0000000000"),
        )
        reading = [asyncio.ensure_future(read) for read in reads]
        await turns(3)
        assert not any(read.done() for read in reading)
        may_write.set()
        return writing, reading

    async def use(store: MetaStore) -> None:
        for path in ("/a", "/notes", "/other"):
            await store.create(path, b"old")
        full[0] = True
        writing, reading = await begin(store)
        with pytest.raises(ConnectionLoss):
            await writing
        (data, stat), many, notes, note = await asyncio.gather(*reading)
        assert (data, stat.version, [node[0] for node in many]) == (b"old", 0, [b"old", b"old"])
        assert (notes, note) == ([], None)
        full[0] = False
        writing, reading = await begin(store)
        (data, stat), many, notes, note = await asyncio.gather(*reading)
        assert (data, stat.version, [node[0] for node in many]) == (b"new", 1, [b"old", b"new"])
        assert notes == ["n_0000000000"]
        assert note is not None
        await writing

    with_store(tmp_path, use)


def test_who_reads_what_is_written_all_the_time_comes_between_two_writes(tmp_path: Path) -> None:
    async def use(store: MetaStore) -> None:
        await store.create("/a")
        written: list[int] = []

        async def write() -> None:
            while len(written) < 20:
                stat = await store.set("/a", b"x")
                written.append(stat.version)

        writing = asyncio.ensure_future(write())
        await asyncio.sleep(0)
        _, stat = await store.get("/a")
        assert (stat.version, written) == (1, [])
        await writing

    with_store(tmp_path, use)


def test_a_session_that_ends_while_it_reads_is_told_so(tmp_path: Path) -> None:
    async def use(store: MetaStore) -> None:
        assert isinstance(store, EmbeddedSession)
        writing = asyncio.ensure_future(store.create("/a"))
        await asyncio.sleep(0)
        reading = asyncio.ensure_future(store.get("/a"))
        await asyncio.sleep(0)
        await store.expire()
        with pytest.raises(SessionExpired):
            await reading
        await writing

    with_store(tmp_path, use)


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    async def use(store: MetaStore) -> None:
        with pytest.raises(JournalError, match="in use by another process"):
            EmbeddedStore.open(str(tmp_path), SystemClock())

    with_store(tmp_path, use)


def test_writes_share_an_fsync(tmp_path: Path) -> None:
    syncs = [0]

    def sync(fd: int) -> None:
        syncs[0] += 1
        os.fdatasync(fd)

    async def use(store: MetaStore) -> None:
        before = syncs[0]
        await asyncio.gather(*[store.create(f"/n{n}") for n in range(200)])
        assert syncs[0] - before == 2

    with_store(tmp_path, use, sync)


def test_no_new_store_is_made_beside_an_old_one(tmp_path: Path) -> None:
    """The order of log.dirs means nothing to Kafka, and two disks may be mounted in each other's place."""
    first, second, third, other = (str(tmp_path / name) for name in ("first", "second", "third", "other"))
    log_dirs = [second, first, third]

    async def use(store: MetaStore) -> None:
        await store.create("/a")

    with_store(Path(first), use)
    assert lost_store(first, log_dirs, log_dirs) is None
    for directory in (second, other):
        assert lost_store(directory, log_dirs, log_dirs) == (
            f"there is no metadata store in {directory}, and a new one would know no topics' settings, users or ACLs; "
            f"but there is {first}/{METADATA_FILE}: set kafkad.metadata.dir to {first}, or name {first} first in "
            "log.dirs. To begin with a new store, move the old one out of log.dirs"
        )
    with_store(Path(third), use)
    os.utime(f"{first}/{METADATA_FILE}", (1, 1))
    problem = lost_store(second, log_dirs, log_dirs)
    assert problem is not None
    assert (
        f"2 of log.dirs have one, written last {third}/{METADATA_FILE}: set kafkad.metadata.dir to {third}" in problem
    )
    assert lost_store(first, log_dirs, log_dirs) is None
    assert lost_store(other, [second], [second]) is None


def test_of_a_store_that_cannot_be_opened_the_directory_and_the_file_in_the_way_are_named(tmp_path: Path) -> None:
    directory = tmp_path / "file" / "store"
    (tmp_path / "file").touch()
    with pytest.raises(OSError) as refused:
        EmbeddedStore.open(str(directory), SystemClock())
    told = f"{directory}: {tmp_path}/file: Not a directory; see kafkad.metadata.dir, log.dirs"
    assert cannot_open(str(directory), refused.value) == f"cannot open the metadata store in {told}"


def test_changes_are_written_where_no_thread_can_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(store: MetaStore) -> None:
        with monkeypatch.context() as refusing:
            no_more_threads(refusing)
            async with asyncio.timeout(10):
                await store.create("/a")

    async def read(store: MetaStore) -> None:
        assert await store.children("/") == ["a"]

    with_store(tmp_path, use)
    with_store(tmp_path, read)


def test_offsets_of_version_0_take_no_memory_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also over a start. Those that are there can be written, and deletions make room."""
    monkeypatch.setattr("kafkad.meta.consumer_room.MOST_BYTES", 10_000)

    async def use() -> None:
        store = EmbeddedStore.open(str(tmp_path), SystemClock())
        session = store.session()
        added: list[str] = []

        async def fill() -> None:
            for number in range(100):
                path = ConsumerOffset.path(f"g{number}", "t", 0)
                await ensure_path(session, path)
                added.append(path)

        with pytest.raises(NoRoom, match="offsets of version 0 take"):
            await fill()
        assert 0 < len(added) < 20
        await session.set(added[0], b"7")
        await session.create("/brokers")
        await store.close()
        store = EmbeddedStore.open(str(tmp_path), SystemClock())
        session = store.session()
        with pytest.raises(NoRoom):
            await session.create("/consumers/another")
        await session.delete(added[0])
        await session.create("/consumers/another")
        await store.close()

    asyncio.run(use())


def test_offsets_of_version_0_that_are_a_week_old_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where there is none otherwise."""
    monkeypatch.setattr("kafkad.meta.consumer_room.MOST_BYTES", 5_000)

    async def use() -> None:
        clock = FakeClock()
        session = EmbeddedStore.in_memory(clock).session()
        old, kept = ConsumerOffset.path("old", "t", 0), ConsumerOffset.path("kept", "t", 0)
        for path in (old, kept):
            await ensure_path(session, path)
        clock.advance(7 * 24 * 3_600_000)
        await session.set(kept, b"1")
        await ensure_path(session, "/consumers/fills")
        assert await session.exists(old) is not None
        with pytest.raises(NoRoom, match="until some are a week old"):
            for _ in range(10):
                await session.create("/consumers/fills/n", sequential=True)
        assert await session.exists(old) is None
        assert await session.exists(kept) is not None
        clock.advance(10_000)
        await session.create("/consumers/another")
        assert await session.exists("/consumers/old/offsets/t") is None, "what is above it is old as well"

    asyncio.run(use())


def test_nothing_else_is_refused_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkad.meta.consumer_room.MOST_BYTES", 0)

    async def use() -> None:
        session = EmbeddedStore.in_memory(FakeClock()).session()
        await session.create("/consumers")
        with pytest.raises(NoRoom):
            await session.create("/consumers/g")
        await session.create("/brokers")

    asyncio.run(use())


def test_what_the_disk_refused_takes_no_room_for_offsets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkad.meta.consumer_room.MOST_BYTES", 1_500)

    async def use() -> None:
        store = EmbeddedStore.open(str(tmp_path), SystemClock())
        session = store.session()
        await session.create("/consumers")
        assert store._journal is not None
        with monkeypatch.context() as failing:
            failing.setattr(store._journal, "append", refuse)
            for _ in range(5):
                with pytest.raises(ConnectionLoss):
                    await session.create("/consumers/g")
        await session.create("/consumers/g")
        await store.close()

    def refuse(entries: bytes) -> None:
        raise OSError(28, "No space left on device")

    asyncio.run(use())
