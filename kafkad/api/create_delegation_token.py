"""CreateDelegationToken, 0 to 3: a token that logs in as its owner: whoever asks, or another (KIP-48, KIP-373).

Anybody who is logged in may ask, and renewers stand in the token's node and are looked through at many requests. So
their number has a bound, where Kafka has ZooKeeper's for a node.
"""

from __future__ import annotations

from kafkad.api.context import Context, Request
from kafkad.api.token_requests import NAMES_REQUESTER, NEVER, check_requester, tokens_of
from kafkad.errors import ErrorCode, KafkaError
from kafkad.security.authorizer import Operation, Principal, ResourceType
from kafkad.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse

_MOST_RENEWERS = 1_000
_MOST_OF_NAMES = 65_536
"""Characters of the names of all renewers of one token."""


async def handle(
    context: Context, request: Request, message: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    requester = request.peer.principal
    named = Principal(message.owner_principal_type or "", message.owner_principal_name or "")
    owner = named if named.name else requester
    answer = CreateDelegationTokenResponse(
        principal_type=owner.type,
        principal_name=owner.name,
        issue_timestamp_ms=NEVER,
        expiry_timestamp_ms=NEVER,
        max_timestamp_ms=NEVER,
    )
    if request.version >= NAMES_REQUESTER:
        answer.token_requester_principal_type, answer.token_requester_principal_name = requester
    try:
        check_requester(request)
        if len(message.renewers) > _MOST_RENEWERS or _of_names(message) > _MOST_OF_NAMES:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        renewers = [Principal(each.principal_type, each.principal_name) for each in message.renewers]
        if owner != requester and not request.allowed(Operation.CREATE_TOKENS, ResourceType.USER, str(owner)):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
        if any(each.type != "User" for each in (owner, *renewers)):  # it would log in as the user of that name
            raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
        tokens = tokens_of(context)
        token = await tokens.create(str(owner), str(requester), map(str, renewers), message.max_lifetime_ms)
    except KafkaError as error:
        answer.error_code = error.code
        return answer
    answer.issue_timestamp_ms, answer.expiry_timestamp_ms = token.issued_ms, token.expires_ms
    answer.max_timestamp_ms, answer.token_id = token.max_ms, token.token_id
    answer.hmac = tokens.secret(token.token_id)
    return answer


def _of_names(message: CreateDelegationTokenRequest) -> int:
    """Characters."""
    return sum(len(renewer.principal_name) for renewer in message.renewers)
