"""How long a partition rests that its leader does not serve."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from kafkad.replica.fetchers import Followed
from kafkad.replica.following import Following
from kafkad.replica.partition import Partition


def test_it_rests_a_little_at_first_for_its_leader_may_hear_of_the_epoch_later() -> None:
    partition = SimpleNamespace(log=SimpleNamespace(topic_id=b"i" * 16), tp=SimpleNamespace(partition=0))
    followed = Followed(cast(Partition, partition), cast(Following, None))
    assert [followed.rest_ms(1_000) for _ in range(9)] == [10, 20, 40, 80, 160, 320, 640, 1_000, 1_000]
    assert Followed(cast(Partition, partition), cast(Following, None)).rest_ms(5) == 5
