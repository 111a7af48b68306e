"""Defects that other command lines for Kafka were seen to have: each a test, so that kctl never has it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from kctl.errors import Exit
from kctl.reach.session import Session
from tests.kctl.acceptance.conftest import Cluster, on_several_brokers
from tests.kctl.conftest import until
from tests.oracle.kafka import free_port

NewTopic = Callable[..., str]
Send = Callable[..., None]

CPU_SECONDS = 0.5


UNKNOWN = [
    ["topics", "list", "accept-nothing"],
    ["topics", "describe", "accept-nothing"],
    ["topics", "delete", "accept-nothing", "-y"],
    ["topics", "add-partitions", "accept-nothing", "-p", "3", "-y"],
    ["topics", "offsets", "accept-nothing"],
    ["topics", "truncate", "accept-nothing", "--all", "-y"],
    ["partitions", "list", "accept-nothing"],
    ["partitions", "plan", "--topics", "accept-nothing", "--to", "1"],
    ["partitions", "reassign", "accept-nothing:0=1", "-y"],
    ["configs", "describe", "topic/accept-nothing"],
    ["configs", "unset", "topic/accept-nothing", "retention.ms", "-y"],
    ["consume", "accept-nothing"],
    ["produce", "accept-nothing", "--value", "lost"],
    ["copy", "accept-nothing", "accept-nowhere"],
    ["groups", "list", "accept-nothing"],
    ["groups", "describe", "accept-nothing"],
    ["groups", "lag", "accept-nothing"],
    ["groups", "members", "accept-nothing"],
    ["groups", "export", "accept-nothing"],
    ["groups", "rebalance", "accept-nothing"],
    ["groups", "rebalance", "accept-nothing", "--all", "-y"],
    ["groups", "delete", "accept-nothing", "-y"],
    ["groups", "delete-offsets", "accept-nothing", "--topic", "accept-nothing", "-y"],
    ["groups", "clone", "accept-nothing", "accept-nowhere", "-y"],
    ["groups", "reset-offsets", "accept-nothing", "--all-topics", "--to", "latest", "-y"],
    ["groups", "reset-offsets", "accept-nothing", "--topic", "accept-nothing", "--to", "latest", "-y"],
]


def test_what_is_not_there_never_exits_with_0(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    found = {" ".join(words): cluster.kctl(*words) for words in UNKNOWN}
    assert {words: ran for words, ran in found.items() if ran.code != Exit.NOT_FOUND} == {}
    assert {words: ran.err for words, ran in found.items() if "defect" in ran.err or not ran.err} == {}
    assert list(tmp_path.glob("*.csv")) == [], "nothing to undo"


def test_a_name_is_no_pattern(cluster: Cluster, topic: NewTopic, tmp_path: Any) -> None:
    """cozystack#3580: `audit.events` selected `audit-events`, and Kafka's own tool deletes so."""
    topic("accept-dot-x")
    for verb in (["list"], ["describe"], ["delete", "-y"], ["offsets"]):
        assert cluster.kctl("topics", verb[0], "accept.dot.x", *verb[1:]).code == Exit.NOT_FOUND
    topic("accept.dot.y")
    cluster.does("topics", "delete", "accept.dot.y", "-y", "--undo-dir", tmp_path)
    assert cluster.does("topics", "list", "--match", "accept?dot?[xy]", "-o", "name").out == "accept-dot-x\n"


@on_several_brokers
def test_replicas_keep_the_order_of_their_assignment(cluster: Cluster) -> None:
    placed = [[3, 1, 2], [1, 3, 2], [2, 3, 1]]
    text = ";".join(f"{number}={','.join(map(str, replicas))}" for number, replicas in enumerate(placed))
    cluster.does("topics", "create", "accept-order", "--replicas", text, "-y")
    shown = cluster.item("topics", "describe", "accept-order")
    assert [partition["replicas"] for partition in shown["partitions"]] == placed
    assert [partition["preferred_leader"] for partition in shown["partitions"]] == [3, 1, 2]
    assert [row["replicas"] for row in cluster.items("partitions", "list", "accept-order")] == placed
    for table in (("topics", "describe", "accept-order"), ("partitions", "list", "accept-order")):
        assert "3,1,2" in cluster.does(*table).out


@on_several_brokers
def test_draining_moves_only_what_is_on_the_broker(cluster: Cluster, tmp_path: Any) -> None:
    placed = "0=3,1;1=1,2;2=2,3;3=2,1;4=1,2"
    cluster.does("topics", "create", "accept-drain", "--replicas", placed, "-y")
    words = ("partitions", "drain", 3, "--topics", "accept-drain", "-f", tmp_path / "plan.json")
    planned = {row["partition"]: row["planned"] for row in cluster.items(*words)}
    assert set(planned) == {0, 2}
    assert planned[2][0] == 2, "a leader that can stay stays"
    assert all(sorted(replicas) == [1, 2] for replicas in planned.values())


def test_a_topic_deleted_meanwhile_is_no_exception(
    cluster: Cluster, topic: NewTopic, send: Send, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """apache/kafka#19029: describing all topics or groups died of one deleted between two requests."""
    stays, group = topic("accept-stays"), "accept-meanwhile"
    send(stays, {"value": "x"})
    ask = Session.metadata
    for i, words in enumerate((("topics", "describe"), ("topics", "list"), ("partitions", "list"))):
        gone = topic(f"accept-gone-{i}")
        send(gone, {"value": "x"})

        def answer_and_delete(session: Session, topics: Any = None, name: str = gone) -> Any:
            monkeypatch.setattr(Session, "metadata", ask)
            answer = ask(session, topics)
            cluster.does("topics", "delete", name, "-y", "--undo-dir", tmp_path)
            return answer

        monkeypatch.setattr(Session, "metadata", answer_and_delete)
        ran = cluster.kctl(*words)
        monkeypatch.setattr(Session, "metadata", ask)
        assert cluster.kctl("topics", "list", gone).code == Exit.NOT_FOUND, "it was deleted meanwhile"
        assert "Error" not in ran.err and "defect" not in ran.err, (words, ran)
        assert stays in ran.out, (words, ran)
    gone = topic("accept-gone-read")
    send(gone, {"value": "x"})
    back = ("groups", "reset-offsets", group, "--topic", stays, "--topic", gone, "--to", "earliest", "-y")
    cluster.does(*back, "--undo-dir", tmp_path)
    cluster.does("topics", "delete", gone, "-y", "--undo-dir", tmp_path)
    for verb in ("describe", "lag", "list"):
        assert cluster.does("groups", verb, group).out
    assert cluster.item("groups", "list", group)["lag"] == 1
    cluster.does("groups", "delete", group, "-y", "--undo-dir", tmp_path)


def test_a_refused_port_is_told_at_once(tmp_path: Any) -> None:
    before = os.times()
    command = [sys.executable, "-m", "kctl", "-b", f"127.0.0.1:{free_port()}", "topics", "list"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    after = os.times()
    assert done.returncode == Exit.UNREACHABLE
    assert "refused" in done.stderr
    assert len(done.stderr.splitlines()) <= 4
    used = after.children_user + after.children_system - before.children_user - before.children_system
    assert used < CPU_SECONDS
    assert after.elapsed - before.elapsed < 10, "nobody waits for time-outs"


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.timeout(300)
@pytest.mark.parametrize("cluster", ["three"], indirect=True)
def test_a_broker_that_is_down_is_a_note(cluster: Cluster, topic: NewTopic, three: Any, tmp_path: Any) -> None:
    """Everything that the other brokers can answer is answered, the rest is "-", and one note says so."""
    group = "accept-down"
    for name, placed in (("accept-down", "0=3,1;1=1,2;2=2,3"), ("accept-down-alone", "0=3")):
        cluster.does("topics", "create", name, "--replicas", placed, "-y", "--config", "min.insync.replicas=1")
    lines = tmp_path / "lines"
    lines.write_text("a\nb\nc\nd\n")
    cluster.does("produce", "accept-down", "--partition", 0, "--file", lines)
    cluster.does("produce", "accept-down-alone", "--file", lines)
    both = ("--topic", "accept-down", "--topic", "accept-down-alone", "--undo-dir", tmp_path)
    cluster.does("groups", "reset-offsets", group, *both, "--to", "1", "-y")
    three.brokers[2].kill()
    try:
        until(lambda: _down(cluster), "the others know that it is down", 60)
        commands: list[tuple[str, ...]] = [
            ("topics", "list", "--match", "accept-down*"),
            ("topics", "describe", "--match", "accept-down*"),
            ("partitions", "list", "--match", "accept-down*"),
            ("groups", "list"),
            ("groups", "describe", group),
            ("groups", "lag", group),
            ("groups", "lag"),
            ("groups", "members", group),
            ("topics", "offsets", "accept-down"),
            ("partitions", "status"),
            ("brokers", "list"),
            ("brokers", "log-dirs"),
            ("cluster", "describe"),
            ("configs", "describe", "topic/accept-down"),
            ("txns", "list"),
            ("consume", "accept-down"),
        ]
        for words in commands:
            ran = cluster.does(*words)
            assert len(ran.err.splitlines()) <= 1, (words, ran.err)
        assert cluster.does("consume", "accept-down").out.split() == ["a", "b", "c", "d"]
        asked = cluster.kctl("brokers", "log-dirs", "-o", "json")
        assert {row["broker"] for row in json.loads(asked.out)["items"]} == {1, 2}, "nobody invents a broker"
        rows = {row["topic"]: row["lag"] for row in cluster.items("groups", "lag", group)}
        assert rows == {"accept-down": 3, "accept-down-alone": None}
        assert cluster.item("topics", "list", "accept-down-alone")["health"] == "1 offline"
    finally:
        three.restart(2, kill=True)
        until(lambda: "under-replicated" not in cluster.does("topics", "list", "--internal").out, "all in sync", 120)
    cluster.does("groups", "delete", group, "-y", "--undo-dir", tmp_path)
    cluster.does("topics", "delete", "--match", "accept-down*", "-y", "--undo-dir", tmp_path)


def _down(cluster: Cluster) -> bool:
    return [broker["state"] for broker in cluster.items("brokers", "list")] == ["ok", "ok", "down"]
