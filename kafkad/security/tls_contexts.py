"""Makes OpenSSL's contexts from TLS settings, and checks the keys and certificates that they name."""

from __future__ import annotations

import ssl
from datetime import datetime, timedelta
from typing import NamedTuple

from kafkad.security.certificates import Certificate, subject_of
from kafkad.security.principals import PrincipalMapping
from kafkad.security.stores import Keys, StoreError, UnreadableError, pem_of, read_keys, read_trusted
from kafkad.security.tls_settings import TLS_1_3_SUITES, TlsError, TlsSettings, openssl_name

_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


class Material(NamedTuple):
    """The contents of a listener's stores; `chain` begins with its own certificate."""

    settings: TlsSettings
    keys: Keys | None
    chain: tuple[Certificate, ...]
    trusted: tuple[bytes, ...] | None

    @classmethod
    def read(cls, settings: TlsSettings) -> Material:
        """Raises TlsError or StoreError."""
        keys = read_keys(settings.keys) if settings.keys is not None else None
        trusted = read_trusted(settings.trusted) if settings.trusted is not None else None
        try:
            chain = tuple(map(Certificate.of, keys.chain)) if keys is not None else ()
        except ValueError as error:
            raise StoreError(f"{settings.keys}: {error}") from error
        return cls(settings, keys, chain, trusted)

    def problem(self, now: datetime) -> str | None:
        """Why clients will refuse these certificates, although OpenSSL loads them."""
        for certificate in self.chain:
            if certificate.expires <= now:
                return f"{self.settings.keys}: the certificate of {certificate.subject} expired on {_day(certificate)}"
            if certificate.starts > now:
                starts = f"{certificate.starts:%Y-%m-%d %H:%M} UTC"
                return f"{self.settings.keys}: the certificate of {certificate.subject} is not valid before {starts}"
        for one, other in zip(self.chain, self.chain[1:], strict=False):
            if one.issuer != other.subject:
                return f"{self.settings.keys}: {other.subject} follows {one.subject}, but {one.issuer} has issued that"
        return None

    def refused_change(self, before: Material) -> str | None:
        """Why it may not take the place of `before`, as Kafka has it: clients know the broker by its names."""
        if not (self.chain and before.chain):
            return None
        new, old = self.chain[0], before.chain[0]
        if new.subject != old.subject and not self.settings.names_may_change:
            return (
                f"{self.settings.keys}: its certificate is of {new.subject}, the one in use of {old.subject}; "
                "set ssl.allow.dn.changes if that is right"
            )
        if not old.names <= new.names and not self.settings.hosts_may_change:
            return (
                f"{self.settings.keys}: its certificate is for {_listed(new.names)}, the one in use for "
                f"{_listed(old.names)}; set ssl.allow.san.changes if that is right"
            )
        return None

    @property
    def shown(self) -> str:
        """The certificate that peers see, in a few words; for material with a chain."""
        own = self.chain[0]
        return f"the certificate of {own.subject}, issued by {own.issuer}, which expires on {_day(own)}"

    def remaining(self, now: datetime) -> timedelta | None:
        """The time until the first certificate of the chain expires; None without a chain."""
        return min((certificate.expires - now for certificate in self.chain), default=None)


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names)) or "no host"


def _day(certificate: Certificate) -> str:
    return f"{certificate.expires:%Y-%m-%d}"


class Users:
    """From a certificate in DER to the user that it names. ValueError if it is no certificate, or no rule matches."""

    def __init__(self, rules: str) -> None:
        self._mapping = PrincipalMapping.of(rules)

    def __call__(self, der: bytes) -> str:
        return self._mapping.user_of(subject_of(der))


def users_of(settings: TlsSettings) -> Users:
    """Raises TlsError."""
    try:
        return Users(settings.mapping)
    except ValueError as error:
        raise TlsError(f"ssl.principal.mapping.rules: {error}") from error


def server_context(material: Material) -> ssl.SSLContext:
    """Raises TlsError or StoreError."""
    settings = material.settings
    if material.keys is None:
        raise TlsError("ssl.keystore.location, or ssl.keystore.key with ssl.keystore.certificate.chain, is not set")
    context = _context(ssl.PROTOCOL_TLS_SERVER, material)
    context.num_tickets = 0  # it would let a client in whose certificate is not trusted any more, and saves nothing
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    if context.verify_mode:
        if material.trusted is None:
            raise TlsError(
                f"ssl.client.auth={settings.client_auth} needs ssl.truststore.location or ssl.truststore.certificates: "
                "who has issued the certificates of clients?"
            )
        _trust(context, material)
    return context


def client_context(material: Material) -> ssl.SSLContext:
    """For connections to other brokers. Raises TlsError or StoreError."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, material)
    context.check_hostname = material.settings.checks_hosts
    if material.trusted is None:
        context.load_default_certs()
    else:
        _trust(context, material)
    return context


def _context(protocol: int, material: Material) -> ssl.SSLContext:
    settings = material.settings
    context = ssl.SSLContext(protocol)
    context.minimum_version = _VERSIONS[settings.versions[0]]
    context.maximum_version = _VERSIONS[settings.versions[-1]]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    if settings.suites:
        _choose(context, settings)
    if material.keys is not None:
        try:
            material.keys.load(context)
        except ssl.SSLError as error:
            raise TlsError(f"{settings.keys}: {_complaint(error)}") from error
        except OSError as error:
            raise UnreadableError(f"{settings.keys}: cannot be handed to OpenSSL: {error.strerror}") from error
    return context


def _choose(context: ssl.SSLContext, settings: TlsSettings) -> None:
    names = {suite: openssl_name(suite) for suite in settings.suites if suite not in TLS_1_3_SUITES}
    for suite, name in names.items():
        try:
            context.set_ciphers(name)
        except ssl.SSLError as error:
            raise TlsError(f"ssl.cipher.suites: OpenSSL has no {suite}") from error
    left_out = TLS_1_3_SUITES - set(settings.suites)
    if "TLSv1.3" in settings.versions and left_out:
        raise TlsError(
            f"ssl.cipher.suites leaves out {', '.join(sorted(left_out))}: kafkad cannot choose among those of TLS 1.3; "
            "name them too, or set ssl.enabled.protocols=TLSv1.2"
        )
    if names:
        context.set_ciphers(":".join(names.values()))
    elif "TLSv1.2" in settings.versions:
        raise TlsError("ssl.cipher.suites has none of TLS 1.2, which is among ssl.enabled.protocols")


def _trust(context: ssl.SSLContext, material: Material) -> None:
    """Every certificate in the store is trusted, also one that another has issued: so does Java."""
    try:
        context.load_verify_locations(cadata=b"".join(map(pem_of, material.trusted or ())).decode())
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).lower().replace("_", " ")
        raise TlsError(f"{material.settings.trusted}: a certificate in it is damaged: {reason}") from error
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _complaint(error: ssl.SSLError) -> str:
    reason = (error.reason or "").lower().replace("_", " ")
    if reason == "key values mismatch":
        return "the private key is not that of the certificate"
    if not reason or "decrypt" in reason or "password" in reason or "pem lib" in reason:
        return "its private key, or a certificate in it, cannot be read; is the password of the key right?"
    return reason


def refuses_itself(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> str | None:
    """Why one with the `client` context could not connect to one with that of the `server`. With both of one broker, it
    says whether brokers can connect to each other: those of a cluster are alike."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server, server_hostname=host)
    other = server.wrap_bio(to_server, to_client, server_side=True)
    done: set[ssl.SSLObject] = set()
    for _ in range(10):
        for end in (one, other):
            try:
                end.do_handshake()
                done.add(end)
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                return getattr(error, "verify_message", None) or (error.reason or str(error)).lower().replace("_", " ")
        if len(done) == 2:
            break
    return None
