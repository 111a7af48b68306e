from __future__ import annotations

from kafkad.wire.schema import Request, array, int16, int32, int64, message, nested, string


@message(key=66, versions="0-2", flexible="0+")
class ListTransactionsRequest(Request["ListTransactionsResponse"]):
    """Asks a coordinator for its transactional ids, filtered."""

    state_filters: list[str] = array(string)
    producer_id_filters: list[int] = array(int64)
    duration_filter: int = int64("1+", default=-1)  # milliseconds; only transactions open for longer; -1: any
    transactional_id_pattern: str | None = string("2+", nullable="2+", default=None)


@nested
class TransactionState:
    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


@message(key=66, versions="0-2", flexible="0+")
class ListTransactionsResponse:
    """The transactional ids of the answering coordinator."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(string)
    transaction_states: list[TransactionState] = array(TransactionState)
