"""OAUTHBEARER (RFC 7628): the client shows a token, and no password."""

from __future__ import annotations

import re
from typing import Final

from kafkad.security.mechanism import Login, LoginFailed
from kafkad.security.oauth_token import TokenRefused, Verify

OAUTHBEARER: Final = "OAUTHBEARER"
_LONGEST_FIRST: Final = 70_000
"""Bytes. The token may have 64 KB of them."""
_REFUSAL: Final = '{"status":"invalid_token"}'
_NAME: Final = r"(?:[\x01-\x2B\x2D-\x3C\x3E-\x7F]|=2C|=3D)+"
_FIRST: Final = re.compile(rf"n,(?:a=({_NAME}))?,\x01((?:[A-Za-z]+=[\x20-\x7E\t\r\n]+\x01)*)\x01")
_BEARER: Final = re.compile(r"bearer +([-_~+/.A-Za-z0-9]+=*)", re.IGNORECASE)


class OAuthBearer:
    """One exchange. A token that is refused is answered by a message in JSON; the refusal follows the client's next."""

    password_of = None

    def __init__(self, verify: Verify) -> None:
        self.user: str | None = None
        self._verify = verify
        self._refused: str | None = None

    def respond(self, message: bytes) -> bytes | Login:
        if self._refused is not None:
            raise LoginFailed(_REFUSAL, reason=f"its token is refused: {self._refused}")
        acts_as, token = _read(message)
        try:
            bearer = self._verify(token)
        except TokenRefused as refusal:
            self._refused = str(refusal)
            return _REFUSAL.encode()
        self.user = bearer.user
        if acts_as not in (None, bearer.user):
            raise LoginFailed(
                f"Authentication failed: Client requested an authorization id ({acts_as}) that is different from the "
                f"token's principal name ({bearer.user})",
                reason=f"it wants to act as {acts_as!r}",
            )
        return Login(bearer.user, ends_ms=bearer.ends_ms)


def _read(message: bytes) -> tuple[str | None, str]:
    """`n,[a=NAME],^Aauth=Bearer TOKEN^A[EXTENSIONS]^A`: whom the client wants to act as, and the token."""
    if len(message) > _LONGEST_FIRST:
        raise LoginFailed(reason=f"its first message has {len(message)} bytes")
    try:
        first = _FIRST.fullmatch(message.decode("ascii"))
    except UnicodeDecodeError:
        first = None
    if first is None:
        raise LoginFailed
    pairs = dict(pair.split("=", 1) for pair in first[2].split("\x01") if pair)
    bearer = _BEARER.fullmatch(pairs.get("auth", ""))
    if bearer is None:
        raise LoginFailed
    name = first[1]
    return (name.replace("=2C", ",").replace("=3D", "=") if name else None), bearer[1]
