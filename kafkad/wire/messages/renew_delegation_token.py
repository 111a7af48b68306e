from __future__ import annotations

from kafkad.wire.schema import Request, bytes_, int16, int32, int64, message


@message(key=39, versions="0-2", flexible="2+")
class RenewDelegationTokenRequest(Request["RenewDelegationTokenResponse"]):
    """Puts off the expiry of a token, known by its HMAC."""

    hmac: bytes = bytes_()
    renew_period_ms: int = int64()


@message(key=39, versions="0-2", flexible="2+")
class RenewDelegationTokenResponse:
    """The token's new time of expiry."""

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
