"""The requests about delegation tokens."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafkad.errors import ErrorCode
from kctl.errors import SEE_TO_STORE, Exit, KctlError, did_you_mean, failure
from kctl.texts.output import Column, Row

if TYPE_CHECKING:
    from kctl.reach.session import Session

COLUMNS = (
    Column("token_id", "What it is called; as a user name it logs in by SCRAM."),
    Column("owner", "Whom it speaks for."),
    Column("requester", "Who asked for it.", wide=True),
    Column("renewers", "Who may renew it besides its owner; repeatable.", "list"),
    Column("issued_ms", "When it was made.", "time", "ISSUED"),
    Column("expires_ms", "When it expires unless it is renewed.", "time", "EXPIRES"),
    Column("max_ms", "When it expires at the latest.", "time", "AT-THE-LATEST"),
    Column("hmac", "Its secret in base64: the password of a login with it.", wide=True),
)


class Token(NamedTuple):
    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int
    secret: bytes

    def row(self) -> Row:
        fields = self._asdict()
        return {**fields, "renewers": list(self.renewers), "hmac": b64encode(fields.pop("secret")).decode()}


def created(session: Session, owner: str | None, renewers: Sequence[str], max_lifetime_ms: int | None) -> Token:
    """A new token, of whoever asks unless it has another owner."""
    from kafkad.wire.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest

    kind, name = principal(owner) if owner else (None, None)
    request = CreateDelegationTokenRequest(
        owner_principal_type=kind,
        owner_principal_name=name,
        renewers=[
            CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in map(principal, renewers)
        ],
        max_lifetime_ms=-1 if max_lifetime_ms is None else max_lifetime_ms,
    )
    made = session.ask_controller(request, lambda made: [made.error_code])
    if made.error_code:
        raise token_failure(made.error_code, "no token was created")
    owner = f"{made.principal_type}:{made.principal_name}"
    requester = f"{made.token_requester_principal_type}:{made.token_requester_principal_name}"
    return Token(
        made.token_id,
        owner,
        requester if made.token_requester_principal_name else owner,  # older brokers make tokens for nobody else
        tuple(":".join(principal(renewer)) for renewer in renewers),
        made.issue_timestamp_ms,
        made.expiry_timestamp_ms,
        made.max_timestamp_ms,
        made.hmac,
    )


def principal(text: str) -> tuple[str, str]:
    """Its type and name; a bare name is a user."""
    kind, colon, name = text.partition(":")
    return (kind, name) if colon else ("User", text)


def token_failure(code: int, what: str) -> KctlError:
    hints: Sequence[str] = ()
    if code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED:
        hints = ("its brokers have no delegation.token.secret.key",)
    elif code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED:
        hints = ("log in by SASL or with a TLS certificate, and not with a token",)
    elif code == ErrorCode.POLICY_VIOLATION:
        hints = ("the owner has as many as it may: let some expire, or set kafkad.max.delegation.tokens.per.owner",)
    elif code == ErrorCode.KAFKA_STORAGE_ERROR:  # the answers have no room for what the broker says of it
        hints = (SEE_TO_STORE,)
    return failure(code, what, hints=hints)


def described(session: Session, owners: Sequence[str] = ()) -> list[Token]:
    """The tokens of these owners, or all that the user may see."""
    from kafkad.wire.messages.describe_delegation_token import (
        DescribeDelegationTokenOwner,
        DescribeDelegationTokenRequest,
    )

    named = map(principal, owners)
    wanted = [DescribeDelegationTokenOwner(principal_type=kind, principal_name=name) for kind, name in named]
    response = session.call(DescribeDelegationTokenRequest(owners=wanted or None))
    if response.error_code:
        raise token_failure(response.error_code, "tokens cannot be listed")
    found = [
        Token(
            token.token_id,
            f"{token.principal_type}:{token.principal_name}",
            f"{token.token_requester_principal_type}:{token.token_requester_principal_name}",
            tuple(f"{renewer.principal_type}:{renewer.principal_name}" for renewer in token.renewers),
            token.issue_timestamp,
            token.expiry_timestamp,
            token.max_timestamp,
            token.hmac,
        )
        for token in response.tokens
    ]
    return sorted(found)


def token_named(session: Session, word: str) -> Token:
    """The token with this id, or with this secret in base64."""
    there = described(session)
    for token in there:
        if word == token.token_id or _is_secret(word, token):
            return token
    raise KctlError(
        f'token "{word}" does not exist',
        exit_code=Exit.NOT_FOUND,
        code=ErrorCode.DELEGATION_TOKEN_NOT_FOUND.name,
        hints=did_you_mean(word, [token.token_id for token in there]),
    )


def _is_secret(word: str, token: Token) -> bool:
    try:
        return b64decode(word, validate=True) == token.secret
    except ValueError:
        return False
