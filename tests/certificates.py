"""Certificates for tests, made anew each time: they expire."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
DAY = timedelta(days=1)


def name_of(common_name: str, organization: str | None = None) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)] if organization else []
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


@dataclass(frozen=True)
class Issued:
    """A certificate with its key and the authority's certificate."""

    certificate: x509.Certificate
    key: Key
    issuer: x509.Certificate

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def chain_pem(self) -> str:
        return self.certificate_pem + self.issuer.public_bytes(Encoding.PEM).decode()

    def key_pem(self, password: str | None = None, form: PrivateFormat = PrivateFormat.PKCS8) -> str:
        locked: KeySerializationEncryption = NoEncryption()
        if password is not None:
            locked = BestAvailableEncryption(password.encode())
        return self.key.private_bytes(Encoding.PEM, form, locked).decode()

    @property
    def pem(self) -> str:
        return self.key_pem() + self.chain_pem

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    def pkcs12(self, password: str, *, alias: str = "broker") -> bytes:
        from cryptography.hazmat.primitives.serialization import pkcs12

        locked = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(alias.encode(), self.key, self.certificate, [self.issuer], locked)

    def write(self, path: Path) -> Path:
        path.write_text(self.pem)
        return path


class Authority:
    """Signs; its own certificate is what others trust."""

    def __init__(self, name: str = "Test CA") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = name_of(name)
        builder = _builder(self.name, self.name, self.key, timedelta(days=-1), timedelta(days=365))
        self.certificate = builder.add_extension(x509.BasicConstraints(True, None), critical=True).sign(
            self.key, SHA256()
        )

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def write(self, path: Path) -> Path:
        path.write_text(self.pem)
        return path

    def issue(
        self,
        subject: str | x509.Name = "localhost",
        *,
        names: Sequence[str] = ("localhost", "127.0.0.1"),
        since: timedelta = -DAY,
        until: timedelta = 90 * DAY,
        usages: Sequence[x509.ObjectIdentifier] = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH),
        key: Key | None = None,
    ) -> Issued:
        key = key or ec.generate_private_key(ec.SECP256R1())
        subject = name_of(subject) if isinstance(subject, str) else subject
        builder = _builder(subject, self.name, key, since, until)
        builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), False)
        if usages:
            builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        return Issued(builder.sign(self.key, SHA256()), key, self.certificate)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: Key, since: timedelta, until: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + since)
        .not_valid_after(now + until)
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def server_context(issued: Issued, directory: Path, **attributes: Any) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.write(directory / f"{issued.certificate.serial_number}.pem"))
    for name, value in attributes.items():
        setattr(context, name, value)
    return context


def client_context(
    authority: Authority, issued: Issued | None = None, directory: Path | None = None, **attributes: Any
) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority.pem)
    if issued is not None:
        assert directory is not None
        context.load_cert_chain(issued.write(directory / f"{issued.certificate.serial_number}.pem"))
    for name, value in attributes.items():
        setattr(context, name, value)
    return context
