"""Deleted partitions, by the metadata store."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from kafkad.meta.embedded import EmbeddedStore
from kafkad.meta.store import MetaStore, OutOfReach, ensure_path
from kafkad.meta.znodes import Topic, TopicDeletion
from kafkad.model import PartitionAssignment
from kafkad.names import TopicPartition
from kafkad.txn.gone import GonePartitions
from tests.fakes import FakeClock, turns
from tests.txn.life import scenario

T0, T1, T2 = (TopicPartition("t", index) for index in range(3))
NONE: set[TopicPartition] = set()


async def store_with(topic: bytes) -> MetaStore:
    store = EmbeddedStore.in_memory(FakeClock()).session()
    await ensure_path(store, "/brokers/topics")
    await ensure_path(store, TopicDeletion.PARENT)
    await store.create(Topic.path("t"), topic)
    return store


def assigned(*partitions: int) -> bytes:
    return Topic(b"t" * 16, {index: PartitionAssignment(replicas=[1]) for index in partitions}).encode()


async def gone(store: MetaStore, *asked: TopicPartition) -> set[TopicPartition]:
    found: list[Collection[TopicPartition]] = []
    GonePartitions(store).find(asked, found.append)
    await turns()
    [result] = found
    return set(result)


@scenario
async def test_what_the_store_does_not_have_is_gone() -> None:
    other = TopicPartition("no", 0)
    assert await gone(await store_with(assigned(0, 1)), T0, T1, T2, other) == {T2, other}


@scenario
async def test_what_is_being_deleted_is_gone() -> None:
    store = await store_with(assigned(0))
    await store.create(TopicDeletion.path("t"))
    assert await gone(store, T0) == {T0}


@scenario
async def test_what_cannot_be_read_may_be_there() -> None:
    store = await store_with(b"{")
    assert await gone(store, T0) == NONE

    async def out_of_reach(paths: Collection[str], watch: object = None) -> Any:
        raise OutOfReach("no connection")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "get_many", out_of_reach)
        assert await gone(store, T0) == NONE


@scenario
async def test_a_topic_is_read_once_for_all_who_ask_at_the_same_time() -> None:
    store = await store_with(assigned(0))
    reads: list[object] = []
    get_many = store.get_many

    async def counted(paths: Any, watch: Any = None) -> Any:
        reads.append(paths)
        return await get_many(paths, watch)

    store.get_many = counted  # type: ignore[method-assign]
    partitions = GonePartitions(store)
    found: list[Collection[TopicPartition]] = []
    for _ in range(3):
        partitions.find([T0, T1], found.append)
    await turns()
    assert found == [[T1]] * 3
    assert len(reads) == 1
    partitions.find([T1], found.append)
    await turns()
    assert len(reads) == 2
    partitions.find([T1], found.append)
    partitions.close()
    await turns()
    assert len(found) == 4
