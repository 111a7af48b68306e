"""TLS to ZooKeeper, by the settings `zookeeper.ssl.*`."""

from __future__ import annotations

import logging
import ssl

from kafkad.config import Config
from kafkad.security.stores import Store, StoreError
from kafkad.security.tls_contexts import Material, client_context
from kafkad.security.tls_settings import TLS_VERSIONS, TlsError, TlsSettings

log = logging.getLogger(__name__)

_KEYS, _TRUSTED = "zookeeper.ssl.keystore.location", "zookeeper.ssl.truststore.location"


class ZooKeeperContexts:
    """A context for each connection: certificates are renewed while a broker runs."""

    def __init__(self, config: Config) -> None:
        """Raises TlsError or StoreError."""
        self._settings = _tls_settings(config)
        self._context = client_context(Material.read(self._settings))

    def __call__(self) -> ssl.SSLContext:
        try:
            self._context = client_context(Material.read(self._settings))
        except (TlsError, StoreError) as error:
            log.error("the keys for ZooKeeper cannot be read again; the old ones stay in use: %s", error)
        return self._context


def _tls_settings(config: Config) -> TlsSettings:
    def text(name: str) -> str | None:
        value = config.value(name)
        return str(value) if value else None

    keys, trusted = text(_KEYS), text(_TRUSTED)
    wanted = config.value("zookeeper.ssl.enabled.protocols") or (config.str("zookeeper.ssl.protocol"),)
    suites = config.value("zookeeper.ssl.cipher.suites")
    versions = tuple(version for version in TLS_VERSIONS if isinstance(wanted, tuple) and version in wanted)
    if not versions:
        raise TlsError(f"zookeeper.ssl.enabled.protocols names none that can be used: {' and '.join(TLS_VERSIONS)} can")
    password = text("zookeeper.ssl.keystore.password")
    return TlsSettings(
        listener="zookeeper",
        keys=Store(_KEYS, keys, None, password, password) if keys else None,
        trusted=Store(_TRUSTED, trusted, None, text("zookeeper.ssl.truststore.password")) if trusted else None,
        client_auth="none",
        versions=versions,
        suites=suites if isinstance(suites, tuple) else (),
        mapping="",
        checks_hosts=(text("zookeeper.ssl.endpoint.identification.algorithm") or "").lower() == "https",
        names_may_change=True,
        hosts_may_change=True,
    )
