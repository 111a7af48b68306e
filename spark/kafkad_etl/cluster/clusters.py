"""The clusters of a job: sessions for kctl's own requests, and the same access as settings for Spark's Kafka client."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kafkad_etl.errors import EtlError, EtlExit, exit_of
from kafkad_etl.facts import local_path
from kafkad_etl.job import Kafka, Scalar, Security
from kafkad_etl.messages import Client
from kctl.errors import Exit, KctlError
from kctl.reach.access import Access, Secret, access_of, resolve
from kctl.reach.connection import Address
from kctl.reach.session import Session
from kctl.settings import Settings

PROBE_SECONDS = 5.0
"""Time limit for the first answer from any broker, whatever --timeout says about later requests."""

_MODULES = "org.apache.kafka.common.security"


class Clusters:
    """Opens sessions on all clusters that a job names, on demand. A context manager, which closes them.

    `base`, the job file's directory, is where relative paths to certificates start.
    """

    def __init__(self, settings: Settings, base: Path, environment: Mapping[str, str] = os.environ) -> None:
        self.settings = settings
        self._base = base
        self._environment = environment
        self._sessions: dict[Access, Session] = {}
        self._silent: dict[Access, EtlError] = {}
        """Clusters on which no broker answered; each is waited for only once."""

    def access(self, kafka: Kafka) -> Access:
        return access_to(kafka, self.settings, self._base, self._environment)

    def session(self, kafka: Kafka) -> Session:
        """A session that has been probed: raises EtlError CLUSTER within five seconds if no broker answers."""
        access = self.access(kafka)
        session = self._sessions.get(access)
        if session is None:
            session = self._sessions[access] = Session(own(self.settings), access)
            try:
                probe(session)
            except EtlError as error:
                self._silent[access] = error
        if access in self._silent:
            raise self._silent[access]
        return session

    def fresh(self, kafka: Kafka) -> Session:
        """A new session for use in another thread; its user closes it."""
        return Session(own(self.settings), self.access(kafka))

    def client(self, kafka: Kafka, client_id: str, *, options: Mapping[str, Scalar] | None = None) -> Client:
        """Settings for a Kafka client. `options` are a sink's, on top of those of its cluster."""
        return client_of(self.access(kafka), client_id) | texts(kafka.options) | texts(options or {})

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()

    def __enter__(self) -> Clusters:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def own(settings: Settings) -> Settings:
    """A copy of the settings, so that changing one session's timeout does not affect another."""
    copy = Settings()
    for name in Settings.__slots__:
        setattr(copy, name, getattr(settings, name))
    return copy


def access_to(kafka: Kafka, settings: Settings, base: Path, environment: Mapping[str, str]) -> Access:
    """The access to a job's cluster. A job that names no cluster uses -b, -c or the current context, as any kctl
    command does."""
    if not kafka.cluster and not kafka.bootstrap:
        return resolve(settings, environment)
    if settings.bootstrap or settings.context or settings.command_config or settings.extra:
        raise EtlError(
            "both the job and the command line (-b, -c, -X or --command-config) name a cluster",
            EtlExit.USAGE,
            hints=("to run the job elsewhere: --set kafka.bootstrap=HOST:PORT or --set kafka.cluster=CONTEXT",),
        )
    if kafka.cluster:
        named = own(settings)
        named.context = kafka.cluster
        return resolve(named, environment)
    layer: dict[str, object] = {"bootstrap": ",".join(kafka.bootstrap)}
    return access_of([layer | _fields(kafka.security or Security(), base)])


def _fields(security: Security, base: Path) -> dict[str, object]:
    """Security settings under the names that contexts use."""
    files = {"ca": security.ca, "certificate": security.cert, "key": security.key}
    return {
        "security_protocol": security.protocol,
        "mechanism": security.mechanism,
        "username": security.username,
        "password": security.password,
        **{name: str(base / local_path(file)) for name, file in files.items() if file},
    }


def servers(access: Access) -> str:
    return ",".join(str(Address(*pair)) for pair in access.bootstrap)


def probe(session: Session) -> None:
    """Raises EtlError CLUSTER, with everything that was tried, if no broker answers."""
    patience = session.settings.timeout
    session.settings.timeout = min(patience, PROBE_SECONDS)
    try:
        session.metadata(())
    except KctlError as error:
        if error.exit_code is not Exit.UNREACHABLE:
            raise EtlError(f"{servers(session.access)}: {error.what}", exit_of(error), hints=error.hints) from error
        hints = error.hints if error.what == "no broker answered" else (error.what, *error.hints)
        raise EtlError(f"no broker is responding at {servers(session.access)}", EtlExit.CLUSTER, hints=hints) from error
    finally:
        session.settings.timeout = patience


# --- the same for Kafka's own client


def client_of(access: Access, client_id: str) -> Client:
    """Settings for the kafka-clients library in Spark. Certificates are passed as PEM text, so executors need no
    files."""
    client = {
        "bootstrap.servers": servers(access),
        "client.id": client_id,
        "security.protocol": access.security_protocol,
    }
    if access.has_sasl:
        client |= {"sasl.mechanism": access.mechanism, "sasl.jaas.config": _jaas(access)}
    if access.has_tls:
        client |= _tls(access)
    return client


def texts(options: Mapping[str, Scalar]) -> Client:
    """Options as Java writes them: true, not True."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}


def _jaas(access: Access) -> str:
    if access.mechanism in ("OAUTHBEARER", "GSSAPI"):
        what = "an OAUTHBEARER token" if access.mechanism == "OAUTHBEARER" else "a login with GSSAPI"
        raise EtlError(
            f"{what} cannot be passed to Spark's Kafka client",
            EtlExit.USAGE,
            hints=("use SCRAM, PLAIN or a client certificate",),
        )
    module = "plain.PlainLoginModule" if access.mechanism == "PLAIN" else "scram.ScramLoginModule"
    fields = {"username": access.username, "password": access.password()}
    if access.tokenauth:
        fields["tokenauth"] = "true"
    return f"{_MODULES}.{module} required {' '.join(f'{name}={_quoted(text)}' for name, text in fields.items())};"


_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"})


def _quoted(text: str) -> str:
    """A JAAS string: quoted as java.io.StreamTokenizer expects, which ends a string at a bare line break."""
    return f'"{text.translate(_ESCAPES)}"'


def _tls(access: Access) -> Client:
    from kctl.reach.stores import pem_of

    client: Client = {}
    if not access.check_hostname:
        client["ssl.endpoint.identification.algorithm"] = ""
    if access.ca:
        pem = pem_of(access.ca, access.ca_password, ["-nokeys"])
        client |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": "".join(_blocks(pem, "CERTIFICATE"))}
    elif bundle := _system_bundle():
        client |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": bundle}
    if access.certificate:
        client |= _identity(access)
    return client


def _system_bundle() -> str:
    """The system's CA bundle, since Java's own does not include CAs added by the machine's owner."""
    import ssl

    return ssl.get_default_verify_paths().cafile or ""


def _identity(access: Access) -> Client:
    from kctl.reach.stores import pem_of

    pem = pem_of(access.certificate, access.key_password, [])
    key = pem_of(access.key, access.key_password, []) if access.key else pem
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "".join(_blocks(pem, "CERTIFICATE")),
        "ssl.keystore.key": _plain_key(key, access.key or access.certificate, access.key_password),
    }


def _blocks(pem: str, name: str) -> list[str]:
    import re

    return [f"{block}\n" for block in re.findall(rf"-----BEGIN {name}-----.*?-----END {name}-----", pem, re.DOTALL)]


def _plain_key(pem: str, name: str, password: Secret) -> str:
    """The private key in PKCS#8, the only form Java reads, and decrypted, since not every Java supports every
    openssl cipher."""
    found = _blocks(pem, "PRIVATE KEY") or _blocks(_decrypted(pem, password() if password else ""), "PRIVATE KEY")
    if found:
        return found[0]
    raise EtlError(
        f"{name} has no private key that Java can read",
        EtlExit.USAGE,
        hints=(
            "check its password, and that openssl is installed",
            "or convert it: openssl pkcs8 -topk8 -nocrypt -in KEY.pem -out KEY8.pem",
        ),
    )


def _decrypted(pem: str, password: str) -> str:
    """Decrypts with openssl. The password goes through a pipe, because arguments are visible to everyone."""
    import subprocess

    reading, writing = os.pipe()
    try:
        os.write(writing, f"{password}\n".encode())
        command = ["openssl", "pkcs8", "-topk8", "-nocrypt", "-passin", f"fd:{reading}"]
        done = subprocess.run(command, input=pem, capture_output=True, text=True, check=False, pass_fds=(reading,))
        return done.stdout
    except FileNotFoundError:
        return ""
    finally:
        os.close(reading)
        os.close(writing)
