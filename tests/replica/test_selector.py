"""Which replica a consumer in a rack is sent to."""

from __future__ import annotations

import pytest

from kafkad.model import BrokerInfo
from kafkad.replica.isr import Follower
from kafkad.replica.selector import nearest

BROKERS = {number: BrokerInfo(id=number, endpoints=(), rack=rack) for number, rack in ((1, "a"), (2, "b"), (3, "b"))}
FOLLOWERS = {2: Follower(end_offset=8, start_offset=0), 3: Follower(end_offset=9, start_offset=4)}


@pytest.mark.parametrize(
    ("rack", "offset", "isr", "chosen"),
    [
        ("a", 5, (1, 2, 3), 1),  # the leader is there
        ("c", 5, (1, 2, 3), 1),  # nobody is
        ("b", 5, (1, 2, 3), 3),  # who has most
        ("b", 2, (1, 2, 3), 2),  # whose log has the offset
        ("b", 9, (1, 2), 1),
        ("b", 5, (1, 2), 2),  # who is in sync
        ("b", 5, (1,), 1),
    ],
)
def test_a_replica_in_the_rack_that_is_in_sync_and_has_the_offset(
    rack: str, offset: int, isr: tuple[int, ...], chosen: int
) -> None:
    assert nearest(rack, offset, 1, FOLLOWERS, isr, BROKERS) == chosen


def test_a_broker_that_is_gone_is_not_chosen() -> None:
    assert nearest("b", 5, 1, FOLLOWERS, (1, 2, 3), {1: BROKERS[1], 2: BROKERS[2]}) == 2
