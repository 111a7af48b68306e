"""Sequences of batches that idempotent producers may send, and Kafka 3.9.2's answer to each batch.

`test_producers` holds our states against these answers, `test_producers_oracle` holds the answers against a running
Kafka.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkad.errors import ErrorCode

MAX_SEQUENCE = 2**31 - 1
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
OLD_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH


class Sent(NamedTuple):
    """A batch and its answer: an error, or the offset, which for a duplicate is that of the first time."""

    producer: int
    epoch: int
    sequence: int
    count: int
    answer: ErrorCode | int


SCENARIOS = {
    "in order": [Sent(1, 0, 0, 3, 0), Sent(1, 0, 3, 1, 3), Sent(1, 0, 4, 2, 4)],
    "a gap": [Sent(1, 0, 0, 3, 0), Sent(1, 0, 4, 1, OUT_OF_ORDER), Sent(1, 0, 3, 1, 3)],
    "an overlap": [Sent(1, 0, 0, 3, 0), Sent(1, 0, 2, 2, OUT_OF_ORDER), Sent(1, 0, 0, 2, OUT_OF_ORDER)],
    "duplicates": [
        *(Sent(1, 0, 2 * n, 2, 2 * n) for n in range(6)),
        *(Sent(1, 0, 2 * n, 2, 2 * n) for n in range(1, 6)),
        Sent(1, 0, 0, 2, OUT_OF_ORDER),
        Sent(1, 0, 12, 1, 12),
        Sent(1, 0, 2, 2, OUT_OF_ORDER),
    ],
    "two producers": [Sent(1, 0, 0, 1, 0), Sent(2, 0, 0, 5, 1), Sent(1, 0, 1, 1, 6), Sent(2, 0, 0, 5, 1)],
    "a new epoch": [
        Sent(1, 0, 0, 1, 0),
        Sent(1, 1, 1, 1, OUT_OF_ORDER),
        Sent(1, 1, 0, 1, 1),
        Sent(1, 0, 1, 1, OLD_EPOCH),
        Sent(1, 0, 0, 1, OLD_EPOCH),
        Sent(1, 1, 1, 1, 2),
        Sent(1, 5, 0, 1, 3),
        Sent(1, 1, 1, 1, OLD_EPOCH),
    ],
    "an epoch to begin with": [Sent(1, 7, 0, 1, 0), Sent(1, 6, 0, 1, OLD_EPOCH)],
}
MIDDLE = {
    "begun in the middle": [Sent(1, 0, 41, 1, 0), Sent(1, 0, 40, 1, OUT_OF_ORDER), Sent(1, 0, 42, 1, 1)],
    "wrapped between batches": [Sent(1, 0, MAX_SEQUENCE, 1, 0), Sent(1, 0, 0, 1, 1), Sent(1, 0, MAX_SEQUENCE, 1, 0)],
    "wrapped in a batch": [
        Sent(1, 0, MAX_SEQUENCE - 1, 4, 0),
        Sent(1, 0, 3, 1, OUT_OF_ORDER),
        Sent(1, 0, 2, 1, 4),
        Sent(1, 0, MAX_SEQUENCE - 1, 4, 0),
    ],
}
"""Those that do not begin with 0: Kafka takes them anywhere, we where a producer may have been forgotten."""
