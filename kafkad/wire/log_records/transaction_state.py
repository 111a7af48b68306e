"""Keys and values in `__transaction_state`. Two bytes with the version go before each."""

from __future__ import annotations

from kafkad.wire.schema import array, int8, int16, int32, int64, message, nested, string


@message(versions="0")
class TransactionLogKey:
    """The transactional id."""

    transactional_id: str = string("0")


@nested
class PartitionsSchema:
    topic: str = string()
    partition_ids: list[int] = array(int32)


@message(versions="0-1", flexible="1+")
class TransactionLogValue:
    """A transaction's producer, state and partitions."""

    producer_id: int = int64()
    previous_producer_id: int = int64("1+", default=-1, tag=0)
    next_producer_id: int = int64("1+", default=-1, tag=1)
    producer_epoch: int = int16()
    next_producer_epoch: int = int16("1+", default=-1, tag=3)
    transaction_timeout_ms: int = int32()
    # 0 empty, 1 ongoing, 2 and 3 prepared, 4 and 5 complete (commit, abort), 6 dead, 7 fencing.
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, nullable="0+")  # null: none
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16("1+", tag=2)
