"""`kctl partitions …` on a real Kafka 4.3 without ZooKeeper, with two log directories."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kctl.errors import Exit
from tests.kctl.conftest import Kctl, until
from tests.kctl.partitions.clusters import MB, create, fill, items, kafka, leaders, moves, throttles, write_plan
from tests.oracle.kafka import Kafka, missing

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(300)]


class TwoDirectories(Kafka):
    def __init__(self) -> None:
        super().__init__("4.3", heap="384m")

    @property
    def directories(self) -> list[str]:
        return [str(self.log_directory()), f"{self.log_directory()}b"]

    def _properties(self, i: int) -> dict[str, str]:
        return super()._properties(i) | {"log.dirs": ",".join(self.directories)}


@pytest.fixture(scope="module")
def kraft() -> Iterator[TwoDirectories]:
    if why := missing("4.3"):
        pytest.skip(why)
    with TwoDirectories() as cluster:
        yield cluster


@pytest.fixture
def on_kraft(kctl: Kctl, kraft: TwoDirectories, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Kctl:
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: kctl("-b", kraft.bootstrap, *arguments)


def directory_of(kraft: TwoDirectories, topic: str) -> str:
    """As Kafka's own tool has it."""
    said = kafka(kraft, "log-dirs", "--describe", "--topic-list", topic)
    [broker] = json.loads(said.splitlines()[-1])["brokers"]
    [found] = [each["logDir"] for each in broker["logDirs"] if any(not p["isFuture"] for p in each["partitions"])]
    return str(found)


def other(kraft: TwoDirectories, directory: str) -> str:
    [found] = [each for each in kraft.directories if each != directory]
    return found


def test_a_replica_moves_to_another_directory_and_back(on_kraft: Kctl, kraft: TwoDirectories) -> None:
    create(on_kraft, "dirs-moved", (1,))
    fill(kraft, "dirs-moved", 1, 10 * MB)
    before = directory_of(kraft, "dirs-moved")
    after = other(kraft, before)
    arguments = ("partitions", "move-dir", "dirs-moved:0", "--broker", "1", "--dir", after)
    assert on_kraft(*arguments, "--throttle", "200KB/s", "--no-wait", "-y").code == Exit.DONE
    [move] = moves(on_kraft)
    assert (move["topic"], move["state"], move["log_dirs"]) == ("dirs-moved", "moving", [after])
    assert [(each["owner"], each["value"], each["needed"]) for each in throttles(on_kraft)] == [("1", "200000", "yes")]
    [plan] = Path().glob("move-dir-*.json")
    assert on_kraft("partitions", "status", plan).code == Exit.FINDINGS
    ran = on_kraft("partitions", "apply", plan, "--throttle", "100MB/s", "-y")
    assert ran.code == Exit.DONE, ran.err
    assert (moves(on_kraft), throttles(on_kraft)) == ([], [])
    assert directory_of(kraft, "dirs-moved") == after
    assert on_kraft("partitions", "apply", f"rollback-{plan}", "-y").code == Exit.DONE
    assert directory_of(kraft, "dirs-moved") == before


def test_a_move_between_directories_is_cancelled(on_kraft: Kctl, kraft: TwoDirectories) -> None:
    create(on_kraft, "dirs-cancelled", (1,))
    fill(kraft, "dirs-cancelled", 1, 10 * MB)
    before = directory_of(kraft, "dirs-cancelled")
    arguments = ("partitions", "move-dir", "dirs-cancelled", "--broker", "1", "--dir", other(kraft, before))
    assert on_kraft(*arguments, "--throttle", "200KB/s", "--no-wait", "-y").code == Exit.DONE
    assert len(moves(on_kraft)) == 1
    assert on_kraft("partitions", "cancel", *Path().glob("move-dir-*.json"), "-y").code == Exit.DONE
    assert (moves(on_kraft), throttles(on_kraft)) == ([], [])
    assert directory_of(kraft, "dirs-cancelled") == before


def test_a_directory_that_is_not_there(on_kraft: Kctl, kraft: TwoDirectories) -> None:
    ran = on_kraft("partitions", "move-dir", "dirs-moved:0", "--broker", "1", "--dir", "/nowhere")
    assert (ran.code, "broker 1 has no log directory /nowhere" in ran.err) == (Exit.NOT_FOUND, True)
    assert kraft.directories[0] in ran.err


def test_what_works_with_one_broker_of_kraft(on_kraft: Kctl, kraft: TwoDirectories) -> None:
    create(on_kraft, "dirs-plain", (1,), (1,))
    assert leaders(on_kraft, "dirs-plain") == [1, 1]
    assert on_kraft("partitions", "elect", "dirs-plain", "-y").code == Exit.DONE
    write_plan("plan.json", ("dirs-plain", 0, [1]))
    assert on_kraft("partitions", "apply", "plan.json", "-y").code == Exit.DONE
    write_plan("absent.json", ("dirs-plain", 0, [2]))
    assert on_kraft("partitions", "apply", "absent.json", "-y").code == Exit.NOT_FOUND
    assert items(on_kraft, "partitions", "plan", "--rf", "2", "--topics", "dirs-plain", "--skip") == []


def test_a_throttle_of_kafkas_tool_is_left_over_until_it_is_cleared(on_kraft: Kctl, kraft: TwoDirectories) -> None:
    setting = "follower.replication.throttled.rate=5000"
    kafka(kraft, "configs", "--alter", "--entity-type", "brokers", "--entity-name", "1", "--add-config", setting)
    until(lambda: len(throttles(on_kraft)) == 1, "the throttle is set")
    assert (
        "left-over throttle: broker 1 follower.replication.throttled.rate = 5000"
        in on_kraft("partitions", "status").err
    )
    assert on_kraft("partitions", "throttle", "clear", "-y").code == Exit.DONE
    assert throttles(on_kraft) == [], "it was read back"
