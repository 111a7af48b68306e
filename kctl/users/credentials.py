"""SCRAM credentials: what brokers say of them, and how one is made. The password itself never leaves this process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafkad.errors import ErrorCode
from kctl.errors import KctlError, failure
from kctl.texts.output import Column, Row

if TYPE_CHECKING:
    from kafkad.wire.messages.alter_user_scram_credentials import ScramCredentialDeletion, ScramCredentialUpsertion
    from kctl.reach.session import Session

MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16384
"""Brokers take no fewer and no more."""

COLUMNS = (
    Column("user", "Its name."),
    Column("mechanism", "SCRAM-SHA-256 or SCRAM-SHA-512."),
    Column("iterations", "Number of hash iterations.", "number"),
)


class Credential(NamedTuple):
    user: str
    mechanism: str
    iterations: int

    def row(self) -> Row:
        return self._asdict()


def described(session: Session, users: Sequence[str] = ()) -> tuple[list[Credential], list[KctlError]]:
    """The credentials of these users, or of all."""
    from kafkad.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName

    request = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in users] or None)
    response = session.ask_controller(request, lambda answer: [answer.error_code])
    if response.error_code:
        raise failure(response.error_code, "users cannot be listed", response.error_message)
    names = {code: name for name, code in MECHANISMS.items()}
    found = [
        Credential(result.user, names.get(info.mechanism, str(info.mechanism)), info.iterations)
        for result in response.results
        for info in result.credential_infos
    ]
    errors = [
        failure(result.error_code, f'user "{result.user}" has no SCRAM credentials')
        if result.error_code == ErrorCode.RESOURCE_NOT_FOUND
        else failure(result.error_code, f'user "{result.user}"', result.error_message)
        for result in response.results
        if result.error_code
    ]
    return sorted(found), errors


def new_salt() -> bytes:
    """A random number of 130 bits in letters and digits, as Kafka's own tools make salts."""
    from secrets import randbits

    number, salt = randbits(130), ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        salt = _DIGITS[digit] + salt
    return salt.encode()


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """The salted password that the broker stores: RFC 5802's SaltedPassword."""
    from hashlib import pbkdf2_hmac

    return pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, iterations)


def altered(
    session: Session,
    deletions: Iterable[ScramCredentialDeletion] = (),
    upsertions: Iterable[ScramCredentialUpsertion] = (),
) -> list[KctlError]:
    """Changes credentials; returns the controller's refusals."""
    from kafkad.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest

    request = AlterUserScramCredentialsRequest(deletions=list(deletions), upsertions=list(upsertions))
    response = session.ask_controller(request, lambda answer: [result.error_code for result in answer.results])
    return [
        failure(result.error_code, f'user "{result.user}"', result.error_message)
        for result in response.results
        if result.error_code
    ]
