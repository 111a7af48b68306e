"""`kctl etl run` against real kafkad and a Spark that is played: what each end of a run looks like."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkad_etl.cluster import ends, presence
from kafkad_etl.errors import EtlExit
from kafkad_etl.machine import environment
from kafkad_etl.machine.hadoop import VARIABLES
from kafkad_etl.process.launching import PREFIX
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl, Ran
from tests.oracle.kafka import free_port
from tests.spark.checkpoint_files import spark_checkpoint
from tests.spark.fake_spark import fake_spark

Run = Callable[..., Ran]

JOB = """
version: 1
name: NAME
kafka: {bootstrap: [BOOTSTRAP]}
source: {topics: [NAME]}
sink: {type: none}
"""
HELLO = 'channel = Channel(sys.argv[-1]); channel.send(Started(application="a", spark="4.0.0", pid=os.getpid()))\n'
BATCH = "Batch(batch=0, start={topic: {0: 0}}, end={topic: {0: 3}}, rows_read=3, rows_written=3, seconds=0.1)"
WORK = f"{HELLO}topic = channel.plan.job.source.topics[0]; channel.send(Query([])); channel.send({BATCH})\n"


@pytest.fixture
def topic(on_broker: Kctl, tmp_path: Path) -> str:
    """With three records."""
    name = f"run-{time.monotonic_ns()}"
    records = tmp_path / "records"
    records.write_text("a\nb\nc\n")
    assert on_broker("topics", "create", name, "--partitions", 1, "-y").code == 0
    assert on_broker("produce", name, "--file", records).code == 0
    return name


@pytest.fixture
def run(kctl: Kctl, topic: str, broker: KafkadProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a job on that topic with a Spark that does what the text says."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(JOB.replace("NAME", topic).replace("BOOTSTRAP", broker.bootstrap))

    def call(body: str, *arguments: object, verb: tuple[object, ...] = ("run",)) -> Ran:
        spark = fake_spark(tmp_path, body)
        monkeypatch.setattr(environment, "find", lambda *_: spark)
        before = set(tmp_path.glob(f"{PREFIX}*"))
        ran = kctl("etl", *verb, "job.yaml", *arguments)
        assert set(tmp_path.glob(f"{PREFIX}*")) <= before
        return ran

    return call


def test_a_run_that_is_done(run: Run, topic: str) -> None:
    ran = run(WORK + 'channel.send(Ended("done")); channel.close()')
    assert (ran.code, ran.out) == (EtlExit.DONE, "")
    assert "done: 3 rows read, 3 written, 0 bad" in ran.err
    assert f"{topic}: 0: 0-3" in ran.err
    assert f".etl/logs/{topic}.log" in ran.err


def test_the_progress_is_there_as_a_consumer_group(run: Run, on_broker: Kctl, topic: str) -> None:
    assert run(WORK + 'channel.send(Ended("done")); channel.close()').code == EtlExit.DONE
    listed = json.loads(on_broker("groups", "lag", f"etl-{topic}", "-o", "json").out)
    assert [(row["topic"], row["lag"]) for row in listed["items"]] == [(topic, 0)]


def test_where_prometheus_cannot_be_listened_for_nothing_is_started(
    run: Run, tmp_path: Path, broker: KafkadProcess
) -> None:
    ran = run(f"open({str(tmp_path / 'started')!r}, 'w')", "--set", f"run.listen=127.0.0.1:{broker.port}")
    assert ran.code == EtlExit.USAGE
    assert "run.listen: cannot listen on" in ran.err
    assert not (tmp_path / "started").exists()


def test_a_cluster_that_is_not_there_is_told_before_spark_starts(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    begins = f"open({str(tmp_path / 'started')!r}, 'w')"
    ran = run(begins, "--", "--master", "yarn", "--deploy-mode", "client")
    assert ran.code == EtlExit.ENVIRONMENT
    assert "error: master yarn needs HADOOP_CONF_DIR or YARN_CONF_DIR, and neither is set" in ran.err
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    ran = run(begins, "--", "--master", "yarn", "--conf", "spark.hadoop.yarn.resourcemanager.address=127.0.0.1:1")
    assert ran.code == EtlExit.CLUSTER
    assert "error: YARN's ResourceManager is not responding at 127.0.0.1:1: Connection refused" in ran.err
    ran = run(begins, "--master", "yarn", "--", "--deploy-mode", "cluster")
    assert (ran.code, "deploy mode cluster is not supported" in ran.err) == (EtlExit.USAGE, True)
    for master in ("spark://127.0.0.1:1", "k8s://https://127.0.0.1:1"):
        assert run(begins, "--master", master).code == EtlExit.CLUSTER
    assert not (tmp_path / "started").exists()


def test_sql_that_is_wrong_is_named_by_its_line(run: Run) -> None:
    failed = 'Failed(kind="sql", text="no such column", step="sql", line=1, column=8)'
    ran = run(f"{WORK}channel.send({failed}); channel.close()", "--set", "transform.sql=SELECT f(value) FROM source")
    assert ran.code == EtlExit.USAGE
    assert "--set transform.sql:1:8: no such column" in ran.err


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("transform.sql", "SELECT nix FROM source", '--set transform.sql:1:8: there is no column "nix"'),
        ("transform.sql", "SELECT value FORM source", '--set transform.sql:1:19: ends too early, after "source"'),
        ("key", "{format: json, schema: id BIGNT}", '--set key.schema: cannot be parsed near "BIGNT"'),
        ("sink", "{type: json, path: /proc/lake}", "sink.path: /proc is not writable"),
        ("sink", "{type: json, path: 's3a://lake/orders'}", "sink.path: s3a:// needs a jar"),
    ],
)
def test_what_is_certainly_wrong_is_told_before_spark_starts_and_nothing_else(
    run: Run, tmp_path: Path, key: str, value: str, told: str
) -> None:
    ran = run(f"open({str(tmp_path / 'started')!r}, 'w')", "--set", f"{key}={value}")
    assert ran.code in (EtlExit.USAGE, EtlExit.CLUSTER, EtlExit.ENVIRONMENT)
    assert ran.err.startswith("error: ")
    assert told in ran.err
    assert "guarantee" not in ran.err and "rows read" not in ran.err
    assert not (tmp_path / "started").exists()


def test_spark_decides_on_sql_that_is_trusted(run: Run) -> None:
    ran = run(
        WORK + 'channel.send(Ended("done")); channel.close()',
        "--trust-sql",
        "--set",
        "transform.sql=SELECT a FORM source",
    )
    assert (ran.code, ran.err.splitlines()[0]) == (
        EtlExit.DONE,
        'warning: --set transform.sql:1:15: ends too early, after "source"',
    )


def test_what_spark_finds_before_it_reads_is_told_without_a_summary(run: Run) -> None:
    failed = 'Failed(kind="sql", text="no such function", trace="at Some.scala")'
    ran = run(f"{HELLO}channel.send({failed}); channel.close()")
    assert (ran.code, ran.err.splitlines()[0]) == (EtlExit.USAGE, "error: no such function (USAGE)")
    ran = run(f"{WORK}channel.send({failed}); channel.close()", "-o", "json")
    assert "Some.scala" not in ran.out + ran.err


def test_who_ends_a_run_from_outside_is_named(run: Run) -> None:
    stops = """
os.kill(os.getppid(), signal.SIGTERM)
while channel.stop is None:
    time.sleep(0.01)
channel.send(Ended("stopped"))
channel.close()
"""
    ran = run(WORK + stops)
    assert ran.code == EtlExit.INTERRUPTED
    assert "SIGTERM: stopping after the current batch; press SIGTERM again to stop at once" in ran.err
    ran = run(WORK + "sys.exit(143)")
    assert ran.code == EtlExit.FAILED
    assert "error: Spark was terminated (SIGTERM) before the job finished" in ran.err


def test_traces_are_in_the_log_only(run: Run) -> None:
    ran = run(
        WORK
        + "print('java.io.IOException: no\\n\\tat X.run(X.java:1)\\n\\t... 3 more\\nCaused by: y', flush=True)"
        + "; sys.exit(1)"
    )
    assert "       java.io.IOException: no\n" in ran.err
    assert "X.java" not in ran.err and "more" not in ran.err


def test_as_json_lines_every_line_is_one(run: Run) -> None:
    ran = run(WORK + 'channel.send(Ended("done")); channel.close()', "-o", "json")
    lines = [json.loads(line) for line in ran.out.splitlines()]
    assert [line["type"] for line in lines] == ["started", "query", "batch", "ended", "summary"]
    ran = run(WORK + 'channel.send(Failed(kind="sql", text="no such column")); channel.close()', "-o", "json")
    *_, summary, error = (json.loads(line) for line in ran.out.splitlines())
    assert (summary["type"], summary["outcome"]) == ("summary", "failed")
    assert (error["type"], error["error"]) == ("error", "no such column")
    assert ran.code == EtlExit.USAGE


def test_ctrl_c_once_lets_the_batch_finish(run: Run) -> None:
    ran = run(
        HELLO
        + f"""
topic = channel.plan.job.source.topics[0]; channel.send(Query([]))
os.kill(os.getppid(), signal.SIGINT)
while channel.stop is None:
    time.sleep(0.01)
channel.send({BATCH})
channel.send(Ended("stopped"))
channel.close()
"""
    )
    assert ran.code == EtlExit.INTERRUPTED
    assert "stopping after the current batch; press Ctrl-C again to stop at once" in ran.err
    assert "interrupted: 3 rows read, 3 written" in ran.err


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_ctrl_c_twice_ends_it_at_once(run: Run, tmp_path: Path, number: str) -> None:
    begin = time.monotonic()
    ran = run(
        HELLO
        + f"""
child = subprocess.Popen(["sleep", "600"])
open({str(tmp_path / "child")!r}, "w").write(str(child.pid))
os.kill(os.getppid(), signal.{number})
while channel.stop is None:
    time.sleep(0.01)
os.kill(os.getppid(), signal.{number})
time.sleep(600)
"""
    )
    assert time.monotonic() - begin < 30
    assert ran.code == EtlExit.INTERRUPTED
    assert "stopping at once" in ran.err
    assert "interrupted: 0 rows read" in ran.err
    assert is_gone(int((tmp_path / "child").read_text()))


def test_a_batch_that_was_finished_while_spark_was_ended_is_told(run: Run, topic: str) -> None:
    ran = run(
        HELLO
        + f"""
import json
topic, here = channel.plan.job.source.topics[0], channel.plan.checkpoint.removeprefix("file://")
channel.send(Query([])); channel.send({BATCH})
for folder in ("offsets", "commits"):
    os.makedirs(here + "/" + folder)
open(here + "/metadata", "w").write('{{"id": "1"}}')
for number, end in enumerate((1, 3)):
    open(f"{{here}}/offsets/{{number}}", "w").write("v1\\n{{}}\\n" + json.dumps({{topic: {{"0": end}}}}))
    open(f"{{here}}/commits/{{number}}", "w").write("v1\\n{{}}")
for _ in range(2):
    os.kill(os.getppid(), signal.SIGINT)
    time.sleep(0.5)
time.sleep(600)
""".replace("0: 3", "0: 1")
    )
    assert ran.code == EtlExit.INTERRUPTED
    assert "1 more batch was committed while Spark was shutting down; their rows are not counted here" in ran.err
    assert f"{topic}: 0: 0-3" in ran.err


def test_a_topic_batch_that_failed_says_up_to_how_many_rows_were_written(
    run: Run, topic: str, broker: KafkadProcess, on_broker: Kctl, tmp_path: Path
) -> None:
    out = f"{topic}-out"
    assert on_broker("topics", "create", out, "--partitions", 1, "-y").code == 0
    produce = [
        sys.executable,
        "-m",
        "kctl",
        "-b",
        broker.bootstrap,
        "produce",
        out,
        "--file",
        str(tmp_path / "records"),
    ]
    fails = 'channel.send(Failed(kind="spark", text="the batch failed")); channel.close()'
    ran = run(
        f"{HELLO}channel.send(Query([])); subprocess.run({produce}, check=True); {fails}",
        "--set",
        f"sink={{type: topic, topic: {{topic: {out}, format: raw}}}}",
    )
    assert ran.code == EtlExit.FAILED
    assert "failed: 0 rows read, 0 written" in ran.err
    assert f"up to 3 rows more in topic {out}, from a batch that was not committed" in ran.err


def test_lag_grows_while_spark_hangs(
    run: Run, topic: str, broker: KafkadProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ends, "ASK_SECONDS", 0.1)
    port = free_port()
    produce = [sys.executable, "-m", "kctl", "-b", broker.bootstrap, "produce", topic]
    produce += ["--file", str(tmp_path / "records")]
    hangs = f"""
from urllib.request import urlopen
subprocess.run({produce}, check=True)
for _ in range(300):
    page = urlopen("http://127.0.0.1:{port}/metrics").read().decode()
    if 'partition="0"}} 3\\n' in page:
        break
    time.sleep(0.1)
open({str(tmp_path / "page")!r}, "w").write(page)
channel.send(Ended("done")); channel.close()
"""
    ran = run(WORK + hangs, "--set", f"run.listen=127.0.0.1:{port}")
    assert ran.code == EtlExit.DONE, ran.err
    page = (tmp_path / "page").read_text().splitlines()
    assert f'kafkad_etl_lag{{job="{topic}",topic="{topic}",partition="0"}} 3' in page
    assert f'kafkad_etl_up{{job="{topic}"}} 1' in page


def test_with_nothing_new_spark_is_not_started(run: Run, topic: str, tmp_path: Path) -> None:
    begins = f"open({str(tmp_path / 'started')!r}, 'w')"
    assert run(WORK + 'channel.send(Ended("done")); channel.close()').code == EtlExit.DONE
    spark_checkpoint(tmp_path / ".etl" / topic, [{topic: {0: 3}}])
    ran = run(begins)
    assert ran.code == EtlExit.DONE
    assert "nothing new since batch 0; Spark was not started" in ran.err
    assert "done: 0 rows read, 0 written" in ran.err
    assert not (tmp_path / "started").exists()


def test_a_topic_that_is_deleted_meanwhile_ends_a_run_that_would_wait(
    run: Run, topic: str, broker: KafkadProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(presence, "GONE_SECONDS", 0.5)
    kctl = [sys.executable, "-m", "kctl", "-b", broker.bootstrap]
    waits = f"""
subprocess.run({kctl} + ["topics", "delete", topic, "-y"], check=True)
while channel.stop is None:
    time.sleep(0.01)
channel.send(Ended("stopped"))
channel.close()
"""
    ran = run(WORK + waits, "--mode", "continuous")
    assert ran.code == EtlExit.CLUSTER
    assert f"topic {topic} was deleted while the job was running: stopping after the current batch" in ran.err
    assert "failed: 3 rows read" in ran.err
    assert f"error: topic {topic} was deleted while the job was running" in ran.err


def test_records_that_are_deleted_before_a_batch_reads_them_are_counted(
    run: Run, topic: str, broker: KafkadProcess
) -> None:
    kctl = [sys.executable, "-m", "kctl", "-b", broker.bootstrap]
    truncated = f"""{HELLO}
topic = channel.plan.job.source.topics[0]; channel.send(Query([]))
subprocess.run({kctl} + ["topics", "truncate", topic, "--partitions", "0", "--before", "2", "-y"], check=True)
channel.send({BATCH.replace("rows_read=3", "rows_read=1")})
channel.send(Ended("done")); channel.close()
"""
    ran = run(truncated, "--set", "source.on_data_loss=continue")
    gap = f"{topic}-0: 2 records (0-1) deleted before they were read"
    assert (ran.code, f"warning: {gap}; continuing without them" in ran.err) == (EtlExit.DONE, True)
    assert f"  lost: {gap}\n" in ran.err


def is_gone(pid: int) -> bool:
    """Or is a zombie, which has nobody looks after orphans."""
    stat = Path(f"/proc/{pid}/stat")
    for _ in range(100):
        try:
            if stat.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False


def test_signals_mean_again_what_they_meant_before(run: Run) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    run(WORK + 'channel.send(Ended("done")); channel.close()')
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("sql", EtlExit.USAGE),
        ("bad-rows", EtlExit.DATA),
        ("data-loss", EtlExit.DATA_LOSS),
        ("checkpoint", EtlExit.CHECKPOINT),
        ("topic", EtlExit.CLUSTER),
        ("spark", EtlExit.FAILED),
    ],
)
def test_each_kind_of_failure_has_its_exit_code(run: Run, topic: str, kind: str, code: EtlExit) -> None:
    failed = f'Failed(kind="{kind}", text="it does not work", hints=["try this"], trace="at Some.scala")'
    ran = run(f"{WORK}channel.send({failed}); channel.close()")
    assert ran.code == code
    assert "failed: 3 rows read" in ran.err
    assert "error: it does not work" in ran.err
    assert "try this" in ran.err
    assert "Some.scala" not in ran.err
    assert "at Some.scala" in Path(f".etl/logs/{topic}.log").read_text()


def test_a_jvm_that_is_killed_is_told_with_the_last_lines_of_the_log(run: Run) -> None:
    ran = run(WORK + 'print("java.lang.OutOfMemoryError", flush=True); os.kill(os.getpid(), signal.SIGKILL)')
    assert ran.code == EtlExit.FAILED
    assert "error: Spark was killed (SIGKILL) before the job finished" in ran.err
    assert "       java.lang.OutOfMemoryError\n" in ran.err
    assert "lower spark.driver_memory" in ran.err
    assert "failed: 3 rows read" in ran.err


def test_what_a_driver_says_whose_jvm_was_killed_is_not_the_reason(run: Run) -> None:
    failed = 'Failed(kind="spark", text="Connection refused")'
    ran = run(f"{WORK}channel.send({failed}); os.kill(os.getpid(), signal.SIGKILL)")
    assert ran.code == EtlExit.FAILED
    assert "error: Spark was killed (SIGKILL) before the job finished" in ran.err


def test_a_spark_that_does_not_start_is_told_with_what_it_said(run: Run) -> None:
    ran = run("sys.exit('Master must either be yarn or start with spark')")
    assert ran.code == EtlExit.FAILED
    assert "error: Spark exited with code 1 before the job finished" in ran.err
    assert "       Master must either be yarn or start with spark\n" in ran.err


def test_no_secret_is_shown(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "geheim7")
    job = (tmp_path / "job.yaml").read_text()
    (tmp_path / "job.yaml").write_text(f'{job}spark: {{conf: {{spark.hadoop.token: "${{env:TOKEN}}"}}}}\n')
    ran = run(
        WORK
        + 'channel.send(Warned("geheim7 is old")); print("with geheim7", " ".join(sys.argv), flush=True)\n'
        + 'assert channel.plan.job.spark.conf["spark.hadoop.token"] == "geheim7"; sys.exit(2)'
    )
    assert "**** is old" in ran.err
    assert "       with ****" in ran.err
    assert "geheim7" not in ran.err + ran.out
    assert "spark.hadoop.token" not in ran.err


def test_two_runs_of_one_job_and_a_driver_that_outlives_its_front(
    run: Run, kctl: Kctl, tmp_path: Path, topic: str
) -> None:
    """The front is killed while a batch runs: until the batch is written the job cannot be run again."""
    body = HELLO + textwrap.dedent(
        f"""
        while channel.stop is None:
            time.sleep(0.01)
        open({str(tmp_path / "alone")!r}, "w").close()
        while not os.path.exists({str(tmp_path / "go")!r}):
            time.sleep(0.01)
        """
    )
    fake_spark(tmp_path, body)
    program = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from kafkad_etl.machine import environment
        from kafkad_etl.machine.environment import Environment
        from kafkad_etl.machine.java import Java
        from kctl.cli import run
        spark = Environment(Java(Path("jdk"), "17", "PATH"), Path("spark").absolute(), "4.0.0", sys.executable, ())
        environment.find = lambda *_: spark
        run(["etl", "run", "job.yaml", "-o", "json"])
        """
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as front:
        assert front.stdout is not None
        driver = json.loads(front.stdout.readline())["pid"]
        front.kill()
    try:
        wait_for(tmp_path / "alone")
        ran = run("sys.exit(1)")  # would remove what the living driver needs, and start a second one
    finally:
        (tmp_path / "go").touch()
    assert ran.code == EtlExit.CHECKPOINT
    assert "another run of this job is in progress" in ran.err
    assert is_gone(driver)
    assert run(WORK + 'channel.send(Ended("done")); channel.close()').code == EtlExit.DONE
    assert list(tmp_path.glob(f"{PREFIX}*")) == []  # what the killed front left too


def wait_for(path: Path) -> None:
    for _ in range(400):
        if path.exists():
            return
        time.sleep(0.05)
    raise AssertionError(f"{path} does not appear")


def test_the_lock_of_a_run_that_was_killed_is_taken_over_and_said(run: Run, topic: str, tmp_path: Path) -> None:
    (tmp_path / ".etl").mkdir()
    (tmp_path / f".etl/{topic}.lock").write_text('{"host": "elsewhere", "pid": 7, "since": "2026-11-20T10:00:00Z"}')
    ran = run(WORK + 'channel.send(Ended("done"))')
    assert ran.code == 0
    taken = "the last run did not finish (process 7 on elsewhere, since 2026-11-20T10:00:00Z); taking over its lock"
    assert taken in ran.err


def test_options_of_spark_submit_reach_it(run: Run, tmp_path: Path) -> None:
    ran = run(HELLO + "print(sys.argv, flush=True); sys.exit(1)", "--", "--master", "local[3]", "--queue", "night")
    assert "'--queue', 'night'" in ran.err
    assert "--master', 'local[3]" in ran.err
    ran = run("sys.exit(1)", "--", "--deploy-mode", "cluster")
    assert ran.code == EtlExit.USAGE
    assert "deploy mode cluster is not supported" in ran.err


def test_quiet_says_nothing_but_errors(run: Run) -> None:
    assert run(WORK + 'channel.send(Ended("done")); channel.close()', "-q") == (EtlExit.DONE, "", "")


def test_a_preview_shows_rows_and_leaves_no_checkpoint(run: Run, kctl: Kctl, tmp_path: Path) -> None:
    ran = run(
        HELLO
        + """
assert (channel.plan.task, channel.plan.limit) == ("preview", 5)
channel.send(Rows(columns=["id", "name"], rows=[["1", "a"], ["2", None]]))
channel.send(Ended("done"))
channel.close()
""",
        verb=("preview", "--limit", 5, "-o", "csv"),
    )
    assert (ran.code, ran.out.splitlines()) == (EtlExit.DONE, ["id,name", "1,a", "2,"])
    assert [path.name for path in (tmp_path / ".etl").iterdir()] == ["logs"]
