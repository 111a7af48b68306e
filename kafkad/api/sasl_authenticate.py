"""SaslAuthenticate where no login is under way. The others never come here."""

from __future__ import annotations

from kafkad.api.context import Context, Request
from kafkad.errors import ErrorCode
from kafkad.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


def handle(context: Context, request: Request, message: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )
