"""Answers of DescribeConfigs: every value with its source and everything it would fall back to. Each is put together
when it is asked for: a broker has hundreds."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
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
_UNUSED = "What is stored for it, the first synonym, does not count, for kafkad cannot use it."
_SHOWN = tuple(sorted(name for name, setting in BROKER_SETTINGS.items() if not setting.hidden))


def describe_broker(config: Config) -> Iterator[ConfigRow]:
    """Every setting of a broker; those hidden in Kafka too only when they are set."""
    chosen = {name for source in (*_DYNAMIC, Source.STATIC_BROKER_CONFIG) for name in config.names_at(source)}
    for name in sorted(chosen.union(_SHOWN, _ignored(config, _DYNAMIC))):
        setting = find_setting(name)
        if setting is not None:
            yield _broker_row(config, setting)
    for name in sorted(_ignored(config, _SOURCES)):
        if find_setting(name) is None:
            yield _unknown(name, [source for source in _SOURCES if name in _ignored(config, [source])])


def _ignored(config: Config, sources: Sequence[Source]) -> set[str]:
    return {name for source in sources for name in config.ignored.get(source, ())}


def _unknown(name: str, sources: Sequence[Source], *, read_only: bool = True) -> ConfigRow:
    """Of a setting for somebody else nobody knows whether it is a secret."""
    return ConfigRow(
        name=name,
        value=None,
        source=sources[0],
        type=ConfigType.UNKNOWN,
        sensitive=True,
        read_only=read_only,
        doc="kafkad does not know this setting, and ignores it.",
        synonyms=tuple(Synonym(name, None, source) for source in sources),
    )


def describe_cluster_default(config: Config) -> Iterator[ConfigRow]:
    """The resource without a name: only what is set dynamically for all brokers."""
    source = Source.DYNAMIC_DEFAULT_BROKER_CONFIG
    for name in sorted({*config.names_at(source), *_ignored(config, [source])}):
        setting = find_setting(name)
        if setting is None:
            yield _unknown(name, [source])
        elif name in config.ignored.get(source, ()):
            value, unused = _shown(setting, _default(config, setting)), _unused(config, setting, source)
            yield _row(setting, value, (unused,), read_only=_read_only(setting), has_unused=True)
        else:
            value = _shown(setting, config.at(source, name))
            yield _row(setting, value, (Synonym(name, value, source),), read_only=_read_only(setting))


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
    for name in sorted(overrides.keys() - TOPIC_SETTINGS.keys()):
        yield _unknown(name, [Source.DYNAMIC_TOPIC_CONFIG], read_only=False)


def _broker_row(config: Config, setting: Setting) -> ConfigRow:
    synonyms = _synonyms(config, setting.name)
    value = synonyms[0].value if synonyms else _shown(setting, _default(config, setting))
    unused = [_unused(config, setting, source) for source in _DYNAMIC if setting.name in config.ignored.get(source, ())]
    every = tuple(sorted((*unused, *synonyms), key=lambda synonym: synonym.source))
    return _row(setting, value, every, read_only=_read_only(setting), has_unused=bool(unused))


def _default(config: Config, setting: Setting) -> Value:
    """What counts where nothing has set it, also a setting of a listener, or of a mechanism there."""
    listener, base = _split(setting.name)
    if not listener:
        return config.value(setting.name)
    return config.for_listener(listener, base) if find_setting(base) is not None else setting.default


def _unused(config: Config, setting: Setting, source: Source) -> Synonym:
    return Synonym(setting.name, None if setting.sensitive else config.ignored[source][setting.name], source)


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
    text = overrides.get(name)
    if text is None:
        return _row(setting, text_of(setting.type, broker_value(name, config)), synonyms, read_only=False)
    synonyms = (Synonym(name, text, Source.DYNAMIC_TOPIC_CONFIG), *synonyms)
    try:
        value = text_of(setting.type, parse(setting, text))
    except ValueError:
        value = text_of(setting.type, broker_value(name, config))
        return _row(setting, value, synonyms, read_only=False, has_unused=True)
    return _row(setting, value, synonyms, read_only=False)


def _synonyms(config: Config, name: str) -> tuple[Synonym, ...]:
    """Kafka lists source by source, and starts at the first entry of the asked name itself."""
    listener, base = _split(name)
    names = (name, base) if listener else _FALLBACKS.get(name, (name,))
    found: list[Synonym] = []
    for source in _SOURCES:
        for candidate in names:
            setting = find_setting(candidate)
            value = config.at(source, candidate)
            if setting is None or value is None:
                continue
            if source is not Source.DEFAULT_CONFIG or setting.has_described_default:
                found.append(Synonym(candidate, _shown(setting, value), source))
    start = next((at for at, synonym in enumerate(found) if synonym.name == name), len(found))
    return tuple(found[start:])


def _shown(setting: Setting, value: Value) -> str | None:
    return None if setting.sensitive else text_of(setting.type, value)


def _read_only(setting: Setting) -> bool:
    """Kafka also calls those read-only that are not in its list of dynamic settings although they can be changed."""
    return dynamic_mode(setting.name) == READ_ONLY or setting.hidden or setting.name.startswith("listener.name.")


def _row(
    setting: Setting,
    value: str | None,
    synonyms: tuple[Synonym, ...],
    *,
    read_only: bool,
    has_unused: bool = False,
) -> ConfigRow:
    """What is stored and does not count is only a synonym: `value` is what does. Its source is that of the first
    synonym all the same, for clients take back only what is set there."""
    doc = setting.documentation
    return ConfigRow(
        name=setting.name,
        value=value,
        source=synonyms[0].source if synonyms else Source.DEFAULT_CONFIG,
        type=setting.type,
        sensitive=setting.sensitive,
        read_only=read_only,
        doc=f"{doc} {_UNUSED}" if has_unused else doc,
        synonyms=synonyms,
    )
