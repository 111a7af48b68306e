"""AlterConfigs and IncrementalAlterConfigs of topics and brokers: judged, then written with a note to all brokers.

Any broker may do this, whether it is the controller or not: writers are told apart by the version of the node.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from functools import partial
from typing import NamedTuple

from kafkad.config.config import Config, find_setting
from kafkad.config.dynamic import validate_broker_configs
from kafkad.config.passwords import decrypted, encoder_of
from kafkad.config.setting import ConfigType, Setting
from kafkad.config.tables import TOPIC_SETTINGS
from kafkad.config.topic import validate_topic_configs
from kafkad.config.values import trimmed
from kafkad.errors import ErrorCode, KafkaError
from kafkad.meta.readable import required
from kafkad.meta.refusals import storage_refused
from kafkad.meta.store import (
    BadVersion,
    Create,
    MetaError,
    MetaStore,
    MultiFailed,
    NodeExists,
    NoNode,
    Operation,
    Set,
)
from kafkad.meta.znodes import DEFAULT_ENTITY, ConfigChange
from kafkad.meta.znodes import Config as ConfigNode
from kafkad.wire.primitives import MAX_STRING

Overrides = Mapping[str, str]

_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
"""With room for zeros in front, and no more digits than `int` takes."""


class ResourceKind(IntEnum):
    """As the requests number them; those that can be altered."""

    TOPIC = 2
    BROKER = 4


class Alteration(IntEnum):
    """As IncrementalAlterConfigs numbers them."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigEntry(NamedTuple):
    name: str
    value: str | None
    alteration: Alteration = Alteration.SET


class ConfigAlterer:
    """`config` says what holds at this broker now, `topic_exists` what this broker knows of the cluster."""

    def __init__(
        self,
        store: MetaStore,
        broker: int,
        *,
        config: Callable[[], Config],
        topic_exists: Callable[[str], bool],
        check_broker: Callable[[Config, Collection[str]], None] | None = None,
    ) -> None:
        """`check_broker` raises ValueError if this broker could not work with such a configuration, which somebody asks
        for who names those settings, be it with the values they have."""
        self._store = store
        self._broker = broker
        self._config = config
        self._topic_exists = topic_exists
        self._check_broker = check_broker

    async def replace(
        self, kind: ResourceKind, name: str, entries: Sequence[ConfigEntry], *, validate_only: bool = False
    ) -> None:
        """`entries` become all there is. Raises KafkaError."""
        _check_entries(entries)
        wanted = {entry.name: trimmed(entry.value or "") for entry in entries}
        await self._change(kind, name, entries, lambda before: wanted, validate_only)

    async def alter(
        self, kind: ResourceKind, name: str, entries: Sequence[ConfigEntry], *, validate_only: bool = False
    ) -> None:
        """Each of `entries` changes one setting. Raises KafkaError."""
        _check_entries(entries)
        await self._change(kind, name, entries, lambda before: _altered(kind, before, entries), validate_only)

    async def _change(
        self,
        kind: ResourceKind,
        name: str,
        entries: Sequence[ConfigEntry],
        change: Callable[[Overrides], Overrides],
        validate_only: bool,
    ) -> None:
        named = [entry.name for entry in entries]
        try:
            while not await self._changed(kind, name, named, change, validate_only):
                pass
        except MetaError as e:
            raise storage_refused(e) from e

    async def _changed(
        self,
        kind: ResourceKind,
        name: str,
        named: Collection[str],
        change: Callable[[Overrides], Overrides],
        validate_only: bool,
    ) -> bool:
        """False if another change came in between."""
        entity = self._entity(kind, name)
        path = ConfigNode.path(entity)
        try:
            data, stat = await self._store.get(path)
            version = stat.version
        except NoNode:
            data, version = b"", None
        before = required(path, partial(ConfigNode.decode, data))
        shown = self._decrypted(before) if kind is ResourceKind.BROKER else before
        after = change(shown)
        kept = {key: before[key] for key, value in after.items() if shown.get(key) == value}
        changes: Overrides = {key: value for key, value in after.items() if key not in kept}
        self._validate(kind, name, changes, kept, named)
        if kind is ResourceKind.BROKER:
            changes = self._encrypted(changes)
        return validate_only or await self._write(path, entity, {**kept, **changes}, version)

    def _decrypted(self, overrides: Overrides) -> Overrides:
        """What cannot be decrypted stays as it is, for it may be somebody's whose configuration is to be mended."""
        found = dict(overrides)
        for name in filter(_is_password, overrides):
            with suppress(ValueError):
                found[name] = decrypted(self._config(), overrides[name])
        return found

    def _encrypted(self, overrides: Overrides) -> Overrides:
        passwords = [name for name in overrides if _is_password(name)]
        encoder = encoder_of(self._config()) if passwords else None
        if passwords and encoder is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{', '.join(passwords)}: passwords are kept encrypted, and password.encoder.secret is not set: set it "
                "in the configuration of this broker, and restart it",
            )
        return {
            name: encoder.encode(text) if encoder is not None and name in passwords else text
            for name, text in overrides.items()
        }

    async def _write(self, path: str, entity: str, after: Overrides, version: int | None) -> bool:
        """True if nobody else wrote in between."""
        text = ConfigNode.encode(after)
        write: Operation = Create(path, text) if version is None else Set(path, text, version)
        try:
            await self._store.multi([write, Create(ConfigChange.PREFIX, ConfigChange.encode(entity), sequential=True)])
        except MultiFailed as e:
            if isinstance(e.cause, (BadVersion, NodeExists, NoNode)) and e.index == 0:
                return False
            raise e.cause from None
        return True

    def _entity(self, kind: ResourceKind, name: str) -> str:
        """The entity path of what may be altered here."""
        if kind is ResourceKind.TOPIC:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
            if not self._topic_exists(name):
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
            return ConfigNode.entity_path(ConfigNode.TOPICS, name)
        if not name:
            return ConfigNode.entity_path(ConfigNode.BROKERS, DEFAULT_ENTITY)
        check_own_broker(self._broker, name)
        return ConfigNode.entity_path(ConfigNode.BROKERS, str(self._broker))

    def _validate(
        self, kind: ResourceKind, name: str, changes: Overrides, kept: Overrides, named: Collection[str]
    ) -> None:
        if kind is ResourceKind.TOPIC:
            validate_topic_configs(changes, self._config(), topic=name, kept=kept)
        else:
            result = validate_broker_configs(self._config(), changes, per_broker=bool(name), kept=kept)
            if self._check_broker is not None:
                try:
                    self._check_broker(result, named)
                except ValueError as error:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error


async def encrypt_anew(store: MetaStore, broker: int, config: Config) -> None:
    """Passwords that `password.encoder.old.secret` encrypted become those of `password.encoder.secret`."""
    encoder, path = encoder_of(config), ConfigNode.path(ConfigNode.entity_path(ConfigNode.BROKERS, str(broker)))
    while encoder is not None:
        try:
            data, stat = await store.get(path)
        except NoNode:
            return
        before = required(path, partial(ConfigNode.decode, data))
        after = dict(before)
        for name in filter(_is_password, before):
            if not encoder.can_decode(before[name]):
                with suppress(ValueError):
                    after[name] = encoder.encode(decrypted(config, before[name]))
        if after == before:
            return
        with suppress(BadVersion):
            await store.set(path, ConfigNode.encode(after), stat.version)


def check_own_broker(broker: int, name: str) -> None:
    """Raises INVALID_REQUEST for another broker: a broker knows and changes only its own settings and loggers. As in
    Kafka, its id may have a sign and zeros in front."""
    if not name:
        problem = f"Broker id must not be empty: this is broker {broker}"
    elif not _INTEGER.fullmatch(name):
        problem = f"Broker id must be an integer, but it is: {name}"
    elif int(name) == broker:
        return
    else:
        problem = (
            f"Unexpected broker id, expected {broker}, but received {name}: ask broker {name} itself, as each broker "
            "knows only its own settings"
        )
    raise KafkaError(ErrorCode.INVALID_REQUEST, problem)


def _is_password(name: str) -> bool:
    setting = find_setting(name)
    return setting is not None and setting.sensitive


def _check_entries(entries: Sequence[ConfigEntry]) -> None:
    names = [entry.name for entry in entries]
    if len(set(names)) != len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    empty = [e.name for e in entries if e.value is None and e.alteration is not Alteration.DELETE]
    if empty:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(empty)}")


def _altered(kind: ResourceKind, before: Overrides, entries: Sequence[ConfigEntry]) -> Overrides:
    after = dict(before)
    for entry in entries:
        value = trimmed(entry.value or "")
        match entry.alteration:
            case Alteration.SET:
                after[entry.name] = value
            case Alteration.DELETE:
                after.pop(entry.name, None)
            case Alteration.APPEND:
                present = _members(kind, after, entry.name, "append")
                after[entry.name] = _sayable(entry.name, ",".join(present + _without(_split(value), present)))
            case Alteration.SUBTRACT:
                after[entry.name] = ",".join(_without(_members(kind, after, entry.name, "subtract"), _split(value)))
    return after


def _members(kind: ResourceKind, overrides: Overrides, name: str, verb: str) -> list[str]:
    """The members of a list setting; its default where it is not set. Only lists can be altered so."""
    setting: Setting | None = TOPIC_SETTINGS.get(name) if kind is ResourceKind.TOPIC else find_setting(name)
    if setting is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"There is no {kind.name.lower()} setting {name}")
    if setting.type is not ConfigType.LIST:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Config value {verb} is not allowed for config key: {name}")
    text = overrides.get(name)
    if text is not None:
        return _split(text) if text else []
    return [str(member) for member in setting.default] if isinstance(setting.default, tuple) else []


def _split(text: str) -> list[str]:
    """As Java splits: without empty members at the end; no text at all is one empty member."""
    stripped = text.rstrip(",")
    return stripped.split(",") if stripped or not text else []


def _without(members: list[str], others: list[str]) -> list[str]:
    unwanted = set(others)
    return [member for member in members if member not in unwanted]


def _sayable(name: str, value: str) -> str:
    """`value` if an answer can say it. Raises INVALID_CONFIG."""
    size = len(value.encode())
    if size <= MAX_STRING:
        return value
    raise KafkaError(
        ErrorCode.INVALID_CONFIG,
        f"{name} would have {size} bytes, and clients take at most {MAX_STRING}: name fewer, or all of them by * where "
        "the setting knows that",
    )
