"""Thousands of requests sent at once, over each of many connections; or one over each of hundreds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.attacks.attacks import at_once, create, metadata, pour

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

CONNECTIONS, SECONDS = 20, 5


@pytest.mark.parametrize("read", [False, True], ids=["unread", "read"])
def test_metadata_of_a_large_topic(suffer: Callable[..., None], read: bool) -> None:
    streams = [9000 * metadata("large")] * CONNECTIONS
    suffer(
        f"{CONNECTIONS} x 9,000 Metadata of 1,000 partitions, {'' if read else 'un'}read",
        partial(pour, streams=streams, seconds=SECONDS, read=read),
        prepare=partial(create, topic="large", partitions=1000),
        kafka_ms=460,
    )


def test_cheap_requests(suffer: Callable[..., None]) -> None:
    streams = [100_000 * metadata("honest")] * CONNECTIONS
    suffer(
        f"{CONNECTIONS} x 100,000 Metadata of one partition, read",
        partial(pour, streams=streams, seconds=SECONDS, read=True),
    )


@pytest.mark.parametrize("version", [0, 9])
def test_hundreds_that_ask_much_in_the_same_moment(suffer: Callable[..., None], version: int) -> None:
    suffer(
        f"300 at once, each with one Metadata of 1,000 partitions, version {version}",
        partial(at_once, request=metadata("large", version=version), connections=300, rounds=5),
        prepare=partial(create, topic="large", partitions=1000),
    )
