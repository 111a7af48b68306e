"""Answers of DescribeConfigs: every value with its source and everything it would fall back to. Each is put together
when it is asked for: a broker has hundreds."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from kafkad.config.config import Config, Source, dynamic_mode, find_setting
from kafkad.config.setting import READ_ONLY, ConfigType, Setting, Value
from kafkad.config.tables import BROKER_SETTINGS, TOPIC_SETTINGS
from kafkad.config.topic import BROKER_NAMES, broker_value
from kafkad.config.values import parse, text_of


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: Source


class ConfigRow(NamedTuple):
    """Field for field what the response holds; `synonyms` in the order in which they win."""

    name: str
    value: str | None
    source: Source
    type: ConfigType
    sensitive: bool
    read_only: bool
    doc: str
    synonyms: tuple[Synonym, ...]

    @property
    def is_default(self) -> bool:
        return self.source is Source.DEFAULT_CONFIG


_FAMILIES = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
)
_FALLBACKS: dict[str, tuple[str, ...]] = {
    **{name: family for family in _FAMILIES for name in family},
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
}
_DYNAMIC = (Source.DYNAMIC_BROKER_CONFIG, Source.DYNAMIC_DEFAULT_BROKER_CONFIG)
_SOURCES = (*_DYNAMIC, Source.STATIC_BROKER_CONFIG, Source.DEFAULT_CONFIG)
_SHOWN = tuple(sorted(name for name, setting in BROKER_SETTINGS.items() if not setting.hidden))


def describe_broker(config: Config) -> Iterator[ConfigRow]:
    """Every setting of a broker; those hidden in Kafka too only when they are set."""
    chosen = (name for source in (*_DYNAMIC, Source.STATIC_BROKER_CONFIG) for name in config.names_at(source))
    for name in sorted(dict.fromkeys([*_SHOWN, *chosen])):
        setting = find_setting(name)
        if setting is not None:
            yield _broker_row(config, setting)
    for name in sorted(config.unknown):
        yield _unknown(name)


def _unknown(name: str) -> ConfigRow:
    """Of a setting for somebody else nobody knows whether it is a secret."""
    source = Source.STATIC_BROKER_CONFIG
    return ConfigRow(
        name=name,
        value=None,
        source=source,
        type=ConfigType.UNKNOWN,
        sensitive=True,
        read_only=True,
        doc="kafkad does not know this setting, and ignores it.",
        synonyms=(Synonym(name, None, source),),
    )


def describe_cluster_default(config: Config) -> Iterator[ConfigRow]:
    """The resource without a name: only what is set dynamically for all brokers."""
    source = Source.DYNAMIC_DEFAULT_BROKER_CONFIG
    for name in sorted(config.names_at(source)):
        setting = find_setting(name)
        if setting is not None:
            value = _shown(setting, config.at(source, name))
            yield _row(setting, value, source, (Synonym(name, value, source),), read_only=_read_only(setting))


def describe_state(state: Mapping[str, str], asked: Collection[str]) -> list[ConfigRow]:
    """What a broker knows of its cluster beside its settings, for whoever asks for it by name."""
    return [
        ConfigRow(
            name=name,
            value=value,
            source=Source.DEFAULT_CONFIG,
            type=ConfigType.STRING,
            sensitive=False,
            read_only=True,
            doc="Known to the broker, not set by anybody.",
            synonyms=(),
        )
        for name, value in state.items()
        if name in asked
    ]


def describe_topic(config: Config, overrides: Mapping[str, str]) -> Iterator[ConfigRow]:
    """Every setting of a topic with these overrides on this broker."""
    for setting in TOPIC_SETTINGS.values():
        yield _topic_row(config, setting, overrides)


def _broker_row(config: Config, setting: Setting) -> ConfigRow:
    synonyms = _synonyms(config, setting.name)
    value = config.for_listener(*_split(setting.name)) if _split(setting.name)[0] else config.value(setting.name)
    return _row(setting, _shown(setting, value), _source(synonyms), synonyms, read_only=_read_only(setting))


def _split(name: str) -> tuple[str, str]:
    """Listener and base name; an empty listener for a name without one."""
    if not name.startswith("listener.name."):
        return "", name
    _, _, listener, base = name.split(".", 3)
    return listener, base


def _topic_row(config: Config, setting: Setting, overrides: Mapping[str, str]) -> ConfigRow:
    name = setting.name
    broker_names = BROKER_NAMES.get(name)
    synonyms = _synonyms(config, broker_names[0]) if broker_names else ()
    value = broker_value(name, config)
    if name in overrides:
        with suppress(ValueError):  # what cannot be read does not count
            value = parse(setting, overrides[name])
            synonyms = (Synonym(name, overrides[name], Source.DYNAMIC_TOPIC_CONFIG), *synonyms)
    return _row(setting, text_of(setting.type, value), _source(synonyms), synonyms, read_only=False)


def _synonyms(config: Config, name: str) -> tuple[Synonym, ...]:
    """Kafka lists source by source, and starts at the first entry of the asked name itself."""
    listener, base = _split(name)
    names = (name, base) if listener else _FALLBACKS.get(name, (name,))
    found: list[Synonym] = []
    for source in _SOURCES:
        for candidate in names:
            setting = find_setting(candidate)
            value = config.at(source, candidate)
            if setting is not None and value is not None and not (setting.hidden and source is Source.DEFAULT_CONFIG):
                found.append(Synonym(candidate, _shown(setting, value), source))
    start = next((at for at, synonym in enumerate(found) if synonym.name == name), len(found))
    return tuple(found[start:])


def _shown(setting: Setting, value: Value) -> str | None:
    return None if setting.sensitive else text_of(setting.type, value)


def _source(synonyms: tuple[Synonym, ...]) -> Source:
    return synonyms[0].source if synonyms else Source.DEFAULT_CONFIG


def _read_only(setting: Setting) -> bool:
    """Kafka also calls those read-only that are not in its list of dynamic settings although they can be changed."""
    return dynamic_mode(setting.name) == READ_ONLY or setting.hidden or setting.name.startswith("listener.name.")


def _row(
    setting: Setting, value: str | None, source: Source, synonyms: tuple[Synonym, ...], *, read_only: bool
) -> ConfigRow:
    return ConfigRow(
        name=setting.name,
        value=value,
        source=source,
        type=setting.type,
        sensitive=setting.sensitive,
        read_only=read_only,
        doc=setting.documentation,
        synonyms=synonyms,
    )
