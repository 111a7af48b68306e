"""Nodes of the metadata store that cannot be read: each is named, and concerns only what it describes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkad.controller.registration import cluster_id, prepare
from kafkad.errors import ErrorCode
from kafkad.meta.store import MetaStore, Unreadable, ensure_path
from kafkad.meta.znodes import Config, ConfigChange, Features, Topic
from kafkad.model import PartitionAssignment
from kafkad.names import TopicPartition
from kafkad.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkad.wire.messages.init_producer_id import InitProducerIdRequest
from kafkad.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.broker_parts.several import Brokers

GOOD, HALF = TopicPartition("good", 0), TopicPartition("half", 1)
NAMED = (
    "/admin/preferred_replica_election",
    "/admin/reassign_partitions",
    "/brokers/ids/7",
    "/brokers/topics/bad",
    "/brokers/topics/half/partitions/0/state",
    "/config/topics/good",
    "/feature",
    "/kafkad/log_dirs/1",
)
DROPPED = ("/isr_change_notification/isr_change_", "/log_dir_event_notification/log_dir_event_")
GARBAGE = (b"{", b"", b"[]", b"null", b"\xff\xfe", b'{"version":"x"}')


async def write(store: MetaStore, path: str, data: bytes) -> None:
    await ensure_path(store, path)
    await store.set(path, data)


async def spoil(store: MetaStore, garbage: bytes) -> None:
    await prepare(store)
    replicas = PartitionAssignment(replicas=(1,))
    for name in ("good", "half"):
        await write(store, Topic.path(name), Topic(b"%016d" % len(name), {0: replicas, 1: replicas}).encode())
    for path in NAMED:
        await write(store, path, garbage)
    await write(store, "/brokers/ids/odd", garbage)
    for prefix in DROPPED:
        await store.create(prefix, garbage, sequential=True)


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    made = Brokers(tmp_path)
    try:
        yield made
    finally:
        made.stop()


def leads(brokers: Brokers, tp: TopicPartition) -> bool:
    found = brokers[1].parts.replicas.find(*tp)
    return found is not None and found.is_leader


@pytest.mark.parametrize("garbage", GARBAGE, ids=repr)
def test_what_cannot_be_read_is_left_out_and_the_rest_is_served(
    brokers: Brokers, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    brokers.run(spoil(brokers.store.session(), garbage))
    brokers.start(1)
    brokers.until(lambda: leads(brokers, GOOD) and leads(brokers, HALF))
    assert brokers[1].parts.controller.active
    assert not leads(brokers, TopicPartition("half", 0))
    assert brokers[1].parts.replicas.find("bad", 0) is None
    brokers.create("new", (1,))
    brokers.until(lambda: leads(brokers, TopicPartition("new", 0)))
    assert "internal error" not in caplog.text


@pytest.mark.parametrize("garbage", GARBAGE, ids=repr)
def test_notes_of_changed_settings(brokers: Brokers, garbage: bytes) -> None:
    """Settings are followed after such a note as before."""
    brokers.start(1)
    brokers.create("t", (1,))
    configs = brokers[1].parts.identity.configs

    async def noted() -> None:
        store = brokers.store.session()
        await store.create("/config/changes/odd", garbage)
        await store.create(ConfigChange.PREFIX, garbage, sequential=True)
        await write(store, Config.path("topics/t"), Config.encode({"retention.ms": "7"}))
        await store.create(ConfigChange.PREFIX, ConfigChange.encode("topics/t"), sequential=True)

    brokers.run(noted())
    brokers.until(lambda: configs.topic("t") == {"retention.ms": "7"})


@pytest.mark.parametrize("garbage", [b"{", b"[]", b"\xff\xfe"], ids=repr)
def test_what_must_not_be_guessed_is_refused_and_named(
    brokers: Brokers, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Producer ids that could have been given out already, settings and features that would be lost."""
    brokers.start(1)
    brokers.create("t", (1,))

    async def refusals() -> tuple[int, str, int, int]:
        store = brokers.store.session()
        await store.set("/latest_producer_id_block", garbage)
        await write(store, Config.path("topics/t"), garbage)
        await store.set(Features.path(), garbage)
        ask = brokers[1].ask
        change = AlterableConfig(name="retention.ms", config_operation=0, value="1")
        resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
        altered = (await ask(IncrementalAlterConfigsRequest(resources=[resource]))).responses[0]
        update = FeatureUpdateKey(feature="f", max_version_level=0, upgrade_type=2)
        updated = await ask(UpdateFeaturesRequest(feature_updates=[update]))
        ids = await ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000))
        return altered.error_code, altered.error_message, updated.error_code, ids.error_code

    settings, message, features, ids = brokers.run(refusals())
    assert settings == features == ErrorCode.KAFKA_STORAGE_ERROR
    assert "/config/topics/t: cannot be read" in message
    assert ids == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert "/latest_producer_id_block: cannot be read" in caplog.text


def test_the_id_of_the_cluster_is_not_guessed(brokers: Brokers) -> None:

    async def read() -> None:
        store = brokers.store.session()
        await write(store, "/cluster/id", b"{")
        with pytest.raises(Unreadable, match="/cluster/id: cannot be read"):
            await cluster_id(store)

    brokers.run(asyncio.wait_for(read(), 10))


def test_a_controller_that_cannot_be_read_is_a_controller(brokers: Brokers, caplog: pytest.LogCaptureFixture) -> None:
    """Until the node goes: then there is an election."""
    session = brokers.store.session()
    brokers.run(session.create("/controller", b"{", ephemeral=True))
    brokers.run(write(session, "/controller_epoch", b"4"))
    brokers.start(1)
    controller = brokers[1].parts.controller
    assert (controller.active, controller.controller_id) == (False, None)
    assert "/controller in the metadata store cannot be read" in caplog.text
    brokers.run(session.expire())
    brokers.until(lambda: controller.active)
