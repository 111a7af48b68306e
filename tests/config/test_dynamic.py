"""The settings of a broker that AlterConfigs may change, with the sentences a real Kafka 3.9.2 answered."""

import pytest

from kafkad.config import load
from kafkad.config.dynamic import validate_broker_configs
from kafkad.errors import ErrorCode, KafkaError

CONFIG = load(None, [], {})


@pytest.mark.parametrize(
    ("changes", "per_broker", "message"),
    [
        ({"num.partitions": "3"}, True, "Cannot update these configs dynamically: Set(num.partitions)"),
        ({"num.partitions": "3"}, False, "Cannot update these configs dynamically: Set(num.partitions)"),
        (
            {"advertised.listeners": "PLAINTEXT://x:9"},
            True,
            "Cannot update these configs dynamically: Set(advertised.listeners)",
        ),
        (
            {"ssl.keystore.type": "PEM"},
            False,
            "Cannot update these configs at default cluster level, broker id must be specified: Set(ssl.keystore.type)",
        ),
        (
            {"message.max.bytes": "x"},
            False,
            "Invalid value x for configuration message.max.bytes: Not a number of type INT",
        ),
        (
            {"compression.zstd.level": "99"},
            True,
            "Invalid value 99 for configuration compression.zstd.level: Value must be no more than 22",
        ),
        (
            {"log.retention.ms": "0"},
            True,
            "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
        ),
        ({"log.roll.ms": "-1"}, True, "requirement failed: log.roll.ms must be greater than or equal to 1"),
        (
            {"log.roll.jitter.ms": "-1"},
            False,
            "requirement failed: log.roll.jitter.ms must be greater than or equal to 0",
        ),
        (
            {"max.connections.per.ip": "0"},
            True,
            (
                "requirement failed: max.connections.per.ip can be set to zero only if "
                "max.connections.per.ip.overrides property is set."
            ),
        ),
        (
            {"max.connections.per.ip.overrides": "a..b:5"},
            True,
            "requirement failed: max.connections.per.ip.overrides: 'a..b' cannot be the name of a host",
        ),
        (
            {"ssl.keystore.type": "PEM"},
            True,
            (
                "These security configs can be dynamically updated only per-listener using the listener prefix: "
                "Set(ssl.keystore.type)"
            ),
        ),
        (
            {"log.cleaner.threads": "3"},
            False,
            "Log cleaner threads cannot be increased to more than double the current value 1",
        ),
        (
            {"num.replica.fetchers": "3"},
            False,
            (
                "Dynamic thread count update validation failed for num.replica.fetchers=3, value should not be greater "
                "than double the current value 1"
            ),
        ),
        (
            {"num.io.threads": "3"},
            False,
            (
                "Dynamic thread count update validation failed for num.io.threads=3, value should be at least half the "
                "current value 8"
            ),
        ),
        (
            {"num.replica.fetchers": "0"},
            False,
            "Invalid value 0 for configuration num.replica.fetchers: Value must be at least 1",
        ),
        ({"max.connections": "0"}, False, "Invalid max.connections 0"),
        ({"listener.name.plaintext.max.connections": "0"}, True, "Invalid max.connections 0"),
        ({"max.connection.creation.rate": "0"}, True, "Invalid max.connection.creation.rate 0"),
        (
            {"listener.name.plaintext.max.connection.creation.rate": "0"},
            False,
            "Invalid max.connection.creation.rate 0",
        ),
        (
            {"log.cleaner.dedupe.buffer.size": "1048576"},
            False,
            "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
        ),
        ({"log.segment.bytesx": "9"}, True, "Unknown broker config name: log.segment.bytesx"),
    ],
)
def test_refused(changes: dict[str, str], per_broker: bool, message: str) -> None:
    with pytest.raises(KafkaError) as caught:
        validate_broker_configs(CONFIG, changes, per_broker=per_broker)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert caught.value.message == message


def test_the_configuration_that_would_result() -> None:
    changes = {"log.segment.bytes": "1000", "listener.name.plaintext.max.connections": "5"}
    result = validate_broker_configs(CONFIG, changes, per_broker=True)
    assert result.int("log.segment.bytes") == 1000
    assert result.for_listener("PLAINTEXT", "max.connections") == 5
    assert CONFIG.int("log.segment.bytes") == 1 << 30


def test_what_was_taken_once_and_would_stop_everything_is_ignored() -> None:
    stopping = dict.fromkeys(["max.connections", "num.replica.fetchers", "max.connection.creation.rate"], "0")
    config = CONFIG.with_overrides(cluster_wide=stopping, per_broker={})
    assert [config.value(name) for name in stopping] == [CONFIG.value(name) for name in stopping]
    assert config.warnings[0] == "dynamic setting max.connections is ignored: Invalid max.connections 0"
    assert len(config.warnings) == 3


def test_a_file_may_keep_everybody_out() -> None:
    assert load(None, ["max.connections=0"], {}).int("max.connections") == 0


def test_a_broker_of_a_host_keeps_the_login_that_the_others_know_it_by() -> None:
    users = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    line = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_bob="pw"'
    settings = (
        "listeners=SASL_PLAINTEXT://127.0.0.1:9092",
        "security.inter.broker.protocol=SASL_PLAINTEXT",
        "sasl.enabled.mechanisms=PLAIN",
        "sasl.mechanism.inter.broker.protocol=PLAIN",
        f'{users}={line} username="bob" password="pw";',
        "password.encoder.secret=hush",
    )
    config = load(None, settings, {}, among_others=True).with_overrides(cluster_wide={}, per_broker={})
    with pytest.raises(KafkaError, match="needs username and password"):
        validate_broker_configs(config, {users: f"{line};"}, per_broker=True)
    validate_broker_configs(load(None, settings, {}), {users: f"{line};"}, per_broker=True)
