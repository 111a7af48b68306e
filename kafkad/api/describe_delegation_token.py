"""DescribeDelegationToken, 0 to 3: the tokens that the requester may see, each with its secret.

That is the password of whoever logs in with it: owners, renewers, who asked for it and who has the right to describe it
are handed it, as by Kafka. So the log says who was.
"""

from __future__ import annotations

import logging

from kafkad.api.context import Context, Request
from kafkad.api.token_requests import NAMES_REQUESTER, check_requester, principal_of, tokens_of
from kafkad.errors import KafkaError
from kafkad.meta.security_znodes import DelegationToken
from kafkad.security.authorizer import Operation, Principal, ResourceType
from kafkad.turns import Pieces, each
from kafkad.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

log = logging.getLogger("kafkad.audit")


def handle(
    context: Context, request: Request, message: DescribeDelegationTokenRequest
) -> Pieces[DescribeDelegationTokenResponse]:
    """No owners: none; null: all."""
    yield
    try:
        check_requester(request)
        tokens = tokens_of(context)
    except KafkaError as error:
        return DescribeDelegationTokenResponse(error_code=error.code)
    requester = str(request.peer.principal)
    wanted = None
    if message.owners is not None:
        wanted = {str(Principal(owner.principal_type, owner.principal_name)) for owner in message.owners}

    def seen(token: DelegationToken) -> DescribedDelegationToken | None:
        people = {token.owner, token.requester, *token.renewers}
        if wanted is not None and not people & wanted:
            return None
        if requester in people or _allowed(request, token):
            return _described(token, tokens.secret(token.token_id), with_requester=request.version >= NAMES_REQUESTER)
        return None

    found = yield from each(seen, list(tokens.all))
    shown = [token for token in found if token is not None]
    if shown:
        log.info("%d delegation tokens shown, with their secrets; to %s", len(shown), request.client_text)
    return DescribeDelegationTokenResponse(tokens=shown)


def _allowed(request: Request, token: DelegationToken) -> bool:
    return request.allows(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id) or request.allows(
        Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner
    )


def _described(token: DelegationToken, secret: bytes, *, with_requester: bool) -> DescribedDelegationToken:
    owner = principal_of(token.owner)
    found = DescribedDelegationToken(
        principal_type=owner.type,
        principal_name=owner.name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=secret,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=renewer.type, principal_name=renewer.name)
            for renewer in map(principal_of, token.renewers)
        ],
    )
    if with_requester:
        found.token_requester_principal_type, found.token_requester_principal_name = principal_of(token.requester)
    return found
