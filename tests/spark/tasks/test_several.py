"""Several jobs in one Spark, which is simulated: one of them fails, none goes down with another."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkad_etl.errors import EtlExit
from kafkad_etl.model.loading import JobFile, parse
from kafkad_etl.planning.sharing import refuse_conflicts
from kafkad_etl.tasks.running import worst
from tests.spark.tasks.runs import BATCH, Run

BEGIN = f"""
channels = {{}}
for path in sys.argv[-JOBS:]:
    channel = Channel(path)
    channels[channel.plan.job.name] = channel
    channel.send(Started(application="a", spark="4.0.0", pid=os.getpid()))
    channel.send(Query([]))
first, second = channels["first"], channels["second"]
topic = first.plan.job.source.topics[0]
def done(channel, last):
    channel.send({BATCH}) if isinstance(last, Ended) else None
    channel.send(last)
    channel.close()
""".replace("JOBS", "2")


@pytest.fixture
def second(run: Run, topic: str, tmp_path: Path) -> Path:
    """Beside job.yaml, which is named first."""
    text = (tmp_path / "job.yaml").read_text()
    (tmp_path / "job.yaml").write_text(text.replace(f"name: {topic}", "name: first"))
    other = tmp_path / "second.yaml"
    other.write_text(text.replace(f"name: {topic}", "name: second"))
    return other


def test_one_that_fails_does_not_take_the_other_along(run: Run, second: Path, tmp_path: Path) -> None:
    fails = 'done(first, Failed(kind="check", text="a check failed"))\ntime.sleep(2.5)\ndone(second, Ended("done"))'
    ran = run(BEGIN + fails, second)
    assert ran.code == EtlExit.DATA
    lines = ran.err.splitlines()
    assert "first  | error: a check failed (DATA)" in lines
    assert any(line.startswith("second | done: 3 rows read, 3 written") for line in lines)
    runs = {each.name: each.read_text() for each in (tmp_path / ".etl" / "logs").glob("*.runs.jsonl")}
    assert set(runs) == {"first.runs.jsonl", "second.runs.jsonl"}


def test_ctrl_c_stops_them_all_after_their_batches(run: Run, second: Path) -> None:
    waits = """
os.kill(os.getppid(), signal.SIGINT)
while first.stop is None or second.stop is None:
    time.sleep(0.01)
for each in channels.values():
    done(each, Ended("stopped"))
"""
    ran = run(BEGIN + waits, second)
    assert ran.code == EtlExit.INTERRUPTED
    assert ran.err.count("stopping all jobs after their current batches; press Ctrl-C again") == 1
    assert "first  | interrupted: 3 rows read" in ran.err and "second | interrupted: 3 rows read" in ran.err


def test_a_spark_that_is_killed_takes_both(run: Run, second: Path) -> None:
    ran = run(BEGIN + "os.kill(os.getpid(), signal.SIGKILL)", second)
    assert ran.code == EtlExit.FAILED
    for label in ("first  | ", "second | "):
        assert f"{label}error: Spark was killed (SIGKILL) before the job finished" in ran.err


def test_a_mistake_in_one_file_is_told_before_anything_starts(run: Run, second: Path, tmp_path: Path) -> None:
    second.write_text(second.read_text().replace("sink:", "sinc:"))
    ran = run("sys.exit(9)", second)
    assert ran.code == EtlExit.USAGE and "sinc" in ran.err
    assert not list((tmp_path / ".etl").glob("logs/*.log"))


LISTEN = "run: {listen: '127.0.0.1:9464'}"
OWN = {
    "name: first": ("name: first", "first is also that of job.yaml:6 name"),
    "run: {checkpoint: .etl/a/../first}": ("", "first is also that of job.yaml:1 run.checkpoint"),
    "run: {group: etl-first}": ("", "etl-first is also that of job.yaml:1 run.group"),
    LISTEN: (LISTEN, "127.0.0.1:9464 is also that of job.yaml:7 run.listen"),
    "sink: {type: csv, path: link/out/}": (
        "sink: {type: json, path: out}",
        "out/ is also that of job.yaml:6 sink.path",
    ),
    "sink: {type: csv, path: link/out/sub}": (
        "sink: {type: json, path: out}",
        "link/out/sub overlaps with that of job.yaml:6 sink.path",
    ),
    "sink: {type: csv, path: .etl}": ("", ".etl overlaps with that of job.yaml:1 run.checkpoint"),
}
"""A block of the second job, one of the first, and what is said."""


@pytest.mark.parametrize("theirs", OWN)
def test_what_is_each_jobs_own_is_refused_with_both_places(run: Run, second: Path, tmp_path: Path, theirs: str) -> None:
    ours, why = OWN[theirs]
    (tmp_path / "link").symlink_to(".")
    for path, block in ((tmp_path / "job.yaml", ours), (second, theirs)):
        key = block.partition(":")[0]
        others = [line for line in path.read_text().splitlines() if not key or not line.startswith(f"{key}:")]
        path.write_text("\n".join([*others, block]))
    ran = run("sys.exit(9)", second)
    assert ran.code == EtlExit.USAGE
    assert f"{why}: each job needs its own" in ran.err and "second.yaml:" in ran.err
    assert not list((tmp_path / ".etl").glob("*"))


def test_jobs_may_share_a_group_of_another_cluster_and_a_table() -> None:
    text = "version: 1\nname: {0}\nsource: {{topics: [a]}}\nkafka: {{bootstrap: [{0}:9092]}}\n"
    text += "run: {{group: same}}\nsink: {{type: delta, path: out}}\n"
    jobs = [parse(text.format(name), JobFile(Path(f"{name}.yaml")), {}) for name in ("one", "two")]
    refuse_conflicts(jobs, {})


def test_settings_that_one_spark_cannot_have_both_of_are_named(run: Run, second: Path) -> None:
    second.write_text(second.read_text() + "spark: {master: 'local[1]'}\n")
    ran = run("sys.exit(9)", second)
    assert ran.code == EtlExit.USAGE and "one Spark cannot have both" in ran.err


def test_the_worst_exit_code() -> None:
    assert worst([EtlExit.DONE]) == EtlExit.DONE
    assert worst([EtlExit.DONE, EtlExit.INTERRUPTED]) == EtlExit.INTERRUPTED
    assert worst([EtlExit.INTERRUPTED, EtlExit.CLUSTER, EtlExit.DATA]) == EtlExit.DATA
