"""Encryption of the passwords among a broker's dynamic settings, in Kafka's text: parameters as `name:value,…`.

The metadata store may be read by many. The key comes from `password.encoder.secret`, which every start of the broker
has to know. AES is from the package `cryptography`, which is imported when the first password is met.
"""

from __future__ import annotations

import hashlib
import os
from base64 import b64decode, b64encode
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kafkad.config.config import Config

_KEY_FACTORIES = {f"PBKDF2WithHmacSHA{bits}": f"sha{bits}" for bits in (1, 224, 256, 384, 512)}
_STRONGEST = "PBKDF2WithHmacSHA512"
_CBC, _GCM = "AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"
_KEY_BITS = (128, 192, 256)
_SALT_BYTES, _CBC_VECTOR_BYTES, _GCM_VECTOR_BYTES, _GCM_TAG_BITS = 256, 16, 12, 128


class PasswordEncoder(NamedTuple):
    """Encrypts by one secret; `cipher` and what follows are for what it encrypts, and need not be those of a text."""

    secret: str
    cipher: str = _CBC
    key_factory: str = _STRONGEST
    key_bits: int = 128
    iterations: int = 4096

    def encode(self, password: str) -> str:
        salt = os.urandom(_SALT_BYTES)
        vector = os.urandom(_GCM_VECTOR_BYTES if self.cipher == _GCM else _CBC_VECTOR_BYTES)
        key = _key(self.secret, self.key_factory, self.key_bits, self.iterations, salt)
        encrypted = _encrypted(self.cipher, key, vector, password.encode())
        fields = {
            "initializationVector": b64encode(vector).decode(),
            "keyLength": self.key_bits,
            "salt": b64encode(salt).decode(),
            "keyFactoryAlgorithm": self.key_factory,
            "cipherAlgorithm": self.cipher,
            "encryptedPassword": b64encode(encrypted).decode(),
            "passwordLength": _java_length(password),
            "iterations": self.iterations,
        }
        if self.cipher == _GCM:
            fields["authenticationTagLength"] = _GCM_TAG_BITS
        return ",".join(f"{name}:{value}" for name, value in fields.items())

    def decode(self, text: str) -> str:
        """Raises ValueError for what is no encrypted password, or another secret's."""
        return _decoded(self.secret, text)

    def can_decode(self, text: str) -> bool:
        try:
            _decoded(self.secret, text)
        except ValueError:
            return False
        return True


def problem(config: Config) -> str | None:
    """What is wrong with the settings of the encoder, if anything is."""
    encoder = encoder_of(config)
    if encoder is None:
        return None
    rules = (
        ("cipher.algorithm", encoder.cipher, (_CBC, _GCM)),
        ("keyfactory.algorithm", encoder.key_factory, tuple(_KEY_FACTORIES)),
        ("key.length", encoder.key_bits, _KEY_BITS),
    )
    for name, value, possible in rules:
        if value not in possible:
            return f"password.encoder.{name}={value}: kafkad has {', '.join(map(str, possible))}"
    if find_spec("cryptography") is None:
        return "password.encoder.secret needs the Python package cryptography: pip install cryptography"
    return None


def encoder_of(config: Config) -> PasswordEncoder | None:
    """None without `password.encoder.secret`."""
    return _with_secret(config, "password.encoder.secret")


def decrypted(config: Config, text: str) -> str:
    """A password out of the metadata store. Raises ValueError."""
    encoder = encoder_of(config)
    if encoder is None:
        raise ValueError("password.encoder.secret is not set")
    try:
        return encoder.decode(text)
    except ValueError:
        old = _with_secret(config, "password.encoder.old.secret")
        if old is None:
            raise
        return old.decode(text)


def _with_secret(config: Config, name: str) -> PasswordEncoder | None:
    secret = config.value(name)
    if not secret:
        return None
    return PasswordEncoder(
        str(secret),
        config.str("password.encoder.cipher.algorithm"),
        str(config.value("password.encoder.keyfactory.algorithm") or _STRONGEST),
        config.int("password.encoder.key.length"),
        config.int("password.encoder.iterations"),
    )


@lru_cache(maxsize=128)
def _decoded(secret: str, text: str) -> str:
    """Kept, for a key takes milliseconds, and all settings are read anew when any changes."""
    try:
        fields = dict(field.split(":", 1) for field in text.split(","))
        factory = fields.get("keyFactoryAlgorithm", _STRONGEST)
        salt, iterations = b64decode(fields["salt"]), int(fields["iterations"])
        key = _key(secret, factory, int(fields["keyLength"]), iterations, salt)
        password = _decrypted(fields, key).decode()
        is_right = _java_length(password) == int(fields["passwordLength"])
    except (KeyError, ValueError, OverflowError):
        is_right = False
    if not is_right:
        raise ValueError("it is not encrypted by password.encoder.secret")
    return password


def _key(secret: str, factory: str, bits: int, iterations: int, salt: bytes) -> bytes:
    return hashlib.pbkdf2_hmac(_KEY_FACTORIES[factory], secret.encode(), salt, iterations, bits // 8)


def _encrypted(cipher: str, key: bytes, vector: bytes, plain: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers import Cipher, aead, algorithms, modes
    from cryptography.hazmat.primitives.padding import PKCS7

    if cipher == _GCM:
        return aead.AESGCM(key).encrypt(vector, plain, None)
    padder = PKCS7(128).padder()
    encryptor = Cipher(algorithms.AES(key), modes.CBC(vector)).encryptor()
    return encryptor.update(padder.update(plain) + padder.finalize()) + encryptor.finalize()


def _decrypted(fields: Mapping[str, str], key: bytes) -> bytes:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers import Cipher, aead, algorithms, modes
    from cryptography.hazmat.primitives.padding import PKCS7

    vector, encrypted = b64decode(fields["initializationVector"]), b64decode(fields["encryptedPassword"])
    cipher = fields["cipherAlgorithm"]
    if cipher == _GCM:
        try:
            return aead.AESGCM(key).decrypt(vector, encrypted, None)
        except InvalidTag:
            raise ValueError("another key") from None
    if cipher != _CBC:
        raise ValueError(f"no cipher of ours: {cipher}")
    decryptor = Cipher(algorithms.AES(key), modes.CBC(vector)).decryptor()
    unpadder = PKCS7(128).unpadder()
    padded = decryptor.update(encrypted) + decryptor.finalize()
    return unpadder.update(padded) + unpadder.finalize()


def _java_length(text: str) -> int:
    """In UTF-16, as Java counts."""
    return len(text.encode("utf-16-le")) // 2
