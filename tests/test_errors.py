"""Refusals, as they go to clients."""

from __future__ import annotations

from kafkad.errors import ErrorCode, KafkaError
from kafkad.wire.messages.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult
from kafkad.wire.schema import encode


def test_a_message_about_thousands_of_things_fits_into_an_answer() -> None:
    error = KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Unknown broker(s): {', '.join(map(str, range(20_000)))}")
    result = CreatePartitionsTopicResult(name="t", error_code=error.code, error_message=error.message)
    assert len(encode(CreatePartitionsResponse(results=[result]), 3)) < 5_000
    assert str(error) == error.message
