"""The clusters of a job: the same access for kctl's own requests and, as settings, for the Kafka client in Spark."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kafkad_etl.errors import EtlError, EtlExit, exit_of
from kafkad_etl.job import Kafka, Scalar, Security
from kafkad_etl.messages import Client
from kctl.errors import Exit, KctlError
from kctl.reach.access import Access, Secret, access_of, resolve
from kctl.reach.connection import Address
from kctl.reach.session import Session
from kctl.settings import Settings

PROBE_SECONDS = 5.0
"""How long brokers may take to answer at all, whatever --timeout says of later requests."""

_MODULES = "org.apache.kafka.common.security"


class Clusters:
    """Sessions on all clusters that a job names, opened when they are asked for. A context manager, which closes them.

    `base` is where relative paths of certificates begin: the job file's directory."""

    def __init__(self, settings: Settings, base: Path, environment: Mapping[str, str] = os.environ) -> None:
        self.settings = settings
        self._base = base
        self._environment = environment
        self._sessions: dict[Access, Session] = {}
        self._silent: dict[Access, EtlError] = {}
        """Where nobody answered: it is waited for once."""

    def access(self, kafka: Kafka) -> Access:
        return access_to(kafka, self.settings, self._base, self._environment)

    def session(self, kafka: Kafka) -> Session:
        """Probed: EtlError CLUSTER within five seconds if nobody answers."""
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
        """One for a thread of its own; its user closes it."""
        return Session(own(self.settings), self.access(kafka))

    def client(self, kafka: Kafka, client_id: str, *, options: Mapping[str, Scalar] | None = None) -> Client:
        """`options`: what a sink says beside its cluster's own."""
        return client_of(self.access(kafka), client_id) | texts(kafka.options) | texts(options or {})

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()

    def __enter__(self) -> Clusters:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def own(settings: Settings) -> Settings:
    """A copy: what one session does with its time-out concerns no other one."""
    copy = Settings()
    for name in Settings.__slots__:
        setattr(copy, name, getattr(settings, name))
    return copy


def access_to(kafka: Kafka, settings: Settings, base: Path, environment: Mapping[str, str]) -> Access:
    """Neither a context nor brokers in the job: as for any command of kctl, by -b, -c and the current context."""
    if not kafka.cluster and not kafka.bootstrap:
        return resolve(settings, environment)
    if settings.bootstrap or settings.context or settings.command_config or settings.extra:
        raise EtlError(
            "the job names its cluster, and so does the command line (-b, -c, -X or --command-config)",
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
    """As a context has them."""
    files = {"ca": security.ca, "certificate": security.cert, "key": security.key}
    return {
        "security_protocol": security.protocol,
        "mechanism": security.mechanism,
        "username": security.username,
        "password": security.password,
        **{name: str(base / Path(file).expanduser()) for name, file in files.items() if file},
    }


def servers(access: Access) -> str:
    return ",".join(str(Address(*pair)) for pair in access.bootstrap)


def probe(session: Session) -> None:
    """EtlError CLUSTER if nobody answers, with all that was tried."""
    patience = session.settings.timeout
    session.settings.timeout = min(patience, PROBE_SECONDS)
    try:
        session.metadata(())
    except KctlError as error:
        if error.exit_code is not Exit.UNREACHABLE:
            raise EtlError(f"{servers(session.access)}: {error.what}", exit_of(error), hints=error.hints) from error
        hints = error.hints if error.what == "no broker answered" else (error.what, *error.hints)
        raise EtlError(f"no broker answers at {servers(session.access)}", EtlExit.CLUSTER, hints=hints) from error
    finally:
        session.settings.timeout = patience


# --- the same for Kafka's own client


def client_of(access: Access, client_id: str) -> Client:
    """As kafka-clients in Spark takes them. Certificates go along as PEM, so that executors need no files."""
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
    """As Java writes them: true, not True."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}


def _jaas(access: Access) -> str:
    if access.mechanism == "OAUTHBEARER":
        raise EtlError(
            "a token for OAUTHBEARER cannot be handed to Spark's Kafka client",
            EtlExit.USAGE,
            hints=("log in with SCRAM, PLAIN or a certificate",),
        )
    module = "plain.PlainLoginModule" if access.mechanism == "PLAIN" else "scram.ScramLoginModule"
    fields = {"username": access.username, "password": access.password()}
    if access.tokenauth:
        fields["tokenauth"] = "true"
    return f"{_MODULES}.{module} required {' '.join(f'{name}={_quoted(text)}' for name, text in fields.items())};"


_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"})


def _quoted(text: str) -> str:
    """A string as JAAS reads it: a quoted one of java.io.StreamTokenizer, which ends at a bare line break."""
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
    """Java has authorities of its own, which do not know those that a machine's owner has added."""
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
    """In PKCS#8, which is all that Java reads, and not encrypted: not every Java knows every cipher of openssl's."""
    found = _blocks(pem, "PRIVATE KEY") or _blocks(_decrypted(pem, password() if password else ""), "PRIVATE KEY")
    if found:
        return found[0]
    raise EtlError(
        f"{name} has no private key that can be handed to Java",
        EtlExit.USAGE,
        hints=(
            "is its password right, and openssl installed?",
            "or convert it: openssl pkcs8 -topk8 -nocrypt -in KEY.pem -out KEY8.pem",
        ),
    )


def _decrypted(pem: str, password: str) -> str:
    """The password goes through a pipe: arguments can be seen by everybody."""
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
