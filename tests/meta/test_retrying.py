"""What follows the store goes on after a connection that was lost: nothing is missed, nothing is given up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from kafkad.broker.log_dir_events import leader_and_isr_asker
from kafkad.cluster.configs import DynamicConfigs
from kafkad.cluster.features import FinalizedFeatures
from kafkad.cluster.tokens import DelegationTokens, TokenSettings
from kafkad.config import load
from kafkad.controller.registration import prepare
from kafkad.meta.embedded import EmbeddedStore
from kafkad.meta.notes import KEPT_MS
from kafkad.meta.retrying import RETRY_MS
from kafkad.meta.store import ConnectionLoss, MetaStore, Refused
from kafkad.meta.znodes import Config, ConfigChange, Features, LogDirEvent
from kafkad.model import Entity
from kafkad.timers import Timers
from tests.fakes import FakeClock, turns


class Unsteady:
    """A session whose operations fail while its connection is lost, and in worse ways."""

    def __init__(self, session: MetaStore) -> None:
        self._session = session
        self.lost = False
        self.broken = False
        self.may_delete = True
        self.refused = 0

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._session, name)

        async def attempt(path: Any, *args: Any, **options: Any) -> Any:
            if self.lost:
                self.refused += 1
                raise ConnectionLoss(str(path))
            if self.broken:
                raise AssertionError
            if name == "delete" and not self.may_delete:
                raise Refused(path, "NoAuth")
            return await operation(path, *args, **options)

        return attempt


class Place:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.timers = Timers()
        tree = EmbeddedStore.in_memory(self.clock)
        self.other = tree.session()
        self.unsteady = Unsteady(tree.session())
        self.store = cast(MetaStore, self.unsteady)
        self.configs = DynamicConfigs(self.store, 1, self.clock, self.timers)

    async def settle(self) -> None:
        await turns(30)

    async def retry(self) -> None:
        self.clock.advance(RETRY_MS)
        self.timers.expire(self.clock.monotonic_ms())
        await self.settle()


def at_a_place(test: Callable[[Place], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        async def whole() -> None:
            place = Place()
            await prepare(place.other)
            await place.configs.start()
            await test(place)
            await place.configs.stop()

        asyncio.run(whole())

    return run


@at_a_place
async def test_a_change_of_settings_that_came_with_the_loss(place: Place) -> None:
    place.unsteady.lost = True
    await place.other.create("/config/topics/a", Config.encode({"retention.ms": "7"}))
    await place.other.create(
        "/config/changes/config_change_", b'{"version":2,"entity_path":"topics/a"}', sequential=True
    )
    await place.settle()
    assert place.unsteady.refused == 1
    await place.retry()
    assert place.unsteady.refused == 2
    place.unsteady.lost = False
    await place.retry()
    assert place.configs.topic("a") == {"retention.ms": "7"}


async def changed(place: Place, entity: str, **settings: str) -> None:
    await place.other.create(f"/config/{entity}", Config.encode(settings))
    note = ConfigChange.encode(entity)
    await place.other.create("/config/changes/config_change_", note, sequential=True)


@at_a_place
async def test_changes_are_followed_whatever_fails(place: Place) -> None:
    place.unsteady.broken = True
    await changed(place, "users/alice", consumer_byte_rate="7")
    await place.settle()
    assert not place.configs.entities.all
    place.unsteady.broken = False
    await place.retry()
    assert place.configs.entities.of(Entity(user="alice")) == {"consumer_byte_rate": "7"}


@at_a_place
async def test_a_listener_that_fails_keeps_nothing_from_the_others(place: Place) -> None:
    def fail(*change: object) -> None:
        raise AssertionError

    heard: list[object] = []
    place.configs.listen(Config.TOPICS, fail)
    place.configs.listen(Config.TOPICS, lambda *change: heard.append(change[0]))
    place.configs.entities.listen(fail)
    place.configs.entities.listen(lambda *change: heard.append(change[0]))
    await changed(place, "topics/a", **{"retention.ms": "7"})
    await changed(place, "users/alice", consumer_byte_rate="7")
    await place.settle()
    assert heard == ["a", Entity(user="alice")]


@at_a_place
async def test_old_notes_that_may_not_be_removed_keep_no_change_from_being_known(place: Place) -> None:
    await changed(place, "topics/old", **{"retention.ms": "7"})
    await place.settle()
    place.unsteady.may_delete = False
    place.clock.advance(KEPT_MS + 1)
    for name in ("a", "b"):
        await changed(place, f"topics/{name}", **{"retention.ms": "7"})
        await place.configs.catch_up()
        await place.settle()
        assert place.configs.topic(name) == {"retention.ms": "7"}


@at_a_place
async def test_settings_of_topics_to_hold_are_waited_for(place: Place) -> None:
    """Without them a compacted topic would be taken for one whose old records are deleted."""
    await place.other.create("/config/topics/a", Config.encode({"cleanup.policy": "compact"}))
    place.unsteady.lost = True
    loading = asyncio.create_task(place.configs.load_topics(["a"]))
    await place.settle()
    assert not loading.done()
    place.unsteady.lost = False
    await place.retry()
    assert loading.done()
    assert place.configs.topic("a") == {"cleanup.policy": "compact"}


@at_a_place
async def test_features(place: Place) -> None:
    features = FinalizedFeatures(place.store, place.clock, place.timers, alone=True, wanted_transaction_version=2)
    await features.start()
    before = features.epoch
    place.unsteady.lost = True
    changed = Features(levels={"metadata.version": 3}).encode()
    if not before:
        await place.other.create(Features.path(), changed)
    else:
        await place.other.set(Features.path(), changed)
    await place.settle()
    assert features.epoch == before
    place.unsteady.lost = False
    await place.retry()
    assert features.levels == {"metadata.version": 3}
    await features.stop()


@at_a_place
async def test_features_and_tokens_that_are_first_read_while_the_connection_is_lost(place: Place) -> None:
    features = FinalizedFeatures(place.store, place.clock, place.timers, alone=True, wanted_transaction_version=2)
    settings = TokenSettings.of(load(None, ["delegation.token.secret.key=key"], {}))
    tokens = DelegationTokens(place.store, settings, place.clock, place.timers)
    place.unsteady.lost = True
    starting = [asyncio.create_task(part.start()) for part in (features, tokens)]
    await place.settle()
    assert place.unsteady.refused == 2
    place.unsteady.lost = False
    await place.retry()
    assert [start.exception() for start in starting] == [None, None]
    await features.stop()
    await tokens.stop()


@at_a_place
async def test_a_failed_log_directory_is_told_of(place: Place) -> None:
    tell = leader_and_isr_asker(asyncio.get_running_loop(), place.store, 1, place.clock, place.timers)
    place.unsteady.lost = True
    tell()
    await place.settle()
    assert await place.other.children(LogDirEvent.PARENT) == []
    place.unsteady.lost = False
    await place.retry()
    assert len(await place.other.children(LogDirEvent.PARENT)) == 1
