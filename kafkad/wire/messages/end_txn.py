from __future__ import annotations

from kafkad.wire.schema import Request, boolean, int16, int32, int64, message, string


@message(key=26, versions="0-5", flexible="3+")
class EndTxnRequest(Request["EndTxnResponse"]):
    """Commits or aborts a transaction."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()  # false: abort


@message(key=26, versions="0-5", flexible="3+")
class EndTxnResponse:
    """True if the end was written down; v5 brings the producer's next epoch."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)
