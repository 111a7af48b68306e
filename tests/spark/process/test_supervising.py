"""A spark-submit that is a Python program runs another as its child, as Spark's does."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkad_etl.machine.environment import Environment
from kafkad_etl.machine.java import Java
from kafkad_etl.process.programs import Program
from kafkad_etl.process.supervising import supervise

SUBMIT = """#!{python}
import os, subprocess, sys
done = subprocess.run([os.environ["PYSPARK_DRIVER_PYTHON"], sys.argv[-1]], stderr=subprocess.STDOUT).returncode
sys.exit(done if done >= 0 else 128 - done)
"""
HEAD = "import os, pathlib, signal, sys, time\n"
SECONDS = 20.0

Supervise = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def run(tmp_path: Path) -> Supervise:
    """Runs a program until it has ended; when it has made the file `ready`, the signals come. Returns the exit code and
    what was said."""
    submit = tmp_path / "spark/bin/spark-submit"
    submit.parent.mkdir(parents=True)
    submit.write_text(SUBMIT.format(python=sys.executable))
    submit.chmod(0o755)
    here = Environment(Java(tmp_path, "21", "PATH"), tmp_path / "spark", "4.0.0", sys.executable, ())

    def run(body: str, *signals: signal.Signals, grace: float = SECONDS) -> tuple[int, list[str]]:
        file = tmp_path / "program.py"
        file.write_text(HEAD + textwrap.dedent(body))
        ready = tmp_path / "ready"
        said: list[str] = []
        sender = threading.Thread(target=_send, args=(ready, signals, said))
        if signals:
            sender.start()
        environ = dict(os.environ, TMPDIR=str(tmp_path / "tmp"), READY=str(ready))
        (tmp_path / "tmp").mkdir(exist_ok=True)
        code = supervise(Program(str(file)), here, environ, ["sesame"], grace, said.append)
        if signals:
            sender.join()
        assert list((tmp_path / "tmp").iterdir()) == []
        return code, said

    return run


def _send(ready: Path, signals: tuple[signal.Signals, ...], said: list[str]) -> None:
    end = time.monotonic() + SECONDS
    while not ready.exists() and time.monotonic() < end:
        time.sleep(0.02)
    for place, each in enumerate(signals):
        while len(said) < place and time.monotonic() < end:  # the one before has been heeded
            time.sleep(0.02)
        os.kill(os.getpid(), each)


def test_exit_code_and_output_are_the_programs(run: Supervise, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("print('open', 'sesame', flush=True); print('oh', file=sys.stderr); sys.exit(3)") == (3, [])
    assert capfd.readouterr() == ("open ****\noh\n", "")
    assert run("raise ValueError('sesame')")[0] == 1
    assert "ValueError: ****" in capfd.readouterr().out


def test_ctrl_c_reaches_the_program_and_it_alone(run: Supervise, capfd: pytest.CaptureFixture[str]) -> None:
    body = """
    pathlib.Path(os.environ["READY"]).touch()
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        print("saved")
        sys.exit(4)
    """
    code, (said,) = run(body, signal.SIGINT)
    assert (code, capfd.readouterr().out) == (4, "saved\n")
    assert said == "waiting for the program to end; press Ctrl-C again to stop it at once"


DEAF = """
for each in (signal.SIGINT, signal.SIGTERM):
    signal.signal(each, signal.SIG_IGN)
pathlib.Path(os.environ["READY"]).touch()
time.sleep(60)
"""


def test_a_program_that_ignores_sigterm_is_killed_in_time(run: Supervise) -> None:
    code, said = run(DEAF, signal.SIGTERM, grace=0.3)
    assert code == 130
    assert said[-1] == "the program has not ended 0.3 s after SIGTERM: killing it"


def test_the_second_ctrl_c_does_not_wait(run: Supervise) -> None:
    code, said = run(DEAF, signal.SIGINT, signal.SIGINT)
    assert (code, said[-1]) == (130, "stopping at once")


def test_a_spark_that_was_killed(run: Supervise) -> None:
    """The program would outlive it."""
    code, (said,) = run("os.kill(os.getppid(), signal.SIGKILL); time.sleep(60)")
    assert code == 137
    assert said.startswith("error: Spark was killed (SIGKILL) before the program ended; if nobody killed it")
