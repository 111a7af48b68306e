from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from kafkad.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from kctl.brokers.facts import counts
from kctl.brokers.release import release
from kctl.errors import Exit
from tests.kctl.conftest import Kctl


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ({0: (0, 11), 1: (0, 17), 2: (0, 9), 3: (0, 12)}, "3.9"),
        ({0: (3, 12), 1: (4, 17), 2: (1, 10), 3: (0, 13)}, "4.0"),
        ({0: (3, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13)}, "4.2"),
        ({0: (0, 9), 1: (0, 15), 2: (0, 8), 3: (0, 12)}, "3.5"),
        ({0: (0, 7), 1: (0, 10)}, "before 3.1"),
        ({}, "before 3.1"),
    ],
)
def test_releases(versions: Mapping[int, tuple[int, int]], expected: str) -> None:
    assert release(versions) == expected


def test_what_brokers_lead_hold_and_lag() -> None:
    partitions = [
        MetadataResponsePartition(leader_id=1, replica_nodes=[1, 2], isr_nodes=[1, 2]),
        MetadataResponsePartition(leader_id=-1, replica_nodes=[3], isr_nodes=[3]),
        MetadataResponsePartition(leader_id=1, replica_nodes=[2, 1, 3], isr_nodes=[1]),
    ]
    led, held, lagging = counts([MetadataResponseTopic(partitions=partitions)])
    assert (led, held, lagging) == ({1: 2}, {1: 2, 2: 2, 3: 2}, {2: 1, 3: 1})


def test_list(on_broker: Kctl) -> None:
    on_broker("topics", "create", "brokers-list", "-p", 2, "-r", 1, "-y")
    ran = on_broker("brokers", "list", "-o", "json")
    (row,) = json.loads(ran.out)["items"]
    assert (ran.code, row["id"], row["host"]) == (Exit.DONE, 1, "127.0.0.1")
    assert (row["controller"], row["state"]) == (True, "ok")
    assert row["leaders"] == row["partitions"] >= 2
    assert row["free_bytes"] > 0
    assert on_broker("brokers", "ls").out.splitlines()[1].endswith("yes         ok")
