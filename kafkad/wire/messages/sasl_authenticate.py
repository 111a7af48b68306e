from __future__ import annotations

from kafkad.wire.schema import Request, bytes_, int16, int64, message, string


@message(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest(Request["SaslAuthenticateResponse"]):
    """One step of a SASL conversation."""

    auth_bytes: bytes = bytes_()


@message(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    """The server's next step, or its refusal."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: bytes = bytes_()
    session_lifetime_ms: int = int64("1+", ignorable=True)
