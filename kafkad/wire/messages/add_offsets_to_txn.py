from __future__ import annotations

from kafkad.wire.schema import Request, int16, int32, int64, message, string


@message(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest(Request["AddOffsetsToTxnResponse"]):
    """Makes a group's offset commits a part of a transaction."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


@message(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    """True if the group's offsets partition was added."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
