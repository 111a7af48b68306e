"""SCRAM (RFC 5802, RFC 7677): both sides show that they know the password, and neither sends it.

Like Kafka, it takes names and passwords in UTF-8 as they are (no SASLprep), and no channel binding. Unlike Kafka, it
does not tell at the first message whether there is such a user: for unknown ones a salt is made up from the name, and
looks like that of one who exists.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
import string
import struct
from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from kafkad.security.mechanism import Login, LoginFailed
from kafkad.wire.primitives import MalformedError

HASHES: Final[Mapping[str, str]] = MappingProxyType({"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"})
NUMBERED: Final[Mapping[int, str]] = MappingProxyType({1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"})
"""The mechanisms as requests number them."""
FEWEST_ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 16_384
_NO_BINDING: Final = "n,"
_LONGEST: Final = 4096
"""Bytes of a message; half a megabyte of commas would cost 20 ms of everybody's time."""
_LEAST_FIELDS: Final = 4
_LONGEST_NONCE: Final = 256
_TOKEN: Final = "tokenauth"


class ScramCredential(NamedTuple):
    """What a server keeps of a password. Text is what stands under the mechanism's name in `/config/users/NAME`."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    @classmethod
    def of(cls, hash_name: str, salted_password: bytes, salt: bytes, iterations: int) -> ScramCredential:
        stored_key = hashlib.new(hash_name, hmac.digest(salted_password, b"Client Key", hash_name)).digest()
        return cls(salt, stored_key, hmac.digest(salted_password, b"Server Key", hash_name), iterations)

    @classmethod
    def of_password(cls, hash_name: str, password: str, salt: bytes, iterations: int) -> ScramCredential:
        return cls.of(hash_name, hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations), salt, iterations)

    @classmethod
    def parse(cls, text: str) -> ScramCredential:
        """Raises ValueError, without what stands there."""
        fields = dict(part.partition("=")[::2] for part in text.split(","))
        try:
            salt, stored, server = (b64decode(fields[name], validate=True) for name in _IN_BASE64)
            return cls(salt, stored, server, int(fields["iterations"]))
        except (KeyError, ValueError):
            raise ValueError("not a SCRAM credential: salt=…,stored_key=…,server_key=…,iterations=…") from None

    @property
    def text(self) -> str:
        keys = zip(_IN_BASE64, (self.salt, self.stored_key, self.server_key), strict=True)
        return ",".join([*(f"{name}={_base64(value)}" for name, value in keys), f"iterations={self.iterations}"])


_IN_BASE64: Final = ("salt", "stored_key", "server_key")


class ScramAccount(NamedTuple):
    """A credential and whom it is of: the user of that name, or the owner of a delegation token."""

    credential: ScramCredential
    user: str
    ends_ms: int | None = None


FindAccount = Callable[[str, bool], ScramAccount | None]
"""From a name, and whether it is that of a delegation token. None where there is no such credential."""


SALT_BITS: Final = 130
_DIGITS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"


def salt_of(number: int) -> bytes:
    """A random number of 130 bits in letters and digits, as Kafka's own tools make salts."""
    salt = bytearray()
    while number:
        number, digit = divmod(number, 36)
        salt.append(_DIGITS[digit])
    return bytes(reversed(salt))


_LENGTHS: Final = range(22, 27)
"""Of nearly all salts of 130 bits."""
_ALPHABETS: Final = (
    b"0123456789abcdef",
    _DIGITS,
    (string.ascii_letters + string.digits + "+/").encode(),
    bytes(range(0x20, 0x7F)),
    bytes(range(256)),
)


class Shape(NamedTuple):
    """What anybody can see of a credential before a login, but for the salt itself: a salt is drawn by the client that
    sets the password, and many of one client have the same length and alphabet."""

    alphabet: bytes
    length: int
    iterations: int

    @classmethod
    def of(cls, credential: ScramCredential) -> Shape:
        salt = credential.salt
        alphabet = next(each for each in _ALPHABETS if not salt.translate(None, each))
        is_of_130_bits = alphabet == _DIGITS and len(salt) in _LENGTHS
        return cls(alphabet, _LENGTHS[-1] if is_of_130_bits else len(salt), credential.iterations)

    def salt(self, seed: bytes) -> bytes:
        drawn = hashlib.shake_256(seed)
        if (self.alphabet, self.length) == (_DIGITS, _LENGTHS[-1]):
            return salt_of(int.from_bytes(drawn.digest(32)) >> 256 - SALT_BITS)
        numbers = struct.unpack(f">{self.length}H", drawn.digest(2 * self.length))
        return bytes(self.alphabet[number % len(self.alphabet)] for number in numbers)


_KAFKAS: Final = Shape(_DIGITS, _LENGTHS[-1], FEWEST_ITERATIONS)
"""Of what Kafka's own tools make, and of all delegation tokens."""


class MadeUp:
    """Credentials of users who do not exist: the same at each asking, at each broker, and after a restart.

    Names share out the shapes in the numbers in which users have them, by rendezvous hashing: a name has another shape,
    and with it another salt, as if the password had been set, only where the users of either have become more or fewer.
    """

    def __init__(self, secret: bytes, shapes: Callable[[], Sequence[tuple[Shape, int]]] = list) -> None:
        """`shapes`: those of the users who exist, each with how many have it."""
        self._secret = secret
        self._shapes = shapes

    def credential(self, hash_name: str, name: str, *, of_token: bool = False) -> ScramCredential:
        """Of a user, or of a delegation token. The salts of the two differ, as they do for a user who exists."""
        text = (f"token {hash_name} {name}" if of_token else f"{hash_name} {name}").encode(errors="surrogatepass")
        shape = _KAFKAS if of_token else self._shape(text)
        drawn = self._draw(shape, text)
        size = hashlib.new(hash_name).digest_size
        return ScramCredential(shape.salt(drawn), drawn[:1] * size, drawn[1:2] * size, shape.iterations)

    def _shape(self, text: bytes) -> Shape:
        def distance(shape: Shape, users: int) -> float:
            number = int.from_bytes(self._draw(shape, text)[:8])
            return -math.log((number + 1) / (1 << 64)) / users

        shape, _ = min(self._shapes() or [(_KAFKAS, 1)], key=lambda each: distance(*each))
        return shape

    def _draw(self, shape: Shape, text: bytes) -> bytes:
        return hmac.digest(self._secret, b"%b %d %d %b" % (*shape, text), "sha256")


class ScramServer:
    """One exchange: the client's first message, then its last."""

    def __init__(self, mechanism: str, find: FindAccount, made_up: MadeUp, nonce: Callable[[], str]) -> None:
        self.user: str | None = None
        self._hash = HASHES[mechanism]
        self._find = find
        self._made_up = made_up
        self._make_nonce = nonce
        self._by_token = False
        self._credential: ScramCredential | None = None
        self._nonces: tuple[str, ...] = ()
        self._said = b""

    @property
    def password_of(self) -> str | None:
        return None if self._by_token else self.user

    def respond(self, message: bytes) -> bytes | Login:
        return self._first(message) if self._credential is None else self._last(message, self._credential)

    def _first(self, message: bytes) -> bytes:
        """`n,[a=AUTHZID],n=NAME,r=NONCE[,EXTENSIONS]`"""
        if len(message) > _LONGEST:
            raise LoginFailed
        fields = _text(message).split(",")
        if len(fields) < _LEAST_FIELDS:
            raise LoginFailed
        binding, acts_as, *rest = fields
        if binding != "n" or acts_as[:2] not in ("", "a=") or (rest[0][:2], rest[1][:2]) != ("n=", "r="):
            raise LoginFailed
        name, nonce = _name(rest[0][2:]), rest[1][2:]
        if not 0 < len(nonce) <= _LONGEST_NONCE or not nonce.isascii() or not nonce.isprintable():
            raise LoginFailed
        if acts_as and _name(acts_as[2:]) != name:
            raise LoginFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self._by_token = f"{_TOKEN}=true" in [extension.lower() for extension in rest[2:]]
        self.user = name
        made_up = self._made_up.credential(self._hash, name, of_token=self._by_token)
        account = self._find(name, self._by_token)
        self._credential = credential = made_up if account is None else account.credential
        both = nonce + self._make_nonce()
        self._nonces = f"r={both}", f"r={nonce}{both}"  # librdkafka before 2.6.1 puts its own before both
        answer = f"r={both},s={_base64(credential.salt)},i={credential.iterations}"
        self._binding = f"{binding},{acts_as},"
        self._said = f"{','.join(rest)},{answer}".encode()
        return answer.encode()

    def _last(self, message: bytes, credential: ScramCredential) -> Login:
        """`c=BINDING,r=NONCE[,EXTENSIONS],p=PROOF`. Who was deleted or has another password meanwhile fails."""
        if len(message) > _LONGEST:
            raise LoginFailed
        unproved, found, proof_text = _text(message).rpartition(",p=")
        channel, nonce, *_ = [*unproved.split(","), ""]
        if not found or nonce not in self._nonces or channel != f"c={_base64(self._binding.encode())}":
            raise LoginFailed
        try:
            proof = b64decode(proof_text, validate=True)
        except Error:
            raise LoginFailed from None
        if len(proof) != len(credential.stored_key):
            raise MalformedError(f"a proof of {len(proof)} bytes for SCRAM with {self._hash}")
        said = b"%b,%b" % (self._said, unproved.encode())
        signature = hmac.digest(credential.stored_key, said, self._hash)
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        proved = hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), credential.stored_key)
        account = self._find(self.user or "", self._by_token)
        if not proved or account is None or account.credential != credential:
            raise LoginFailed
        answer = b"v=" + b64encode(hmac.digest(credential.server_key, said, self._hash))
        return Login(account.user, answer, account.ends_ms, self.user if self._by_token else None)


class ScramError(Exception):
    """The server does not follow the protocol, refuses, or does not know the password."""


class ScramClient:
    """The client's side of one exchange: send `first`, then `last` of what comes back, then `verify` the answer."""

    def __init__(self, mechanism: str, username: str, password: str, nonce: str) -> None:
        self._hash = HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        self._bare = f"n={username.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self._signature = b""

    @property
    def first(self) -> bytes:
        return f"{_NO_BINDING},{self._bare}".encode()

    def last(self, answer: bytes) -> bytes:
        fields = _fields(answer)
        nonce, count = fields.get("r", ""), fields.get("i", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramError("its nonce does not continue ours")
        if not count.isdecimal() or not FEWEST_ITERATIONS <= int(count) <= MOST_ITERATIONS:
            raise ScramError(f"it asks for {count or 'no'} iterations, not {FEWEST_ITERATIONS} to {MOST_ITERATIONS}")
        salt = _from_base64(fields, "s")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, int(count))
        unproved = f"c={_base64(f'{_NO_BINDING},'.encode())},r={nonce}"
        said = ",".join([self._bare, answer.decode(), unproved]).encode()
        credential = ScramCredential.of(self._hash, salted, salt, int(count))
        signature = hmac.digest(credential.stored_key, said, self._hash)
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = hmac.digest(credential.server_key, said, self._hash)
        return f"{unproved},p={_base64(proof)}".encode()

    def verify(self, answer: bytes) -> None:
        """Raises unless the server has shown that it knows the password too."""
        if not hmac.compare_digest(_from_base64(_fields(answer), "v"), self._signature):
            raise ScramError("it does not know the password itself")


def new_nonce() -> str:
    return secrets.token_hex(16)


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise LoginFailed from None


def _name(quoted: str) -> str:
    """`=2C` stands for a comma, `=3D` for an equals sign, and no other `=` may be there."""
    parts = quoted.split("=")
    if not quoted or any(part[:2] not in _QUOTED for part in parts[1:]):
        raise LoginFailed
    return parts[0] + "".join(_QUOTED[part[:2]] + part[2:] for part in parts[1:])


_QUOTED: Final = {"2C": ",", "3D": "="}


def _fields(message: bytes) -> dict[str, str]:
    try:
        return dict(part.partition("=")[::2] for part in message.decode().split(","))
    except UnicodeDecodeError:
        raise ScramError("its message is not UTF-8") from None


def _from_base64(fields: Mapping[str, str], name: str) -> bytes:
    try:
        return b64decode(fields[name], validate=True)
    except (KeyError, ValueError):
        raise ScramError(f"its message has no {name}= in base64") from None
