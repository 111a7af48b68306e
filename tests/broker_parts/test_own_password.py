"""A broker whose password for logins at others is not the one in the metadata store says so while it can be mended."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from kafkad.broker.own_password import OwnPassword
from kafkad.broker.settings import Settings
from kafkad.cluster.entities import EntityConfigs, Listener
from kafkad.config import Config, load
from kafkad.config.config import Source
from kafkad.config.passwords import PasswordEncoder
from kafkad.model import Entity
from kafkad.security.scram import ScramCredential
from kafkad.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from tests.one_broker import OneBroker

MECHANISM = "SCRAM-SHA-512"
LINE = "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"
WRONG = f"{LINE}: the password of broker is not the one in the metadata store"


def credential(password: str, iterations: int = 4096) -> str:
    return ScramCredential.of_password("sha512", password, b"salt", iterations).text


class Entities:
    def __init__(self, **texts: str) -> None:
        self.texts = texts
        self.listener: Listener = lambda entity, overrides: None

    def of(self, entity: Entity) -> dict[str, str]:
        text = self.texts.get(str(entity.user))
        return {} if text is None else {MECHANISM: text}

    def listen(self, listener: Listener) -> None:
        self.listener = listener

    def remove(self, user: str) -> None:
        del self.texts[user]
        self.listener(Entity(user=user), {})

    def change(self, user: str, text: str) -> None:
        self.texts[user] = text
        self.listener(Entity(user=user), {MECHANISM: text})


BASE = (
    "listeners=SASL_PLAINTEXT://localhost:9092",
    "inter.broker.listener.name=SASL_PLAINTEXT",
    f"sasl.enabled.mechanisms={MECHANISM}",
    f"sasl.mechanism.inter.broker.protocol={MECHANISM}",
)


def line_with(password: str) -> str:
    return f'{MODULE} username="broker" password="{password}";'


def configured(password: str, *more: str) -> Config:
    return load(None, [*BASE, f"{LINE}={line_with(password)}", *more], {})


IN_A_CLUSTER = "zookeeper.connect=zk:2181"


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[[], int]:
    """How often it was told since it was asked last."""

    def count() -> int:
        assert "secret" not in caplog.text
        found = sum(each.levelname == "ERROR" and WRONG in each.getMessage() for each in caplog.records)
        caplog.clear()
        return found

    return count


def begun(entities: Entities, password: str, *more: str) -> tuple[Settings, OwnPassword]:
    settings = Settings(configured(password, *more))
    return settings, OwnPassword(settings, cast(EntityConfigs, entities))


@pytest.mark.parametrize(
    ("stored", "more", "is_told"),
    [
        ({"broker": credential("secret")}, [IN_A_CLUSTER], False),
        ({"broker": credential("another")}, [IN_A_CLUSTER], True),
        ({"broker": credential("another")}, [], False),
        ({"other": credential("another")}, [IN_A_CLUSTER], False),
        ({"broker": "spoiled"}, [IN_A_CLUSTER], False),
        ({"broker": credential("another").replace("4096", "999999999")}, [IN_A_CLUSTER], False),
    ],
    ids=["right", "wrong", "alone", "no such user", "spoiled", "too many iterations"],
)
def test_a_wrong_one_is_told_at_the_start(
    told: Callable[[], int], stored: dict[str, str], more: list[str], is_told: bool
) -> None:
    begun(Entities(**stored), "secret", *more)
    assert told() == is_told


def test_a_wrong_one_is_told_when_it_changes_and_at_each_reload_until_it_is_right(told: Callable[[], int]) -> None:
    entities = Entities(broker=credential("secret"))
    settings, own = begun(entities, "secret", IN_A_CLUSTER)
    assert told() == 0
    for password, is_wrong in (("secret2", True), ("secret2", True), ("secret", False)):
        settings.config = configured(password, IN_A_CLUSTER)
        own.settings_changed()
        assert told() == is_wrong
    entities.change("broker", credential("secret3"))
    assert told() == 1
    entities.change("somebody", credential("secret4"))
    assert told() == 0
    entities.change("broker", credential("secret"))
    assert told() == 0


def test_one_that_is_removed_is_told_until_it_is_there_again(
    told: Callable[[], int], caplog: pytest.LogCaptureFixture
) -> None:
    gone = f"{LINE}: the metadata store has no credential of broker for {MECHANISM} any more"
    entities = Entities(broker=credential("secret"))
    settings, own = begun(entities, "secret", IN_A_CLUSTER)
    entities.remove("broker")
    assert gone in caplog.text
    assert told() == 0
    settings.config = configured("secret2", IN_A_CLUSTER)
    own.settings_changed()
    assert gone in caplog.text
    caplog.clear()
    entities.change("broker", credential("secret2"))
    assert not caplog.messages


def test_a_line_that_cannot_be_read_ends_no_start(told: Callable[[], int]) -> None:
    settings = Settings(configured("secret", IN_A_CLUSTER))
    settings.config = settings.static.with_layer(Source.DYNAMIC_BROKER_CONFIG, {LINE: "nonsense"})
    OwnPassword(settings, cast(EntityConfigs, Entities(broker=credential("another"))))
    assert told() == 0


def test_a_broker_looks_at_it_when_its_settings_are_others(
    tmp_path: Path, told: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("kafkad"), "propagate", True)
    protocols = "listener.security.protocol.map=SASL_PLAINTEXT:SASL_PLAINTEXT"
    own = (*BASE, protocols, f"{LINE}={line_with('secret')}", "password.encoder.secret=hush")
    broker = OneBroker(tmp_path, *own, IN_A_CLUSTER)
    try:
        salted = hashlib.pbkdf2_hmac("sha512", b"secret", b"salt", 4096)
        user = ScramCredentialUpsertion(
            name="broker", mechanism=2, iterations=4096, salt=b"salt", salted_password=salted
        )
        answer = broker.ask(AlterUserScramCredentialsRequest(upsertions=[user]), 0)
        assert answer.results[0].error_code == 0
        assert told() == 0
        broker.configs.broker = {LINE: PasswordEncoder("hush").encode(line_with("another"))}

        async def change() -> None:
            broker.parts.overrides_changed()

        broker.run(change())
        assert told() == 1
    finally:
        broker.stop()
