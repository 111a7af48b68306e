"""The configuration as the broker sees it: typed values, where each came from, and how it changes while running."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from functools import cache
from types import MappingProxyType
from typing import Final, NamedTuple

from kafkad.config.files import ConfigError
from kafkad.config.listeners import ENCRYPTED, ZooKeeperAddress, parse_listeners, parse_zookeeper, protocol_map
from kafkad.config.passwords import decrypted
from kafkad.config.protocol import Protocol
from kafkad.config.secrets import Secrets, names_secrets
from kafkad.config.setting import READ_ONLY, Setting, Value
from kafkad.config.tables import BROKER_SETTINGS
from kafkad.config.values import parse, trimmed
from kafkad.jaas import LoginModule, parse_jaas
from kafkad.model import Endpoint

# The class below has methods of these names, as Kafka's ConfigDef calls its types.
_Int = int
_Bool = bool
_Str = str


class Source(IntEnum):
    """The source of a value, numbered as in DescribeConfigs; a lower number wins."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6


_BROKER_SOURCES = (
    Source.DYNAMIC_BROKER_CONFIG,
    Source.DYNAMIC_DEFAULT_BROKER_CONFIG,
    Source.STATIC_BROKER_CONFIG,
    Source.DEFAULT_CONFIG,
)

Values = Mapping[str, Value]
_NOTHING: Final[Mapping[Source, Mapping[str, str]]] = MappingProxyType({})


class Config:
    """Immutable. Made by `load`; `with_overrides` and `with_file` make the next one."""

    __slots__ = ("_layers", "_values", "among_others", "file", "file_is_blank", "ignored", "secrets", "warnings")

    def __init__(
        self,
        layers: Mapping[Source, Values],
        *,
        file: _Str | None,
        secrets: Secrets,
        among_others: _Bool,
        file_is_blank: _Bool = False,
        warnings: Sequence[_Str] = (),
        ignored: Mapping[Source, Mapping[_Str, _Str]] = _NOTHING,
    ) -> None:
        """`file_is_blank`: it sets nothing, as one of comments alone, or of names that are no settings.
        `among_others`: of one of the brokers of a host, whose settings do not tell that. `ignored` are described as
        Kafka describes them, and mean nothing: names in a file for Kafka that are no settings, and what the metadata
        store has and kafkad cannot use, by name and text."""
        self._layers = {source: dict(layers.get(source, {})) for source in _BROKER_SOURCES}
        self._values: dict[_Str, Value] = {}
        for source in reversed(_BROKER_SOURCES):
            self._values.update(self._layers[source])
        self.file = file
        self.secrets = secrets
        self.among_others = among_others
        self.file_is_blank = file_is_blank
        self.warnings = tuple(warnings)
        self.ignored = ignored

    def value(self, name: _Str) -> Value:
        """The value in force. Raises KeyError for a name that is not a setting."""
        values = self._values
        return values[name] if name in values else BROKER_SETTINGS[name].default

    def int(self, name: _Str) -> _Int:
        value = self.value(name)
        assert isinstance(value, _Int), name
        return value

    def long(self, name: _Str) -> _Int:
        return self.int(name)

    def bool(self, name: _Str) -> _Bool:
        value = self.value(name)
        assert isinstance(value, _Bool), name
        return value

    def double(self, name: _Str) -> float:
        value = self.value(name)
        assert isinstance(value, float | _Int), name
        return float(value)

    def str(self, name: _Str) -> _Str:
        """For settings that always have a value; `value` for those that may be unset."""
        value = self.value(name)
        assert isinstance(value, _Str), name
        return value

    def list(self, name: _Str) -> tuple[_Str, ...]:
        value = self.value(name)
        assert isinstance(value, tuple), name
        return value

    def at(self, source: Source, name: _Str) -> Value:
        """This source's value of a setting; None when it has none."""
        layer = self._layers[source]
        if name in layer or source is not Source.DEFAULT_CONFIG:
            return layer.get(name)
        setting = BROKER_SETTINGS.get(name)
        return setting.default if setting else None

    def is_set(self, name: _Str) -> _Bool:
        """True if anybody chose the value."""
        return any(name in layer for source, layer in self._layers.items() if source is not Source.DEFAULT_CONFIG)

    def names_at(self, source: Source) -> tuple[_Str, ...]:
        return tuple(self._layers[source])

    def for_listener(self, listener: _Str, name: _Str) -> Value:
        """`listener.name.LISTENER.NAME` where it is set, else NAME."""
        own = f"listener.name.{listener.lower()}.{name}"
        return self._values[own] if own in self._values else self.value(name)

    def int_for_listener(self, listener: _Str, name: _Str) -> _Int:
        value = self.for_listener(listener, name)
        assert isinstance(value, _Int), name
        return value

    def for_mechanism(self, listener: _Str, mechanism: _Str, name: _Str) -> Value:
        """`listener.name.LISTENER.MECHANISM.NAME` where it is set, else as `for_listener`."""
        own = f"listener.name.{listener.lower()}.{mechanism.lower()}.{name}"
        return self._values[own] if own in self._values else self.for_listener(listener, name)

    def int_for_mechanism(self, listener: _Str, mechanism: _Str, name: _Str) -> _Int:
        value = self.for_mechanism(listener, mechanism, name)
        assert isinstance(value, _Int), name
        return value

    def jaas(self, listener: _Str, mechanism: _Str) -> LoginModule | None:
        """What JAAS says of a mechanism, which Kafka has by listener only. Raises ValueError."""
        text = self._values.get(f"listener.name.{listener.lower()}.{mechanism.lower()}.{JAAS}")
        return parse_jaas(str(text)) if text else None

    def mechanisms(self, listener: _Str) -> tuple[_Str, ...]:
        """The SASL mechanisms that clients may use there."""
        value = self.for_listener(listener, "sasl.enabled.mechanisms")
        assert isinstance(value, tuple)
        return value

    @property
    def login_listeners(self) -> frozenset[_Str]:
        """The listeners at which a peer is nobody before it has logged in."""
        return frozenset(each.listener for each in self.listeners if each.protocol.startswith("SASL_"))

    def needs_no_certificates(self, listener: _Str) -> _Bool:
        """True where clients prove by their login who they are. As in Kafka, they are asked for a certificate as well
        only if the setting is of this very listener: clients with passwords have none."""
        return listener in self.login_listeners and not self.is_set(f"listener.name.{listener.lower()}.ssl.client.auth")

    @property
    def broker_id(self) -> _Int:
        """-1 when the data directory decides."""
        return self.int("broker.id")

    @property
    def log_dirs(self) -> tuple[_Str, ...]:
        several = self.value("log.dirs")
        paths = str(several if several else self.value("log.dir")).split(",")
        return tuple(dict.fromkeys(bare for path in paths if (bare := trimmed(path))))

    @property
    def metadata_dir(self) -> _Str:
        explicit = self.value("kafkad.metadata.dir")
        return str(explicit) if explicit else self.log_dirs[0]

    @property
    def http_listener(self) -> tuple[_Str, _Int] | None:
        """Host (empty: every interface) and port of the HTTP listener. Raises ValueError."""
        text = str(self.value("http.listener") or "").removeprefix("http://").removeprefix("https://").rstrip("/")
        if not text:
            return None
        host, colon, port = text.rpartition(":")
        if not colon or not port.isdecimal() or _Int(port) > 65535:
            raise ValueError(f"http.listener: {text!r} is not host:port")
        return host.strip("[]"), _Int(port)

    def listeners_with(self, mechanism: _Str) -> tuple[_Str, ...]:
        """Where clients may log in by that mechanism of SASL."""
        return tuple(each for each in sorted(self.login_listeners) if mechanism in self.mechanisms(each))

    @property
    def has_others(self) -> _Bool:
        """True if brokers may connect to each other."""
        return self.is_of_host or bool(self.value("zookeeper.connect"))

    @property
    def is_of_host(self) -> _Bool:
        """True for the brokers of a host: all have the same file."""
        return self.among_others or self.int("kafkad.brokers") > 1

    @property
    def encrypted_listeners(self) -> tuple[_Str, ...]:
        """What is served over TLS; HTTP is one in settings."""
        names = tuple(endpoint.listener for endpoint in self.listeners if endpoint.protocol in ENCRYPTED)
        return (*names, "HTTP") if self.http_over_tls else names

    @property
    def http_over_tls(self) -> _Bool:
        return str(self.value("http.listener") or "").startswith("https://")

    @property
    def zookeeper(self) -> ZooKeeperAddress | None:
        """`zookeeper.connect`; None where kafkad keeps its metadata itself. Raises ValueError."""
        text = self.value("zookeeper.connect")
        return parse_zookeeper(str(text)) if text else None

    @property
    def zookeeper_login(self) -> LoginModule | None:
        """Raises ValueError."""
        text = self.value("kafkad.zookeeper.sasl.jaas.config")
        return parse_jaas(str(text)) if text else None

    @property
    def zookeeper_connection_timeout_ms(self) -> _Int:
        explicit = self.value("zookeeper.connection.timeout.ms")
        return self.int("zookeeper.session.timeout.ms" if explicit is None else "zookeeper.connection.timeout.ms")

    @property
    def listeners(self) -> tuple[Endpoint, ...]:
        """The addresses to listen on. An empty host means every interface, port 0 one that the kernel picks."""
        return parse_listeners(self.str("listeners"), self._protocols())

    @property
    def advertised_listeners(self) -> tuple[Endpoint, ...]:
        """The advertised listeners, in the order of `listeners`; port 0 is still to be replaced by the one picked."""
        explicit = self.value("advertised.listeners")
        if explicit:
            return parse_listeners(str(explicit), self._protocols())
        return tuple(
            Endpoint(
                listener=bound.listener,
                host=bound.host or _this_host(),
                port=bound.port,
                protocol=bound.protocol,
            )
            for bound in self.listeners
        )

    @property
    def inter_broker_listener(self) -> _Str:
        explicit = self.value("inter.broker.listener.name")
        if explicit:
            return str(explicit).upper()
        protocol = self.str("security.inter.broker.protocol")
        names = [endpoint.listener for endpoint in self.listeners if endpoint.protocol == protocol]
        return protocol if protocol in names or not names else names[0]

    @property
    def protected_listener(self) -> _Str | None:
        """Brokers' own, which limits for clients must not keep shut; None where clients come to it too."""
        return self.inter_broker_listener if len(self.listeners) > 1 else None

    @property
    def super_users(self) -> tuple[_Str, ...]:
        """Principals. Names have commas in them, so semicolons stand between."""
        return tuple(filter(None, map(trimmed, self.str("super.users").split(";"))))

    @property
    def control_plane_listener(self) -> _Str | None:
        """The listener only for requests to and from the controller; None where inter_broker_listener has them too."""
        explicit = self.value("control.plane.listener.name")
        return str(explicit).upper() if explicit else None

    @property
    def inter_broker_protocol(self) -> Protocol:
        return Protocol.of(self.str("inter.broker.protocol.version"))

    def with_overrides(self, *, cluster_wide: Mapping[_Str, _Str], per_broker: Mapping[_Str, _Str]) -> Config:
        """This configuration with the store's dynamic settings. Unusable ones are left out, and named in `warnings`."""
        warnings: list[_Str] = []
        layers, ignored = dict(self._layers), dict(self.ignored)
        for source, texts in (
            (Source.DYNAMIC_DEFAULT_BROKER_CONFIG, cluster_wide),
            (Source.DYNAMIC_BROKER_CONFIG, per_broker),
        ):
            layers[source], reasons = usable(self, texts)
            ignored[source] = {name: texts[name] for name in reasons}
            warnings += [f"dynamic setting {name} is ignored: {why}" for name, why in reasons.items()]
            warnings += _without_effect(layers[source])
        return self._with(layers, warnings, ignored)

    def refuse_blank_file(self) -> None:
        """Raises ConfigError if the file sets nothing, where it was to replace one that did: only its header may have
        been written, and by the defaults, retention would delete."""
        if self.file_is_blank:
            raise ConfigError(f"{self.file} sets nothing any more; to run by the defaults, restart kafkad")

    def says_the_same_as(self, other: Config) -> _Bool:
        return self._layers == other._layers

    def with_layer(self, source: Source, values: Values) -> Config:
        return self._with({**self._layers, source: values}, (), self.ignored)

    def _with(
        self, layers: Mapping[Source, Values], warnings: Sequence[_Str], ignored: Mapping[Source, Mapping[_Str, _Str]]
    ) -> Config:
        return Config(
            layers,
            file=self.file,
            secrets=self.secrets,
            among_others=self.among_others,
            file_is_blank=self.file_is_blank,
            warnings=warnings,
            ignored=ignored,
        )

    def with_file(self, fresh: Config) -> Reload:
        """The changes by a re-read file: only settings that may change while running; the rest wait for a restart. So
        do those of a listener that goes, comes or gets another protocol, and what one that goes shares with others."""
        before = self._layers[Source.STATIC_BROKER_CONFIG]
        after = fresh._layers[Source.STATIC_BROKER_CONFIG]
        differing = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        going = self._served - fresh._served
        coming = _prefixes(fresh._served - self._served)
        held = tuple(
            name
            for name in differing
            if dynamic_mode(name) != READ_ONLY
            and (name.startswith(_prefixes(going)) or any(_is_shared(name, *each, before) for each in going))
        )
        restart = tuple(
            name for name in differing if name in held or dynamic_mode(name) == READ_ONLY or name.startswith(coming)
        )
        merged = {name: value for name, value in after.items() if name not in restart}
        merged |= {name: before[name] for name in restart if name in before}
        layers = {**self._layers, Source.STATIC_BROKER_CONFIG: merged}
        config = fresh._with(layers, fresh.warnings, fresh.ignored)
        changed = tuple(
            name for name in differing if name not in restart and config._in_force(name) != self._in_force(name)
        )
        return Reload(config, changed, restart, tuple(name for name in held if not name.endswith(_WAYS_IN)))

    @property
    def _served(self) -> frozenset[tuple[_Str, _Str]]:
        """Whatever may have settings of a listener, with its protocol."""
        http = [("HTTP", "https")] if self.http_over_tls else []
        return frozenset([*((each.listener, each.protocol) for each in self.listeners), *http])

    def _in_force(self, name: _Str) -> Value:
        """None for a setting of one listener that is not set."""
        setting = BROKER_SETTINGS.get(name)
        return self._values.get(name, None if setting is None else setting.default)

    def max_connections_per_ip_overrides(self) -> dict[_Str, _Int]:
        """Host (an address or a name) to count. Raises ValueError."""
        counts: dict[_Str, _Int] = {}
        for pair in filter(None, map(_Str.strip, self.str("max.connections.per.ip.overrides").split(","))):
            host, colon, count = pair.rpartition(":")
            if not colon or not count.isdecimal():
                raise ValueError(f"max.connections.per.ip.overrides: {pair!r} is not host:count")
            counts[host.strip("[]")] = _Int(count)
        return counts

    def _protocols(self) -> dict[_Str, _Str]:
        return protocol_map(self.str("listener.security.protocol.map"))


@cache
def _this_host() -> str:
    """May ask the name service, so once is enough."""
    return socket.getfqdn()


class Reload(NamedTuple):
    """`changed` settings are in force in `config`; `restart` ones keep the value they had. `held` are those of logins
    and TLS among them that wait only for a listener to go."""

    config: Config
    changed: tuple[str, ...]
    restart: tuple[str, ...]
    held: tuple[str, ...]


def _prefixes(served: frozenset[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(f"listener.name.{listener.lower()}." for listener, _ in served)


def _is_shared(name: str, listener: str, protocol: str, values: Values) -> bool:
    """True for a setting of all listeners that says how this one encrypts, or who may log in there."""
    if not name.startswith(_PER_LISTENER) or f"listener.name.{listener.lower()}.{name}" in values:
        return False
    encrypts = protocol in (*ENCRYPTED, "https")
    return (encrypts and name.startswith("ssl.")) or (protocol.startswith("SASL_") and name.startswith("sasl."))


def find_setting(name: str) -> Setting | None:
    """Also for `listener.name.LISTENER.[MECHANISM.]NAME`, which sets NAME for one listener."""
    setting = BROKER_SETTINGS.get(name)
    if setting is not None or not name.startswith("listener.name."):
        return setting
    base = name.split(".", 3)[3] if name.count(".") >= 3 else ""
    setting = BROKER_SETTINGS.get(base) or BROKER_SETTINGS.get(base.partition(".")[2])
    if setting is None or not (setting.refused or setting.name.startswith(_PER_LISTENER)):
        return None
    if setting.name == JAAS:
        return setting._replace(name=name, unused=None) if base != JAAS else None
    return setting._replace(name=name)


JAAS = "sasl.jaas.config"
PER_MECHANISM = (
    JAAS,
    "sasl.oauthbearer.",
    "sasl.login.callback.handler.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
_PER_LISTENER = (
    *PER_MECHANISM,
    "sasl.kerberos.",
    "sasl.enabled.mechanisms",
    "sasl.server.max.receive.size",
    "max.connections",
    "max.connection.creation.rate",
    "ssl.",
)
_FIXED_HERE = ("listeners", "advertised.listeners", "listener.security.protocol.map")
"""Kafka opens and closes listeners while it runs; kafkad does not."""


def dynamic_mode(name: str) -> str:
    """The scope in which a setting may change while kafkad runs: read-only, per-broker or cluster-wide."""
    setting = find_setting(name)
    return setting.dynamic if setting and name not in _FIXED_HERE else READ_ONLY


_WAYS_IN = ("max.connections", "max.connection.creation.rate")


def parse_dynamic(setting: Setting, text: str, secrets: Secrets) -> Value:
    """What `text` means for a setting that changes while kafkad runs. Raises ValueError with Kafka's sentence, also for
    a limit that lets nobody in: nobody could come to take it back."""
    value = parse(setting, _resolved(setting, text, secrets) if names_secrets(text) else text)
    for name in _WAYS_IN:
        if value == 0 and setting.name.endswith(name):
            raise ValueError(f"Invalid {name} 0")
    return value


def _resolved(setting: Setting, text: str, secrets: Secrets) -> str:
    """Whoever may set it must not be told what is in a secret."""
    if not setting.sensitive:
        raise ValueError(f"{setting.name} is no password, and only passwords may name secrets while the broker runs")
    resolved = secrets.resolve_dynamic(text)
    if setting.name.endswith(JAAS):
        try:
            parse_jaas(resolved)
        except ValueError:
            raise ValueError(f"{setting.name} is no JAAS line with what its secrets give") from None
    return resolved


def usable(config: Config, texts: Mapping[str, str]) -> tuple[dict[str, Value], dict[str, str]]:
    """The values that a broker's dynamic settings in the store have, and why each of the others is ignored. `config`
    has the secret that passwords are decrypted with."""
    values: dict[str, Value] = {}
    ignored: dict[str, str] = {}
    for name, text in texts.items():
        try:
            values[name] = _stored_value(config, name, text)
        except ValueError as error:
            ignored[name] = str(error)
    return values, ignored


def _stored_value(config: Config, name: str, text: str) -> Value:
    setting = find_setting(name)
    if setting is None:
        raise ValueError("kafkad does not know it")
    if dynamic_mode(name) == READ_ONLY:
        raise ValueError("it can only be changed in the file, with a restart")
    return parse_dynamic(setting, decrypted(config, text) if setting.sensitive else text, config.secrets)


def _without_effect(values: Values) -> Iterator[str]:
    for name, value in values.items():
        setting = find_setting(name)
        assert setting is not None
        reason = setting.refused or setting.unused
        if reason and value != setting.default:
            yield f"dynamic setting {name} has no effect: {reason}"
