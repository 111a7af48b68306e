from __future__ import annotations

import json
import os
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kafkad_etl.checkpoint.checkpoints import directory_of
from kafkad_etl.checkpoint.overlaps import places_of
from kafkad_etl.facts import paths_of
from kafkad_etl.job import Files, Job, Lookup, Sink, Source, Spark, Transform
from kafkad_etl.messages import Ended, Event, Plan, Tasks, Warned
from kafkad_etl.process.launching import PREFIX, Launched, Private, launch, located, remove_empty, sweep
from kafkad_etl.process.logs import Log
from tests.spark.fake_spark import fake_spark

JOB = Job(version=1, name="try", source=Source(topics=("x",)), sink=Sink(type="none"), spark=Spark(master="local[2]"))
PLAN = Plan(task="run", job=JOB, mode="batch", reading=None)
TICKS = 100
"""After so many in a row something is wrong."""

Start = Callable[[str], Launched]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Launches a spark-submit whose body is the text; `channel` is the driver's end of the socket."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def begin(body: str) -> Launched:
        return launch(fake_spark(tmp_path, body), [PLAN], Log(tmp_path / "logs" / "try.log"))

    return begin


def told(launched: Launched) -> Iterator[Event]:
    quiet = 0
    for event in launched.events(tick=0.05):
        quiet = 0 if event else quiet + 1
        assert quiet < TICKS * 4, "the driver says nothing"
        if event and event.event:
            yield event.event


def gone(pid: int) -> bool:
    for _ in range(TICKS):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return True  # an orphan that init has not looked at
        time.sleep(0.05)
    return False


def test_the_plan_goes_to_the_driver_and_its_events_come_back(start: Start, tmp_path: Path) -> None:
    with start(
        """
        channel = Channel(sys.argv[-1])
        channel.send(Warned(channel.plan.job.name))
        channel.send(Ended("done"))
        channel.close()
        print("to standard output")
        """
    ) as launched:
        assert list(told(launched)) == [Warned("try"), Ended("done")]
    assert launched.ended == 0
    first, *others = (tmp_path / "logs" / "try.log").read_text().splitlines()
    assert "/spark/bin/spark-submit --master 'local[2]'" in first
    assert others == ["to standard output"]
    assert list(tmp_path.glob(f"{PREFIX}*")) == []


def test_the_environment_is_all_that_spark_needs_and_nobody_else_can_look_in(start: Start, tmp_path: Path) -> None:
    with start(
        """
        channel = Channel(sys.argv[-1])
        names = ("JAVA_HOME", "SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP", "TMPDIR")
        channel.send(Warned(json.dumps([sys.argv[1:], {name: os.environ[name] for name in names}])))
        channel.close()
        """
    ) as launched:
        (private,) = tmp_path.glob(f"{PREFIX}*")
        assert stat.S_IMODE(private.stat().st_mode) == 0o700
        (event,) = told(launched)
    assert isinstance(event, Warned)
    words, variables = json.loads(event.text)
    assert variables == {
        "JAVA_HOME": str(tmp_path / "jdk"),
        "SPARK_HOME": str(tmp_path / "spark"),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TMPDIR": str(private),
    }
    assert words[:4] == ["--master", "local[2]", "--deploy-mode", "client"]


def test_stop_lets_the_batch_finish(start: Start) -> None:
    with start(
        """
        channel = Channel(sys.argv[-1])
        channel.send(Tasks(batch=1, done=0, total=2))
        while channel.stop is None:
            time.sleep(0.01)
        channel.send(Ended("stopped" if channel.stop == Stop() and not channel.front_is_gone else "done"))
        channel.close()
        """
    ) as launched:
        events = told(launched)
        assert next(events) == Tasks(batch=1, done=0, total=2)
        launched.stop()
        assert list(events) == [Ended("stopped")]
    assert launched.ended == 0


def test_stop_now_ends_everything_that_was_started(start: Start) -> None:
    with start(
        """
        channel = Channel(sys.argv[-1])
        child = subprocess.Popen(["sleep", "600"])
        channel.send(Warned(str(child.pid)))
        time.sleep(600)
        """
    ) as launched:
        events = told(launched)
        event = next(events)
        assert isinstance(event, Warned)
        launched.kill()
        assert list(events) == []
    assert launched.ended == -signal.SIGKILL
    assert gone(int(event.text))


def test_a_driver_whose_jvm_is_killed_is_not_left_behind(start: Start, tmp_path: Path) -> None:
    """As with Spark: the driver is a child of spark-submit, and holds the socket."""
    driver = tmp_path / "driver.py"
    driver.write_text(
        "import os, sys, time\nfrom kafkad_etl.driver.channel import Channel\nfrom kafkad_etl.messages import Warned\n"
        "Channel(sys.argv[1]).send(Warned(str(os.getpid())))\ntime.sleep(600)\n"
    )
    with start(f"subprocess.run([sys.executable, {str(driver)!r}, sys.argv[-1]])") as launched:
        events = told(launched)
        event = next(events)
        assert isinstance(event, Warned)
        os.kill(launched.pid, signal.SIGKILL)
        assert list(events) == []
        assert launched.ended == -signal.SIGKILL
    assert gone(int(event.text))


def test_a_spark_submit_that_never_connects_ends_the_events(start: Start, tmp_path: Path) -> None:
    with start("sys.exit('no such master')") as launched:
        assert list(told(launched)) == []
        assert launched.ended == 1
    assert (tmp_path / "logs" / "try.log").read_text().endswith("\nno such master\n")


def test_when_the_front_goes_the_driver_is_told_to_stop(start: Start, tmp_path: Path) -> None:
    launched = start(
        f"""
        channel = Channel(sys.argv[-1])
        channel.send(Warned("here"))
        while channel.stop is None:
            time.sleep(0.01)
        channel.send(Ended("stopped"))
        open({str(tmp_path / "alone")!r}, "w").write(str(channel.front_is_gone))
        """
    )
    assert next(told(launched)) == Warned("here")
    assert launched._conversations[0]._driver is not None
    launched._conversations[0]._driver.close()
    assert launched.wait() == 0
    assert (tmp_path / "alone").read_text() == "True"
    with launched:
        pass


def test_what_a_killed_run_left_is_removed_and_what_lives_is_not(tmp_path: Path) -> None:
    living, left = Private(tmp_path), Private(tmp_path)
    (left.path / "big").write_text("x")
    os.close(left.lock)  # as the end of all its processes does
    assert sweep(tmp_path) == [left.path]
    assert living.path.is_dir()
    living.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_begins_at_the_same_moment_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    swept: list[Path] = []

    def made_and_swept(**where: Any) -> str:
        path = real(**where)
        if not swept:
            swept.extend(sweep(tmp_path))
        return path

    real = tempfile.mkdtemp
    monkeypatch.setattr(tempfile, "mkdtemp", made_and_swept)
    private = Private(tmp_path)
    assert len(swept) == 1
    assert list(tmp_path.iterdir()) == [private.path]
    assert sweep(tmp_path) == []
    private.remove()


@pytest.mark.parametrize("before", [True, False])
def test_the_directory_that_spark_makes_wherever_it_is_started_goes_too(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    if before:
        Path("artifacts").mkdir()
    with start("os.makedirs('artifacts/spark-1/x'); os.makedirs('artifacts/spark-2')") as launched:
        launched.wait()
    assert Path("artifacts").exists() == before


def test_an_artifact_of_somebody_stays(tmp_path: Path) -> None:
    (tmp_path / "artifacts" / "mine").mkdir(parents=True)
    (tmp_path / "artifacts" / "mine" / "file").touch()
    (tmp_path / "artifacts" / "spark-1").mkdir()
    remove_empty(tmp_path / "artifacts")
    assert [path.name for path in (tmp_path / "artifacts").iterdir()] == ["mine"]


def test_a_log_that_has_grown_makes_room(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "try.log"
    with Log(path).open() as file:
        file.truncate(20 << 20)
    log = Log(path)
    log.add("new")
    assert path.read_bytes() == b"new\n"
    assert path.with_name("try.log.1").stat().st_size == 20 << 20


def test_the_last_lines_are_those_of_this_run(tmp_path: Path) -> None:
    Log(tmp_path / "try.log").add("of an earlier run")
    log = Log(tmp_path / "try.log")
    assert log.last_lines(3) == []
    log.add("1\n\n2\n3\n4\n")
    assert log.last_lines(3) == ["2", "3", "4"]


def test_directories_with_long_names_do(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("deep" * 20) / ("er" * 40)
    deep.mkdir(parents=True)
    monkeypatch.setenv("TMPDIR", str(deep))
    with start("channel = Channel(sys.argv[-1])\nchannel.send(Ended('done'))\nchannel.close()") as launched:
        assert list(told(launched)) == [Ended("done")]


def test_paths_without_a_scheme_are_on_this_machine_whatever_hadoop_says(tmp_path: Path) -> None:
    def paths(plan: Plan) -> list[str]:
        return [path for key, path in paths_of(plan.job) if key != "run.checkpoint"] + [plan.checkpoint]

    here = msgspec.convert(
        {"users": {"format": "parquet", "path": "users"}, "far": {"format": "jdbc"}}, dict[str, Lookup]
    )
    job = replace(
        JOB,
        source=Source(files=Files(format="json", path="file:///in")),
        transform=Transform(lookups=here),
        sink=Sink(type="parquet", path="hdfs://nn/a b"),
    )
    plan = located(replace(PLAN, job=job, checkpoint="/state/try"))
    assert paths(plan) == [f"file://{Path.cwd()}/users", "file:///in", "hdfs://nn/a b", "file:///state/try"]
    assert plan.job.transform.lookups["far"].path == ""
    assert located(PLAN) == PLAN


def test_a_tilde_is_the_home_of_the_user_for_a_sink_as_for_the_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/u")
    job = replace(JOB, sink=Sink(type="parquet", path="~/x"), run=replace(JOB.run, checkpoint="~/x"))
    assert located(replace(PLAN, job=job)).job.sink.path == "file:///home/u/x"
    assert directory_of(job, {}) == "/home/u/x"
    assert [place.parts for place in places_of("~/x")] == [("home", "u", "x")]
