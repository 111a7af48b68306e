"""Runs that fail: exit codes, killed JVMs, logs and traces, with a simulated Spark."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kafkad_etl.errors import EtlExit
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl
from tests.spark.tasks.runs import HELLO, WORK, Run


def test_traces_are_in_the_log_only(run: Run) -> None:
    ran = run(
        WORK
        + "print('java.io.IOException: no\\n\\tat X.run(X.java:1)\\n\\t... 3 more\\nCaused by: y', flush=True)"
        + "; sys.exit(1)"
    )
    assert "       java.io.IOException: no\n" in ran.err
    assert "X.java" not in ran.err and "more" not in ran.err


def test_a_full_disk_for_the_log_hides_no_failure(run: Run, topic: str) -> None:
    log = Path(f".etl/logs/{topic}.log").absolute()
    fails = f"""os.replace({str(log)!r}, "log")
os.symlink("/dev/full", {str(log)!r})
channel.send(Failed(kind="check", text="a check failed", trace="Traceback"))
channel.close()"""
    ran = run(WORK + fails)
    assert ran.code == EtlExit.DATA
    assert f"warning: the log lacks the trace of the failure: {log}: No space left on device\n" in ran.err
    assert "error: a check failed" in ran.err


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
