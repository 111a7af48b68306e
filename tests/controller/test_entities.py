"""Users, clients and addresses: changed in the store, and followed by brokers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import pytest

from kafkad.clock import SystemClock
from kafkad.cluster.configs import DynamicConfigs
from kafkad.controller.entities import EntityAlterer
from kafkad.controller.registration import prepare
from kafkad.errors import ErrorCode, KafkaError
from kafkad.meta.embedded import EmbeddedSession, EmbeddedStore
from kafkad.meta.store import ConnectionLoss, MetaError, MultiFailed, Operation, Refused, Result
from kafkad.meta.znodes import Config
from kafkad.model import DEFAULT, Entity
from kafkad.timers import Timers
from tests.fakes import turns

RATE = {"producer_byte_rate": "1000"}
ALICE = Entity(user="alice")
IN_USE = json.loads((Path(__file__).parent.parent / "golden" / "security" / "znodes.json").read_text())["in-use"]

Overrides = Mapping[str, str]


class Place:
    def __init__(self) -> None:
        tree = EmbeddedStore.in_memory(SystemClock())
        self.store: EmbeddedSession = tree.session()
        self.alterer = EntityAlterer(self.store)
        self.configs = DynamicConfigs(self.store, 1, SystemClock(), Timers())
        self.entities = self.configs.entities
        self.heard: list[tuple[Entity, Overrides]] = []
        self.entities.listen(lambda entity, overrides: self.heard.append((entity, overrides)))

    async def give(self, entity: Entity, overrides: Overrides) -> None:
        await self.alterer.change(entity, lambda before: overrides)

    async def paths(self) -> list[str]:
        async def below(path: str) -> list[str]:
            names = await self.store.children(path)
            return [found for name in names for found in (f"{path}/{name}", *await below(f"{path}/{name}"))]

        return [path for kind in ("users", "clients", "ips") for path in await below(f"/config/{kind}")]

    async def notes(self) -> list[bytes]:
        names = await self.store.children("/config/changes")
        return [(await self.store.get(f"/config/changes/{name}"))[0] for name in names]


def at_a_place(test: Callable[[Place], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        async def whole() -> None:
            place = Place()
            await prepare(place.store)
            await place.configs.start()
            try:
                await test(place)
            finally:
                await place.configs.stop()

        asyncio.run(whole())

    return run


def test_paths_of_entities() -> None:
    paths = {
        Entity(user="a b/c*"): "users/a%20b%2Fc%2A",
        Entity(user="müller", client=DEFAULT): "users/m%C3%BCller/clients/<default>",
        Entity(user=DEFAULT, client="c 1"): "users/<default>/clients/c%201",
        Entity(client="<default>"): "clients/%3Cdefault%3E",
        Entity(ip="10.0.0.1"): "ips/10.0.0.1",
        Entity(ip="fe80::1"): "ips/fe80::1",
        Entity(ip=DEFAULT): "ips/<default>",
    }
    for entity, path in paths.items():
        assert Config.path_of(entity) == path
        assert Config.entity_at(path) == entity
    assert Config.entity_at("ips/fe80%3A%3A1") == Entity(ip="fe80::1")
    assert Config.entity_at("topics/a") is None
    assert Config.entity_at("users/a/others/b") is None


@at_a_place
async def test_a_change_is_followed(place: Place) -> None:
    await place.give(ALICE, RATE)
    await turns()
    assert place.entities.of(ALICE) == RATE
    assert place.heard == [(ALICE, RATE)]
    assert await place.notes() == [b'{"version":2,"entity_path":"users/alice"}']
    assert place.entities.of(Entity(user="bob")) == {}


@at_a_place
async def test_the_store_refuses(place: Place) -> None:
    for error in (ConnectionLoss("/config", "lost"), MultiFailed(0, Refused("/config", "refused"))):

        async def refuse(operations: Sequence[Operation], error: MetaError = error) -> list[Result]:
            raise error

        place.store.multi = refuse  # type: ignore[method-assign]
        with pytest.raises(KafkaError, match=r"/config: (lost|refused)") as refusal:
            await place.give(ALICE, RATE)
        assert refusal.value.code == ErrorCode.KAFKA_STORAGE_ERROR


@at_a_place
async def test_what_kafka_wrote_is_there_at_the_start(place: Place) -> None:
    for path, node in sorted(IN_USE["tree"].items()):
        if path.startswith(("/config/users/", "/config/clients/", "/config/ips/")):
            await place.store.create(path, (node["data"] or "").encode())
    later = DynamicConfigs(place.store, 1, SystemClock(), Timers())
    await later.start()
    await later.stop()
    rates = {entity: overrides.get("producer_byte_rate") for entity, overrides in later.entities.all.items()}
    assert rates == {
        Entity(user="alice", client="c 1"): "1000",
        Entity(user="alice", client=DEFAULT): "1001",
        Entity(user="alice"): "1002",
        Entity(user=DEFAULT, client="c 1"): "1003",
        Entity(user=DEFAULT, client=DEFAULT): "1004",
        Entity(user=DEFAULT): "1005",
        Entity(client="c 1"): "1006",
        Entity(client=DEFAULT): "1007",
        Entity(client="<default>"): "1008",
        Entity(user="a b/c*"): None,
        Entity(user="a,b=c"): None,
        Entity(user="müller"): None,
        Entity(ip="10.0.0.1"): None,
        Entity(ip=DEFAULT): None,
    }
    assert set(later.entities.of(ALICE)) == {"SCRAM-SHA-512", "SCRAM-SHA-256", "producer_byte_rate"}


@at_a_place
async def test_credentials_and_quotas_of_a_user_are_in_one_node(place: Place) -> None:
    await place.alterer.change(ALICE, lambda before: {**before, "SCRAM-SHA-256": "salt=…"})
    await place.alterer.change(ALICE, lambda before: {**before, **RATE})
    text, _ = await place.store.get("/config/users/alice")
    assert text.decode() == '{"version":1,"config":{"SCRAM-SHA-256":"salt=…","producer_byte_rate":"1000"}}'


@at_a_place
async def test_a_change_is_made_anew_if_another_was_quicker(place: Place) -> None:
    await place.give(ALICE, {"a": "1"})
    multi = place.store.multi

    async def later(operations: list[Operation]) -> list[Result]:
        place.store.multi = multi  # type: ignore[method-assign]
        await place.alterer.change(ALICE, lambda before: {**before, "b": "2"})
        return await multi(operations)

    place.store.multi = later  # type: ignore[method-assign, assignment]
    await place.alterer.change(ALICE, lambda before: {**before, "c": "3"})
    await place.configs.catch_up()
    assert place.entities.of(ALICE) == {"a": "1", "b": "2", "c": "3"}


@at_a_place
async def test_an_empty_node_goes_with_its_empty_parents(place: Place) -> None:
    await place.give(Entity(user="alice", client="one"), RATE)
    await place.give(Entity(user="alice", client="two"), RATE)
    await place.give(ALICE, RATE)
    await place.give(ALICE, {})
    assert (await place.store.get("/config/users/alice"))[0] == b'{"version":1,"config":{}}', "it has clients"
    await place.give(Entity(user="alice", client="one"), {})
    assert await place.paths() == [f"/config/users/alice{end}" for end in ("", "/clients", "/clients/two")]
    await place.give(Entity(user="alice", client="two"), {})
    assert await place.paths() == []
    await place.configs.catch_up()
    assert not place.entities.all
    assert len(await place.notes()) == 6


@at_a_place
async def test_a_user_with_credentials_stays_when_the_last_client_goes(place: Place) -> None:
    await place.give(ALICE, {"SCRAM-SHA-256": "salt=…"})
    await place.give(Entity(user="alice", client=DEFAULT), RATE)
    await place.give(Entity(user="alice", client=DEFAULT), {})
    assert await place.paths() == ["/config/users/alice"]


@at_a_place
async def test_clients_and_addresses_leave_their_parents(place: Place) -> None:
    for entity in (Entity(client="c"), Entity(ip="::1")):
        await place.give(entity, RATE)
        await place.give(entity, {})
    assert await place.paths() == []
    await place.give(Entity(client="c"), RATE)
    assert await place.paths() == ["/config/clients/c"]


@at_a_place
async def test_what_is_not_there_is_taken_away_without_a_word(place: Place) -> None:
    await place.give(Entity(user="nobody", client="c"), {})
    assert (await place.paths(), await place.notes()) == ([], [])


@pytest.mark.parametrize("damaged", [b"nonsense", b'["stored_key=secret"]', b'{"config":["stored_key=secret"]}'])
def test_a_damaged_node_counts_as_empty_and_is_not_written_over(
    damaged: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """What it holds, such as credentials, is not told."""

    @at_a_place
    async def at(place: Place) -> None:
        await place.store.create("/config/users/alice", damaged)
        await place.store.create("/config/users/bob", Config.encode(RATE))
        later = DynamicConfigs(place.store, 1, SystemClock(), Timers())
        await later.start()
        await later.stop()
        assert later.entities.all == {Entity(user="bob"): RATE}
        with pytest.raises(KafkaError) as refused:
            await place.give(ALICE, RATE)
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        told = f"{caplog.text} {refused.value.message}"
        assert "/config/users/alice" in told
        assert "secret" not in told

    at()


@at_a_place
async def test_changes_of_a_lost_session_are_told(place: Place) -> None:
    await place.give(ALICE, RATE)
    await place.give(Entity(ip="10.0.0.1"), {"connection_creation_rate": "7"})
    await place.configs.catch_up()
    place.heard.clear()
    await place.store.delete("/config/users/alice")
    await place.store.create("/config/clients/c", Config.encode(RATE))
    await place.configs.session_renewed()
    assert sorted(place.heard, key=str) == sorted([(ALICE, {}), (Entity(client="c"), RATE)], key=str)
