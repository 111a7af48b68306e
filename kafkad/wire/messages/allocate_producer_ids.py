from __future__ import annotations

from kafkad.wire.schema import Request, int16, int32, int64, message


@message(key=67, versions="0", flexible="0+")
class AllocateProducerIdsRequest(Request["AllocateProducerIdsResponse"]):
    """A broker asks the controller for a block of producer ids."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


@message(key=67, versions="0", flexible="0+")
class AllocateProducerIdsResponse:
    """The block: its first id and its length."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id_start: int = int64()
    producer_id_len: int = int32()
