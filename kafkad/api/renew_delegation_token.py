"""RenewDelegationToken, 0 to 2: a later time of expiry, up to the token's last."""

from __future__ import annotations

from kafkad.api.context import Context, Request
from kafkad.api.token_requests import NEVER, check_requester, tokens_of
from kafkad.errors import KafkaError
from kafkad.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse


async def handle(
    context: Context, request: Request, message: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    try:
        check_requester(request)
        until = await tokens_of(context).renew(
            bytes(message.hmac), str(request.peer.principal), message.renew_period_ms
        )
    except KafkaError as error:
        return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=NEVER)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=until)
