"""The transaction version of a cluster: as high as its least able broker allows, and told with a growing epoch."""

from __future__ import annotations

import asyncio

import pytest

from kafkad.cluster.features import FinalizedFeatures, registered
from kafkad.meta.embedded import EmbeddedStore
from kafkad.meta.store import ensure_path
from kafkad.meta.znodes import BROKER_IDS, Broker
from kafkad.model import BrokerInfo, Endpoint
from kafkad.timers import Timers
from tests.fakes import FakeClock, turns


def registration(broker: int, version: int) -> bytes:
    """Of a Kafka 3.9 if the version is 0."""
    info = BrokerInfo(id=broker, endpoints=(Endpoint(listener="PLAINTEXT", host="h", port=1),), rack=None)
    return Broker(broker=info, timestamp_ms=0, features=registered(version)).encode()


def test_a_kafka_3_9_among_the_brokers_lowers_it_as_long_as_it_is_there() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        brokers = EmbeddedStore.in_memory(clock)
        store = brokers.session()
        await ensure_path(store, BROKER_IDS)
        features = FinalizedFeatures(store, clock, Timers(), alone=False, wanted_transaction_version=2)
        assert features.transaction_version == 0, "before the others are known"
        await store.create(Broker.path(1), registration(1, 2))
        await features.start()
        seen = [(features.transaction_version, features.epoch)]
        for change in (
            store.create(Broker.path(2), registration(2, 2)),
            store.create(Broker.path(3), registration(3, 0)),
            store.delete(Broker.path(3)),
        ):
            await change
            await turns()
            seen.append((features.transaction_version, features.epoch))
        assert [level for level, _ in seen] == [2, 2, 0, 2]
        epochs = [epoch for _, epoch in seen]
        assert epochs == sorted(set(epochs)), "a client takes only what comes with a higher one"
        await features.stop()
        modest = FinalizedFeatures(store, clock, Timers(), alone=False, wanted_transaction_version=0)
        await modest.start()
        assert modest.transaction_version == 0, "whatever the others know"
        await modest.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("least", [0, 1])
def test_all_brokers_tell_what_the_least_of_their_settings_says(least: int) -> None:
    """A client takes the level from whichever broker it asks first."""

    async def scenario() -> None:
        clock = FakeClock()
        store = EmbeddedStore.in_memory(clock).session()
        await ensure_path(store, BROKER_IDS)
        wanted = {1: 2, 2: least}
        for broker, version in wanted.items():
            await store.create(Broker.path(broker), registration(broker, version))
        for version in wanted.values():
            features = FinalizedFeatures(store, clock, Timers(), alone=False, wanted_transaction_version=version)
            await features.start()
            assert features.transaction_version == least
            await features.stop()

    asyncio.run(scenario())


def test_it_is_told_when_it_has_become_less_and_only_then() -> None:
    """With the epoch of that, by which clients that ask then take it."""

    async def scenario() -> None:
        clock = FakeClock()
        store = EmbeddedStore.in_memory(clock).session()
        await ensure_path(store, BROKER_IDS)
        await store.create(Broker.path(1), registration(1, 2))
        features = FinalizedFeatures(store, clock, Timers(), alone=False, wanted_transaction_version=2)
        told: list[tuple[int, bool]] = []
        await features.start()
        before = features.epoch
        features.on_lowered.append(lambda: told.append((features.transaction_version, features.epoch > before)))
        for change, expected in (
            (store.create(Broker.path(2), registration(2, 2)), []),
            (store.create(Broker.path(3), registration(3, 1)), [(1, True)]),
            (store.create(Broker.path(5), b"not json"), [(1, True)]),
            (store.create(Broker.path(4), registration(4, 0)), [(1, True), (0, True)]),
            (store.delete(Broker.path(3)), [(1, True), (0, True)]),
            (store.delete(Broker.path(4)), [(1, True), (0, True)]),
            (store.delete(Broker.path(1)), [(1, True), (0, True)]),
            (store.delete(Broker.path(2)), [(1, True), (0, True)]),
        ):
            await change
            await turns()
            assert told == expected
        await features.stop()

    asyncio.run(scenario())
