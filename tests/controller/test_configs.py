"""AlterConfigs through the store to the brokers that follow its notes; producer ids and features."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

import pytest

from kafkad.clock import SystemClock
from kafkad.cluster.configs import DynamicConfigs
from kafkad.config import BROKER_SETTINGS
from kafkad.config.load import load
from kafkad.config.passwords import PasswordEncoder
from kafkad.config.setting import PER_BROKER, password
from kafkad.controller.configs import Alteration, ConfigAlterer, ConfigEntry, ResourceKind, encrypt_anew
from kafkad.controller.features import FeatureUpdate, UpgradeType
from kafkad.controller.registration import prepare
from kafkad.errors import ErrorCode, KafkaError
from kafkad.meta.embedded import EmbeddedSession, EmbeddedStore
from kafkad.meta.notes import KEPT_MS
from kafkad.meta.store import ConnectionLoss, MetaError, MultiFailed, Operation, Refused, Result, TooLarge
from kafkad.meta.znodes import Config, ConfigChange, Features, ProducerIdBlock
from kafkad.timers import Timers
from tests.fakes import FakeClock, turns

from .cluster import Cluster, with_brokers

THROTTLED = "leader.replication.throttled.replicas"
TOPIC, BROKER = ResourceKind.TOPIC, ResourceKind.BROKER
SET, DELETE, APPEND, SUBTRACT = Alteration


class Place:
    """A store, who alters settings in it, and who follows."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        tree = EmbeddedStore.in_memory(self.clock)
        self.store: EmbeddedSession = tree.session()
        self.other_store: EmbeddedSession = tree.session()
        config = load(None, [], {})
        self.alterer, self.other = (
            ConfigAlterer(store, broker, config=lambda: config, topic_exists=lambda topic: topic in ("a", "b"))
            for broker, store in ((1, self.store), (2, self.other_store))
        )
        self.followed = DynamicConfigs(self.store, 1, self.clock, Timers())
        self.heard: list[tuple[str, str, Mapping[str, str]]] = []
        for kind in (Config.TOPICS, Config.BROKERS):
            self.followed.listen(kind, functools.partial(self._hear, kind))

    def _hear(self, kind: str, name: str, overrides: Mapping[str, str]) -> None:
        self.heard.append((kind, name, overrides))

    async def text(self, entity: str) -> str:
        return (await self.store.get(Config.path(entity)))[0].decode()


def at_a_place(test: Callable[[Place], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        async def whole() -> None:
            place = Place()
            await prepare(place.store)
            await place.followed.start()
            try:
                await test(place)
            finally:
                await place.followed.stop()

        asyncio.run(whole())

    return run


def entry(name: str, value: str | None, alteration: Alteration = SET) -> ConfigEntry:
    return ConfigEntry(name=name, value=value, alteration=alteration)


@at_a_place
async def test_a_change_leaves_a_note_and_is_followed(place: Place) -> None:
    await place.alterer.alter(TOPIC, "a", [entry("retention.ms", "7")])
    assert await place.text("topics/a") == '{"version":1,"config":{"retention.ms":"7"}}'
    assert await place.store.children("/config/changes") == ["config_change_0000000000"]
    note = await place.store.get("/config/changes/config_change_0000000000")
    assert note[0] == b'{"version":2,"entity_path":"topics/a"}'
    await place.followed.catch_up()
    assert place.followed.topic("a") == {"retention.ms": "7"}
    assert place.heard == [("topics", "a", {"retention.ms": "7"})]
    assert place.followed.topic("b") == {}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionLoss("/config/topics/a", "refused"), ErrorCode.KAFKA_STORAGE_ERROR),
        (Refused("/config/topics/a", "refused"), ErrorCode.KAFKA_STORAGE_ERROR),
        (MultiFailed(0, Refused("/config/topics/a", "refused")), ErrorCode.KAFKA_STORAGE_ERROR),
        (TooLarge("/config/topics/a", "refused"), ErrorCode.INVALID_CONFIG),
    ],
)
def test_the_store_refuses(error: MetaError, expected: ErrorCode) -> None:
    @at_a_place
    async def run(place: Place) -> None:
        async def refuse(operations: Sequence[Operation]) -> list[Result]:
            raise error

        place.store.multi = refuse  # type: ignore[method-assign]
        with pytest.raises(KafkaError, match="/config/topics/a: refused") as refusal:
            await place.alterer.alter(TOPIC, "a", [entry("retention.ms", "7")])
        assert refusal.value.code == expected

    run()


@at_a_place
async def test_notes_are_followed_without_being_asked(place: Place) -> None:
    await place.alterer.alter(TOPIC, "a", [entry("retention.ms", "7")])
    await turns()
    assert place.followed.topic("a") == {"retention.ms": "7"}


@at_a_place
async def test_incremental(place: Place) -> None:
    both, compact = {"cleanup.policy": "delete,compact"}, {"cleanup.policy": "compact"}
    steps: list[tuple[list[ConfigEntry], dict[str, str]]] = [
        ([entry("retention.ms", "7"), entry("flush.ms", "8")], {"retention.ms": "7", "flush.ms": "8"}),
        ([entry("retention.ms", None, DELETE), entry("segment.ms", None, DELETE)], {"flush.ms": "8"}),
        ([entry("flush.ms", None, DELETE), entry("cleanup.policy", "compact", APPEND)], both),
        ([entry("cleanup.policy", "compact", APPEND)], both),
        ([entry("cleanup.policy", "delete", SUBTRACT)], {"cleanup.policy": "compact"}),
        ([entry("cleanup.policy", "compact", SUBTRACT)], {"cleanup.policy": ""}),
        ([entry("cleanup.policy", "delete", APPEND)], {"cleanup.policy": "delete"}),
        ([entry("cleanup.policy", "delete,compact,", APPEND)], both),
        ([entry("cleanup.policy", ",", APPEND)], both),
        ([entry("cleanup.policy", "delete,,", SUBTRACT), entry(THROTTLED, "0:1,")], {**compact, THROTTLED: "0:1,"}),
        ([entry(THROTTLED, "2:1,", APPEND)], {**compact, THROTTLED: "0:1,2:1"}),
        ([entry(THROTTLED, ",")], {**compact, THROTTLED: ","}),
        ([entry(THROTTLED, "0:1", APPEND)], {**compact, THROTTLED: "0:1"}),
    ]
    for entries, expected in steps:
        await place.alterer.alter(TOPIC, "a", entries)
        await place.followed.catch_up()
        assert place.followed.topic("a") == expected


@at_a_place
async def test_the_whole_set(place: Place) -> None:
    await place.alterer.replace(TOPIC, "a", [entry("retention.ms", "7")])
    await place.alterer.replace(TOPIC, "a", [entry("flush.ms", "8")])
    await place.followed.catch_up()
    assert place.followed.topic("a") == {"flush.ms": "8"}
    await place.alterer.replace(TOPIC, "a", [])
    await place.followed.catch_up()
    assert place.followed.topic("a") == {}
    assert await place.text("topics/a") == '{"version":1,"config":{}}'


@at_a_place
async def test_brokers(place: Place) -> None:
    await place.alterer.alter(BROKER, "1", [entry("log.cleaner.threads", "2")])
    await place.alterer.alter(BROKER, "", [entry("log.cleaner.threads", "1")])
    assert await place.text("brokers/<default>") == '{"version":1,"config":{"log.cleaner.threads":"1"}}'
    await place.followed.catch_up()
    assert place.followed.broker == {"log.cleaner.threads": "2"}
    assert place.followed.cluster == {"log.cleaner.threads": "1"}
    assert [(kind, name) for kind, name, _ in place.heard] == [("brokers", "1"), ("brokers", "<default>")]


REFUSALS = [
    (TOPIC, "a", [entry("retention.ms", "1", APPEND)], ErrorCode.INVALID_CONFIG),
    (TOPIC, "a", [entry("no.such", "1", APPEND)], ErrorCode.INVALID_CONFIG),
    (TOPIC, "a", [entry("no.such", "1")], ErrorCode.INVALID_CONFIG),
    (TOPIC, "a", [entry("retention.ms", "x")], ErrorCode.INVALID_CONFIG),
    (TOPIC, "a", [entry("cleanup.policy", "delete,")], ErrorCode.INVALID_CONFIG),
    (TOPIC, "a", [entry("cleanup.policy", "", APPEND)], ErrorCode.INVALID_CONFIG),
    (TOPIC, "a", [entry(THROTTLED, "0:1,x")], ErrorCode.INVALID_CONFIG),
    (TOPIC, "a", [entry(THROTTLED, "*,")], ErrorCode.INVALID_CONFIG),
    (TOPIC, "a", [entry("retention.ms", None)], ErrorCode.INVALID_REQUEST),
    (TOPIC, "a", [entry("retention.ms", "1"), entry("retention.ms", "2")], ErrorCode.INVALID_REQUEST),
    (TOPIC, "", [entry("retention.ms", "1")], ErrorCode.INVALID_REQUEST),
    (TOPIC, "none", [entry("retention.ms", "1")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (BROKER, "2", [entry("log.cleaner.threads", "1")], ErrorCode.INVALID_REQUEST),
    (BROKER, "x", [entry("log.cleaner.threads", "1")], ErrorCode.INVALID_REQUEST),
    (BROKER, "1", [entry("log.dirs", "/tmp")], ErrorCode.INVALID_REQUEST),
    (BROKER, "", [entry("advertised.listeners", "PLAINTEXT://x:1")], ErrorCode.INVALID_REQUEST),
]


@pytest.mark.parametrize(("kind", "name", "entries", "code"), REFUSALS)
def test_refusals(kind: ResourceKind, name: str, entries: list[ConfigEntry], code: ErrorCode) -> None:
    @at_a_place
    async def run(place: Place) -> None:
        with pytest.raises(KafkaError) as refusal:
            await place.alterer.alter(kind, name, entries)
        assert refusal.value.code == code
        assert await place.store.children("/config/changes") == []
        assert await place.store.children("/config/topics") == []

    run()


STORED_BY_KAFKA = [
    (BROKER, "", "my.reporter.url", "x"),
    (BROKER, "", "log.local.retention.ms", "5000"),
    (BROKER, "", "log.cleaner.min.cleanable.ratio", "NaN"),
    (BROKER, "1", "advertised.listeners", "PLAINTEXT://x:1"),
    (BROKER, "1", "listener.name.plaintext.num.network.threads", "3"),
    (BROKER, "1", "max.connections.per.ip.overrides", "a..b:5"),
    (TOPIC, "a", "local.retention.ms", "5000"),
    (TOPIC, "a", "min.cleanable.dirty.ratio", "NaN"),
    (TOPIC, "a", "no.such", "1"),
]
"""Kafka 3.9 takes each, and kafkad cannot use it."""


@pytest.mark.parametrize(("kind", "name", "setting", "text"), STORED_BY_KAFKA)
def test_what_kafka_stored_keeps_no_other_change_back(kind: ResourceKind, name: str, setting: str, text: str) -> None:
    other = "retention.ms" if kind is TOPIC else "log.retention.ms"
    entity = "topics/a" if kind is TOPIC else f"brokers/{name or '<default>'}"
    overlaid = {} if kind is TOPIC or not name else {setting: text}
    config = load(None, [], {}).with_overrides(cluster_wide={}, per_broker=overlaid)

    @at_a_place
    async def run(place: Place) -> None:
        altering = ConfigAlterer(place.store, 1, config=lambda: config, topic_exists=lambda topic: True)

        async def stored() -> Mapping[str, str]:
            return Config.decode((await place.store.get(Config.path(entity)))[0])

        await place.store.create(Config.path(entity), Config.encode({setting: text, other: "8"}))
        await altering.alter(kind, name, [entry(other, "7")])
        assert await stored() == {setting: text, other: "7"}
        await altering.replace(kind, name, [entry(setting, text), entry(other, "6")])
        assert await stored() == {setting: text, other: "6"}
        await altering.alter(kind, name, [entry(other, None, DELETE)])
        assert await stored() == {setting: text}
        with pytest.raises(KafkaError):
            await altering.alter(kind, name, [entry(setting, f"{text}, {text}")])
        await altering.alter(kind, name, [entry(setting, None, DELETE)])
        assert await stored() == {}
        with pytest.raises(KafkaError):
            await altering.alter(kind, name, [entry(setting, text)])

    run()


@at_a_place
async def test_validate_only(place: Place) -> None:
    await place.alterer.alter(TOPIC, "a", [entry("retention.ms", "7")], validate_only=True)
    await place.alterer.replace(TOPIC, "a", [entry("retention.ms", "7")], validate_only=True)
    assert await place.store.children("/config/topics") == []


@at_a_place
async def test_two_who_alter_at_once_lose_nothing(place: Place) -> None:
    await asyncio.gather(
        *[
            place.alterer.alter(TOPIC, "a", [entry(name, "100000")])
            for name in ("retention.ms", "flush.ms", "segment.bytes", "segment.ms")
        ]
    )
    await place.followed.catch_up()
    assert len(place.followed.topic("a")) == 4


@at_a_place
async def test_old_notes_go(place: Place) -> None:
    await place.alterer.alter(TOPIC, "a", [entry("retention.ms", "7")])
    place.clock.advance(KEPT_MS)
    await place.alterer.alter(TOPIC, "b", [entry("retention.ms", "7")])
    await place.followed.catch_up()
    assert len(await place.store.children("/config/changes")) == 2
    place.clock.advance(1)
    await place.followed.catch_up()
    assert await place.store.children("/config/changes") == ["config_change_0000000001"]


@at_a_place
async def test_what_is_there_at_the_start(place: Place) -> None:
    await place.store.create("/config/topics/a", Config.encode({"retention.ms": "7"}))
    await place.store.create("/config/topics/broken", b"nonsense")
    await place.store.create("/config/brokers/1", Config.encode({"log.cleaner.threads": "2"}))
    later = DynamicConfigs(place.store, 1, SystemClock(), Timers())
    await later.start()
    assert later.topic("a") == {"retention.ms": "7"}
    assert later.topic("broken") == {}
    assert later.broker == {"log.cleaner.threads": "2"}
    await later.stop()
    assert place.followed.topic("a") == {}
    await place.followed.load_topics(["a", "none"])
    assert place.followed.topic("a") == {"retention.ms": "7"}
    place.followed.forget_topics(["a"])
    assert place.followed.topic("a") == {}


@pytest.mark.parametrize("deleted", [False, True])
def test_a_topic_that_is_made_while_all_is_read_again_keeps_its_settings(deleted: bool) -> None:
    @at_a_place
    async def run(place: Place) -> None:
        entities = place.followed.entities
        read_all = entities.read_all

        async def make() -> None:
            await place.store.create("/config/topics/a", Config.encode({"retention.ms": "7"}))
            await place.followed.load_topics(["a"])
            if deleted:
                await place.store.delete("/config/topics/a")
            await read_all()

        entities.read_all = make  # type: ignore[method-assign]
        await place.followed.session_renewed()
        assert place.followed.topic("a") == ({} if deleted else {"retention.ms": "7"})

    run()


@at_a_place
async def test_after_a_lost_session_changes_are_followed_again(place: Place) -> None:
    await place.alterer.alter(TOPIC, "a", [entry("retention.ms", "7")])
    await place.alterer.alter(TOPIC, "b", [entry("retention.ms", "8")])
    await place.followed.catch_up()
    place.heard.clear()
    await place.store.expire()
    await place.other.alter(TOPIC, "a", [entry("retention.ms", "9")])
    await place.other.alter(BROKER, "", [entry("log.retention.ms", "10")])
    for note in await place.other_store.children(ConfigChange.PARENT):
        await place.other_store.delete(f"{ConfigChange.PARENT}/{note}")
    await place.store.renew()
    await place.followed.session_renewed()
    assert place.followed.topic("a") == {"retention.ms": "9"}, "although the note of that change has been removed"
    assert place.heard == [("brokers", "<default>", {"log.retention.ms": "10"}), ("topics", "a", {"retention.ms": "9"})]
    await place.alterer.alter(TOPIC, "a", [entry("retention.ms", "11")])
    await turns()
    assert place.followed.topic("a") == {"retention.ms": "11"}


# Producer ids and features.


@with_brokers(1, 2)
async def test_producer_ids(cluster: Cluster) -> None:
    controller = cluster.controller
    one, two = cluster.members[1].epoch, cluster.members[2].epoch
    assert await controller.allocate_producer_ids(1, one) == ProducerIdBlock(1, 0, 999)
    assert await controller.allocate_producer_ids(2, two) == ProducerIdBlock(2, 1000, 1999)
    text = (await cluster.client.get(ProducerIdBlock.path()))[0]
    assert text == b'{"version":1,"broker":2,"block_start":"1000","block_end":"1999"}'
    for broker, epoch, code in (
        (2, two - 1, ErrorCode.STALE_BROKER_EPOCH),
        (9, 1, ErrorCode.BROKER_ID_NOT_REGISTERED),
    ):
        with pytest.raises(KafkaError) as refusal:
            await controller.allocate_producer_ids(broker, epoch)
        assert refusal.value.code == code


@with_brokers(1)
async def test_features(cluster: Cluster) -> None:
    assert (await cluster.client.get(Features.path()))[0] == b'{"features":{},"version":2,"status":1}'
    update = cluster.controller.update_features
    for feature in (
        FeatureUpdate(name="metadata.version", level=10),
        FeatureUpdate(name="", level=1),
        FeatureUpdate(name="x", level=0),
        FeatureUpdate(name="x", level=0, upgrade=UpgradeType.SAFE_DOWNGRADE),
        FeatureUpdate(name="x", level=1, upgrade=UpgradeType.UNKNOWN),
    ):
        (error,) = (await update([feature])).values()
        assert error is not None
        assert error.code == ErrorCode.INVALID_REQUEST
    await cluster.client.set(Features.path(), Features({"left": 3}).encode())
    removal = FeatureUpdate(name="left", level=0, upgrade=UpgradeType.SAFE_DOWNGRADE)
    assert await update([removal]) == {"left": None}
    assert await cluster.controller.finalized_features() == Features({})


@at_a_place
async def test_a_setting_that_is_set_again_as_it_is_is_checked_again(place: Place) -> None:
    config, checked = load(None, [], {}), list[list[str]]()

    def check(result: object, named: Collection[str]) -> None:
        checked.append([*named])
        if len(checked) > 1:
            raise ValueError("its file is no good now")

    altering = ConfigAlterer(place.store, 1, config=lambda: config, topic_exists=lambda topic: True, check_broker=check)
    location = "listener.name.ssl.ssl.keystore.location"
    await altering.alter(BROKER, "1", [entry(location, "/keys.pem")])
    for change in (altering.alter, altering.replace):
        with pytest.raises(KafkaError, match="its file is no good now"):
            await change(BROKER, "1", [entry(location, "/keys.pem")])
    assert checked == [[location]] * 3


PASSWORD = "some.password"
NEW, OLD = "password.encoder.secret=new", "password.encoder.old.secret=old"


@pytest.fixture
def dynamic_password(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = password(PASSWORD, None, "low", "For this test.", dynamic=PER_BROKER)
    monkeypatch.setitem(BROKER_SETTINGS, PASSWORD, setting)


def alterer(place: Place, *settings: str) -> ConfigAlterer:
    config = load(None, settings, {})
    return ConfigAlterer(place.store, 1, config=lambda: config, topic_exists=lambda topic: True)


async def stored(place: Place) -> Mapping[str, str]:
    return Config.decode((await place.store.get(Config.path("brokers/1")))[0])


@pytest.mark.usefixtures("dynamic_password")
def test_dynamic_passwords_are_written_encrypted_and_only_those_that_change_again() -> None:
    @at_a_place
    async def test(place: Place) -> None:
        altering = alterer(place, NEW)
        await altering.alter(BROKER, "1", [entry(PASSWORD, "hush"), entry("log.retention.ms", "7")])
        first = await stored(place)
        assert "hush" not in str(first)
        assert PasswordEncoder("new").decode(first[PASSWORD]) == "hush"
        await altering.alter(BROKER, "1", [entry("log.retention.ms", "8"), entry(PASSWORD, "hush")])
        assert await stored(place) == {PASSWORD: first[PASSWORD], "log.retention.ms": "8"}
        await altering.alter(BROKER, "1", [entry(PASSWORD, "other")])
        assert PasswordEncoder("new").decode((await stored(place))[PASSWORD]) == "other"
        await altering.alter(BROKER, "1", [entry(PASSWORD, " \u00a0other ")])
        assert PasswordEncoder("new").decode((await stored(place))[PASSWORD]) == "\u00a0other"
        with pytest.raises(KafkaError, match="broker id must be specified"):
            await altering.alter(BROKER, "", [entry(PASSWORD, "hush")])

    test()


@pytest.mark.usefixtures("dynamic_password")
def test_without_a_secret_a_password_is_refused_and_one_that_is_there_is_left_alone() -> None:
    @at_a_place
    async def test(place: Place) -> None:
        with pytest.raises(KafkaError, match=r"password\.encoder\.secret is not set") as caught:
            await alterer(place).alter(BROKER, "1", [entry(PASSWORD, "hush")])
        assert caught.value.code == ErrorCode.INVALID_REQUEST
        assert "hush" not in str(caught.value)
        await alterer(place, NEW).alter(BROKER, "1", [entry(PASSWORD, "hush")])
        before = await stored(place)
        await alterer(place).alter(BROKER, "1", [entry("log.retention.ms", "8")])
        assert await stored(place) == {**before, "log.retention.ms": "8"}
        await alterer(place).alter(BROKER, "1", [entry(PASSWORD, None, DELETE)])
        assert await stored(place) == {"log.retention.ms": "8"}

    test()


@pytest.mark.usefixtures("dynamic_password")
def test_passwords_of_the_old_secret_are_encrypted_anew() -> None:
    @at_a_place
    async def test(place: Place) -> None:
        both = load(None, [NEW, OLD], {})
        await encrypt_anew(place.store, 1, both)  # there is nothing
        texts = {PASSWORD: PasswordEncoder("old").encode("hush"), "log.retention.ms": "8"}
        await place.store.create(Config.path("brokers/1"), Config.encode(texts))
        await encrypt_anew(place.store, 1, both)
        anew = await stored(place)
        assert anew["log.retention.ms"] == "8"
        assert PasswordEncoder("new").decode(anew[PASSWORD]) == "hush"
        await encrypt_anew(place.store, 1, both)
        assert await stored(place) == anew
        lost = {PASSWORD: PasswordEncoder("lost").encode("hush")}
        await place.store.set(Config.path("brokers/1"), Config.encode(lost))
        await encrypt_anew(place.store, 1, both)
        assert await stored(place) == lost

    test()


@pytest.mark.parametrize("secret, named", [("lost", "b"), ("new", "${env:B}")])
def test_a_password_that_cannot_be_read_keeps_no_other_change_back(secret: str, named: str) -> None:
    """It does not count as what it would be read as, and stays as it is until somebody deletes or replaces it."""
    jaas = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    line, other = f'{module} user_a="b";', f'{module} user_a="{named}";'
    lost = PasswordEncoder(secret).encode(other)
    settings = (
        NEW,
        "broker.id=1",
        "listeners=SASL_PLAINTEXT://127.0.0.1:9092",
        "security.inter.broker.protocol=SASL_PLAINTEXT",
        "sasl.enabled.mechanisms=PLAIN",
        f"{jaas}={line}",
    )

    @at_a_place
    async def test(place: Place) -> None:
        altering = alterer(place, *settings)
        await place.store.create(Config.path("brokers/1"), Config.encode({jaas: lost}))
        await altering.alter(BROKER, "1", [entry("log.retention.ms", "8")])
        assert await stored(place) == {jaas: lost, "log.retention.ms": "8"}
        with pytest.raises(KafkaError):
            await altering.alter(BROKER, "1", [entry(jaas, "nonsense")])
        await altering.alter(BROKER, "1", [entry(jaas, line)])
        anew = await stored(place)
        assert PasswordEncoder("new").decode(anew[jaas]) == line
        await place.store.set(Config.path("brokers/1"), Config.encode({**anew, jaas: lost}))
        await altering.alter(BROKER, "1", [entry(jaas, None, DELETE)])
        assert await stored(place) == {"log.retention.ms": "8"}

    test()
