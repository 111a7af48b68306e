"""SaslHandshake where no login is due: after one, and at listeners that ask for none. The others never come here."""

from __future__ import annotations

from kafkad.api.context import Context, Request
from kafkad.errors import ErrorCode
from kafkad.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(context: Context, request: Request, message: SaslHandshakeRequest) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
