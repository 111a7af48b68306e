"""The TLS of a broker: what its listeners show and trust, and what it shows to other brokers.

Stores are read again when their settings change, on SIGHUP, and when their files have changed, which is checked every
minute. New ones are tried first; if they cannot be used, the old ones stay in use. Open connections are not touched.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Collection, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

from kafkad.clock import Clock
from kafkad.config import Config
from kafkad.metrics import COUNTER, GAUGE, Family
from kafkad.net.tls import ServerTls, TlsLayer
from kafkad.security.stores import StoreError, UnreadableError
from kafkad.security.tls_contexts import (
    Material,
    Users,
    client_context,
    refuses_itself,
    server_context,
    users_of,
)
from kafkad.security.tls_settings import TlsError, TlsSettings
from kafkad.timers import Timers, every

log = logging.getLogger(__name__)

HTTP = "HTTP"
"""Where HTTP goes over TLS, the name of its listener in settings."""
_LOOK_MS = 60_000
_WARN_DAYS = (0, 1, 7, 30)

_Stamps = tuple[tuple[str, int, int, int] | None, ...]
_Seen = tuple[TlsSettings, _Stamps]


class _LoadedTls(NamedTuple):
    """Stores of a listener that were read and can be used. `stamps` are those of the files, taken before reading."""

    settings: TlsSettings
    stamps: _Stamps
    material: Material
    users: Users
    server: ssl.SSLContext
    client: ssl.SSLContext


class _TooEarlyError(TlsError):
    """A certificate that is not valid yet."""

    def __init__(self, text: str, starts: datetime) -> None:
        super().__init__(text)
        self.starts = starts


class _Listener:
    """What is in use at one listener, by its `tls`. `failed` is what was read last and could not be used; if its time
    has only to come, it `starts` then. What could not even be read is tried again. `told` is what was said of it last.
    """

    failed: _Seen | None
    told: tuple[_Seen | None, str] | None
    starts: datetime | None
    warned: int | None

    def __init__(self, tls: ServerTls, loaded: _LoadedTls) -> None:
        self.tls = tls
        self.use(loaded)

    def use(self, loaded: _LoadedTls) -> None:
        self.loaded = loaded
        self.tls.context, self.tls.user_of = loaded.server, loaded.users
        self.failed = self.told = self.starts = self.warned = None


class BrokerTls:
    """Made for the start, if a listener is encrypted. Nobody gets in before `begin`, but at HTTP, if the file alone has
    what that takes."""

    def __init__(self, config: Config, loop: asyncio.AbstractEventLoop, clock: Clock, timers: Timers) -> None:
        self.layer = TlsLayer(loop.call_soon)
        self._config = config
        self._clock = clock
        self._timers = timers
        self._servers = {name: _closed(self.layer) for name in config.encrypted_listeners}
        self._listeners: dict[str, _Listener] = {}
        """Empty until `begin`."""
        if HTTP in self._servers:
            with suppress(TlsError, StoreError):
                self._servers[HTTP].context = _load(TlsSettings.of(config, HTTP)).server

    def begin(self, config: Config, file: Config) -> None:
        """Reads the stores by the settings in force. The key of the `file`, its versions and its suites stand in for
        those that are of no use, but who may come in, and who is trusted, is never judged by less than what is in
        force. Raises TlsError."""
        self._config = config
        for name, tls in self._servers.items():
            loaded = _load_first(config, file, name)
            listener = self._listeners[name] = _Listener(tls, loaded)
            self._tell_problem(name, listener)
            refusal = _refused_by_brokers(config, name, loaded) if config.has_others else None
            if refusal is not None:
                log.error("listener %s: %s", name, refusal)
        self.warn_of_expiry()

    def server(self, listener: str) -> ServerTls | None:
        """None where the listener is not encrypted."""
        return self._servers.get(listener)

    def client_context(self, listener: str) -> ssl.SSLContext:
        """For new connections to a listener of other brokers, which may be one that this broker has not; a later call
        may give another one."""
        found = self._listeners.get(listener) or self._listeners.get(self._config.inter_broker_listener)
        if found is None:
            raise ConnectionError(f"its listener {listener} is encrypted, and this broker has no ssl settings for it")
        return found.loaded.client

    def check(self, config: Config, named: Collection[str]) -> None:
        """Whether these settings could be used, where they are others, or where one of a listener is among the `named`
        and its files are others: as in Kafka, who sets a location again wants them read. Raises TlsError or StoreError.
        """
        for name, listener in self._listeners.items():
            wanted, loaded = _wanted(config, name), listener.loaded
            is_other = wanted not in (loaded.settings, _wanted(self._config, name))
            if not is_other and any(each.startswith(f"listener.name.{name.lower()}.ssl.") for each in named):
                is_other = isinstance(wanted, str) or (wanted, _stamps(wanted)) != (loaded.settings, loaded.stamps)
            if is_other:
                self._load_next(config, name, listener)

    @property
    def is_up_to_date(self) -> bool:
        """False while a listener keeps what it had, for what was read last cannot be used."""
        return all(listener.told is None for listener in self._listeners.values())

    def refresh(self, config: Config, *, every: bool = False) -> None:
        """Reads again what has changed, or `every` store. What cannot be used is logged, and changes nothing."""
        self._config = config
        for name, listener in self._listeners.items():
            seen: _Seen | None = None
            try:
                settings = TlsSettings.of(config, name)
                seen = settings, _stamps(settings)
                known = (listener.loaded.settings, listener.loaded.stamps), listener.failed
                is_time = listener.starts is not None and listener.starts <= self._now()
                if every or is_time or seen not in known:
                    self._replace(name, listener, self._load_next(config, name, listener))
            except (TlsError, StoreError) as error:
                listener.failed = None if isinstance(error, UnreadableError) else seen
                listener.starts = error.starts if isinstance(error, _TooEarlyError) else None
                told, listener.told = listener.told, (seen, str(error))
                if every or listener.told != told:
                    log.error("listener %s keeps the TLS settings and stores it has: %s", name, error)
        self.warn_of_expiry()

    def _replace(self, name: str, listener: _Listener, loaded: _LoadedTls) -> None:
        parted = _parted(self._config, name, listener.loaded, loaded)
        listener.use(loaded)
        log.info("listener %s: its TLS stores were read again; it shows %s", name, loaded.material.shown)
        if parted is not None:
            log.warning(
                "listener %s: whoever still has the stores that it had and this broker refuse each other: %s; where an "
                "authority is replaced, have the old and the new one in all truststores first, and only then new "
                "certificates",
                *(name, parted),
            )

    async def follow_files(self) -> None:
        async def look() -> None:
            self.refresh(self._config)

        await every(lambda: _LOOK_MS, "the look at TLS stores", look, self._clock, self._timers)

    def warn_of_expiry(self) -> None:
        """30, 7 and 1 days before, and once it has."""
        for name, listener in self._listeners.items():
            left = listener.loaded.material.remaining(self._now())
            days = next((days for days in _WARN_DAYS if left is not None and left.days < days), None)
            if left is None or days is None or days == listener.warned:
                continue
            if days == 0:
                self._tell_problem(name, listener)
                continue
            listener.warned = days
            log.warning(
                "listener %s: its certificate expires in %.1f days (%s); write a new one over it",
                name,
                left.total_seconds() / 86_400,
                listener.loaded.settings.keys,
            )

    def _tell_problem(self, name: str, listener: _Listener) -> None:
        problem = listener.loaded.material.problem(self._now())
        if problem is not None:
            listener.warned = 0
            log.error("listener %s: %s; clients will refuse it", name, problem)

    def collect(self) -> Iterator[Family]:
        def of_each(value: str) -> list[tuple[tuple[tuple[str, str], ...], float]]:
            return [((("listener", name),), getattr(each.tls, value)) for name, each in self._listeners.items()]

        now = self._now()
        left = [
            ((("listener", name),), time.total_seconds())
            for name, each in self._listeners.items()
            if (time := each.loaded.material.remaining(now)) is not None
        ]
        yield Family("kafkad_tls_certificate_expiry_seconds", GAUGE, "Until the certificate in use expires.", left)
        yield Family("kafkad_tls_handshakes_total", COUNTER, "Handshakes that succeeded.", of_each("handshakes"))
        yield Family("kafkad_tls_failed_handshakes_total", COUNTER, "Handshakes that failed.", of_each("failed"))

    def _load_next(self, config: Config, name: str, listener: _Listener) -> _LoadedTls:
        """As Kafka: the broker stays who it is, and can connect to itself. One without a truststore could not before,
        unless it is one of a host: it needs its new certificates for clients."""
        loaded, before = _load(TlsSettings.of(config, name)), listener.loaded.material
        now = self._now()
        problem = loaded.material.problem(now) or loaded.material.refused_change(before)
        if config.is_of_host or loaded.material.trusted is not None or before.trusted is not None:
            problem = problem or _refused_by_brokers(config, name, loaded)
        if problem is not None:
            starts = max((certificate.starts for certificate in loaded.material.chain), default=now)
            raise TlsError(problem) if starts <= now else _TooEarlyError(problem, starts)
        return loaded

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)


def problems(config: Config, now: datetime) -> Iterator[str]:
    """For `--check`: everything that is wrong with the stores."""
    for name in config.encrypted_listeners:
        try:
            loaded = _load(TlsSettings.of(config, name))
            problem = loaded.material.problem(now)
            if config.has_others:
                problem = problem or _refused_by_brokers(config, name, loaded)
        except (TlsError, StoreError) as error:
            problem = str(error)
        if problem is not None:
            yield f"listener {name}: {problem}"


def _closed(layer: TlsLayer) -> ServerTls:
    """Without a key no handshake succeeds."""

    def nobody(certificate: bytes) -> str:
        raise ValueError("no stores have been read yet")

    return ServerTls(layer, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), nobody)


def _wanted(config: Config, name: str) -> TlsSettings | str:
    """What is asked for, or why that is nothing that could be."""
    try:
        return TlsSettings.of(config, name)
    except TlsError as error:
        return str(error)


def _load_first(config: Config, file: Config, name: str) -> _LoadedTls:
    """By as much of the settings in force as can be used; `refresh` says what cannot."""
    try:
        return _load(TlsSettings.of(config, name))
    except (TlsError, StoreError) as error:
        for keys_of, offers_of in (config, file), (file, config), (file, file):
            with suppress(TlsError, StoreError):
                return _load(TlsSettings.of(config, name, keys_of=keys_of, offers_of=offers_of))
        raise TlsError(f"listener {name}, by the file and the broker's dynamic settings: {error}") from error


def _load(settings: TlsSettings) -> _LoadedTls:
    stamps = _stamps(settings)
    material = Material.read(settings)
    return _LoadedTls(
        settings, stamps, material, users_of(settings), server_context(material), client_context(material)
    )


def _refused_by_brokers(config: Config, name: str, loaded: _LoadedTls) -> str | None:
    """Why brokers could not connect to each other by this listener, if it is theirs: those of a cluster are alike.
    Without a truststore, which one that is alone does not need, they trust the authorities of the system."""
    has_trust = loaded.material.trusted is not None
    is_theirs = name in (config.inter_broker_listener, config.control_plane_listener)
    if not is_theirs or not (has_trust or config.has_others):
        return None
    why = refuses_itself(loaded.server, loaded.client, _host(config, name) or "")
    if why is None:
        return None
    advice = "" if has_trust else "; set ssl.truststore.location to whom they are to trust"
    return f"brokers could not connect to each other with it: {why}{advice}"


def _parted(config: Config, name: str, before: _LoadedTls, now: _LoadedTls) -> str | None:
    """Why one with the stores of `before` could not connect to one with those of `now`, or the other way round. None
    where those of before could not even connect to each other."""
    host, old, new = _host(config, name), before.material, now.material
    if host is None or (old.trusted, old.chain) == (new.trusted, new.chain):
        return None
    if refuses_itself(before.server, before.client, host) is not None:
        return None
    return refuses_itself(before.server, now.client, host) or refuses_itself(now.server, before.client, host)


def _host(config: Config, name: str) -> str | None:
    return next((endpoint.host for endpoint in config.advertised_listeners if endpoint.listener == name), None)


def _stamps(settings: TlsSettings) -> _Stamps:
    return tuple(map(_stamp, settings.paths))


def _stamp(path: str) -> tuple[str, int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return path, found.st_mtime_ns, found.st_size, found.st_ino
