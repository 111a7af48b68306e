"""ExpireDelegationToken, 0 to 2: another time of expiry, or the end of the token at once."""

from __future__ import annotations

from kafkad.api.context import Context, Request
from kafkad.api.token_requests import NEVER, check_requester, tokens_of
from kafkad.errors import KafkaError
from kafkad.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse


async def handle(
    context: Context, request: Request, message: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    try:
        check_requester(request)
        requester, period_ms = str(request.peer.principal), message.expiry_time_period_ms
        until = await tokens_of(context).expire(bytes(message.hmac), requester, period_ms)
    except KafkaError as error:
        return ExpireDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=NEVER)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=until)
