"""`kctl partitions …` on three brokers in three racks, real Kafka's and kafkads; what it did is read back with Kafka's
own tools."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
from confluent_kafka import Producer

from kctl.errors import Exit
from tests.kctl.conftest import Kctl, Three, until
from tests.kctl.partitions.clusters import (
    MB,
    create,
    fill,
    items,
    kafka,
    leaders,
    moves,
    replicas,
    throttles,
    write_plan,
)

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(300)]

on_both = pytest.mark.parametrize("three", ["three_kafkas", "three_kafkads"], indirect=True)
"""The others are tried with real Kafka by `make test-long` only."""


@pytest.fixture(params=[pytest.param("three_kafkas", marks=pytest.mark.long), "three_kafkads"])
def three(request: pytest.FixtureRequest) -> Three:
    cluster: Three = request.getfixturevalue(request.param)
    return cluster


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def left_as_it_was_found(on_three: Kctl) -> Iterator[None]:
    """No move and no throttle outlives the test that made it."""
    yield
    assert moves(on_three) == []
    assert throttles(on_three) == []


class Load:
    """A producer that writes until it is stopped, each record once, and counts what was acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged = 0
        self.failed: list[str] = []
        self._stop = Event()
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
        self._topic = topic
        self._thread = Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def _run(self) -> None:
        while not self._stop.wait(0.01):
            self._producer.produce(self._topic, b"y" * 1000, on_delivery=self._delivered)
            self._producer.poll(0)
        self._producer.flush(60)

    def _delivered(self, error: object, message: object) -> None:
        if error:
            self.failed.append(str(error))
        else:
            self.acknowledged += 1

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def end_offsets(three: Three, topic: str) -> int:
    lines = kafka(three, "get-offsets", "--topic", topic).split()
    return sum(int(line.rsplit(":", 1)[1]) for line in lines)


def begun(three: Three, *arguments: str) -> subprocess.Popen[bytes]:
    """A kctl of its own, to be interrupted or killed."""
    command = [sys.executable, "-m", "kctl", "-b", three.bootstrap, *arguments]
    root = str(Path(__file__).parents[3])
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": root}
    )


def test_a_drain_under_load_ends_as_kafkas_own_tool_says(on_three: Kctl, three: Three) -> None:
    topic = "parts-drain"
    create(on_three, topic, (3, 1), (1, 2), (2, 3), (3, 2))
    fill(three, topic, 4, 20 * MB)
    before = end_offsets(three, topic)
    ran = on_three("partitions", "drain", "3", "--topics", topic, "--throttle", "10MB/s", "-o", "json")
    assert ran.code == Exit.DONE, ran.err
    planned = {item["partition"]: item for item in json.loads(ran.out)["items"]}
    assert set(planned) == {0, 2, 3}, "partition 1 is not on broker 3"
    assert planned[0]["copies"][0]["from"] == 3
    assert all(4 * MB < item["copy_bytes"] < 6 * MB for item in planned.values())
    with Load(three.bootstrap, topic) as load:
        ran = on_three("partitions", "apply", "plan.json", "--throttle", "10MB/s", "-y")
    assert ran.code == Exit.DONE, ran.err
    assert "verified: the replicas of 3 partitions are those of the plan" in ran.err
    assert (load.failed, end_offsets(three, topic)) == ([], before + load.acknowledged)
    assert replicas(on_three, topic) == [planned[0]["planned"], [1, 2], planned[2]["planned"], planned[3]["planned"]]
    assert leaders(on_three, topic) == [each[0] for each in replicas(on_three, topic)]
    said = kafka(
        three, "reassign-partitions", "--verify", "--preserve-throttles", "--reassignment-json-file", "plan.json"
    )
    assert [f"Reassignment of partition {topic}-{number} is completed." in said for number in (0, 2, 3)] == [True] * 3
    assert "No partition reassignments found." in kafka(three, "reassign-partitions", "--list")
    assert "throttled" not in kafka(three, "configs", "--describe", "--entity-type", "brokers")
    assert "throttled" not in kafka(three, "configs", "--describe", "--entity-type", "topics")
    assert not Path("plan.json.state").exists()
    assert on_three("partitions", "apply", "rollback-plan.json", "-y").code == Exit.DONE
    assert replicas(on_three, topic) == [[3, 1], [1, 2], [2, 3], [3, 2]]


@on_both
def test_a_plan_of_kafkas_generator_is_carried_out_unchanged(on_three: Kctl, three: Three) -> None:
    topic = "parts-generated"
    create(on_three, topic, (1,), (1,))
    Path("topics.json").write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    said = kafka(
        three, "reassign-partitions", "--generate", "--topics-to-move-json-file", "topics.json", "--broker-list", "2,3"
    )
    generated = said.split("Proposed partition reassignment configuration\n")[1]
    Path("kafka.json").write_text(generated)
    ran = on_three("partitions", "apply", "kafka.json", "-y")
    assert ran.code == Exit.DONE, ran.err
    wanted = {each["partition"]: each["replicas"] for each in json.loads(generated)["partitions"]}
    assert replicas(on_three, topic) == [wanted[0], wanted[1]]
    assert on_three("partitions", "status", "kafka.json").code == Exit.DONE
    ran = on_three("partitions", "plan", "--from-file", "topics.json", "--to", "2,3", "-o", "json")
    assert json.loads(ran.out)["items"] == [], "they are there already"


def test_a_plan_respects_racks(on_three: Kctl, approved: Callable[[str, str], None]) -> None:
    create(on_three, "parts-racks", (1, 2), (2, 3), (1, 3))
    create(on_three, "parts-racks-all", (1, 2, 3))
    ran = on_three("partitions", "drain", "2", "--topics", "parts-racks*", "--dry-run")
    assert (ran.code, "dry run: no plan was written" in ran.err) == (Exit.FINDINGS, True)
    approved("partitions-drain", ran.out.split("\n\n")[0].split("\n", 1)[1] + "\n")  # the rest tells of other tests
    assert not Path("plan.json").exists()
    ran = on_three("partitions", "plan", "--rf", "4", "--topics", "parts-racks")
    assert (ran.code, "RF 4 needs 4 brokers, 3 remain" in ran.out) == (Exit.FINDINGS, True)


@on_both
def test_a_cancelled_move_leaves_nothing_behind(on_three: Kctl, three: Three) -> None:
    topic = "parts-cancel"
    create(on_three, topic, (1, 2), (2, 1))
    fill(three, topic, 2, 10 * MB)
    write_plan("plan.json", (topic, 0, [3, 2]), (topic, 1, [2, 3]))
    ran = on_three("partitions", "apply", "plan.json", "--throttle", "100KB/s", "--no-wait", "-y")
    assert ran.code == Exit.DONE, ran.err
    assert [(each["partition"], each["adding"], each["removing"]) for each in moves(on_three)] == [
        (0, [3], [1]),
        (1, [3], [1]),
    ]
    listed = kafka(three, "reassign-partitions", "--list")
    assert [f"{topic}-{number}:" in listed for number in (0, 1)] == [True, True]
    assert on_three("partitions", "status", "plan.json").code == Exit.FINDINGS
    create(on_three, "parts-other", (1,))
    write_plan("other.json", ("parts-other", 0, [3]))
    ran = on_three("partitions", "apply", "other.json", "-y")
    assert (ran.code, f"other moves are under way: {topic}-0, {topic}-1" in ran.err) == (Exit.REFUSED, True)
    set_there = {(each["owner"], each["value"]) for each in throttles(on_three) if each["kind"] == "topic"}
    assert set_there == {(topic, "0:1,0:2,1:1,1:2"), (topic, "0:3,1:3")}
    ran = on_three("partitions", "cancel", "plan.json", "-y")
    assert ran.code == Exit.DONE, ran.err
    assert "No partition reassignments found." in kafka(three, "reassign-partitions", "--list")
    assert replicas(on_three, topic) == [[1, 2], [2, 1]], "in their old order too"
    assert not Path("plan.json.state").exists()
    assert "throttled" not in kafka(three, "configs", "--describe", "--entity-type", "brokers")


def test_a_move_of_kafkas_tool_is_seen_and_cancelled_with_its_throttle(on_three: Kctl, three: Three) -> None:
    topic = "parts-theirs"
    create(on_three, topic, (1,))
    fill(three, topic, 1, 10 * MB)
    write_plan("theirs.json", (topic, 0, [2]))
    kafka(
        three,
        *("reassign-partitions", "--execute", "--throttle", "100000", "--reassignment-json-file", "theirs.json"),
    )
    [move] = moves(on_three)
    assert (move["topic"], move["now"], move["planned"], move["state"]) == (topic, [1], [2], "moving")
    assert on_three("partitions", "cancel", f"{topic}:0", "-y").code == Exit.DONE
    assert replicas(on_three, topic) == [[1]]


def test_after_ctrl_c_the_move_goes_on_and_another_run_ends_it(on_three: Kctl, three: Three) -> None:
    topic = "parts-interrupted"
    create(on_three, topic, (1,))
    fill(three, topic, 1, 10 * MB)
    write_plan("plan.json", (topic, 0, [2]))
    running = begun(three, "partitions", "apply", "plan.json", "--throttle", "100KB/s", "-y")
    until(lambda: len(moves(on_three)) == 1, "the move has begun", 60)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == Exit.INTERRUPTED
    assert b"interrupted: what moves goes on moving, and the throttle of 100.0 KB/s stays" in said
    assert f"resume:   kctl -b {three.bootstrap} partitions apply plan.json".encode() in said
    assert len(moves(on_three)) == 1
    ran = on_three("partitions", "apply", "plan.json", "--throttle", "50MB/s", "-y")
    assert ran.code == Exit.DONE, ran.err
    assert replicas(on_three, topic) == [[2]]


def test_a_killed_kctl_leaves_what_another_run_needs_to_restore_throttles(on_three: Kctl, three: Three) -> None:
    topic = "parts-killed"
    create(on_three, topic, (1,))
    fill(three, topic, 1, 10 * MB)
    config = {"name": "leader.replication.throttled.rate", "config_operation": 0, "value": "123456789"}
    resource = {"resource_type": 4, "resource_name": "1", "configs": [config]}
    request = json.dumps({"resources": [resource]})
    assert on_three("-y", "raw", "IncrementalAlterConfigs", request, "--broker", "1").code == Exit.DONE
    until(lambda: len(throttles(on_three)) == 1, "the deliberate throttle is set")
    write_plan("plan.json", (topic, 0, [3]))
    running = begun(three, "partitions", "apply", "plan.json", "--throttle", "100KB/s", "-y")
    until(lambda: len(moves(on_three)) == 1, "the move has begun", 60)
    running.kill()
    running.communicate(timeout=60)
    assert Path("plan.json.state").exists()
    ran = on_three("partitions", "apply", "plan.json", "--throttle", "50MB/s", "-y")
    assert ran.code == Exit.DONE, ran.err
    assert [(each["owner"], each["value"]) for each in throttles(on_three)] == [("1", "123456789")]
    assert on_three("partitions", "throttle", "clear", "-y").code == Exit.DONE
    assert throttles(on_three) == [], "it was read back"


@on_both
def test_the_preferred_replica_gets_the_lead_back(on_three: Kctl, three: Three) -> None:
    topic = "parts-elected"
    create(on_three, topic, (1, 2, 3), (2, 3, 1))
    assert on_three("partitions", "reassign", f"{topic}:0=3,1,2", "--no-elect", "-y").code == Exit.DONE
    assert leaders(on_three, topic) == [1, 2]
    ran = on_three("partitions", "elect", topic, "-y", "-o", "json")
    assert ran.code == Exit.DONE, ran.err
    results = [(each["leader"], each["new_leader"], each["result"]) for each in json.loads(ran.out)["items"]]
    assert results == [(1, 3, "elected"), (2, 2, "leads already")]
    assert "Leader: 3" in kafka(three, "topics", "--describe", "--topic", topic).splitlines()[1]


@pytest.fixture
def stopped(three: Three) -> Iterator[Callable[[int], None]]:
    """Stops a broker; whatever was stopped runs again after the test."""
    down: list[int] = []

    def stop(broker: int) -> None:
        three.brokers[broker - 1].stop()
        down.append(broker)

    yield stop
    for broker in down:
        if three.brokers[broker - 1].process.poll() is not None:
            three.restart(broker - 1, kill=True)


def all_there(kctl: Kctl, topic: str) -> bool:
    return all(
        each["isr"] and len(each["isr"]) == len(each["replicas"]) for each in items(kctl, "partitions", "list", topic)
    )


def test_a_broker_that_is_down_keeps_its_throttle_and_is_named_until_it_is_back(
    on_three: Kctl, three: Three, stopped: Callable[[int], None]
) -> None:
    """KAFKA-13392: Kafka's tool times out on it, and would leave the throttle behind."""
    topic = "parts-down"
    create(on_three, topic, (1, 2))
    create(on_three, "parts-offline", (2,))
    create(on_three, "parts-behind", (3, 2))
    on_three("groups", "describe", "nobody")  # so that there is a topic of offsets
    fill(three, topic, 1, 20 * MB)
    write_plan("plan.json", (topic, 0, [1, 3]))
    running = begun(three, "partitions", "apply", "plan.json", "--throttle", "1MB/s", "-y")
    until(lambda: len(moves(on_three)) == 1, "the move has begun", 60)
    stopped(2)
    _, said = running.communicate(timeout=200)
    assert running.returncode == Exit.UNREACHABLE, said.decode()
    assert b"the throttle of broker 2 is still on: it does not answer" in said
    assert replicas(on_three, topic) == [[1, 3]]

    ran = on_three("partitions", "list", "--match", "parts-*", "--unhealthy", "-o", "json")
    unhealthy = {each["topic"]: each["health"] for each in json.loads(ran.out)["items"]}
    assert (ran.code, unhealthy.get("parts-offline")) == (Exit.DONE, "offline")
    for command in ("partitions list", "topics list", "topics describe"):
        assert "__consumer_offsets" in on_three(*command.split(), "--unhealthy").out, command
    ran = on_three("partitions", "drain", "2", "--topics", "parts-offline,parts-down", "-o", "json")
    assert ran.code == Exit.FINDINGS
    assert [(each["topic"], each["why"], each["help"]) for each in json.loads(ran.out)["items"]] == [
        ("parts-offline", "it has no leader to copy from: start broker 2", "start broker 2")
    ]

    write_plan("later.json", ("parts-later", 0, [3]))
    create(on_three, "parts-later", (1,))
    waiting = begun(three, "partitions", "apply", "later.json", "--pause-if-urp", "-y")
    assert waiting.stderr is not None
    assert next(line for line in waiting.stderr if line.startswith(b"waiting")).endswith(b"under-replicated\n")
    assert replicas(on_three, "parts-later") == [[1]]

    three.restart(1, kill=True)
    until(lambda: all_there(on_three, "parts-offline"), "broker 2 leads again", 60)
    waiting.communicate(timeout=100)
    assert (waiting.returncode, replicas(on_three, "parts-later")) == (Exit.DONE, [[3]])
    assert [each["owner"] for each in throttles(on_three) if each["kind"] == "topic"] == []
    assert f"when it is back: kctl -b {three.bootstrap} partitions cancel plan.json".encode() in said
    ran = on_three("partitions", "cancel", "plan.json", "-y")
    assert ran.code == Exit.DONE, ran.err
    assert not Path("plan.json.state").exists()
    assert "throttled" not in kafka(three, "configs", "--describe", "--entity-type", "brokers", "--entity-name", "2")


def test_a_plan_outlives_the_controller(on_three: Kctl, three: Three) -> None:
    """It is killed, so that for as long as ZooKeeper remembers it nobody answers in its place."""
    topic = "parts-headless"
    controller = json.loads(on_three("raw", "Metadata", '{"topics": []}').out)["controller_id"]
    source, target = [broker for broker in (1, 2, 3) if broker != controller]
    create(on_three, topic, (source,))
    fill(three, topic, 1, 20 * MB)
    write_plan("plan.json", (topic, 0, [target]))
    running = begun(three, "partitions", "apply", "plan.json", "--throttle", "1MB/s", "-y")
    until(lambda: len(moves(on_three)) == 1, "the move has begun", 60)
    three.brokers[controller - 1].kill()
    try:
        _, said = running.communicate(timeout=200)
    finally:
        three.restart(controller - 1, kill=True)
    assert running.returncode == Exit.DONE, said.decode()
    assert replicas(on_three, topic) == [[target]]


def test_an_unclean_election_says_where_the_survivor_ends(
    on_three: Kctl, three: Three, stopped: Callable[[int], None]
) -> None:
    topic = "parts-unclean"
    create(on_three, topic, (2, 3))
    fill(three, topic, 1, MB)
    until(lambda: all_there(on_three, topic), "both replicas are in sync")
    stopped(3)
    until(lambda: not all_there(on_three, topic), "broker 3 is out of sync")
    fill(three, topic, 1, MB)
    stopped(2)
    three.restart(2, kill=True)
    until(lambda: leaders(on_three, topic) == [None], "nobody leads", 60)
    ran = on_three("partitions", "elect", f"{topic}:0", "--preferred", "-y")
    assert (ran.code, "broker 2 is down" in ran.err) == (Exit.FAILED, True)

    def rehearsed() -> tuple[object, ...]:
        ran = on_three("partitions", "elect", topic, "--unclean", "--dry-run", "-o", "json")
        [item] = json.loads(ran.out)["items"]
        return item["new_leader"], item["survivors"], item["result"]

    until(lambda: rehearsed() == (3, "3 ends at 100", "elect, losing records"), "broker 3 tells where it ends", 60)
    ran = on_three("partitions", "elect", topic, "--unclean")
    assert (ran.code, "Records after these ends are lost for good" in ran.err) == (Exit.REFUSED, True)
    assert on_three("partitions", "elect", topic, "--unclean", "-y").code == Exit.DONE
    assert leaders(on_three, topic) == [3]
    three.restart(1, kill=True)
    until(lambda: all_there(on_three, topic), "broker 2 is back in sync", 60)
    assert end_offsets(three, topic) == 100
