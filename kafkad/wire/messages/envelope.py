from __future__ import annotations

from kafkad.wire.schema import Request, bytes_, int16, message


@message(key=58, versions="0", flexible="0+")
class EnvelopeRequest(Request["EnvelopeResponse"]):
    """A request that a broker passes on for a client."""

    request_data: bytes = bytes_()
    request_principal: bytes | None = bytes_(nullable="0+")
    client_host_address: bytes = bytes_()


@message(key=58, versions="0", flexible="0+")
class EnvelopeResponse:
    """The answer to the request inside."""

    response_data: bytes | None = bytes_(nullable="0+", default=None)
    error_code: int = int16()
