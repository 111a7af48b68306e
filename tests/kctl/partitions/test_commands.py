"""`kctl partitions …` on one kafkad: what a single broker can be asked."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkad.errors import ErrorCode
from kctl.errors import Exit, failure
from tests.kctl.conftest import Kctl, Ran

LIST = "leader.replication.throttled.replicas"


def create(kctl: Kctl, name: str, partitions: int = 2) -> None:
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
    assert kctl("-y", "raw", "CreateTopics", json.dumps({"topics": [topic]})).code == Exit.DONE


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def write_plan(*entries: tuple[str, int, list[int]], name: str = "plan.json") -> None:
    partitions = [{"topic": topic, "partition": number, "replicas": replicas} for topic, number, replicas in entries]
    Path(name).write_text(json.dumps({"version": 1, "partitions": partitions}))


def test_lists_partitions(on_broker: Kctl, approved: Callable[[str, str], None]) -> None:
    create(on_broker, "parts-shown")
    ran = on_broker("partitions", "list", "parts-shown")
    assert (ran.code, ran.err) == (Exit.DONE, "")
    approved("partitions-list", ran.out)


def test_an_unhealthy_list_of_healthy_partitions_is_empty_and_no_failure(on_broker: Kctl) -> None:
    create(on_broker, "parts-healthy")
    ran = on_broker("partitions", "list", "parts-healthy", "--unhealthy")
    assert (ran.code, ran.out) == (Exit.DONE, "2 partitions, none unhealthy\n")


def test_a_drain_without_another_broker_is_impossible_and_writes_nothing(on_broker: Kctl) -> None:
    create(on_broker, "parts-drained")
    brokers = json.loads(on_broker("partitions", "list", "parts-drained", "-o", "json").out)["items"][0]["replicas"]
    ran = on_broker("partitions", "drain", *brokers, "--topics", "parts-drain*", "-o", "json")
    assert ran.code == Exit.FINDINGS
    items = json.loads(ran.out)["items"]
    assert [(item["planned"], item["help"]) for item in items] == [
        (None, "start a broker, or name others with --to")
    ] * 2
    assert not list(Path().iterdir())
    assert on_broker("partitions", "drain", *brokers, "--topics", "parts-drained", "--skip").code == Exit.DONE


@pytest.mark.parametrize(
    ("arguments", "code", "what"),
    [
        (["plan"], Exit.USAGE, "the plan has no goal"),
        (["drain", "99"], Exit.NOT_FOUND, "broker 99 does not exist and has no replicas"),
        (
            ["plan", "--to", "98,99"],
            Exit.NOT_FOUND,
            "broker 98, 99 does not exist",
        ),
        (["plan", "--rf", "1", "--topics", "parts-no-such"], Exit.NOT_FOUND, 'topic "parts-no-such" does not exist'),
        (["list", "--broker", "77"], Exit.NOT_FOUND, "broker 77 does not exist"),
        (["list", "--leader", "78"], Exit.NOT_FOUND, "broker 78 does not exist"),
        (["drain", "x"], Exit.USAGE, "not ids of brokers"),
        (["plan", "--rack-aware", "strict"], Exit.USAGE, "has no rack, so replicas cannot be spread over racks"),
        (["apply", "nosuch.json"], Exit.NOT_FOUND, "nosuch.json: No such file or directory"),
        (["cancel"], Exit.USAGE, "name a plan or partitions, or use --all"),
        (["elect"], Exit.USAGE, "name topics or partitions, or use --all"),
        (["elect", "parts-no-such:0"], Exit.NOT_FOUND, 'topic "parts-no-such" does not exist'),
        (["reassign", "a:0"], Exit.USAGE, '"a:0" is not an assignment'),
        (["reassign", "parts-no-such:0=1"], Exit.NOT_FOUND, "partition parts-no-such-0 of the plan does not exist"),
        (["throttle", "set"], Exit.USAGE, "a rate is given with set, and only with set"),
        (["throttle", "set", "5MB/s"], Exit.REFUSED, "no move is under way to throttle"),
    ],
)
def test_what_cannot_be_says_so(on_broker: Kctl, arguments: list[str], code: Exit, what: str) -> None:
    ran = on_broker("partitions", *arguments)
    assert (ran.code, what in ran.err) == (code, True), ran.err


def test_a_plan_that_names_absent_brokers_is_refused_before_anything_is_asked(on_broker: Kctl) -> None:
    create(on_broker, "parts-absent")
    write_plan(("parts-absent", 0, [98, 99]))
    ran = on_broker("partitions", "apply", "plan.json", "-y")
    assert ran.code == Exit.NOT_FOUND
    assert "the plan assigns replicas to broker 98, 99, which does not exist" in ran.err


def test_a_plan_of_another_cluster_is_refused(on_broker: Kctl) -> None:
    create(on_broker, "parts-foreign")
    write_plan(("parts-foreign", 0, [1]))
    plan = json.loads(Path("plan.json").read_text()) | {"kctl": {"cluster_id": "elsewhere"}}
    Path("plan.json").write_text(json.dumps(plan))
    ran = on_broker("partitions", "apply", "plan.json", "-y")
    assert (ran.code, "the plan was made for cluster elsewhere" in ran.err) == (Exit.REFUSED, True)


def test_a_malformed_plan_names_its_entry(on_broker: Kctl) -> None:
    write_plan(("t", 0, [1]), ("t", 0, [2]))
    ran = on_broker("partitions", "apply", "plan.json", "-y")
    assert (ran.code, ran.err) == (Exit.USAGE, 'error: plan.json: entry 2 of "partitions": t-0 is there twice\n')


def test_a_plan_that_is_carried_out_already_is_done(on_broker: Kctl) -> None:
    create(on_broker, "parts-done", 1)
    [item] = json.loads(on_broker("partitions", "list", "parts-done", "-o", "json").out)["items"]
    write_plan(("parts-done", 0, item["replicas"]))
    ran = on_broker("partitions", "apply", "plan.json")
    assert (ran.code, "every replica is in its place already" in ran.err) == (Exit.DONE, True), ran.err
    ran = on_broker("partitions", "status", "plan.json", "-o", "json")
    assert (ran.code, json.loads(ran.out)["items"][0]["state"]) == (Exit.DONE, "done")


def test_a_plan_from_elsewhere_is_shown_with_what_it_copies(on_broker: Kctl) -> None:
    create(on_broker, "parts-given", 1)
    write_plan(("parts-given", 0, [9]), name="theirs.json")
    ran = on_broker("partitions", "plan", "--from-file", "theirs.json", "-o", "json")
    [item] = json.loads(ran.out)["items"]
    assert (ran.code, item["planned"], item["why"]) == (Exit.DONE, [9], "as in the file")
    assert json.loads(Path("plan.json").read_text())["partitions"][0]["replicas"] == [9]


def test_a_plan_sorts_its_moves_and_not_its_brokers(on_broker: Kctl) -> None:
    create(on_broker, "parts-sorted", 2)
    write_plan(("parts-sorted", 0, [8]), ("parts-sorted", 1, [9]), name="theirs.json")
    ran = on_broker("partitions", "plan", "--from-file", "theirs.json", "--sort", "-partition")
    _, moves, brokers = re.split(r"^(?:TOPIC|BROKER) .*\n", ran.out, flags=re.M)
    assert (ran.code, [line.split()[1] for line in moves.splitlines() if line]) == (Exit.DONE, ["1", "0"])
    assert [line.split()[0] for line in brokers.splitlines()] == ["1"]
    assert Path("plan.json").exists()


def test_a_plan_is_written_also_if_whoever_reads_it_stops(on_broker: Kctl, monkeypatch: pytest.MonkeyPatch) -> None:
    create(on_broker, "parts-unread", 1)
    write_plan(("parts-unread", 0, [9]), name="theirs.json")
    write_plan(("an-older-one", 0, [9]))
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as unread:
        monkeypatch.setattr("sys.stdout", unread)
        assert on_broker("partitions", "plan", "--from-file", "theirs.json").code == Exit.DONE
    assert json.loads(Path("plan.json").read_text())["partitions"][0]["topic"] == "parts-unread"


@pytest.mark.parametrize("words", [("--columns", "nonsense"), ("--sort", "nonsense"), ("--limit", "nonsense")])
def test_a_command_line_that_is_refused_writes_no_plan(on_broker: Kctl, words: tuple[str, str]) -> None:
    create(on_broker, f"parts-refused{words[0]}", 1)
    write_plan((f"parts-refused{words[0]}", 0, [9]), name="theirs.json")
    assert on_broker("partitions", "plan", "--from-file", "theirs.json", *words).code == Exit.USAGE
    assert [path.name for path in Path().iterdir()] == ["theirs.json"]


def test_the_way_back_of_an_earlier_plan_is_not_written_over(on_broker: Kctl) -> None:
    def planned(topic: str, rollback: str) -> str:
        write_plan((topic, 0, [9]), name="theirs.json")
        ran = on_broker("partitions", "plan", "--from-file", "theirs.json")
        assert (ran.code, f"wrote plan.json (Kafka's reassignment format), {rollback}\n" in ran.err) == (
            Exit.DONE,
            True,
        ), ran.err
        [entry] = json.loads(Path(rollback).read_text())["partitions"]
        return entry["topic"]

    create(on_broker, "parts-moved", 1)
    create(on_broker, "parts-moved-next", 1)
    for _ in range(2):
        assert planned("parts-moved", "rollback-plan.json") == "parts-moved"
    assert planned("parts-moved-next", "rollback-plan-2.json") == "parts-moved-next"
    assert "parts-moved-next" not in Path("rollback-plan.json").read_text()


def test_a_plan_that_is_being_carried_out_is_not_written_over(on_broker: Kctl) -> None:
    create(on_broker, "parts-carried", 1)
    write_plan(("parts-carried", 0, [9]), name="theirs.json")
    Path("plan.json.state").write_text("")
    ran = on_broker("partitions", "plan", "--from-file", "theirs.json")
    assert (ran.code, "plan.json is being applied" in ran.err) == (Exit.REFUSED, True)
    [error] = json.loads(on_broker("partitions", "plan", "--from-file", "theirs.json", "-o", "json").out)["errors"]
    assert error["error"] == "plan.json is being applied: plan.json.state exists"


@pytest.mark.parametrize("there", [["parts-in-place"], []])
def test_what_cannot_change_its_directory_is_in_the_document(on_broker: Kctl, there: list[str]) -> None:
    create(on_broker, "parts-in-place", 1)
    [directory] = json.loads(on_broker("brokers", "log-dirs", "-o", "json").out)["items"]
    words = ["--broker", directory["broker"], "--dir", directory["path"], "-y"]
    ran = on_broker("partitions", "move-dir", *there, "parts-nowhere", *words, "-o", "json")
    document = json.loads(ran.out)
    assert ran.code == Exit.NOT_FOUND
    assert [item["topic"] for item in document["items"]] == there
    assert ["parts-nowhere" in error["error"] for error in document["errors"]] == [True]
    ran = on_broker("partitions", "move-dir", *there, "parts-nowhere", *words)
    assert (ran.code, ran.err.count("parts-nowhere")) == (Exit.NOT_FOUND, 1)


@pytest.mark.parametrize("rate", ["0", "0.5", "0MB/s"])
@pytest.mark.parametrize(
    "words",
    [
        ["apply", "plan.json", "--throttle"],
        ["reassign", "parts-slow:0=1", "--throttle"],
        ["move-dir", "parts-slow", "--broker", "1", "--dir", "/d", "--throttle"],
        ["plan", "--balance", "count", "--throttle"],
        ["drain", "1", "--throttle"],
        ["throttle", "set"],
    ],
)
def test_a_rate_at_which_nothing_moves_is_refused(on_broker: Kctl, words: list[str], rate: str) -> None:
    ran = on_broker("partitions", *words, rate, "-y")
    assert ran.code == Exit.USAGE
    assert ran.err == f'error: at "{rate}" a move would never end\n       as in 50MB/s\n'


def test_partitions_that_do_not_move_cannot_be_cancelled(on_broker: Kctl) -> None:
    create(on_broker, "parts-still")
    ran = on_broker("partitions", "cancel", "parts-still", "-y")
    assert (ran.code, "these partitions are not moving: parts-still" in ran.err) == (Exit.NOT_FOUND, True)


def test_no_move_is_under_way(on_broker: Kctl) -> None:
    ran = on_broker("partitions", "status")
    assert (ran.code, ran.out) == (Exit.DONE, "no move is under way\n")
    assert on_broker("partitions", "cancel", "--all", "-y").code == Exit.DONE


RATE = "leader.replication.throttled.rate"


@pytest.fixture
def throttled(on_broker: Kctl) -> Iterator[Callable[[], list[str]]]:
    """A deliberate throttle of the broker; the value that is read back."""

    def values() -> list[str]:
        shown = json.loads(on_broker("partitions", "throttle", "show", "-o", "json").out)["items"]
        return [item["value"] for item in shown if (item["kind"], item["setting"]) == ("broker", RATE)]

    assert on_broker("configs", "set", "broker/1", f"{RATE}=1000000", "-y").code == Exit.DONE
    yield values
    assert on_broker("partitions", "throttle", "clear", "-y").code == Exit.DONE


@pytest.mark.parametrize(
    ("code", "told"),
    [(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, False), (ErrorCode.REQUEST_TIMED_OUT, True)],
)
def test_a_throttle_whose_change_was_refused_has_no_way_back(
    on_broker: Kctl,
    throttled: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
    code: ErrorCode,
    told: bool,
) -> None:
    refused = failure(code, "broker/1")
    with monkeypatch.context() as patched:
        patched.setattr("kctl.partitions.throttle.write_settings", lambda *asked: [refused])
        ran = on_broker("partitions", "throttle", "clear", "-y")
    assert (ran.code, "undo:" in ran.err, throttled()) == (refused.exit_code, told, ["1000000"])


@pytest.mark.parametrize("words", [["parts-no-such"], ["--all"], ["plan.json"]])
def test_a_cancel_of_nothing_leaves_throttles_alone_and_names_them(
    on_broker: Kctl, throttled: Callable[[], list[str]], words: list[str]
) -> None:
    write_plan(("parts-no-such", 0, [1]))
    ran = on_broker("partitions", "cancel", *words)
    assert throttled() == ["1000000"]
    assert f"left-over throttle: broker 1 {RATE} = 1000000" in ran.err
    assert "partitions throttle clear" in ran.err


def finished_plan(kctl: Kctl, topic: str) -> None:
    """A plan whose replicas are in place, and whose throttle is still on."""
    create(kctl, topic, 1)
    [item] = json.loads(kctl("partitions", "list", topic, "-o", "json").out)["items"]
    write_plan((topic, 0, item["replicas"]))
    cluster = json.loads(kctl("cluster", "describe", "-o", "json").out)["cluster_id"]
    setting = {"kind": "broker", "owner": "1", "name": RATE, "now": "1000000", "before": "2000000"}
    Path("plan.json.state").write_text(
        json.dumps({"version": 1, "cluster_id": cluster, "rate": 1000000, "settings": [setting]})
    )


def test_what_is_left_to_do_of_a_plan_is_shown_and_asked_for(
    on_broker: Kctl, throttled: Callable[[], list[str]]
) -> None:
    finished_plan(on_broker, "parts-unfinished")
    ran = on_broker("partitions", "apply", "plan.json", "--dry-run")
    assert (ran.code, f"broker 1 {RATE}" in ran.out, throttled()) == (Exit.DONE, True, ["1000000"])
    ran = on_broker("partitions", "apply", "plan.json")
    assert (ran.code, "no terminal to confirm on: Put back 1 throttle setting?" in ran.err) == (Exit.REFUSED, True)
    assert (throttled(), Path("plan.json.state").exists()) == (["1000000"], True)
    assert on_broker("partitions", "apply", "plan.json", "-y").code == Exit.DONE
    assert (throttled(), Path("plan.json.state").exists()) == (["2000000"], False)


def test_a_cancel_after_the_last_move_puts_back_the_throttle_of_the_plan(
    on_broker: Kctl, throttled: Callable[[], list[str]]
) -> None:
    finished_plan(on_broker, "parts-called-off")
    ran = on_broker("partitions", "cancel", "plan.json", "--dry-run")
    assert (ran.code, f"broker 1 {RATE}" in ran.out) == (Exit.DONE, True)
    assert on_broker("partitions", "cancel", "plan.json", "--keep-throttles", "-y").code == Exit.DONE
    ran = on_broker("partitions", "cancel", "plan.json")
    assert (ran.code, "no terminal to confirm on: Put back 1 throttle setting?" in ran.err) == (Exit.REFUSED, True)
    assert (throttled(), Path("plan.json.state").exists()) == (["1000000"], True)
    ran = on_broker("partitions", "cancel", "plan.json", "-y")
    assert (ran.code, "verified: the throttle of the plan is off" in ran.err) == (Exit.DONE, True)
    assert (throttled(), Path("plan.json.state").exists()) == (["2000000"], False)


@pytest.mark.parametrize("first", ["apply", "cancel"])
@pytest.mark.parametrize("second", ["apply", "cancel", "plan --from-file theirs.json -f"])
def test_a_plan_that_another_kctl_asks_about_is_left_to_it(
    on_broker: Kctl,
    throttled: Callable[[], list[str]],
    meanwhile: list[Callable[[], object]],
    first: str,
    second: str,
) -> None:
    """Each would put back or save what the other is about to change."""
    topic = f"parts-{first}-{second.split()[0]}"
    finished_plan(on_broker, topic)
    write_plan((topic, 0, [9]), name="theirs.json")
    refused: list[Ran] = []

    def another() -> None:
        meanwhile.clear()
        before = {path.name: path.read_text() for path in Path().iterdir()}
        refused.append(on_broker("partitions", *second.split(), "plan.json", "-y"))
        assert {path.name: path.read_text() for path in Path().iterdir()} == before

    meanwhile.append(another)
    assert on_broker("partitions", first, "plan.json", "-y").code == Exit.DONE
    [ran] = refused
    assert ran.code == Exit.REFUSED
    assert re.search(r"error: another kctl(, process \d+,)? is at work on plan\.json\n +wait for it, or end", ran.err)
    assert (throttled(), Path("plan.json.state").exists()) == (["2000000"], False)
    assert on_broker("partitions", first, "plan.json").code == Exit.DONE, "it was let go of"


def test_who_leads_already_is_a_success(on_broker: Kctl) -> None:
    create(on_broker, "parts-led")
    ran = on_broker("partitions", "elect", "parts-led")
    assert ran.code == Exit.DONE
    assert "2 of 2 partitions are led by their first replica already" in ran.err
    ran = on_broker("partitions", "elect", "parts-led:1", "--unclean", "-o", "json")
    assert (ran.code, json.loads(ran.out)["items"][0]["result"]) == (Exit.DONE, "has a leader")


def test_left_over_throttles_are_shown_and_cleared(on_broker: Kctl) -> None:
    create(on_broker, "parts-throttled", 1)
    config = {"name": LIST, "config_operation": 0, "value": "0:1"}
    resource = {"resource_type": 2, "resource_name": "parts-throttled", "configs": [config]}
    ran = on_broker("-y", "raw", "IncrementalAlterConfigs", json.dumps({"resources": [resource]}))
    assert ran.code == Exit.DONE, ran.err
    assert f"left-over throttle: topic parts-throttled {LIST} = 0:1" in on_broker("partitions", "status").err
    [item] = json.loads(on_broker("partitions", "throttle", "show", "-o", "json").out)["items"]
    assert (item["owner"], item["setting"], item["value"], item["needed"]) == ("parts-throttled", LIST, "0:1", "no")
    ran = on_broker("partitions", "throttle", "clear")
    assert (ran.code, "no terminal to confirm on" in ran.err) == (Exit.REFUSED, True)
    ran = on_broker("partitions", "throttle", "clear", "-y")
    assert (ran.code, "verified: read back" in ran.err) == (Exit.DONE, True)
    assert "no throttle is set" in on_broker("partitions", "throttle", "clear").err
