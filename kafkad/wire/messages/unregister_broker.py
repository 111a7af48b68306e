from __future__ import annotations

from kafkad.wire.schema import Request, int16, int32, message, string


@message(key=64, versions="0", flexible="0+")
class UnregisterBrokerRequest(Request["UnregisterBrokerResponse"]):
    """Forgets a broker of a KRaft cluster."""

    broker_id: int = int32()


@message(key=64, versions="0", flexible="0+")
class UnregisterBrokerResponse:
    """True if the broker was forgotten."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
