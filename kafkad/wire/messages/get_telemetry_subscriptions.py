from __future__ import annotations

from kafkad.wire.schema import Request, array, boolean, int8, int16, int32, message, string, uuid


@message(key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsRequest(Request["GetTelemetrySubscriptionsResponse"]):
    """A client asks which of its metrics the broker wants."""

    client_instance_id: bytes = uuid()


@message(key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsResponse:
    """The metrics wanted and how often."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    client_instance_id: bytes = uuid()
    subscription_id: int = int32()
    accepted_compression_types: list[int] = array(int8)
    push_interval_ms: int = int32()
    telemetry_max_bytes: int = int32()
    delta_temporality: bool = boolean()
    requested_metrics: list[str] = array(string)
