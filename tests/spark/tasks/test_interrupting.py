"""Interrupted runs: signals, killed fronts and the lock they leave, with a simulated Spark."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from kafkad_etl.errors import EtlExit
from kafkad_etl.process.launching import PREFIX
from tests.kctl.conftest import Kctl
from tests.spark.fake_spark import fake_spark
from tests.spark.tasks.runs import BATCH, HELLO, WORK, Run, is_gone, wait_for

PROGRAM = """
import sys
from pathlib import Path
from kafkad_etl.machine import environment
from kafkad_etl.machine.environment import Environment
from kafkad_etl.machine.java import Java
from kctl.cli import run
spark = Environment(Java(Path("jdk"), "17", "PATH"), Path("spark").absolute(), "4.0.0", sys.executable, ())
environment.find = lambda *_: spark
run(["etl", "run", "job.yaml", *sys.argv[1:]])
"""


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


def test_signals_mean_again_what_they_meant_before(run: Run) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    run(WORK + 'channel.send(Ended("done")); channel.close()')
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


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
    command = [sys.executable, "-c", PROGRAM, "-o", "json"]
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


def test_a_terminal_that_is_closed_lets_the_batch_finish(run: Run, tmp_path: Path) -> None:
    """The shell and the kernel both send SIGHUP, and nothing can be written any more."""
    body = f"""
channel.send(Query([]))
open({str(tmp_path / "began")!r}, "w").close()
while channel.stop is None:
    time.sleep(0.01)
time.sleep(1)  # a batch
topic = channel.plan.job.source.topics[0]; channel.send({BATCH})
channel.send(Ended("stopped"))
channel.close()
open({str(tmp_path / "finished")!r}, "w").close()
"""
    fake_spark(tmp_path, HELLO + body)
    (tmp_path / "program.py").write_text(PROGRAM)
    terminal, inside = pty.openpty()
    shell = ["env", "--default-signal=HUP", "setsid", "--ctty", "bash", "--norc", "-i"]  # else nohup would hold for it
    with subprocess.Popen(shell, stdin=inside, stdout=inside, stderr=inside):
        os.close(inside)
        os.write(terminal, f"{sys.executable} program.py\n".encode())
        wait_for(tmp_path / "began")
        os.close(terminal)
    wait_for(tmp_path / "finished")


SAYS = f"""
topic = channel.plan.job.source.topics[0]; channel.send(Query([]))
open("began", "w").close()
while not os.path.exists("alone"):
    time.sleep(0.01)
for text in ("a", "b"):
    channel.send(Warned(text))
    time.sleep(0.2)
channel.send({BATCH})
channel.send(Ended("done"))
channel.close()
open("finished", "w").close()
"""


@pytest.mark.parametrize(("output", "how"), [("stderr", "plain"), ("stdout", "json")])
def test_a_reader_who_goes_away_ends_no_run(run: Run, tmp_path: Path, output: str, how: str) -> None:
    fake_spark(tmp_path, HELLO + SAYS)
    (tmp_path / "program.py").write_text(PROGRAM)
    reading, writing = os.pipe()
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, output: writing}
    with subprocess.Popen([sys.executable, "program.py", "-o", how], **streams):  # type: ignore[call-overload]
        os.close(writing)
        wait_for(tmp_path / "began")
        os.close(reading)
        (tmp_path / "alone").touch()
    assert (tmp_path / "finished").exists()


def test_a_full_disk_for_what_is_told_ends_no_run(run: Run, tmp_path: Path) -> None:
    fake_spark(tmp_path, HELLO + SAYS)
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "alone").touch()
    with open("/dev/full", "w") as full:
        program = [sys.executable, "program.py", "-o", "json"]
        ran = subprocess.run(program, stdout=full, stderr=subprocess.PIPE, text=True)
    assert ran.stderr == "warning: no more events can be written to standard output: No space left on device\n"
    assert (tmp_path / "finished").exists()


def test_the_lock_of_a_run_that_was_killed_is_taken_over_and_said(run: Run, topic: str, tmp_path: Path) -> None:
    (tmp_path / ".etl").mkdir()
    (tmp_path / f".etl/{topic}.lock").write_text('{"host": "elsewhere", "pid": 7, "since": "2026-11-20T10:00:00Z"}')
    ran = run(WORK + 'channel.send(Ended("done"))')
    assert ran.code == 0
    taken = "the last run did not finish (process 7 on elsewhere, since 2026-11-20T10:00:00Z); taking over its lock"
    assert taken in ran.err
