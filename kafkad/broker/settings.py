"""Settings in force: the static configuration, the dynamic overrides over it, and what follows for each topic."""

from __future__ import annotations

import logging
import resource
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from kafkad import loggers
from kafkad.config import Config, ConfigError, LogConfig, Reload
from kafkad.config.checks import contradictions
from kafkad.config.idle import idle_dynamic
from kafkad.net.server import Limits

log = logging.getLogger(__name__)

_NO_OVERRIDES: Final[Mapping[str, int]] = MappingProxyType({})
_FEWEST_FILES = 64
_FEWEST_SOCKETS = 16
_OTHER_FILES = 64
"""For checkpoints, workers, links to other brokers, scrapes, and the like."""
_MOST_RESOLVED = 1000
"""Sets of overrides that are kept: each change of a topic's settings leaves one behind."""


class Settings:
    """`static` comes from the command line and the file, `config` is that with what the metadata store overrides."""

    def __init__(self, static: Config) -> None:
        self.static = static
        self.config = static
        self._told = set(static.warnings)
        """The warnings that are true now, each logged when it came to be."""
        self._topic_overrides: Callable[[str], Mapping[str, str]] = lambda topic: {}
        self._resolved: dict[frozenset[tuple[str, str]], LogConfig] = {}

    def follow(self, topic_overrides: Callable[[str], Mapping[str, str]]) -> None:
        self._topic_overrides = topic_overrides

    def override(self, *, cluster_wide: Mapping[str, str], per_broker: Mapping[str, str]) -> None:
        before, self.config = self.config, self.static.with_overrides(cluster_wide=cluster_wide, per_broker=per_broker)
        self._resolved.clear()
        level = self.config.str("kafkad.log.level")
        if level != before.str("kafkad.log.level"):  # else the level that a client has set for the root stays
            loggers.set_default_level(level)
        warnings = dict.fromkeys((*self.static.warnings, *self.config.warnings, *idle_dynamic(self.config)))
        for warning in warnings:
            if warning not in self._told:
                log.warning("%s", warning)
        self._told = set(warnings)

    def reread(self, fresh: Config) -> Reload:
        """Takes from a file that was read again what may change while the broker runs; `override` has it in force.
        Raises ConfigError and takes nothing if that contradicts what stays as it is, or if the file sets nothing any
        more."""
        if not self.static.file_is_blank:
            fresh.refuse_blank_file()
        reload, merged = self.static.with_file(fresh), self.config.with_file(fresh).config
        known = contradictions(self.config)
        problems = [each for each in contradictions(merged) if each not in known]
        if problems and reload.restart:
            names = ", ".join(reload.restart)
            raise ConfigError(f"it can only be taken as a whole, with a restart, for {names} cannot change", *problems)
        if problems:
            raise ConfigError(*problems)
        self.static = reload.config
        return reload

    def of_topic(self, topic: str) -> LogConfig:
        """Topics with the same overrides share one LogConfig: there may be ten thousand of them."""
        overrides = self._topic_overrides(topic)
        key = frozenset(overrides.items())
        resolved = self._resolved.get(key)
        if resolved is None:
            if len(self._resolved) >= _MOST_RESOLVED:
                self._resolved.clear()
            resolved = self._resolved[key] = LogConfig.resolve(overrides, self.config)
        return resolved

    def unclean(self, topic: str) -> bool:
        return self.of_topic(topic).unclean_leader_election

    def limits(self, per_address: Mapping[str, int] = _NO_OVERRIDES) -> Limits:
        """Of connections. `per_address`: of single addresses, which `broker/connection_limits` finds by their names."""
        config = self.config
        return Limits(
            max_connections=config.int("max.connections"),
            max_sockets=_max_sockets(config),
            max_per_listener={
                listener.listener: config.int_for_listener(listener.listener, "max.connections")
                for listener in config.listeners
            },
            max_per_ip=config.int("max.connections.per.ip"),
            per_ip_overrides=per_address,
            idle_ms=config.long("connections.max.idle.ms"),
            max_request_bytes=config.int("socket.request.max.bytes"),
            queued_bytes=config.long("queued.max.request.bytes"),
            send_buffer_bytes=config.int("socket.send.buffer.bytes"),
            receive_buffer_bytes=config.int("socket.receive.buffer.bytes"),
            backlog=config.int("socket.listen.backlog.size"),
            setup_ms=config.int("kafkad.connection.setup.timeout.ms"),
            max_unauthenticated=config.int("kafkad.max.unauthenticated.connections"),
            max_unauthenticated_per_ip=config.int("kafkad.max.unauthenticated.connections.per.ip"),
        )


def max_open_files(config: Config) -> int:
    """The most log files that may be open: half of all by default, for connections are open files too."""
    wanted = config.int("kafkad.max.open.files")
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(wanted if wanted >= 0 else limit // 2, _FEWEST_FILES)


def _max_sockets(config: Config) -> int:
    """The most connections to clients: what the limit of open files leaves beside logs and all else."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(limit - max_open_files(config) - _OTHER_FILES, _FEWEST_SOCKETS)
