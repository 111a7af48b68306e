from __future__ import annotations

from kafkad.wire.schema import Request, boolean, bytes_, int8, int16, int32, message, uuid


@message(key=72, versions="0", flexible="0+")
class PushTelemetryRequest(Request["PushTelemetryResponse"]):
    """A client's metrics, in OTLP."""

    client_instance_id: bytes = uuid()
    subscription_id: int = int32()
    terminating: bool = boolean()
    compression_type: int = int8()
    metrics: bytes = bytes_()


@message(key=72, versions="0", flexible="0+")
class PushTelemetryResponse:
    """True if the metrics were taken."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
