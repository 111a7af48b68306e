from __future__ import annotations

from kafkad.wire.schema import Request, boolean, int16, int32, int64, message, string


@message(key=22, versions="0-6", flexible="2+")
class InitProducerIdRequest(Request["InitProducerIdResponse"]):
    """Asks for a producer id, or for the next epoch of the one a transactional id has."""

    transactional_id: str | None = string(nullable="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)  # the one to go on with after an error (KIP-360), or -1
    producer_epoch: int = int16("3+", default=-1)
    enable_2pc: bool = boolean("6+")
    keep_prepared_txn: bool = boolean("6+")


@message(key=22, versions="0-6", flexible="2+")
class InitProducerIdResponse:
    """The producer id and epoch to write with."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)
