"""An issuer of tokens for OAUTHBEARER: keys, the set in which it publishes them, and tokens."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

NOW_MS = 1_800_000_000_000
NOW_S = NOW_MS // 1000
CLAIMS: dict[str, Any] = {"sub": "alice", "iat": NOW_S, "exp": NOW_S + 3600}


@cache
def rsa_key(number: int = 1, bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


@cache
def ec_key(number: int = 1) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def jwk(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, kid: str | None, **more: str) -> dict[str, Any]:
    """As it is published."""
    public = key.public_key()
    text = RSAAlgorithm.to_jwk(public) if isinstance(public, rsa.RSAPublicKey) else ECAlgorithm.to_jwk(public)
    return {**json.loads(text), **({"kid": kid} if kid is not None else {}), **more}


def key_set(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": keys}).encode()


def signed(key: Any, algorithm: str = "RS256", kid: str | None = "k1", **claims: Any) -> str:
    """With CLAIMS; one that is None is left out."""
    payload = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    return jwt.encode(payload, key, algorithm=algorithm, headers={"kid": kid} if kid is not None else None)


def unsecured(**claims: Any) -> str:
    payload = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    return ".".join([_part({"alg": "none"}), _part(payload), ""])


def _part(value: dict[str, Any]) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()
