"""The settings that are handed to the parts of a broker."""

from __future__ import annotations

import logging
import resource
from pathlib import Path

import pytest

from kafkad import loggers
from kafkad.broker.settings import Settings
from kafkad.config import Config, ConfigError, load


def test_connections_are_limited_for_each_listener_and_address() -> None:
    options = [
        "listeners=IN://127.0.0.1:0,OUT://[::1]:0",
        "listener.security.protocol.map=IN:PLAINTEXT,OUT:PLAINTEXT",
        "max.connections=50",
        "listener.name.out.max.connections=7",
        "max.connections.per.ip=9",
    ]
    limits = Settings(load(None, options, {})).limits({"::2": 4})
    assert limits.max_per_listener == {"IN": 50, "OUT": 7}
    assert (limits.allowed_from("::2"), limits.allowed_from("::3")) == (4, 9)


@pytest.mark.parametrize(("limit", "sockets"), [(256, 64), (1024, 448), (64, 16)])
def test_connections_leave_file_descriptors_to_logs_and_all_else(
    monkeypatch: pytest.MonkeyPatch, limit: int, sockets: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, limit))
    assert Settings(load(None, [], {})).limits().max_sockets == sockets


def test_a_dynamic_setting_that_holds_for_nothing_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    settings = Settings(load(None, [], {}))
    name = "listener.name.PLAINTEXT.max.connection.creation.rate"
    for _ in range(2):
        settings.override(cluster_wide={name: "5000"}, per_broker={name: "5000"})
    assert caplog.messages == [f"no effect: {name}: listeners and mechanisms are written in lower case there"]


def test_a_mistake_that_is_made_again_is_told_again_and_one_that_is_gone_forgotten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = Settings(load(None, [], {}))
    name = "listener.name.PLAINTEXT.max.connection.creation.rate"
    for made in ({name: "5000"}, {}, {name: "5000"}, {}):
        settings.override(cluster_wide=made, per_broker={})
    assert len(caplog.messages) == 2
    assert settings._told == set()


def test_the_level_of_the_root_stays_until_kafkad_log_level_changes() -> None:
    top = logging.getLogger("kafkad")
    before = top.level
    settings = Settings(load(None, [], {}))
    try:
        loggers.set_level(loggers.ROOT, "DEBUG")
        settings.override(cluster_wide={}, per_broker={"message.max.bytes": "2100000"})
        assert loggers.levels()[loggers.ROOT] == "DEBUG"
        settings.override(cluster_wide={"kafkad.log.level": "error"}, per_broker={})
        assert loggers.levels()[loggers.ROOT] == "ERROR"
        settings.override(cluster_wide={}, per_broker={})
        assert loggers.levels()[loggers.ROOT] == "INFO"
    finally:
        top.setLevel(before)


_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def of_listener(name: str, *more: str) -> Config:
    own = f"listener.name.{name.lower()}"
    return load(
        None,
        [
            f"listeners={name}://127.0.0.1:9092",
            f"listener.security.protocol.map={name}:SASL_PLAINTEXT",
            f"inter.broker.listener.name={name}",
            f"{own}.sasl.enabled.mechanisms=PLAIN",
            f'{own}.plain.sasl.jaas.config={_PLAIN} required user_bob="pw";',
            *more,
        ],
        {},
    )


def test_settings_of_listeners_wait_with_a_listener_that_gets_another_name() -> None:
    principals = "sasl.kerberos.principal.to.local.rules"
    settings = Settings(of_listener("A", f"{principals}=DEFAULT,RULE:[1:$1]"))
    reload = settings.reread(of_listener("CLIENTS", f"listener.name.clients.{principals}=DEFAULT", "num.partitions=3"))
    settings.override(cluster_wide={}, per_broker={})
    assert settings.config.mechanisms("A") == ("PLAIN",)
    module = settings.config.jaas("A", "PLAIN")
    assert module is not None
    assert module.users == {"bob": "pw"}
    assert settings.config.list(principals) == ("DEFAULT", "RULE:[1:$1]")
    assert reload.changed == ()
    assert set(reload.held) == {
        "listener.name.a.plain.sasl.jaas.config",
        "listener.name.a.sasl.enabled.mechanisms",
        principals,
    }
    assert {"listeners", "listener.name.a.plain.sasl.jaas.config", "num.partitions"} <= {*reload.restart}


def of_several(listeners: str, users: str, *more: str) -> Config:
    protocols = "A:SASL_PLAINTEXT,B:PLAINTEXT,C:SSL,D:SASL_PLAINTEXT"
    each = (f"{name}://127.0.0.1:{9092 + number}" for number, name in enumerate(listeners))
    return load(
        None,
        [
            f"listeners={','.join(each)}",
            f"listener.security.protocol.map={protocols}",
            "inter.broker.listener.name=A",
            "listener.name.a.sasl.enabled.mechanisms=PLAIN",
            f"listener.name.a.plain.sasl.jaas.config={_PLAIN} required {users};",
            *more,
        ],
        {},
    )


_BOTH, _ALICE = 'user_alice="a" user_bob="b"', 'user_alice="a"'


def users_after(before: Config, after: Config) -> tuple[set[str], tuple[str, ...]]:
    """Of listener A; and what is held of logins and TLS."""
    settings = Settings(before)
    held = settings.reread(after).held
    settings.override(cluster_wide={}, per_broker={})
    module = settings.config.jaas("A", "PLAIN")
    assert module is not None
    return set(module.users), held


def test_a_user_is_revoked_at_once_whatever_becomes_of_another_listener() -> None:
    d = "listener.name.d.sasl.enabled.mechanisms=SCRAM-SHA-512"
    keys = "ssl.keystore.location=/keys.pem"
    for before, after in (
        (of_several("AB", _BOTH), of_several("A", _ALICE)),
        (of_several("A", _BOTH), of_several("AD", _ALICE, d)),
        (of_several("ABD", _BOTH, "listener.name.b.max.connections=5", d), of_several("AD", _ALICE, d)),
        (of_several("AB", _BOTH, keys), of_several("A", _ALICE)),
    ):
        assert users_after(before, after) == ({"alice"}, ())


def test_what_a_listener_that_goes_is_protected_by_stays_and_is_told() -> None:
    keys, asks = "ssl.keystore.location=/keys.pem", "ssl.client.auth=required"
    own = "listener.name.c.ssl.client.auth"
    assert users_after(of_several("AC", _BOTH, keys, asks), of_several("A", _ALICE)) == (
        {"alice"},
        ("ssl.client.auth", "ssl.keystore.location"),
    )
    before = of_several("AC", _BOTH, "listener.name.c." + keys, f"{own}=required", asks)
    assert users_after(before, of_several("A", _ALICE)) == ({"alice"}, (own, "listener.name.c.ssl.keystore.location"))


def test_what_may_change_is_not_taken_where_it_contradicts_what_may_not() -> None:
    base = (
        "listeners=A://127.0.0.1:9092,B://127.0.0.1:9093",
        "listener.security.protocol.map=A:SASL_PLAINTEXT,B:SASL_PLAINTEXT",
        "zookeeper.connect=127.0.0.1:2181",
        "listener.name.a.sasl.enabled.mechanisms=PLAIN",
        "listener.name.b.sasl.enabled.mechanisms=SCRAM-SHA-512",
        f'listener.name.a.plain.sasl.jaas.config={_PLAIN} required username="b" password="p" user_b="p";',
        f'listener.name.b.scram-sha-512.sasl.jaas.config={_SCRAM} required username="b" password="p";',
    )
    mechanism = "sasl.mechanism.inter.broker.protocol"
    before = load(None, [*base, "inter.broker.listener.name=A", f"{mechanism}=PLAIN"], {})
    settings = Settings(before)
    with pytest.raises(ConfigError) as refused:
        settings.reread(load(None, [*base, "inter.broker.listener.name=B", f"{mechanism}=SCRAM-SHA-512"], {}))
    assert refused.value.problems == (
        "it can only be taken as a whole, with a restart, for inter.broker.listener.name cannot change",
        f"{mechanism}=SCRAM-SHA-512 is not enabled at listener A, only PLAIN",
    )
    assert settings.static is before


def test_what_is_in_the_file_is_not_taken_where_it_contradicts_the_dynamic_settings() -> None:
    settings = Settings(load(None, ["max.connections.per.ip.overrides=127.0.0.1:5"], {}))
    settings.override(cluster_wide={"max.connections.per.ip": "0"}, per_broker={})
    with pytest.raises(ConfigError, match="can be set to zero only if"):
        settings.reread(load(None, [], {}))
    settings.reread(load(None, ["max.connections.per.ip.overrides=127.0.0.1:6"], {}))


@pytest.mark.parametrize(
    "stored, in_file, why",
    [
        (
            "ssl.keystore.location",
            ["ssl.keystore.key=PEM", "ssl.keystore.certificate.chain=PEM"],
            "ssl.keystore.location and ssl.keystore.key",
        ),
        (
            "ssl.truststore.location",
            ["ssl.keystore.location=/keys.pem", "ssl.truststore.certificates=PEM"],
            "ssl.truststore.location and ssl.truststore.certificates",
        ),
    ],
)
def test_a_store_in_the_file_is_not_taken_over_a_location_of_the_dynamic_settings(
    stored: str, in_file: list[str], why: str
) -> None:
    settings = Settings(of_several("AC", _BOTH, "ssl.keystore.location=/keys.pem"))
    settings.override(cluster_wide={}, per_broker={f"listener.name.c.{stored}": "/others.pem"})
    with pytest.raises(ConfigError, match=f"listener C has {why}"):
        settings.reread(of_several("AC", _BOTH, *in_file))
    settings.override(cluster_wide={}, per_broker={})
    assert settings.reread(of_several("AC", _BOTH, *in_file)).changed


_ENV = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"


@pytest.mark.parametrize(
    "text", [f"config.providers=env\nconfig.providers.env.class={_ENV}\n", "confluent.foo=1\n", "log.dirs=\n"]
)
def test_a_file_of_which_nothing_counts_is_not_taken_for_one_that_sets_something(tmp_path: Path, text: str) -> None:
    file = tmp_path / "server.properties"
    file.write_text("log.retention.ms=-1\n")
    settings = Settings(load(str(file), ["num.io.threads=9"], {}))
    file.write_text(text)
    with pytest.raises(ConfigError, match="sets nothing any more"):
        settings.reread(load(str(file), ["num.io.threads=9"], {}))


def test_a_file_that_sets_nothing_any_more_is_not_taken(tmp_path: Path) -> None:
    """Only its header may have been written: by the defaults, retention would delete what was to be kept."""
    file = tmp_path / "kafkad.yaml"

    def read(text: str) -> Config:
        file.write_text(text)
        return load(str(file), ["num.io.threads=9"], {})

    settings = Settings(read("log.retention.ms: -1\n"))
    for blank in ("# of our broker\n", "log.retention.ms:\n", "{}\n"):
        with pytest.raises(
            ConfigError, match=f"^{file} sets nothing any more; to run by the defaults, restart kafkad$"
        ):
            settings.reread(read(blank))
    assert settings.static.long("log.retention.ms") == -1
    of_defaults = Settings(read("# log.retention.ms: -1\n"))
    assert of_defaults.reread(read("# for later\n")).changed == ()
    assert of_defaults.reread(read("log.retention.ms: -1\n")).changed == ("log.retention.ms",)
    with pytest.raises(ConfigError, match="sets nothing any more"):
        of_defaults.reread(read("# log.retention.ms: -1\n"))
