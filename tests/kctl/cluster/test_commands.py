from __future__ import annotations

import json

from kctl.cluster.mode import mode
from kctl.errors import Exit
from tests.kctl.conftest import Kctl


def test_modes() -> None:
    assert mode({55: (0, 2)}) == "kraft"
    assert mode({4: (0, 7)}) == "zookeeper"
    assert mode({3: (0, 12)}) == "embedded"


def test_describe(on_broker: Kctl) -> None:
    on_broker("topics", "create", "cluster-described", "-p", 2, "-r", 1, "-y")
    ran = on_broker("cluster", "describe")
    assert (ran.code, ran.err) == (Exit.DONE, "")
    assert ran.out.splitlines()[2:4] == ["brokers     1: 1", "racks       -"]
    (row,) = json.loads(on_broker("cluster", "describe", "-o", "json").out)["items"]
    assert (row["brokers"], row["down"], row["controller"], row["offline"]) == ([1], [], 1, 0)
    assert row["partitions"] >= row["topics"] >= 1
