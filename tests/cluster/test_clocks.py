"""The wall clocks of brokers jump, under load with real clients."""

from __future__ import annotations

import shutil
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.gaps import CLIENT_S, report
from tests.cluster.history import Load
from tests.cluster.members import Member, until_all_commit
from tests.cluster.processes import Cluster
from tests.oracle.zookeeper import missing

pytestmark = [
    pytest.mark.long,
    pytest.mark.java,
    pytest.mark.timeout(600),
    pytest.mark.skipif(missing("3.8") is not None, reason=missing("3.8") or ""),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed"),
]

HOUR_S = 3600
DAY_S = 24 * HOUR_S


class Clocks:
    """Of the brokers; they begin as the machine's."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._library = directory / "clock.so"
        source = Path(__file__).with_name("clock.c")
        subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", str(self._library), str(source), "-ldl"], check=True)

    def wrapper(self, broker: int) -> list[str]:
        self.jump(broker, 0)
        return ["env", f"LD_PRELOAD={self._library}", f"CLOCK_OFFSET={self._file(broker)}"]

    def jump(self, broker: int, seconds: int) -> None:
        """To so many seconds before or after the machine's clock."""
        with self._file(broker).open("r+b" if self._file(broker).exists() else "wb") as file:
            file.write(struct.pack("=q", seconds))

    def _file(self, broker: int) -> Path:
        return self._directory / f"clock-{broker}"


@pytest.fixture
def clocks(tmp_path: Path) -> Clocks:
    return Clocks(tmp_path)


@pytest.fixture
def cluster(clocks: Clocks, new_cluster: Callable[..., Cluster]) -> Cluster:
    return new_cluster(wrappers={broker: clocks.wrapper(broker) for broker in (1, 2, 3)})


def test_they_jump(cluster: Cluster, clocks: Clocks, load: Load) -> None:
    """Nobody waits, nobody is taken for dead, and no member of a group has to join again."""
    members = [Member(cluster, load.topic, number) for number in range(2)]
    for member in members:
        member.start()
    try:
        until_all_commit(cluster, members, 0)
        assigned = [list(member.assigned) for member in members]
        states = [cluster.state(load.topic, partition) for partition in load.partitions]
        controller = cluster.until_controller()
        one, other = cluster.peers(controller)
        for jumps in ({one: HOUR_S}, {controller: -HOUR_S}, {other: DAY_S, one: -DAY_S}, {controller: DAY_S}):
            begun = time.monotonic()
            for broker, seconds in jumps.items():
                clocks.jump(broker, seconds)
            load.run(3)
            report(cluster, f"clocks jump: {jumps}", load, begun, CLIENT_S)
            until_all_commit(cluster, members, begun)
        assert cluster.controller == controller
        assert [cluster.state(load.topic, partition) for partition in load.partitions] == states
        assert [member.assigned for member in members] == assigned
    finally:
        for member in members:
            member.stop()
    broker = cluster.ids[0]
    cluster.stop(broker)
    cluster.start(broker)
    load.whole()
