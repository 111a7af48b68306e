"""SCRAM as a client speaks it (RFC 5802, RFC 7677), without channel binding. Both sides prove the password.

Like Kafka, it takes names and passwords as they are, in UTF-8, and not in a normal form (no SASLprep).
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode

FEWEST_ITERATIONS = 4096
_NO_CHANNEL_BINDING = "n,,"


class ScramError(Exception):
    """The other side does not follow the protocol, refuses, or does not know the password."""


class Scram:
    """One conversation: send `first`, then `final` of what came back, then `verify` what comes back to that."""

    def __init__(self, hash_name: str, username: str, password: str, nonce: str, extensions: str = "") -> None:
        self._hash = hash_name
        self._password = password.encode()
        self._nonce = nonce
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}{extensions}"
        self._server_signature = b""

    @property
    def first(self) -> bytes:
        return (_NO_CHANNEL_BINDING + self._bare).encode()

    def final(self, server_first: bytes) -> bytes:
        """The proof of the password, for the server's nonce, salt and count of iterations."""
        fields = _fields(server_first)
        nonce = fields.get("r", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramError("its nonce does not continue kctl's")
        salt, iterations = _base64(fields, "s"), _count(fields.get("i", ""))
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        unproved = f"c={b64encode(_NO_CHANNEL_BINDING.encode()).decode()},r={nonce}"
        said = ",".join([self._bare, server_first.decode(), unproved]).encode()
        client_key = self._keyed(salted, b"Client Key")
        signature = self._keyed(hashlib.new(self._hash, client_key).digest(), said)
        self._server_signature = self._keyed(self._keyed(salted, b"Server Key"), said)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{unproved},p={b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        """Raises unless the server has proved that it knows the password too."""
        fields = _fields(server_final)
        if "e" in fields:
            raise ScramError(fields["e"])
        if not hmac.compare_digest(_base64(fields, "v"), self._server_signature):
            raise ScramError("it does not know the password itself: not the broker it says it is?")

    def _keyed(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self._hash)


def _fields(message: bytes) -> dict[str, str]:
    try:
        text = message.decode()
    except UnicodeDecodeError as error:
        raise ScramError("its message is not UTF-8") from error
    return {name: value for name, _, value in (part.partition("=") for part in text.split(","))}


def _base64(fields: dict[str, str], name: str) -> bytes:
    try:
        return b64decode(fields[name], validate=True)
    except (KeyError, ValueError) as error:
        raise ScramError(f'its message has no "{name}" in base64') from error


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > _DIGITS or int(text) < FEWEST_ITERATIONS:
        raise ScramError(
            f'it asks for "{text[: _DIGITS + 1]}" iterations: fewer than {FEWEST_ITERATIONS} give the password away, '
            f"and a server that asks for {10**_DIGITS} or more makes kctl work for nothing"
        )
    return int(text)


_DIGITS = 6
"""Half a second of work."""
