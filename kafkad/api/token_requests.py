"""What the requests about delegation tokens have in common."""

from __future__ import annotations

from kafkad.api.context import Context, Request
from kafkad.cluster.tokens import DelegationTokens
from kafkad.errors import ErrorCode, KafkaError
from kafkad.security.authorizer import ANONYMOUS, Principal

NEVER = -1
"""The time in answers that refuse."""
NAMES_REQUESTER = 3
"""The first version of answers that say who asked for a token, be it the owner or another (KIP-373)."""


def check_requester(request: Request) -> None:
    """Raises KafkaError: only who has logged in, and not by a token, may ask about tokens."""
    if request.peer.principal == ANONYMOUS or request.peer.token is not None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def tokens_of(context: Context) -> DelegationTokens:
    """Raises KafkaError where there are none."""
    if context.tokens is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    return context.tokens


def principal_of(text: str) -> Principal:
    """As the store has it: `User:alice`."""
    kind, _, name = text.partition(":")
    return Principal(kind, name)
