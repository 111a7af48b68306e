"""The contract of every MetaStore. A store's test module subclasses `MetaStoreContract`."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kafkad.meta.store import (
    BadPath,
    BadVersion,
    Change,
    Check,
    Create,
    Delete,
    MetaStore,
    MultiFailed,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    SessionState,
    Set,
    WatchEvent,
    ensure_path,
    put,
    subtree,
)


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Runs an async test method in a loop of its own, between `start` and `stop` of its class."""

    @functools.wraps(test)
    def run(self: Any, *args: Any, **kwargs: Any) -> None:
        async def whole() -> None:
            await self.start()
            try:
                await test(self, *args, **kwargs)
            finally:
                await self.stop()

        asyncio.run(whole())

    return run


class MetaStoreContract:
    """`connect` opens another session with the same tree; `expire` loses one."""

    async def start(self) -> None:
        raise NotImplementedError

    async def stop(self) -> None:
        raise NotImplementedError

    async def connect(self) -> MetaStore:
        raise NotImplementedError

    async def expire(self, session: MetaStore) -> None:
        raise NotImplementedError

    async def settle(self) -> None:
        """Returns when each session has seen all that was written, and every watch that is due was called."""
        raise NotImplementedError

    @in_loop
    async def test_create_and_get(self) -> None:
        store = await self.connect()
        assert await store.create("/a", b"one") == "/a"
        assert store.problem is None
        data, stat = await store.get("/a")
        assert data == b"one"
        assert (stat.version, stat.cversion, stat.ephemeral_owner, stat.children) == (0, 0, 0, 0)
        assert stat.czxid == stat.mzxid > 0
        assert stat.ctime_ms == stat.mtime_ms > 0

    @in_loop
    async def test_parent_must_exist(self) -> None:
        store = await self.connect()
        with pytest.raises(NoNode):
            await store.create("/a/b")
        await ensure_path(store, "/a/b/c")
        await ensure_path(store, "/a/b/c")
        assert await store.children("/a") == ["b"]
        assert await store.children("/") in (["a"], ["a", "zookeeper"])

    @in_loop
    async def test_a_node_of_a_name_that_the_store_does_not_take(self) -> None:
        store = await self.connect()
        for name in (".", "..", "a\0b"):
            with pytest.raises(BadPath):
                await store.create(f"/{name}")
            with pytest.raises(MultiFailed) as failed:
                await store.multi([Create("/a"), Create(f"/{name}")])
            assert isinstance(failed.value.cause, BadPath)
            assert await store.get_many(["/a"]) == [None]

    @in_loop
    async def test_create_twice(self) -> None:
        store = await self.connect()
        await store.create("/a", b"one")
        with pytest.raises(NodeExists):
            await store.create("/a", b"two")
        assert (await store.get("/a"))[0] == b"one"

    @in_loop
    async def test_missing_node(self) -> None:
        store = await self.connect()
        assert await store.exists("/a") is None
        for operation in (store.get("/a"), store.set("/a", b""), store.delete("/a"), store.children("/a")):
            with pytest.raises(NoNode):
                await operation

    @in_loop
    async def test_set_raises_the_version(self) -> None:
        store = await self.connect()
        await store.create("/a", b"0")
        created = await store.exists("/a")
        assert created is not None
        assert (await store.set("/a", b"1")).version == 1
        stat = await store.set("/a", b"2", version=1)
        assert stat.version == 2
        assert stat.czxid == created.czxid < stat.mzxid
        with pytest.raises(BadVersion):
            await store.set("/a", b"3", version=1)
        assert (await store.get("/a"))[0] == b"2"

    @in_loop
    async def test_delete(self) -> None:
        store = await self.connect()
        await ensure_path(store, "/a/b")
        with pytest.raises(NotEmpty):
            await store.delete("/a")
        with pytest.raises(BadVersion):
            await store.delete("/a/b", version=1)
        await store.delete("/a/b", version=0)
        await store.delete("/a")
        assert await store.exists("/a") is None

    @in_loop
    async def test_a_node_made_again_starts_anew(self) -> None:
        store = await self.connect()
        await store.create("/a")
        first = await store.set("/a", b"x")
        await store.delete("/a")
        await store.create("/a")
        again = await store.exists("/a")
        assert again is not None
        assert again.version == 0
        assert again.czxid > first.mzxid

    @in_loop
    async def test_children_counts(self) -> None:
        store = await self.connect()
        await ensure_path(store, "/a/b")
        await store.create("/a/c")
        await store.delete("/a/b")
        stat = await store.exists("/a")
        assert stat is not None
        assert (stat.version, stat.cversion, stat.children) == (0, 3, 1)

    @in_loop
    async def test_sequential_names_are_never_used_twice(self) -> None:
        store = await self.connect()
        await store.create("/a")
        first = await store.create("/a/n_", sequential=True)
        assert first == "/a/n_0000000000"
        await store.create("/a/other")
        await store.delete(first)
        assert await store.create("/a/n_", sequential=True) == "/a/n_0000000002"

    @in_loop
    async def test_get_many(self) -> None:
        store = await self.connect()
        await store.create("/a", b"1")
        await store.create("/c", b"3")
        found = await store.get_many(["/a", "/b", "/c"])
        assert [entry and entry[0] for entry in found] == [b"1", None, b"3"]

    @in_loop
    async def test_watches_of_many_nodes_at_once(self) -> None:
        store = await self.connect()
        await store.create("/a")
        await store.create("/c")
        events: list[WatchEvent] = []
        await store.get_many(["/a", "/b", "/c"], events.append)
        await store.create("/b")
        await store.set("/c", b"1")
        await store.set("/c", b"2")
        await store.delete("/a")
        await self.settle()
        assert events == [WatchEvent(Change.CHANGED, "/c"), WatchEvent(Change.DELETED, "/a")]

    @in_loop
    async def test_a_node_that_is_put_is_never_there_without_its_data(self) -> None:
        store = await self.connect()
        for data in (b"first", b"second"):
            await put(store, "/a/b/c", data)
            assert (await store.get("/a/b/c"))[0] == data
        stat = await store.exists("/a/b/c")
        assert stat is not None
        assert stat.version == 1

    @in_loop
    async def test_subtree_can_be_deleted_in_its_order(self) -> None:
        store = await self.connect()
        await ensure_path(store, "/a/b/c")
        await ensure_path(store, "/a/d")
        paths = await subtree(store, "/a")
        assert sorted(paths) == ["/a", "/a/b", "/a/b/c", "/a/d"]
        await store.multi([Delete(path) for path in paths])
        assert await store.exists("/a") is None
        assert await subtree(store, "/a") == []

    # Transactions.

    @in_loop
    async def test_multi_tells_each_result(self) -> None:
        store = await self.connect()
        results = await store.multi(
            [Create("/a", b"1"), Set("/a", b"2"), Check("/a", 1), Create("/b"), Create("/b/c"), Delete("/b/c")]
        )
        assert results[0] == "/a"
        stat = await store.exists("/a")
        assert results[1] == stat
        assert results[2:] == [None, "/b", "/b/c", None]
        assert stat is not None
        assert stat.czxid == stat.mzxid

    @in_loop
    async def test_multi_is_all_or_nothing(self) -> None:
        store = await self.connect()
        await store.create("/a", b"old")
        await store.create("/gone", b"kept")
        before = await store.exists("/")
        with pytest.raises(MultiFailed) as failure:
            await store.multi([Create("/b"), Set("/a", b"new"), Delete("/gone"), Check("/a", 7), Create("/d")])
        assert failure.value.index == 3
        assert isinstance(failure.value.cause, BadVersion)
        assert (await store.get("/a"))[0] == b"old"
        assert (await store.get("/gone"))[0] == b"kept"
        assert await store.exists("/b") is None
        after = await store.exists("/")
        assert after is not None
        assert before is not None
        assert after.children == before.children

    @in_loop
    async def test_multi_causes(self) -> None:
        store = await self.connect()
        await ensure_path(store, "/a/b")
        for operation, cause in (
            (Create("/a"), NodeExists),
            (Create("/x/y"), NoNode),
            (Delete("/a"), NotEmpty),
            (Set("/x", b""), NoNode),
            (Check("/x", 0), NoNode),
        ):
            with pytest.raises(MultiFailed) as failure:
                await store.multi([Check("/a", 0), operation])
            assert failure.value.index == 1
            assert isinstance(failure.value.cause, cause)

    @in_loop
    async def test_concurrent_writes_keep_their_order(self) -> None:
        store = await self.connect()
        await store.create("/a", b"")
        stats = await asyncio.gather(*[store.set("/a", str(n).encode(), version=n) for n in range(50)])
        assert [s.version for s in stats] == list(range(1, 51))
        assert (await store.get("/a"))[0] == b"49"

    # Watches.

    @in_loop
    async def test_data_watch_fires_once(self) -> None:
        store, other = await self.connect(), await self.connect()
        seen: list[WatchEvent] = []
        await store.create("/a")
        await store.get("/a", watch=seen.append)
        await other.set("/a", b"1")
        await other.set("/a", b"2")
        await self.settle()
        assert seen == [WatchEvent(Change.CHANGED, "/a")]

    @in_loop
    async def test_a_watch_that_was_set_twice_fires_once(self) -> None:
        store, other = await self.connect(), await self.connect()
        seen: list[WatchEvent] = []
        hear = seen.append
        await store.create("/a")
        for _ in range(2):
            await store.get("/a", watch=hear)
            await store.children("/a", watch=hear)
        await other.set("/a", b"1")
        await other.set("/a", b"2")
        await other.create("/a/b")
        await self.settle()
        assert seen == [WatchEvent(Change.CHANGED, "/a"), WatchEvent(Change.CHILDREN, "/a")]

    @in_loop
    async def test_a_read_that_fails_leaves_the_watch_of_another(self) -> None:
        store, other = await self.connect(), await self.connect()
        seen: list[WatchEvent] = []
        hear = seen.append
        await store.exists("/a", watch=hear)
        with pytest.raises(NoNode):
            await store.get("/a", watch=hear)
        assert await store.get_many(["/a"], watch=hear) == [None]
        await other.create("/a")
        await self.settle()
        assert seen == [WatchEvent(Change.CREATED, "/a")]

    @in_loop
    async def test_exists_watch_sees_creation_and_deletion(self) -> None:
        store, other = await self.connect(), await self.connect()
        seen: list[WatchEvent] = []
        await store.exists("/a", watch=seen.append)
        await other.create("/a")
        await self.settle()
        assert seen == [WatchEvent(Change.CREATED, "/a")]
        await store.exists("/a", watch=seen.append)
        await other.delete("/a")
        await self.settle()
        assert seen[1:] == [WatchEvent(Change.DELETED, "/a")]

    @in_loop
    async def test_children_watch_fires_once_and_not_for_data(self) -> None:
        store, other = await self.connect(), await self.connect()
        seen: list[WatchEvent] = []
        await store.create("/a")
        await store.children("/a", watch=seen.append)
        await other.set("/a", b"1")
        await other.create("/a/b")
        await other.create("/a/c")
        await self.settle()
        assert seen == [WatchEvent(Change.CHILDREN, "/a")]
        await store.children("/a", watch=seen.append)
        await other.set("/a/b", b"1")
        await other.delete("/a/b")
        await self.settle()
        assert seen[1:] == [WatchEvent(Change.CHILDREN, "/a")]

    @in_loop
    async def test_children_watch_sees_the_deletion_of_its_node(self) -> None:
        store, other = await self.connect(), await self.connect()
        seen: list[WatchEvent] = []
        await store.create("/a")
        await store.children("/a", watch=seen.append)
        await other.delete("/a")
        await self.settle()
        assert seen == [WatchEvent(Change.DELETED, "/a")]

    @in_loop
    async def test_watches_come_in_the_order_of_the_changes(self) -> None:
        store, other = await self.connect(), await self.connect()
        seen: list[str] = []
        for name in ("/a", "/b", "/c"):
            await store.create(name)
            await store.get(name, watch=lambda event: seen.append(event.path))
        await asyncio.gather(*[other.set(name, b"1") for name in ("/b", "/c", "/a")])
        await self.settle()
        assert seen == ["/b", "/c", "/a"]

    @in_loop
    async def test_a_failed_transaction_fires_no_watch(self) -> None:
        store = await self.connect()
        seen: list[WatchEvent] = []
        await store.create("/a")
        await store.get("/a", watch=seen.append)
        with pytest.raises(MultiFailed):
            await store.multi([Set("/a", b"1"), Check("/a", 5)])
        await self.settle()
        assert seen == []

    # Sessions.

    @in_loop
    async def test_ephemeral_nodes_go_with_their_session(self) -> None:
        store, other = await self.connect(), await self.connect()
        await store.create("/a", b"x", ephemeral=True)
        await self.settle()
        stat = await other.exists("/a")
        assert stat is not None
        assert stat.ephemeral_owner == store.session_id != other.session_id
        with pytest.raises(NoChildrenForEphemerals):
            await other.create("/a/b")
        seen: list[WatchEvent] = []
        await other.exists("/a", watch=seen.append)
        await self.expire(store)
        await self.settle()
        assert seen == [WatchEvent(Change.DELETED, "/a")]
        assert await other.exists("/a") is None

    @in_loop
    async def test_closing_drops_ephemeral_nodes(self) -> None:
        store, other = await self.connect(), await self.connect()
        await store.create("/a", ephemeral=True)
        await store.create("/b")
        await store.close()
        await self.settle()
        assert await other.exists("/a") is None
        assert await other.exists("/b") is not None

    @in_loop
    async def test_an_expired_session_does_nothing_until_renewed(self) -> None:
        store = await self.connect()
        states: list[SessionState] = []
        store.listen(states.append)
        await store.create("/a", ephemeral=True)
        before = store.session_id
        await self.expire(store)
        with pytest.raises(SessionExpired):
            await store.create("/b")
        with pytest.raises(SessionExpired):
            await store.get("/a")
        await store.renew()
        assert store.session_id != before
        assert await store.exists("/a") is None
        await store.create("/a", ephemeral=True)
        await self.settle()
        assert states[-2:] == [SessionState.EXPIRED, SessionState.CONNECTED]
        assert states.count(SessionState.EXPIRED) == 1

    @in_loop
    async def test_a_deleted_ephemeral_node_belongs_to_who_makes_it_again(self) -> None:
        store, other = await self.connect(), await self.connect()
        await store.create("/a", ephemeral=True)
        await other.delete("/a")
        await other.create("/a", ephemeral=True)
        await self.expire(store)
        await self.settle()
        assert await other.exists("/a") is not None
