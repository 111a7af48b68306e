"""`kctl etl run` against a real kafkad and a simulated Spark: successful runs."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from kafkad_etl.errors import EtlExit
from tests.kctl.conftest import Kctl
from tests.spark.checkpoint_files import spark_checkpoint
from tests.spark.tasks.runs import HELLO, WORK, Run

DONE = WORK + 'channel.send(Ended("done")); channel.close()'


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


def test_as_json_lines_every_line_is_one(run: Run) -> None:
    ran = run(WORK + 'channel.send(Ended("done")); channel.close()', "-o", "json")
    lines = [json.loads(line) for line in ran.out.splitlines()]
    assert [line["type"] for line in lines] == ["started", "query", "batch", "ended", "summary"]
    ran = run(WORK + 'channel.send(Failed(kind="sql", text="no such column")); channel.close()', "-o", "json")
    *_, summary, error = (json.loads(line) for line in ran.out.splitlines())
    assert (summary["type"], summary["outcome"]) == ("summary", "failed")
    assert (error["type"], error["error"]) == ("error", "no such column")
    assert ran.code == EtlExit.USAGE


def test_with_nothing_new_spark_is_not_started(run: Run, topic: str, tmp_path: Path) -> None:
    begins = f"open({str(tmp_path / 'started')!r}, 'w')"
    assert run(WORK + 'channel.send(Ended("done")); channel.close()').code == EtlExit.DONE
    spark_checkpoint(tmp_path / ".etl" / topic, [{topic: {0: 3}}])
    ran = run(begins)
    assert ran.code == EtlExit.DONE
    assert "nothing new since batch 0; Spark was not started" in ran.err
    assert "done: 0 rows read, 0 written" in ran.err
    assert not (tmp_path / "started").exists()


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


def test_systemd_is_told_and_spark_is_not_asked_to(
    run: Run, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(f"{tmp_path}/notify")
        systemd.settimeout(5)
        for body in ('assert "NOTIFY_SOCKET" not in os.environ\n' + DONE, "sys.exit(1)"):
            monkeypatch.setenv("NOTIFY_SOCKET", f"{tmp_path}/notify")
            monkeypatch.setenv("WATCHDOG_USEC", "60000000")
            assert run(body).code == EtlExit.DONE
            told = ""
            while "STATUS=ended" not in told:
                told += systemd.recv(4096).decode() + "\n"
            assert told.startswith("STATUS=Spark is starting\nWATCHDOG=1\n" if body != "sys.exit(1)" else "READY=1\n")
            assert "READY=1\n" in told
            spark_checkpoint(tmp_path / ".etl" / topic, [{topic: {0: 3}}])  # nothing new for the second run
