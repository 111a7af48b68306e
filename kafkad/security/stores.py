"""Stores of keys and certificates: PEM, PKCS12 and Java's JKS, told apart by their content and not by their name.

PEM is read by OpenSSL itself, JKS here, PKCS12 by `cryptography`, which is imported only for that. Private keys go to
OpenSSL through a file in memory, never through one on a disk.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
import re
import ssl
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from kafkad.config.files import content_of
from kafkad.security.der import OCTETS, elements, oid_text

_PEM = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_JKS, _JCEKS = b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce"
_INT, _LENGTH = Struct(">I"), Struct(">H")
_KEY_ENTRY, _TRUSTED_ENTRY = 1, 2
_SUN_KEY_PROTECTOR = "1.3.6.1.4.1.42.2.17.1.1"
_DIGEST = 20


class StoreError(ValueError):
    """A store that cannot be used; says which, why, and what to do."""


class UnreadableError(StoreError):
    """The system does not let a store be read: perhaps it will another time, as when there are too many open files."""


class Store(NamedTuple):
    """`pem` is what stands in the settings themselves, instead of a file. `setting` is the setting that names it."""

    setting: str
    path: str | None = None
    pem: str | None = None
    password: str | None = None
    key_password: str | None = None

    def __str__(self) -> str:
        return self.setting if self.path is None else f"{self.setting}={self.path}"


class Keys(NamedTuple):
    """A private key, in PEM and perhaps locked by `password`, and the certificates for it, its own first, in DER."""

    key: bytes
    password: str | None
    chain: tuple[bytes, ...]

    def load(self, context: ssl.SSLContext) -> None:
        """Raises ssl.SSLError if the key cannot be opened, or is not the certificate's; OSError without memory or a
        descriptor for the file."""
        pem = self.key + b"\n" + b"".join(map(pem_of, self.chain))
        with _in_memory(pem) as path:
            context.load_cert_chain(path, password=lambda: self.password or "")


def pem_of(der: bytes) -> bytes:
    return ssl.DER_cert_to_PEM_cert(der).encode()


def read_keys(store: Store) -> Keys:
    """Raises StoreError."""
    data = _content(store)
    kind = _kind(store, data)
    if kind == "PEM":
        return _keys_of_pem(store, data)
    if kind == "JKS":
        return _keys_of_jks(store, data)
    return _keys_of_pkcs12(store, data)


def read_trusted(store: Store) -> tuple[bytes, ...]:
    """The certificates, in DER. Raises StoreError."""
    data = _content(store)
    kind = _kind(store, data)
    if kind == "PEM":
        found = _certificates(store, data)
    elif kind == "JKS":
        found = tuple(entry.chain[0] for entry in _entries(store, data) if entry.key is None)
    else:
        found = _read_pkcs12(store, data)[1]
    if not found:
        raise StoreError(f"{store}: no trusted certificate in it")
    return found


def _content(store: Store) -> bytes:
    if store.path is None:
        return (store.pem or "").encode()
    try:
        return content_of(store.path)
    except OSError as error:
        raise UnreadableError(f"{store}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise StoreError(f"{store}: cannot be read: {error}") from error


def _kind(store: Store, data: bytes) -> str:
    if b"-----BEGIN" in data:
        return "PEM"
    if data.startswith(_JKS):
        return "JKS"
    if data.startswith(b"\x30"):
        return "PKCS12"
    if data.startswith(_JCEKS):
        target = f"{store.path}.p12"
        raise StoreError(
            f"{store}: a JCEKS store, which only Java reads; convert it: "
            f"keytool -importkeystore -srckeystore {store.path} -destkeystore {target} -deststoretype PKCS12"
        )
    raise StoreError(f"{store}: neither PEM nor PKCS12 nor JKS")


@contextlib.contextmanager
def _in_memory(data: bytes) -> Iterator[str]:
    fd = os.memfd_create("key", os.MFD_CLOEXEC)
    try:
        os.write(fd, data)
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


# -- PEM ---------------------------------------------------------------------------------------------------------------


def _keys_of_pem(store: Store, data: bytes) -> Keys:
    keys = [_block(kind, body) for kind, body in _PEM.findall(data) if kind.endswith(b"PRIVATE KEY")]
    if len(keys) != 1:
        raise StoreError(f"{store}: {len(keys) or 'no'} private keys in it, where there has to be one")
    chain = _certificates(store, data)
    if not chain:
        raise StoreError(f"{store}: no certificate in it")
    return Keys(keys[0], store.key_password or store.password, chain)


def _certificates(store: Store, data: bytes) -> tuple[bytes, ...]:
    found = []
    for kind, body in _PEM.findall(data):
        if kind in (b"CERTIFICATE", b"X509 CERTIFICATE", b"TRUSTED CERTIFICATE"):
            try:
                found.append(base64.b64decode(b"".join(body.split()), validate=True))
            except ValueError as error:
                raise StoreError(f"{store}: a certificate in it is damaged: {error}") from error
    return tuple(found)


def _block(kind: bytes, body: bytes) -> bytes:
    """In a .properties file it often stands on one line, which OpenSSL does not read."""
    if b":" in body:  # the headers of an old locked key: its lines matter
        text = body.strip()
    else:
        joined = b"".join(body.split())
        text = b"\n".join(joined[at : at + 64] for at in range(0, len(joined), 64))
    return b"-----BEGIN %b-----\n%b\n-----END %b-----\n" % (kind, text, kind)


# -- PKCS12 ------------------------------------------------------------------------------------------------------------


def _keys_of_pkcs12(store: Store, data: bytes) -> Keys:
    key, chain = _read_pkcs12(store, data)
    if key is None or not chain:
        raise StoreError(f"{store}: no private key with its certificate in it")
    return Keys(key, None, chain)


def _read_pkcs12(store: Store, data: bytes) -> tuple[bytes | None, tuple[bytes, ...]]:
    """The key, if there is one, and all certificates, that of the key first."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError as error:
        advice = "install kafkad's extra `security`, or convert it: openssl pkcs12 -in FILE -out FILE.pem"
        raise StoreError(f"{store}: PKCS12 needs the package cryptography; {advice}") from error
    password = None if store.password is None else store.password.encode()
    try:
        found = pkcs12.load_pkcs12(data, password)
    except (ValueError, TypeError) as error:
        why = "its password is wrong" if "password" in str(error).lower() else str(error)
        raise StoreError(f"{store}: {why}") from error
    key = None
    if found.key is not None:
        key = found.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    certificates = [*([found.cert] if found.cert else []), *found.additional_certs]
    return key, tuple(each.certificate.public_bytes(serialization.Encoding.DER) for each in certificates)


# -- JKS ---------------------------------------------------------------------------------------------------------------


class _Entry(NamedTuple):
    """`key` is locked; None in an entry that is a trusted certificate."""

    key: bytes | None
    chain: tuple[bytes, ...]


def _keys_of_jks(store: Store, data: bytes) -> Keys:
    entries = [entry for entry in _entries(store, data) if entry.key is not None]
    if not entries:
        raise StoreError(f"{store}: no private key in it")
    locked, chain = entries[0]
    assert locked is not None
    key = _unlocked(store, locked)
    pem = base64.encodebytes(key)
    return Keys(b"-----BEGIN PRIVATE KEY-----\n" + pem + b"-----END PRIVATE KEY-----\n", None, chain)


def _entries(store: Store, data: bytes) -> list[_Entry]:
    """Without a password its integrity is not checked, which Java allows for trusted certificates."""
    body, digest = data[:-_DIGEST], data[-_DIGEST:]
    if store.password is not None:
        seal = hashlib.sha1(_wide(store.password) + b"Mighty Aphrodite" + body, usedforsecurity=False).digest()
        if not hmac.compare_digest(seal, digest):
            raise StoreError(f"{store}: its password is wrong, or it is damaged")
    reader = _Reader(body, 4)
    try:
        version, count = reader.number(), reader.number()
        if version not in (1, 2):
            raise StoreError(f"{store}: a JKS store of version {version}")
        return [reader.entry(version) for _ in range(count)]
    except (IndexError, ValueError) as error:
        raise StoreError(f"{store}: damaged: {error}") from error


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def number(self) -> int:
        (value,) = _INT.unpack(self.take(4))
        return int(value)

    def take(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        if len(found) < size:
            raise ValueError("it ends too early")
        self._at += size
        return found

    def text(self) -> bytes:
        (size,) = _LENGTH.unpack(self.take(2))
        return self.take(size)

    def entry(self, version: int) -> _Entry:
        kind = self.number()
        self.text()  # its alias
        self.take(8)  # its date
        if kind == _TRUSTED_ENTRY:
            return _Entry(None, (self.certificate(version),))
        if kind != _KEY_ENTRY:
            raise ValueError(f"an entry of kind {kind}")
        key = self.take(self.number())
        return _Entry(key, tuple(self.certificate(version) for _ in range(self.number())))

    def certificate(self, version: int) -> bytes:
        if version == 2:
            self.text()  # X.509
        return self.take(self.number())


def _unlocked(store: Store, locked: bytes) -> bytes:
    """Java's own protection of keys: combined with a chain of SHA-1 of the password."""
    password = store.key_password or store.password
    if password is None:
        raise StoreError(f"{store}: its private key is locked; set the password of the store or of the key")
    try:
        [whole] = elements(locked)
        algorithm, data = elements(whole.content)
        kind = oid_text(next(elements(algorithm.content)).content)
    except ValueError as error:
        raise StoreError(f"{store}: its private key is damaged: {error}") from error
    if kind != _SUN_KEY_PROTECTOR or data.tag != OCTETS:
        raise StoreError(f"{store}: its private key is locked by {kind}, which only Java reads; convert it to PKCS12")
    wide = _wide(password)
    block, hidden, check = data.content[:_DIGEST], data.content[_DIGEST:-_DIGEST], data.content[-_DIGEST:]
    stream = bytearray()
    while len(stream) < len(hidden):
        block = hashlib.sha1(wide + block, usedforsecurity=False).digest()
        stream += block
    key = bytes(one ^ other for one, other in zip(hidden, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(wide + key, usedforsecurity=False).digest(), check):
        raise StoreError(f"{store}: the password of its private key is wrong")
    return key


def _wide(password: str) -> bytes:
    return password.encode("utf-16-be")
