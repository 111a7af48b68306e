"""The ids of brokers and of the cluster in the store, restarts, and adoption."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from kafkad.clock import SystemClock
from kafkad.controller.adoption import AdoptedTopic, adopt, has_topics
from kafkad.controller.registration import Occupied, cluster_id, prepare, register
from kafkad.meta.embedded import EmbeddedStore
from kafkad.meta.znodes import TOPICS, ClusterId, ControllerEpoch, ProducerIdBlock
from kafkad.names import METADATA_FILE, NO_TOPIC_ID

from .cluster import A1, Cluster, Reopen, on_disk, registration, with_brokers


@with_brokers(1)
async def test_an_id_is_registered_by_one_session(cluster: Cluster) -> None:
    session = cluster.store.session()
    member = cluster.members[1]
    found = await register(session, registration(1))
    assert isinstance(found, Occupied)
    assert (found.session, found.registration.broker.epoch) == (member.session.session_id, member.epoch)
    assert not found.gone.is_set()
    await member.session.expire()
    assert found.gone.is_set()
    epoch = await register(session, registration(1))
    assert isinstance(epoch, int)
    assert epoch > member.epoch
    assert await register(session, registration(1)) == epoch, "its answer may have been lost"


@with_brokers(1)
async def test_cluster_id(cluster: Cluster) -> None:
    store = cluster.client
    assert await cluster_id(store, "from-the-disk") == "from-the-disk"
    assert await cluster_id(store, "another") == "from-the-disk"
    assert (await store.get(ClusterId.PATH))[0] == b'{"version":"1","id":"from-the-disk"}'


def test_a_restart_of_the_process_changes_no_partition() -> None:
    async def run(store: EmbeddedStore, reopen: Reopen) -> None:
        cluster = Cluster(store)
        await cluster.start(1)
        await cluster.create("a", (1,), (1,))
        before = await cluster.state("a", 1)
        await cluster.members[1].controller.stop()
        again = Cluster(await reopen())
        await again.start(1)
        assert await again.state("a", 1) == before
        assert len(again[1].replicas) == len(again[1].metadata) == 2
        assert again[1].replicas[A1].leader_epoch == 0
        assert (await again.client.get(ControllerEpoch.PATH))[0] == b"2"
        await again.stop()

    on_disk(run)


def test_adoption() -> None:
    async def run(store: EmbeddedStore, reopen: Reopen) -> None:
        session = store.session()
        await prepare(session)
        assert not await has_topics(session)
        found = [
            AdoptedTopic(name="a", topic_id=b"i" * 16, latest_epochs={0: 3, 2: -1}),
            AdoptedTopic(name="old", topic_id=NO_TOPIC_ID, latest_epochs={0: 0}),
        ]
        assert found[0].missing == [1]
        await adopt(session, 1, found, now_ms=5_000_123)
        assert await has_topics(session)
        cluster = Cluster(store)
        await cluster.start(1)
        assert [(await cluster.state("a", p)).leader_epoch for p in range(3)] == [3, 0, 0]
        assert cluster[1].topic_ids["a"] == b"i" * 16
        assert cluster[1].topic_ids["old"] != NO_TOPIC_ID
        assert (await cluster.state("old")).leader_epoch == 0
        assert len(cluster[1].replicas) == 4
        block = await cluster.controller.allocate_producer_ids(1, cluster.members[1].epoch)
        assert block == ProducerIdBlock(1, 5_000_000, 5_000_999)
        await cluster.stop()

    on_disk(run)


def test_an_adoption_that_is_interrupted_begins_again(tmp_path: Path) -> None:
    async def run() -> None:
        store = EmbeddedStore.open(str(tmp_path), SystemClock())
        session = store.session()
        await prepare(session)
        found = [
            AdoptedTopic(name=name, topic_id=b"i" * 16, latest_epochs=dict.fromkeys(range(700), 0)) for name in "ab"
        ]
        await adopt(session, 1, found, now_ms=5_000_123)
        await store.close()
        journal = tmp_path / METADATA_FILE
        os.truncate(journal, journal.stat().st_size - 1)
        store = EmbeddedStore.open(str(tmp_path), SystemClock())
        session = store.session()
        assert not await has_topics(session)
        await adopt(session, 1, found, now_ms=5_000_123)
        assert sorted(await session.children(TOPICS)) == ["a", "b"]
        await store.close()

    asyncio.run(run())
