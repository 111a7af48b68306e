"""`kctl etl runs` after runs with a simulated Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.messages import Ended, Query, Started
from kafkad_etl.reporting.state import State, advance, begin
from kafkad_etl.tasks.recording import code_of, result_of
from tests.kctl.conftest import Kctl
from tests.spark.tasks.runs import HELLO, WORK, Run, is_gone, wait_for

DONE = WORK + 'channel.send(Ended("done")); channel.close()'


def history(kctl: Kctl, *arguments: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(kctl("etl", "runs", *arguments, "-o", "json").out)["items"]
    return found


def test_each_run_is_there_with_its_result(run: Run, kctl: Kctl, topic: str, tmp_path: Path) -> None:
    assert run(DONE).code == EtlExit.DONE
    failed = 'channel.send(Failed(kind="bad-rows", text="1 of 3 rows could not be parsed\\n  at 7")); channel.close()'
    assert run(WORK + failed).code == EtlExit.DATA
    assert run(DONE, "--set", "source.topics=[nowhere]").code == EtlExit.CLUSTER
    refused, bad, done = history(kctl)
    assert (refused["result"], refused["code"], refused["lag"]) == ("refused", 3, None)
    assert "source.topics.0: topic 'nowhere' does not exist" in refused["error"]
    assert (bad["result"], bad["code"], bad["rows_read"]) == ("failed", 5, 3)
    assert (done["result"], done["code"], done["rows_written"], done["lag"], done["bad"]) == ("done", 0, 3, 0, 0)
    assert (done["job"], done["mode"], done["batches"], done["error"]) == (topic, "available-now", 1, None)
    assert 0 < done["duration_ms"] == done["ended_ms"] - done["began_ms"]
    assert history(kctl, topic, "--limit", 1) == history(kctl, tmp_path / "job.yaml")[:1] == [refused]
    table = kctl("etl", "runs").out.splitlines()
    assert table[0].split() == ["JOB", "BEGAN", "TOOK", "RESULT", "CODE", "READ", "WRITTEN", "BAD", "LAG", "ERROR"]
    assert "1 of 3 rows could not be parsed" in table[2]


def test_a_run_whose_kctl_was_killed_did_not_end(run: Run, kctl: Kctl, tmp_path: Path) -> None:
    """While it goes on, it is shown as running."""
    program = f"import sys; sys.path[:0] = {sys.path!r}; from tests.spark.tasks.test_recording import go; go()"
    there, go_on = tmp_path / "there", tmp_path / "go on"
    waits = f"while not os.path.exists({str(go_on)!r}): time.sleep(0.01)"
    begins = f"open('pid', 'w').write(str(os.getpid())); os.rename('pid', {str(there)!r})"
    (tmp_path / "body").write_text(f"{HELLO}{begins}\n{waits}\n")
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL) as front:
        wait_for(there)
        (shown,) = history(kctl)
        assert (shown["result"], shown["code"]) == ("running", None)
        front.kill()
    go_on.touch()
    assert is_gone(int(there.read_text()))
    assert run(DONE).code == EtlExit.DONE
    assert [shown["result"] for shown in history(kctl)] == ["done", "did not end"]


def go() -> None:
    """The front that is killed."""
    from kafkad_etl.machine import environment
    from kctl.cli import run
    from tests.spark.fake_spark import fake_spark

    spark = fake_spark(Path(), Path("body").read_text())
    environment.find = lambda *_: spark  # type: ignore[assignment]
    run(["etl", "run", "job.yaml"])


def metrics(topic: str) -> dict[str, float]:
    text = Path(f"metrics/kafkad_etl_{topic}.prom").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(f'{{job="{topic}"}} ' in line for line in lines)
    return {line.partition("{")[0].removeprefix("kafkad_etl_"): float(line.rpartition(" ")[2]) for line in lines}


def test_metrics_of_a_run_stay_when_it_has_ended(run: Run, topic: str) -> None:
    Path("metrics").mkdir()
    textfile = ("--set", "run.textfile=metrics")
    assert run(DONE, *textfile).code == EtlExit.DONE
    done = metrics(topic)
    assert (done["last_run_exit_code"], done["last_run_rows_read"], done["last_run_lag"]) == (0, 3, 0)
    assert done["last_success_timestamp_seconds"] == done["last_run_end_time_seconds"]
    assert Path(f"metrics/kafkad_etl_{topic}.prom").stat().st_mode & 0o777 == 0o644
    assert run(DONE, *textfile, "--set", "source.topics=[nowhere]").code == EtlExit.CLUSTER
    refused = metrics(topic)
    assert refused["last_run_exit_code"] == 3 and "last_run_lag" not in refused
    assert refused["last_success_timestamp_seconds"] == done["last_success_timestamp_seconds"]
    assert refused["last_run_end_time_seconds"] > done["last_run_end_time_seconds"]
    assert [path.name for path in Path("metrics").iterdir()] == [f"kafkad_etl_{topic}.prom"]


def test_metrics_that_cannot_be_written_stop_nothing(run: Run, topic: str) -> None:
    Path(f"metrics/kafkad_etl_{topic}.prom").mkdir(parents=True)
    ran = run(DONE, "--set", "run.textfile=metrics")
    assert ran.code == EtlExit.DONE
    assert "warning: run.textfile: the metrics of this run are not in metrics: is a directory" in ran.err


def test_what_is_damaged_is_named(run: Run, kctl: Kctl, topic: str) -> None:
    file = Path(f".etl/logs/{topic}.runs.jsonl").absolute()
    file.parent.mkdir(parents=True)
    file.write_text("{\n")
    assert run(DONE).code == EtlExit.DONE
    ran = kctl("etl", "runs", topic)
    assert ran.err == f"warning: {file}:1 is damaged and was skipped\n"
    assert "done" in ran.out


def test_a_history_that_cannot_be_written_stops_nothing(run: Run, topic: str) -> None:
    Path(f".etl/logs/{topic}.runs.jsonl").mkdir(parents=True)
    ran = run(DONE)
    assert ran.code == EtlExit.DONE
    assert f"{topic}.runs.jsonl: is a directory" in ran.err


def test_nothing_has_run(kctl: Kctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = kctl("etl", "runs", "orders")
    assert (ran.code, ran.err) == (0, f"no run of orders in {tmp_path}/.etl\n")
    Path("a.yaml").write_text('name: "orders-${day}"\n')
    ran = kctl("etl", "runs", "a.yaml")
    assert ran.code == EtlExit.USAGE
    assert "a.yaml does not say the job's name" in ran.err


STARTED = advance(begin(0, {}, {}), Started(application="a", spark="4.0.0", pid=1), 1)
READING = advance(STARTED, Query([]), 2)


@pytest.mark.parametrize(
    ("code", "state", "result"),
    [
        (EtlExit.DONE, READING, "done"),
        (EtlExit.DONE, advance(READING, Ended("limit"), 3), "limit"),
        (EtlExit.DONE, begin(0, {}, {}), "nothing new"),
        (EtlExit.INTERRUPTED, READING, "interrupted"),
        (EtlExit.CHECKPOINT, None, "refused"),
        (EtlExit.CHECKPOINT, STARTED, "failed"),
        (EtlExit.FAILED, None, "failed"),
    ],
)
def test_results(code: EtlExit, state: State | None, result: str) -> None:
    assert result_of(code, state) == result


def test_exit_codes_of_errors() -> None:
    assert code_of(EtlError("no", EtlExit.DATA_LOSS)) == EtlExit.DATA_LOSS
    assert code_of(KeyboardInterrupt()) == EtlExit.INTERRUPTED
    assert code_of(ValueError()) == EtlExit.FAILED
