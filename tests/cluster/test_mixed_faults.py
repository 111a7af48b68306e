"""A kafkad between two brokers of Kafka 3.9: each is killed, and hangs, while either kind is the controller."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.cluster.gaps import CLIENT_S, SESSION_S, comes_back
from tests.cluster.history import new_load
from tests.cluster.processes import Cluster
from tests.oracle.zookeeper import missing

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.java,
    pytest.mark.timeout(900),
    pytest.mark.skipif(missing("3.8") is not None, reason=missing("3.8") or ""),
]

KINDS = {1: "kafka", 2: "kafkad", 3: "kafka"}
OTHER_SESSION_S = 4 * SESSION_S
"""Kafka's brokers have longer ones here."""
GAP_S = OTHER_SESSION_S + 2 * CLIENT_S


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("mixed"), kinds=KINDS) as cluster:
        yield cluster


@pytest.mark.parametrize("fault", ["killed", "suspended"])
@pytest.mark.parametrize("controllers", ["kafka", "kafkad"])
def test_each_broker_goes_and_comes_back(mixed: Cluster, controllers: str, fault: str) -> None:
    """All partitions go on without it, and nothing is lost."""
    of_kind = [broker for broker, kind in KINDS.items() if kind == controllers]
    for victim in mixed.ids:
        load = new_load(mixed)
        with load:
            controller = mixed.until_controller()
            if controller not in of_kind:
                controller = mixed.depose(of_kind)
            load.run(2)
            load.until_all_go_on()
            begun = time.monotonic()
            if fault == "killed":
                mixed.kill(victim)
            else:
                mixed.suspend(victim)
            mixed.until_gone(victim)
            load.until_all_go_on()
            gap = load.gap(begun)
            if fault == "killed":
                mixed.start(victim)
            else:
                mixed.resume(victim)
            if not comes_back(load) and KINDS[victim] == "kafka":
                print(f"kafka: broker {victim} has forgotten a LeaderAndIsr, and is started anew")
                mixed.stop(victim)
                mixed.start(victim)
        print(f"controller {controller}, {KINDS[controller]}: {victim}, {KINDS[victim]}, {fault}: gap {gap:.2f} s")
        assert gap <= GAP_S
        load.check()
