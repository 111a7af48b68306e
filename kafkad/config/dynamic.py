"""Dynamic broker settings: what AlterConfigs of a broker may change, and Kafka's words for what it may not."""

from __future__ import annotations

from collections.abc import Mapping

from kafkad.config.checks import contradictions
from kafkad.config.config import Config, Source, dynamic_mode, find_setting
from kafkad.config.setting import CLUSTER_WIDE, READ_ONLY, Value
from kafkad.config.values import parse
from kafkad.errors import ErrorCode, KafkaError

_ONLY_PER_LISTENER = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)


def validate_broker_configs(config: Config, changes: Mapping[str, str | None], *, per_broker: bool) -> Config:
    """Check a broker's dynamic settings for AlterConfigs: `changes` are all its dynamic settings as they would become.

    Returns the configuration that would result; raises KafkaError(INVALID_REQUEST) with Kafka's words.
    """
    fixed = [name for name in changes if find_setting(name) is not None and dynamic_mode(name) == READ_ONLY]
    if fixed:
        raise _invalid(f"Cannot update these configs dynamically: Set({', '.join(fixed)})")
    single = [name for name in changes if dynamic_mode(name) not in (CLUSTER_WIDE, READ_ONLY)]
    if single and not per_broker:
        names = ", ".join(single)
        raise _invalid(
            f"Cannot update these configs at default cluster level, broker id must be specified: Set({names})"
        )
    bare = [name for name in changes if name in _ONLY_PER_LISTENER]
    if bare:
        raise _invalid(
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"Set({', '.join(bare)})"
        )
    values: dict[str, Value] = {}
    for name, text in changes.items():
        if text is not None:
            values[name] = _accepted(name, text)
    source = Source.DYNAMIC_BROKER_CONFIG if per_broker else Source.DYNAMIC_DEFAULT_BROKER_CONFIG
    result = config.with_layer(source, values)
    problems = contradictions(result)
    if problems:
        raise _invalid(f"requirement failed: {problems[0]}")
    _check_step(config.int("log.cleaner.threads"), result.int("log.cleaner.threads"))
    return result


def _check_step(old: int, new: int) -> None:
    """Kafka starts and ends threads only so many at a time."""
    if new < old // 2:
        raise _invalid(f"Log cleaner threads cannot be reduced to less than half the current value {old}")
    if new > old * 2:
        raise _invalid(f"Log cleaner threads cannot be increased to more than double the current value {old}")


def _accepted(name: str, text: str) -> Value:
    setting = find_setting(name)
    if setting is None:
        raise _invalid(f"Unknown broker config name: {name}")
    try:
        value = parse(setting, text)
    except ValueError as error:
        raise _invalid(str(error)) from None
    if setting.refused and value != setting.default:
        raise _invalid(f"{name} cannot be set: {setting.refused}")
    return value


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
