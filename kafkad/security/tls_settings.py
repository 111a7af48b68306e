"""The TLS settings of one listener, as `ssl.*` and `listener.name.LISTENER.ssl.*` give them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from kafkad.config.config import Config
from kafkad.security.stores import Store

_Text = Callable[[str], str | None]
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
TLS_1_3_SUITES = frozenset({"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"})


class TlsError(ValueError):
    """A TLS setting that cannot be used. The text names it, and says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """`versions` in their order. `suites` by Java's names, all where it is empty."""

    listener: str
    keys: Store | None
    trusted: Store | None
    client_auth: str
    versions: tuple[str, ...]
    suites: tuple[str, ...]
    mapping: str
    checks_hosts: bool
    names_may_change: bool
    hosts_may_change: bool

    @classmethod
    def of(
        cls, config: Config, listener: str, *, keys_of: Config | None = None, offers_of: Config | None = None
    ) -> TlsSettings:
        """With the keys of another configuration, or the versions and suites that it offers, if those are given. Raises
        TlsError."""

        def text(name: str, config: Config = config) -> str | None:
            value = config.for_listener(listener, name)
            return str(value) if value else None

        def several(name: str) -> tuple[str, ...]:
            value = (config if offers_of is None else offers_of).for_listener(listener, name)
            return value if isinstance(value, tuple) else ()

        return cls(
            listener=listener,
            keys=_keys(text if keys_of is None else partial(text, config=keys_of)),
            trusted=_trusted(text),
            client_auth="none" if config.needs_no_certificates(listener) else text("ssl.client.auth") or "none",
            versions=_versions(several("ssl.enabled.protocols")),
            suites=several("ssl.cipher.suites"),
            mapping=text("ssl.principal.mapping.rules") or "",
            checks_hosts=(text("ssl.endpoint.identification.algorithm") or "").lower() == "https",
            names_may_change=config.for_listener(listener, "ssl.allow.dn.changes") is True,
            hosts_may_change=config.for_listener(listener, "ssl.allow.san.changes") is True,
        )

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(store.path for store in (self.keys, self.trusted) if store is not None and store.path is not None)


def _keys(text: _Text) -> Store | None:
    path, key, chain = text("ssl.keystore.location"), text("ssl.keystore.key"), text("ssl.keystore.certificate.chain")
    passwords = text("ssl.keystore.password"), text("ssl.key.password")
    if key or chain:
        if path:
            raise TlsError("set either ssl.keystore.location or ssl.keystore.key, not both")
        if not (key and chain):
            raise TlsError("ssl.keystore.key and ssl.keystore.certificate.chain need each other")
        return Store("ssl.keystore.key", None, f"{key}\n{chain}", *passwords)
    return Store("ssl.keystore.location", path, None, *passwords) if path else None


def _trusted(text: _Text) -> Store | None:
    path, pem = text("ssl.truststore.location"), text("ssl.truststore.certificates")
    if pem:
        if path:
            raise TlsError("set either ssl.truststore.location or ssl.truststore.certificates, not both")
        return Store("ssl.truststore.certificates", None, pem)
    return Store("ssl.truststore.location", path, None, text("ssl.truststore.password")) if path else None


def _versions(wanted: tuple[str, ...]) -> tuple[str, ...]:
    old = sorted(set(wanted) - set(TLS_VERSIONS))
    if old:
        known = " and ".join(TLS_VERSIONS)
        raise TlsError(f"ssl.enabled.protocols: {', '.join(old)} cannot be used; kafkad has {known}")
    return tuple(version for version in TLS_VERSIONS if version in wanted) or TLS_VERSIONS


def openssl_name(suite: str) -> str:
    """Java's name of a suite of TLS 1.2, as OpenSSL calls it: TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 →
    ECDHE-RSA-AES256-GCM-SHA384."""
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    if not cipher:
        return suite
    cipher = cipher.replace("AES_128_", "AES128_").replace("AES_256_", "AES256_").replace("_CBC", "")
    cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    words = [cipher] if exchange == "RSA" else [exchange, cipher]
    return "-".join(words).replace("_", "-")
