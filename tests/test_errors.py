"""Refusals, as they go to clients."""

from __future__ import annotations

from kafkad.errors import ErrorCode, KafkaError
from kafkad.wire.messages.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult
from kafkad.wire.schema import encode


def test_a_code_of_a_later_version_is_taken_as_an_unknown_error() -> None:
    assert ErrorCode.of(999) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert ErrorCode.of(ErrorCode.NOT_COORDINATOR) is ErrorCode.NOT_COORDINATOR


def test_a_message_about_thousands_of_things_fits_into_an_answer() -> None:
    error = KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Unknown broker(s): {', '.join(map(str, range(20_000)))}")
    result = CreatePartitionsTopicResult(name="t", error_code=error.code, error_message=error.message)
    assert len(encode(CreatePartitionsResponse(results=[result]), 3)) < 5_000
    assert str(error) == error.message
