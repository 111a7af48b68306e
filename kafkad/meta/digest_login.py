"""The client's side of SASL's DIGEST-MD5 (RFC 2831), as ZooKeeper's servers use it.

MD5 is what ZooKeeper has beside Kerberos: without TLS around it, a listener can try passwords at leisure.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import NamedTuple

_URI = "zookeeper/zk-sasl-md5"
"""The same for every server."""
_COUNT = "00000001"
_FIELD = re.compile(r'([\w-]+)=(?:"((?:[^"\\]|\\.)*)"|([^",]*))')


class ZooKeeperLogin(NamedTuple):
    username: str
    password: str

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.username!r})"


class DigestError(Exception):
    """The server does not follow the protocol, or does not know the password."""


class DigestLogin:
    """One exchange: answers of the server in, messages of the client out."""

    def __init__(self, login: ZooKeeperLogin, nonce: str) -> None:
        self._login = login
        self._nonce = nonce
        self._proof = ""

    def respond(self, challenge: bytes) -> bytes | None:
        """To the server's challenge; None when it has shown that it knows the password too."""
        fields = {
            name: re.sub(r"\\(.)", r"\1", text) or bare for name, text, bare in _FIELD.findall(challenge.decode())
        }
        if "rspauth" in fields:
            if not hmac.compare_digest(fields["rspauth"], self._proof):
                raise DigestError("it does not know the password itself")
            return None
        if "nonce" not in fields or "auth" not in fields.get("qop", "auth").split(","):
            raise DigestError(f"it asks for a login in a way that is not known: {sorted(fields)}")
        realm, theirs = fields.get("realm", ""), fields["nonce"]
        secret = _md5(f"{self._login.username}:{realm}:{self._login.password}".encode())
        key = _md5(secret + f":{theirs}:{self._nonce}".encode()).hex()

        def proof(what: str) -> str:
            said = f"{key}:{theirs}:{_COUNT}:{self._nonce}:auth:{_md5(f'{what}:{_URI}'.encode()).hex()}"
            return _md5(said.encode()).hex()

        self._proof = proof("")
        answer = {
            "charset": "utf-8",
            "username": _quoted(self._login.username),
            "realm": _quoted(realm),
            "nonce": _quoted(theirs),
            "nc": _COUNT,
            "cnonce": _quoted(self._nonce),
            "digest-uri": _quoted(_URI),
            "maxbuf": "65536",
            "response": proof("AUTHENTICATE"),
            "qop": "auth",
        }
        return ",".join(f"{name}={text}" for name, text in answer.items()).encode()


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
