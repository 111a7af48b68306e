"""Tokens of OAUTHBEARER: JSON web tokens, signed by keys that the issuer publishes, or not signed at all.

Unsigned ones prove nothing; a broker accepts them only where it is configured to, for trials. The algorithm in a
token's own header is not trusted: each key says with which algorithms it may be used.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from binascii import Error
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeGuard

from kafkad.config.values import trimmed
from kafkad.wire.primitives import MAX_STRING

_LONGEST: Final = 65_536
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
_FEWEST_RSA_BITS: Final = 2048
_LATEST_S: Final = 10**12


class TokenRefused(Exception):
    """The reason is for this broker's log: the client is only told that its token is not valid."""


class Bearer(NamedTuple):
    """Who showed a token, and when that ends, by the wall clock."""

    user: str
    ends_ms: int


Verify = Callable[[str], Bearer]
"""Raises TokenRefused."""


class Expected(NamedTuple):
    """The claims that a token must have. `audiences`: any one of them; empty or None: anything will do."""

    audiences: Sequence[str] = ()
    issuer: str | None = None
    user_claim: str = "sub"
    skew_ms: int = 30_000


class Key(NamedTuple):
    """A public key of an issuer, and the algorithms that it may be used with."""

    kid: str | None
    public: Any
    algorithms: tuple[str, ...]


def keys_of(text: bytes) -> tuple[list[Key], list[str]]:
    """The keys in a JSON Web Key Set, and why others in it cannot be used. ValueError if it is none."""
    try:
        found = json.loads(text)["keys"]
        entries = [entry for entry in found if entry.get("use", "sig") == "sig"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError('it is no set of keys in JSON: {"keys": [...]}') from None
    keys, problems = [], []
    for entry in entries:
        try:
            keys.append(_key(entry))
        except ValueError as error:
            problems.append(f"key {str(entry.get('kid'))[:40]!r}: {error}")
    return keys, problems


def _key(entry: Mapping[str, Any]) -> Key:
    from jwt.algorithms import ECAlgorithm, RSAAlgorithm
    from jwt.exceptions import InvalidKeyError

    reader: type[RSAAlgorithm] | type[ECAlgorithm]
    possible: tuple[str, ...]
    curve = str(entry.get("crv"))
    match entry.get("kty"):
        case "RSA":
            reader, possible = RSAAlgorithm, _RSA
        case "EC" if curve in _CURVES:
            reader, possible = ECAlgorithm, (_CURVES[curve],)
        case other:
            raise ValueError(
                f"a key of the type {other} cannot verify tokens here: RSA, or EC with {', '.join(_CURVES)}"
            )
    try:
        public: Any = reader.from_jwk(dict(entry))
    except (InvalidKeyError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"it cannot be read: {error}") from None
    if hasattr(public, "private_numbers"):
        public = public.public_key()
    if possible is _RSA and public.key_size < _FEWEST_RSA_BITS:
        raise ValueError(f"{public.key_size} bits are too few for RSA")
    named = entry.get("alg")
    if named is not None and named not in possible:
        raise ValueError(f"it is for {named}, which is none of {', '.join(possible)}")
    return Key(entry.get("kid"), public, possible if named is None else (named,))


class SignedTokens:
    """Verifies by `keys`, which are asked for each time; `unknown` is told of a key id that is not among them."""

    def __init__(
        self,
        expected: Expected,
        keys: Callable[[], Iterable[Key]],
        now_ms: Callable[[], int],
        unknown: Callable[[], None] = lambda: None,
    ) -> None:
        self._expected = expected
        self._keys = keys
        self._now_ms = now_ms
        self._unknown = unknown

    def __call__(self, token: str) -> Bearer:
        header, _ = _parts(token)
        kid = header.get("kid")
        keys = [key for key in self._keys() if kid is None or key.kid == kid]
        if not keys:
            self._unknown()
            raise TokenRefused(f"it is signed by a key that is not known: {str(kid)[:40]!r}")
        refusal = TokenRefused("it is signed by no key that is known")
        for key in keys:
            if header.get("alg") in key.algorithms:
                try:
                    return self._bearer(_verified(token, key))
                except _BadSignature as error:
                    refusal = TokenRefused(str(error))
        raise refusal

    def _bearer(self, claims: Mapping[str, Any]) -> Bearer:
        expected = self._expected
        _number(claims, "iat")
        if expected.audiences:
            audience = claims.get("aud")
            named = audience if isinstance(audience, list) else [audience]
            if not any(each in expected.audiences for each in named):
                raise TokenRefused(f"it is for the audience {str(audience)[:80]!r}")
        if expected.issuer is not None and claims.get("iss") != expected.issuer:
            raise TokenRefused(f"it is from the issuer {str(claims.get('iss'))[:80]!r}")
        return _in_time(claims, expected, self._now_ms())


class UnsecuredTokens:
    """Takes tokens that nobody has signed, as Kafka does by default."""

    def __init__(self, expected: Expected, now_ms: Callable[[], int]) -> None:
        self._expected = expected
        self._now_ms = now_ms

    def __call__(self, token: str) -> Bearer:
        header, claims = _parts(token)
        if header.get("alg") != "none" or not token.endswith("."):
            raise TokenRefused("it is signed, and unsecured ones are expected")
        return _in_time(claims, self._expected, self._now_ms())


def _in_time(claims: Mapping[str, Any], expected: Expected, now_ms: int) -> Bearer:
    """PyJWT would ask the system for the time, and minds tokens that are issued in the future, which Kafka does not."""
    ends_ms = _number(claims, "exp") * 1000
    if ends_ms + expected.skew_ms <= now_ms:
        raise TokenRefused("it has expired")
    if "nbf" in claims and _number(claims, "nbf") * 1000 - expected.skew_ms > now_ms:
        raise TokenRefused("it is not valid yet")
    user = claims.get(expected.user_claim)
    if not _is_name(user):
        raise TokenRefused(f"its claim {expected.user_claim} names no user")
    return Bearer(trimmed(user), int(ends_ms))


def _is_name(user: object) -> TypeGuard[str]:
    try:
        return isinstance(user, str) and 0 < len(trimmed(user).encode()) <= MAX_STRING
    except UnicodeEncodeError:  # one half of a pair of surrogates, which JSON can have
        return False


def _number(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LATEST_S:
        raise TokenRefused(f"its claim {name} is no time")
    return float(value)


class _BadSignature(Exception):
    """The token was not signed by this key."""


def _verified(token: str, key: Key) -> Mapping[str, Any]:
    """The claims of a token that this key has signed. Raises _BadSignature."""
    import jwt

    try:
        claims: Mapping[str, Any] = jwt.api_jws.decode_complete(token, key.public, algorithms=list(key.algorithms))
    except jwt.PyJWTError as error:
        raise _BadSignature(f"its signature is not valid: {error}") from None
    return _object(claims["payload"])


def _parts(token: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Header and claims, without looking at the signature."""
    parts = token.split(".")
    if len(token) > _LONGEST or len(parts) != 3:
        raise TokenRefused("it is no JSON web token")
    try:
        header, claims = (urlsafe_b64decode(part + "=" * (-len(part) % 4)) for part in parts[:2])
    except (Error, ValueError):
        raise TokenRefused("it is no JSON web token: it is not in base64") from None
    return _object(header), _object(claims)


def _object(text: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise TokenRefused("it is no JSON web token: it is not in JSON")
    return found
