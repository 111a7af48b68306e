from __future__ import annotations

from kafkad.wire.schema import Request, bytes_, int16, int32, int64, message


@message(key=40, versions="0-2", flexible="2+")
class ExpireDelegationTokenRequest(Request["ExpireDelegationTokenResponse"]):
    """Ends a token now (negative period) or later."""

    hmac: bytes = bytes_()
    expiry_time_period_ms: int = int64()  # negative: at once


@message(key=40, versions="0-2", flexible="2+")
class ExpireDelegationTokenResponse:
    """The token's new time of expiry."""

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
