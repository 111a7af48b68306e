"""Logins at a start: by what the file and the store have together."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafkad.broker.identity import StartError
from kafkad.broker.settings import Settings
from kafkad.broker.starting import begin_keys_and_logins
from kafkad.config import ConfigError, checks, load
from kafkad.config.dynamic import validate_broker_configs
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


def test_the_brokers_of_a_host_know_each_other_by_the_line_of_their_file(tmp_path: Path) -> None:
    """With another file, that is; a dynamic line is one broker's own."""
    own = "sasl.mechanism.inter.broker.protocol=PLAIN"
    good, bad = (f'{LINE[:-1]} username="{name}" password="pw";' for name in ("bob", "eve"))
    settings = at_a_store(tmp_path, own, f"{USERS}={good}", among_others=True)
    fresh = at_a_store(tmp_path, own, f"{USERS}={bad}", among_others=True)
    with pytest.raises(ConfigError, match="its username is none of its users"):
        settings.reread(fresh.static)
    with pytest.raises(ConfigError, match="its username is none of its users"):
        begin_keys_and_logins(fresh, None)
    validate_broker_configs(settings.config, {USERS: bad}, per_broker=True)
    fresh.override(cluster_wide={}, per_broker=stored(bad))
    begin_keys_and_logins(fresh, None)


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


KEYTAB = (
    "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
    'keyTab="/gone" principal="kafka/here@REALM";'
)
TICKETS = "listener.name.sasl_plaintext.gssapi.sasl.jaas.config"


@pytest.fixture
def no_keytab(monkeypatch: pytest.MonkeyPatch) -> None:
    """None can be used; the system's library is not asked."""
    kerberos = SimpleNamespace(problem=lambda config: "keytab /gone: not found")
    monkeypatch.setitem(sys.modules, "kafkad.security.kerberos", kerberos)
    monkeypatch.setattr(checks, "find_spec", lambda name: kerberos)


@pytest.mark.usefixtures("no_keytab")
@pytest.mark.parametrize("in_file", [False, True])
def test_a_keytab_that_cannot_be_used_ends_the_start_where_the_file_has_none_that_can(
    tmp_path: Path, in_file: bool
) -> None:
    settings = at_a_store(tmp_path, "sasl.enabled.mechanisms=GSSAPI", *([f"{TICKETS}={KEYTAB}"] if in_file else []))
    settings.override(cluster_wide={}, per_broker={TICKETS: PasswordEncoder("hush").encode(KEYTAB)})
    with pytest.raises(StartError, match="keytab /gone: not found"):
        begin_keys_and_logins(settings, None)


@pytest.mark.usefixtures("no_keytab")
def test_a_keytab_of_the_store_that_cannot_be_used_ends_no_start_of_a_good_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = at_a_store(tmp_path, f"{USERS}={LINE}")
    mechanisms = "listener.name.sasl_plaintext.sasl.enabled.mechanisms"
    tickets = PasswordEncoder("hush").encode(KEYTAB)
    settings.override(cluster_wide={}, per_broker={mechanisms: "PLAIN,GSSAPI", TICKETS: tickets})
    begin_keys_and_logins(settings, None)
    assert "keytab /gone: not found; no ticket is accepted by it" in caplog.text
