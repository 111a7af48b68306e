"""A client of TLS 1.3 that makes its records itself once the handshake is over: what no library sends."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import socket
import ssl
import struct
import tempfile
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.certificates import Authority, client_context

_HANDSHAKE, _DATA = 22, 23
_HASHES = {"TLS_AES_256_GCM_SHA384": ("sha384", 32), "TLS_AES_128_GCM_SHA256": ("sha256", 16)}


class Records:
    """What a client with this secret sends, record after record."""

    def __init__(self, cipher: str, secret: bytes) -> None:
        self._hash, self._key_bytes = _HASHES[cipher]
        self._use(secret)

    def data(self, data: bytes) -> bytes:
        return self._record(data, _DATA)

    def key_update(self, *, asked: bool = True) -> bytes:
        """With `asked` the server has to change its key too, and say so."""
        record = self._record(b"\x18\0\0\1" + bytes([asked]), _HANDSHAKE)
        self._use(self._expanded(b"traffic upd", hashlib.new(self._hash).digest_size))
        return record

    def _use(self, secret: bytes) -> None:
        self._secret = secret
        self._key = AESGCM(self._expanded(b"key", self._key_bytes))
        self._vector = int.from_bytes(self._expanded(b"iv", 12))
        self._sequence = 0

    def _record(self, data: bytes, kind: int) -> bytes:
        head = b"\x17\x03\x03" + struct.pack(">H", len(data) + 17)
        nonce = (self._vector ^ self._sequence).to_bytes(12)
        self._sequence += 1
        return head + self._key.encrypt(nonce, data + bytes([kind]), head)

    def _expanded(self, label: bytes, size: int) -> bytes:
        """HKDF-Expand-Label of RFC 8446: one round of it is enough here."""
        info = struct.pack(">HB", size, len(label) + 6) + b"tls13 " + label + b"\0\1"
        return hmac.digest(self._secret, info, self._hash)[:size]


def _greeted(port: int, authority: Authority) -> tuple[socket.socket, Records]:
    context = client_context(authority, minimum_version=ssl.TLSVersion.TLSv1_3)
    with tempfile.TemporaryDirectory() as directory:
        secrets = Path(directory, "secrets")
        context.keylog_filename = str(secrets)
        connected = socket.socket()
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 * 1024)
        connected.connect(("127.0.0.1", port))
        tls = context.wrap_socket(connected, server_hostname="localhost")
        [secret] = [line.split()[2] for line in secrets.read_text().splitlines() if line.startswith("CLIENT_TRAFFIC")]
    agreed = tls.cipher()
    assert agreed is not None
    return socket.socket(fileno=tls.detach()), Records(agreed[0], bytes.fromhex(secret))


async def greeted(port: int, authority: Authority) -> tuple[socket.socket, Records]:
    """The bare socket, with what is sent over it from now on."""
    return await asyncio.to_thread(_greeted, port, authority)
