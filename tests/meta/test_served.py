"""The embedded store served to other processes: the contract over a socket, and what ends a session."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafkad.clock import SystemClock
from kafkad.meta import store_messages
from kafkad.meta.embedded import EmbeddedSession, EmbeddedStore
from kafkad.meta.remote import RemoteSession
from kafkad.meta.served import serve
from kafkad.meta.store import (
    Change,
    ConnectionLoss,
    MetaStore,
    NoRoom,
    SessionExpired,
    SessionState,
    WatchEvent,
    ensure_path,
)

from .contract import MetaStoreContract, in_loop


class RecordedStore(EmbeddedStore):
    """Knows its sessions, so that a test can expire one."""

    def session(self) -> EmbeddedSession:
        session = super().session()
        self.sessions = {**getattr(self, "sessions", {}), session.number: session}
        return session


class TestServed(MetaStoreContract):
    store: RecordedStore
    opened: list[RemoteSession]
    serving: list[asyncio.Task[None]]
    lost: list[str]

    async def start(self) -> None:
        self.store = RecordedStore.in_memory(SystemClock())  # type: ignore[assignment]
        self.opened, self.serving, self.lost = [], [], []

    async def stop(self) -> None:
        for session in self.opened:
            await session.close()
        await asyncio.gather(*self.serving)
        await self.store.close()

    async def connect(self) -> MetaStore:
        return await self.open()

    async def open(self) -> RemoteSession:
        here, there = socket.socketpair()
        self.serving.append(asyncio.create_task(serve(self.store, there)))
        session = await RemoteSession.connect(here, lambda: self.lost.append("lost"))
        self.opened.append(session)
        return session

    async def expire(self, session: MetaStore) -> None:
        await self.store.sessions[session.session_id].expire()
        await self.settle()

    async def settle(self) -> None:
        """An answer comes after all events that were sent before it."""
        for session in self.opened:
            try:
                await session.exists("/")
            except (ConnectionLoss, SessionExpired):
                await asyncio.sleep(0.02)
        await asyncio.sleep(0)

    @in_loop
    async def test_requests_are_sent_without_waiting_for_answers_and_take_effect_in_their_order(self) -> None:
        store = await self.connect()
        created, read, written, again = await asyncio.gather(
            store.create("/a", b"\x00\xff"), store.get("/a"), store.set("/a", b"2", version=0), store.get("/a")
        )
        assert created == "/a"
        assert read[0] == b"\x00\xff"
        assert written.version == 1
        assert again[0] == b"2"

    @in_loop
    async def test_an_event_is_told_before_the_answer_to_the_write_that_caused_it(self) -> None:
        store = await self.connect()
        seen: list[str] = []
        await store.create("/a")
        await store.get("/a", watch=lambda event: seen.append("event"))
        await store.set("/a", b"1")
        await asyncio.sleep(0)
        seen.append("answer")
        assert seen == ["event", "answer"]

    @in_loop
    async def test_one_callback_hears_once_of_a_deletion_that_it_watches_twice(self) -> None:
        store = await self.connect()
        seen: list[WatchEvent] = []
        hear = seen.append
        await store.create("/a")
        await store.get("/a", watch=hear)
        await store.children("/a", watch=hear)
        await store.delete("/a")
        await self.settle()
        assert seen == [WatchEvent(Change.DELETED, "/a")]

    @in_loop
    async def test_a_watch_that_is_set_again_is_kept_once_at_both_ends(self) -> None:
        store = await self.open()
        seen: list[WatchEvent] = []
        await store.create("/a")
        for _ in range(10):
            await store.get("/a", watch=seen.append)
            await store.get_many(["/a"], watch=seen.append)
            await store.children("/a", watch=seen.append)
        for kept in (self.store._watches, store._watches):
            assert [len(kept[of_children]["/a"]) for of_children in (False, True)] == [1, 1]

    @in_loop
    async def test_when_the_connection_ends_its_session_ends_and_whoever_waits_is_told(self) -> None:
        store, other = await self.open(), await self.open()
        await store.create("/a", ephemeral=True)
        gone = asyncio.Event()
        await other.exists("/a", watch=lambda event: gone.set())
        self.serving[0].cancel()  # as when the supervisor dies
        await asyncio.wait([self.serving.pop(0)])
        with pytest.raises(ConnectionLoss, match="supervisor"):
            await store.get("/a")
        await asyncio.wait_for(gone.wait(), 5)
        assert self.lost == ["lost"]

    @in_loop
    async def test_a_session_ends_after_silence_and_not_before(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("kafkad.meta.served.SESSION_TICK_S", 0.05)  # the client says nothing for a second
            store, other = await self.open(), await self.open()
            states: list[SessionState] = []
            store.listen(states.append)
            await store.create("/a", ephemeral=True)
            for _ in range(store_messages.SESSION_TICKS * 2):
                assert await store.exists("/a") == await other.exists("/a") is not None
                await asyncio.sleep(0.05)
            gone = asyncio.Event()
            await other.exists("/a", watch=lambda event: gone.set())
            while not gone.is_set():
                await other.exists("/")
                await asyncio.sleep(0.02)
            with pytest.raises(SessionExpired):
                await store.get("/")
            assert states == [SessionState.EXPIRED]

    @in_loop
    async def test_a_broker_may_take_its_time_before_it_says_anything(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("kafkad.meta.served.SESSION_TICK_S", 0.01)
            here, there = socket.socketpair()
            self.serving.append(asyncio.create_task(serve(self.store, there)))
            await asyncio.sleep(0.01 * store_messages.SESSION_TICKS * 3)
            session = await RemoteSession.connect(here, lambda: None)
            self.opened.append(session)
            await session.create("/a")


def test_a_session_ends_at_once_though_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its broker's next process waits for that. Nothing else is taken that the disk does not have."""
    pwrite, full = os.pwrite, [False]

    def write(fd: int, data: bytes, at: int) -> int:
        if full[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(fd, data, at)

    monkeypatch.setattr(os, "pwrite", write)

    async def scenario() -> None:
        store = EmbeddedStore.open(str(tmp_path), SystemClock())
        here, there = socket.socketpair()
        serving = asyncio.create_task(serve(store, there))
        session = await RemoteSession.connect(here, lambda: None)
        await session.create("/me", ephemeral=True)
        other = store.session()
        gone = asyncio.Event()
        await other.exists("/me", watch=lambda event: gone.set())
        full[0] = True
        refused = asyncio.create_task(other.create("/lost"))
        await session.close()
        await asyncio.wait_for(serving, 5)
        assert gone.is_set()
        assert store.find("/me") is None
        with pytest.raises(ConnectionLoss):
            await refused
        assert store.problem is not None
        full[0] = False
        await other.create("/kept")
        assert store.problem is None
        await store.close()
        again = EmbeddedStore.open(str(tmp_path), SystemClock())
        assert [again.find(path) is not None for path in ("/me", "/lost", "/kept")] == [False, False, True]
        await again.close()

    asyncio.run(scenario())


def test_a_broker_is_told_that_there_is_no_room_for_topics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkad.meta.journal.allocate", lambda fd, at, length: False)
    monkeypatch.setattr("os.fstatvfs", lambda fd: SimpleNamespace(f_bavail=0, f_frsize=4096))

    async def scenario() -> None:
        store = EmbeddedStore.open(str(tmp_path), SystemClock())
        here, there = socket.socketpair()
        serving = asyncio.create_task(serve(store, there))
        session = await RemoteSession.connect(here, lambda: None)
        await ensure_path(session, "/brokers/topics")
        with pytest.raises(NoRoom, match="no topics are created until there is room"):
            await session.create("/brokers/topics/new")
        await session.close()
        await serving
        await store.close()

    asyncio.run(scenario())


BROKER = """
import asyncio, socket, sys
from kafkad.meta.remote import RemoteSession

async def main():
    store = await RemoteSession.connect(socket.socket(fileno=int(sys.argv[1])), lambda: sys.exit(3))
    await store.create("/me", ephemeral=True)
    print("registered", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_killed_process_loses_its_session_at_once(tmp_path: Path) -> None:
    async def scenario() -> float:
        store = EmbeddedStore.open(str(tmp_path), SystemClock())
        here, there = socket.socketpair()
        serving = asyncio.create_task(serve(store, here))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", BROKER, str(there.fileno()), pass_fds=[there.fileno()], stdout=subprocess.PIPE
        )
        there.close()
        assert process.stdout is not None
        assert await process.stdout.readline() == b"registered\n"
        watcher = store.session()
        gone = asyncio.Event()
        assert await watcher.exists("/me", watch=lambda event: gone.set()) is not None
        os.kill(process.pid, signal.SIGKILL)
        killed = asyncio.get_running_loop().time()
        await asyncio.wait_for(gone.wait(), 5)
        took = asyncio.get_running_loop().time() - killed
        await process.wait()
        await serving
        await store.close()
        return took

    assert asyncio.run(scenario()) < 1
