"""Logins at a start: by what the file and the store have together."""

from pathlib import Path

import pytest

from kafkad.broker.settings import Settings
from kafkad.broker.starting import begin_keys_and_logins
from kafkad.config import ConfigError, load
from kafkad.config.passwords import PasswordEncoder
from kafkad.names import METADATA_FILE

USERS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
LINE = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_bob="pw";'
OF_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


def at_a_store(directory: Path, *settings: str, among_others: bool = False) -> Settings:
    (directory / METADATA_FILE).touch()
    base = (
        "listeners=SASL_PLAINTEXT://127.0.0.1:9092",
        "security.inter.broker.protocol=SASL_PLAINTEXT",
        "sasl.enabled.mechanisms=PLAIN",
        "password.encoder.secret=hush",
        f"log.dirs={directory}",
    )
    return Settings(load(None, [*base, *settings], {}, among_others=among_others))


def test_the_brokers_of_a_host_need_a_login_of_their_own(tmp_path: Path) -> None:
    own = "sasl.mechanism.inter.broker.protocol=PLAIN"
    begin_keys_and_logins(at_a_store(tmp_path, own, f"{USERS}={LINE}"), None)
    settings = at_a_store(tmp_path, own, f"{USERS}={LINE}", among_others=True)
    with pytest.raises(ConfigError, match="needs username and password"):
        begin_keys_and_logins(settings, None)
    settings.override(cluster_wide={}, per_broker=stored(f'{LINE[:-1]} username="bob" password="pw";'))
    begin_keys_and_logins(settings, None)


def stored(line: str) -> dict[str, str]:
    return {USERS: PasswordEncoder("hush").encode(line)}


def test_the_store_may_have_the_users_that_the_file_lacks(tmp_path: Path) -> None:
    settings = at_a_store(tmp_path)
    with pytest.raises(ConfigError, match="PLAIN has no users"):
        begin_keys_and_logins(settings, None)
    settings.override(cluster_wide={}, per_broker=stored(OF_SCRAM))
    with pytest.raises(ConfigError, match="does not belong to PLAIN"):
        begin_keys_and_logins(settings, None)
    settings.override(cluster_wide={}, per_broker=stored(LINE))
    begin_keys_and_logins(settings, None)


def test_a_broker_starts_whatever_the_store_has_if_the_file_alone_is_good(tmp_path: Path) -> None:
    settings = at_a_store(tmp_path, f"{USERS}={LINE}")
    settings.override(cluster_wide={}, per_broker=stored(OF_SCRAM))
    begin_keys_and_logins(settings, None)
