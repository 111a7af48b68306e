"""Dynamic broker settings: what AlterConfigs of a broker may change, and Kafka's words for what it may not."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kafkad.config.checks import contradictions
from kafkad.config.config import Config, Source, dynamic_mode, find_setting, parse_dynamic, usable
from kafkad.config.secrets import Secrets
from kafkad.config.setting import CLUSTER_WIDE, READ_ONLY, Value
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
_CLEANER = (
    "Log cleaner threads cannot be reduced to less than half the current value {old}",
    "Log cleaner threads cannot be increased to more than double the current value {old}",
)
_FAILED = "Dynamic thread count update validation failed for {name}={new}, value should"
_POOL = (
    f"{_FAILED} be at least half the current value {{old}}",
    f"{_FAILED} not be greater than double the current value {{old}}",
)
_THREADS = {
    "log.cleaner.threads": _CLEANER,
    "background.threads": _POOL,
    "num.io.threads": _POOL,
    "num.network.threads": _POOL,
    "num.recovery.threads.per.data.dir": _POOL,
    "num.replica.fetchers": _POOL,
}
"""Kafka starts and ends threads only so many at a time: what it says to too few and to too many."""
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


def validate_broker_configs(
    config: Config, changes: Mapping[str, str], *, per_broker: bool, kept: Mapping[str, str] = _NOTHING
) -> Config:
    """Check a broker's dynamic settings for AlterConfigs: `changes` are what the request sets anew, `kept` those in the
    store that stay as they are. What is ignored there is here too, for Kafka may have put it there: it must not keep
    other changes back, and neither must what contradicts itself without them already.

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
    source = Source.DYNAMIC_BROKER_CONFIG if per_broker else Source.DYNAMIC_DEFAULT_BROKER_CONFIG
    values, _ = usable(config, kept)
    before = config, config.with_layer(source, values)
    accepted = {name: _accepted(name, text, config.secrets) for name, text in changes.items()}
    result = config.with_layer(source, values | accepted)
    problems = contradictions(result)
    if problems:
        known = [contradictions(each) for each in before]
        for problem in problems:
            if not all(problem in each for each in known):
                raise _invalid(f"requirement failed: {problem}")
    _check_steps(config, result)
    return result


def _check_steps(before: Config, after: Config) -> None:
    for name, (too_few, too_many) in _THREADS.items():
        old, new = before.int(name), after.int(name)
        if not old // 2 <= new <= old * 2:
            sentence = too_few if new < old else too_many
            raise _invalid(sentence.format(name=name, old=old, new=new))


def _accepted(name: str, text: str, secrets: Secrets) -> Value:
    setting = find_setting(name)
    if setting is None:
        raise _invalid(f"Unknown broker config name: {name}")
    try:
        value = parse_dynamic(setting, text, secrets)
    except ValueError as error:
        raise _invalid(str(error)) from None
    if setting.refused and value != setting.default:
        raise _invalid(f"{name} cannot be set: {setting.refused}")
    return value


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
