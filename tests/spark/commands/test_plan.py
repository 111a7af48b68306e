from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkad_etl.checkpoint.locking import Lock
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl
from tests.kctl.groups.reading import make_topic
from tests.spark.checkpoint_files import spark_checkpoint
from tests.spark.conftest import SparkReady

JOB = """
version: 1
name: orders
description: orders by day
kafka: {{bootstrap: [{bootstrap}]}}
source: {{topics: [{topic}]}}
value:
  format: json
  schema: id BIGINT
  bad_rows: {{action: dead_letter, topic: {topic}-bad}}
transform: {{sql: SELECT id FROM source}}
sink:
  type: topic
  topic: {{topic: {topic}-out, create: {{partitions: 3}}, options: {{client.id: "${{env:RACK}}"}}}}
"""

Approved = Callable[[str, str], None]


class Place:
    """A directory with a job file, and the topic that it reads: 30 and 10 records."""

    def __init__(self, directory: Path, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.state = directory / "state"
        self.job = directory / "job.yaml"
        self.job.write_text(JOB.format(bootstrap=bootstrap, topic=topic))
        self.steady = {str(directory): "DIR", bootstrap: "HOST:PORT", topic: "TOPIC"}


@pytest.fixture
def place(broker: KafkadProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    topic = f"planned-{time.monotonic_ns() % 10**9:09}"  # as long each time: the table is approved
    make_topic(broker.port, topic, 30, 10)
    make_topic(broker.port, f"{topic}-bad", 0)
    monkeypatch.setenv("RACK", "hush hush")
    monkeypatch.setenv("KAFKAD_ETL_STATE", str(tmp_path / "state"))
    yield Place(tmp_path, broker.bootstrap, topic)


def test_a_plan_says_everything_and_does_nothing(kctl: Kctl, place: Place, approved: Approved) -> None:
    ran = kctl("etl", "plan", place.job)
    assert (ran.code, ran.err) == (0, "")
    text = ran.out
    for word, name in place.steady.items():
        text = text.replace(word, name)
    text = re.sub(r"^\S*spark-submit .*$", "SPARK-SUBMIT", text, flags=re.MULTILINE)
    approved("etl-plan", text)
    assert not place.state.exists()
    bootstrap = next(word for word, name in place.steady.items() if name == "HOST:PORT")
    assert kctl("-b", bootstrap, "topics", "describe", f"{place.topic}-out").code == 3


def test_a_plan_for_programs(kctl: Kctl, place: Place) -> None:
    ran = kctl("etl", "plan", place.job, "-o", "json", "--mode", "batch")
    document = json.loads(ran.out)
    (item,) = document["items"]
    assert document["dry_run"] is True
    assert (item["mode"], item["rows"], item["checkpoint"]) == ("batch", 40, None)
    assert item["partitions"][1] == {"topic": place.topic, "partition": 1, "from": 0, "to": 10, "rows": 10}
    assert item["creates"] == [f"{place.topic}-out"]
    assert item["effective"]["sink"]["topic"]["options"] == {"client.id": "****"}
    assert item["spark_submit"][0].endswith("bin/spark-submit")
    assert "hush" not in ran.out


@pytest.mark.parametrize("how", ["table", "json"])
def test_a_plan_shows_no_secret_wherever_it_stands(kctl: Kctl, place: Place, how: str) -> None:
    path = f"{place.state}/${{env:RACK}}"
    sets = ["--set", "description=${env:RACK}", "--set", f"run.checkpoint={path}"]
    ran = kctl("etl", "plan", place.job, "-o", how, *sets)
    assert ran.code == 0
    assert f"{place.state}/****" in ran.out
    assert "hush" not in ran.out


def test_a_plan_fails_as_a_run_would(kctl: Kctl, place: Place) -> None:
    ran = kctl("etl", "plan", place.job, "--set", "source.topics=[no-such]")
    assert ran.code == 3 and "--set source.topics.0: topic 'no-such' does not exist on 127.0.0.1:" in ran.err
    place.job.write_text(place.job.read_text().replace(f"[{place.topic}]", "[no-such]"))
    for verb in ("plan", "status"):
        assert "job.yaml:6 source.topics.0: topic 'no-such' does not exist on" in kctl("etl", verb, place.job).err
    place.job.write_text(place.job.read_text().replace("[no-such]", f"[{place.topic}]"))
    ran = kctl("etl", "plan", place.job, "--set", f"source.start={{{place.topic}: {{0: 31}}}}")
    assert ran.code == 2 and "so offset 31 does not exist" in ran.err
    assert kctl("-b", "127.0.0.1:1", "etl", "plan", place.job).code == 2


@pytest.mark.slow
@pytest.mark.spark
def test_a_preview_of_a_topic_that_is_missing(kctl: Kctl, place: Place, spark_ready: SparkReady) -> None:
    place.job.write_text(place.job.read_text().replace(f"[{place.topic}]", "[no-such]"))
    assert "job.yaml:6 source.topics.0: topic 'no-such' does not exist on" in kctl("etl", "preview", place.job).err


def test_the_status_of_a_job_that_never_ran(kctl: Kctl, place: Place) -> None:
    ran = kctl("etl", "status", place.job)
    assert ran.code == 0
    assert ran.out.splitlines()[0] == "orders: never run; not running"
    assert ran.out.splitlines()[-1] == "lag 40 records"
    ran = kctl("etl", "status", place.job, "--set", "run.mode=batch")
    assert ran.out.splitlines()[0] == "orders: mode batch keeps no progress; not running"


def test_the_status_of_a_job_that_runs(kctl: Kctl, place: Place) -> None:
    ends = [{place.topic: {0: 20, 1: 10}}]
    spark_checkpoint(place.state / "orders", ends, watermark_ms=1795258320000)
    with Lock(place.state / "orders.lock", "2026-11-21T23:00:00Z"):
        lines = kctl("etl", "status", place.job).out.splitlines()
        items = json.loads(kctl("etl", "status", place.job, "-o", "json").out)["items"]
    (shown,) = (item for item in items if item["lag"])
    assert lines[0].startswith("orders: at batch 0; watermark 2026-11-21T10:52:00.000Z; running: process ")
    assert lines[-1] == "lag 10 records"
    assert (shown["partition"], shown["offset"], shown["end"], shown["running"]) == (0, 20, 30, "yes")
    assert shown["watermark"] == "2026-11-21T10:52:00.000Z"


def test_the_status_of_a_job_whose_topic_is_another_one(kctl: Kctl, place: Place) -> None:
    from kafkad_etl.checkpoint.checkpoints import Checkpoint, record_of
    from tests.spark.jobs import job

    here = place.state / "orders"
    spark_checkpoint(here, [{place.topic: {0: 20, 1: 10}}])
    before = {place.topic: "another-id"}
    Checkpoint(str(here), place.state).write_record(record_of(job(name="orders"), "c", "2026-11-21T23:00:00Z", before))
    items = json.loads(kctl("etl", "status", place.job, "-o", "json").out)["items"]
    assert [(item["offset"], item["lag"]) for item in items] == [(20, None), (10, None)]
    assert all(item["note"].startswith("deleted and made again") for item in items)


def test_the_status_says_why_a_topic_of_the_checkpoint_is_not_read(
    kctl: Kctl, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafkad_etl.cluster import topics

    others = {name: {0: 5} for name in ("deleted", "hidden", "unlisted")}
    spark_checkpoint(place.state / "orders", [{place.topic: {0: 30, 1: 10}, **others}])
    monkeypatch.setattr(topics, "absent", lambda *_: {"deleted": "deleted", "hidden": "hidden"})
    items = json.loads(kctl("etl", "status", place.job, "-o", "json").out)["items"]
    assert {item["topic"]: item["note"] for item in items} == {
        place.topic: None,
        "deleted": "deleted",
        "hidden": "deleted, or not authorised: run refuses to go on without it",
        "unlisted": "not read by the job as it is now",
    }


def test_what_a_run_or_a_merge_has_left_half_done_is_shown(kctl: Kctl, place: Place) -> None:
    from kafkad_etl.checkpoint.checkpoints import Checkpoint, record_of
    from tests.spark.jobs import job

    here = place.state / "orders"
    spark_checkpoint(here, [{place.topic: {0: 20}}] * 2, committed=1)
    Checkpoint(str(here), place.state).write_record(record_of(job(name="orders"), "c", "2026-11-21T23:00:00Z", {}))
    again = "batch 1: the next run repeats it"
    assert json.loads(kctl("etl", "list", "-o", "json").out)["items"][0]["unfinished"] == again
    (here / "sink/merging").mkdir(parents=True)
    (here / "sink/merging/swap.json").touch()
    merge = "a merge of small files was interrupted; the next run or kctl etl compact completes it"
    assert json.loads(kctl("etl", "list", "-o", "json").out)["items"][0]["unfinished"] == f"{again}; {merge}"
    assert merge in kctl("etl", "status", place.job).out.splitlines()[0]
    assert json.loads(kctl("etl", "status", place.job, "-o", "json").out)["items"][0]["unfinished"].endswith(merge)
    with Lock(place.state / "orders.lock", "2026-11-21T23:00:00Z"):
        assert json.loads(kctl("etl", "list", "-o", "json").out)["items"][0]["unfinished"] is None


def test_a_checkpoint_that_a_power_failure_damaged_is_shown(kctl: Kctl, place: Place) -> None:
    from kafkad_etl.checkpoint.checkpoints import Checkpoint, record_of
    from tests.spark.jobs import job

    here = place.state / "orders"
    spark_checkpoint(here, [{place.topic: {0: 20}}] * 2)
    Checkpoint(str(here), place.state).write_record(record_of(job(name="orders"), "c", "2026-11-21T23:00:00Z", {}))
    (here / "commits/1").write_bytes(b"")
    damage = "the checkpoint is incomplete: the file commits/1 is empty"
    listed, status = kctl("etl", "list", "-o", "json"), kctl("etl", "status", place.job)
    assert (listed.code, status.code) == (0, 0)
    assert json.loads(listed.out)["items"][0]["unfinished"] == damage
    assert status.out.splitlines()[0] == f"orders: at batch 1; {damage}; not running"
    planned = kctl("etl", "plan", place.job)
    assert planned.code == 7 and "the file commits/1 is empty" in planned.err


def test_the_list_has_every_job_with_a_checkpoint(kctl: Kctl, place: Place) -> None:
    from kafkad_etl.checkpoint.checkpoints import Checkpoint, record_of
    from tests.spark.jobs import job

    assert "no job has a checkpoint in" in kctl("etl", "list").err
    for name in ("a", "b"):
        spark_checkpoint(place.state / name, [{"orders": {0: 20}}] * (1 if name == "a" else 2))
        record = record_of(job(name=name), "c", "2026-11-21T23:00:00Z", {})
        Checkpoint(str(place.state / name), place.state).write_record(record)
    Checkpoint(str(place.state / "a"), place.state).put_aside("x")
    with Lock(place.state / "b.lock", "2026-11-21T23:00:00Z"):
        (shown,) = json.loads(kctl("etl", "list", "-o", "json").out)["items"]
    assert (shown["job"], shown["batch"], shown["running"]) == ("b", 1, "yes")
    assert (shown["source"], shown["sink"]) == ("topics orders", "none")
    assert shown["committed"] is not None


def test_validate_names_all_that_is_not_there(kctl: Kctl, place: Place) -> None:
    assert kctl("etl", "validate", place.job).code == 0
    sets = ("--set", "source.topics=[no-such]", "--set", "value.bad_rows.topic=no-bad")
    ran = kctl("etl", "validate", place.job, *sets)
    assert ran.code == 3
    assert "orders cannot run: 2 problems found" in ran.err
    assert "topic 'no-such' does not exist on 127.0.0.1:" in ran.err
    assert "--set value.bad_rows.topic: topic 'no-bad' does not exist on 127.0.0.1:" in ran.err
    assert kctl("etl", "validate", place.job, *sets, "--offline").code == 0
    assert not place.state.exists()
    unreachable = kctl("etl", "validate", place.job, "--set", "kafka.bootstrap=['127.0.0.1:1']")
    assert unreachable.code == 3
    assert unreachable.err.count("no broker is responding at 127.0.0.1:1") == 1
