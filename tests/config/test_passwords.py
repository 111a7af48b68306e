"""Encrypted dynamic passwords, against one that a real Kafka 3.9.2 wrote."""

import json
from pathlib import Path

import pytest

from kafkad.config import BROKER_SETTINGS, Config, ConfigError, load
from kafkad.config.describe import describe_broker
from kafkad.config.dynamic import validate_broker_configs
from kafkad.config.passwords import PasswordEncoder
from kafkad.config.setting import PER_BROKER, password
from kafkad.errors import KafkaError

GOLDEN = Path(__file__).parents[1] / "golden" / "security"
VECTOR = json.loads((GOLDEN / "vectors.json").read_text())["password_encoder"]
NODE = json.loads((GOLDEN / "znodes.json").read_text())["in-use"]["tree"]["/config/brokers/1"]["data"]
KAFKAS = json.loads(NODE)["config"]["listener.name.ssl.ssl.keystore.password"]
NAME = "some.password"
CIPHERS = ("AES/CBC/PKCS5Padding", "AES/GCM/NoPadding")


@pytest.fixture(autouse=True)
def _dynamic_password(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = password(NAME, None, "low", "For this test.", dynamic=PER_BROKER)
    monkeypatch.setitem(BROKER_SETTINGS, NAME, setting)


def config(*settings: str) -> Config:
    return load(None, settings, {})


def test_what_kafka_encrypted() -> None:
    assert PasswordEncoder(VECTOR["secret"]).decode(KAFKAS) == VECTOR["plaintext"]


@pytest.mark.parametrize("cipher", CIPHERS)
@pytest.mark.parametrize("factory", ["PBKDF2WithHmacSHA1", "PBKDF2WithHmacSHA512"])
@pytest.mark.parametrize("bits", [128, 256])
def test_what_is_encrypted_can_be_decrypted(cipher: str, factory: str, bits: int) -> None:
    encoder = PasswordEncoder("secret", cipher, factory, bits, 1024)
    for plain in ("", "x", "sixteen bytes ..", "päss 𝄞, with:both"):
        text = encoder.encode(plain)
        assert PasswordEncoder("secret").decode(text) == plain
        assert encoder.encode(plain) != text
    assert {field.split(":")[0] for field in KAFKAS.split(",")} <= {field.split(":")[0] for field in text.split(",")}


@pytest.mark.parametrize("cipher", CIPHERS)
def test_another_secret_or_no_encrypted_text(cipher: str) -> None:
    text = PasswordEncoder("secret", cipher).encode("a password")
    for wrong in (
        text.replace("passwordLength:10", "passwordLength:9"),
        text.replace("passwordLength:10,", ""),
        text.replace("passwordLength:10", "passwordLength:ten"),
        text.replace("iterations:4096", f"iterations:{1 << 40}"),
        text.replace("iterations:4096", f"iterations:{1 << 70}"),
        text.replace("keyLength:128", f"keyLength:{1 << 50}"),
        "plain",
        "",
        text[:-20],
        "salt:!,iterations:x",
    ):
        with pytest.raises(ValueError, match=r"^it is not encrypted by password\.encoder\.secret$"):
            PasswordEncoder("secret").decode(wrong)
    for each in range(20):
        with pytest.raises(ValueError, match=r"^it is not encrypted by password\.encoder\.secret$"):
            PasswordEncoder(f"other {each}").decode(text)


def test_passwords_of_the_store_come_into_force_and_are_not_shown() -> None:
    text = PasswordEncoder("new").encode("hush")
    changed = config("password.encoder.secret=new").with_overrides(cluster_wide={}, per_broker={NAME: text})
    assert changed.value(NAME) == "hush"
    assert changed.warnings == ()
    row = next(row for row in describe_broker(changed) if row.name == NAME)
    assert (row.value, row.sensitive) == (None, True)
    assert [synonym.value for synonym in row.synonyms] == [None]


def test_one_of_the_old_secret_counts_too() -> None:
    text = PasswordEncoder("old").encode("hush")
    both = config("password.encoder.secret=new", "password.encoder.old.secret=old")
    assert both.with_overrides(cluster_wide={}, per_broker={NAME: text}).value(NAME) == "hush"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ([], "password.encoder.secret is not set"),
        (["password.encoder.secret=another"], "it is not encrypted by password.encoder.secret"),
    ],
)
def test_one_that_cannot_be_decrypted_is_named_and_does_not_count(settings: list[str], why: str) -> None:
    text = PasswordEncoder("new").encode("hush")
    changed = config(*settings).with_overrides(cluster_wide={}, per_broker={NAME: text})
    assert changed.value(NAME) is None
    assert changed.warnings == (f"dynamic setting {NAME} is ignored: {why}",)


PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USERS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
PROVIDER = "org.apache.kafka.common.config.provider.FileConfigProvider"


def with_users(directory: Path, *settings: str) -> Config:
    """A broker whose dynamic passwords may name secrets of one directory."""
    return config(
        "listeners=SASL_PLAINTEXT://127.0.0.1:9092",
        "inter.broker.listener.name=SASL_PLAINTEXT",
        "sasl.enabled.mechanisms=PLAIN",
        f'{USERS}={PLAIN} user_bob="b";',
        "password.encoder.secret=new",
        "config.providers=secrets",
        f"config.providers.secrets.class={PROVIDER}",
        f"config.providers.secrets.param.allowed.paths={directory}",
        *settings,
    )


def users(config: Config) -> dict[str, str]:
    module = config.jaas("SASL_PLAINTEXT", "PLAIN")
    assert module is not None
    return module.users


def test_one_that_names_a_secret_is_that_secret_and_nobody_is_shown_it(tmp_path: Path) -> None:
    (tmp_path / "users").write_text("alice=hush\n")
    line = f'{PLAIN} user_alice="${{secrets:{tmp_path}/users:alice}}";'
    before = with_users(tmp_path)
    assert users(validate_broker_configs(before, {USERS: line}, per_broker=True)) == {"alice": "hush"}
    changed = before.with_overrides(cluster_wide={}, per_broker={USERS: PasswordEncoder("new").encode(line)})
    assert (users(changed), changed.warnings) == ({"alice": "hush"}, ())
    assert "hush" not in repr(list(describe_broker(changed)))
    (tmp_path / "users").write_text("alice=another\n")
    again = before.with_file(with_users(tmp_path)).config
    changed = again.with_overrides(cluster_wide={}, per_broker={USERS: PasswordEncoder("new").encode(line)})
    assert users(changed) == {"alice": "another"}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("secrets:/etc/passwd:root", "/etc/passwd is outside of allowed.paths"),
        ("file:/etc/passwd:root", "there is no provider of secrets named 'file', only secrets"),
        ("env:PATH", "there is no provider of secrets named 'env', only secrets"),
    ],
)
def test_one_that_names_what_clients_may_not_is_refused_and_does_not_count(tmp_path: Path, name: str, why: str) -> None:
    line = f'{PLAIN} user_alice="${{{name}}}";'
    before = with_users(tmp_path)
    with pytest.raises(KafkaError) as refused:
        validate_broker_configs(before, {USERS: line}, per_broker=True)
    assert refused.value.message == f"${{{name}}}: {why}"
    changed = before.with_overrides(cluster_wide={}, per_broker={USERS: PasswordEncoder("new").encode(line)})
    assert users(changed) == {"bob": "b"}
    assert changed.warnings == (f"dynamic setting {USERS} is ignored: ${{{name}}}: {why}",)


@pytest.mark.parametrize("secret", ["hush", "hush required;", f"{PLAIN[:-8]} hush;"])
def test_a_client_that_names_a_secret_learns_nothing_of_it_from_refusals(tmp_path: Path, secret: str) -> None:
    (tmp_path / "x").write_text(f"key={secret}\n")
    named = f"${{secrets:{tmp_path}/x:key}}"
    for setting in (USERS, "listener.name.sasl_plaintext.ssl.truststore.location", "log.retention.ms"):
        with pytest.raises(KafkaError) as refused:
            validate_broker_configs(with_users(tmp_path), {setting: named}, per_broker=True)
        assert "hush" not in str(refused.value)


def test_where_no_provider_is_configured_no_secret_can_be_named() -> None:
    with pytest.raises(KafkaError, match=r"named 'env', only those that config\.providers names$"):
        validate_broker_configs(config(), {NAME: "${env:PATH}"}, per_broker=True)


@pytest.mark.parametrize(
    ("setting", "value"), [("cipher.algorithm", "DES"), ("keyfactory.algorithm", "MD5"), ("key.length", "100")]
)
def test_parameters_that_kafkad_does_not_have(setting: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"^password\.encoder\.{setting}={value}: kafkad has "):
        config("password.encoder.secret=x", f"password.encoder.{setting}={value}")
    assert config(f"password.encoder.{setting}={value}").value("password.encoder.secret") is None
