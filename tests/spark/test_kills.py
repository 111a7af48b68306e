"""One job with real Spark, whose processes are killed one after another: in the end every row is there once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafkad_etl.errors import EtlExit
from kafkad_etl.process.launching import PREFIX
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl
from tests.spark.conftest import SparkReady

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(1200)]

ROWS = 40_000
JOB = """version: 1
name: TOPIC
kafka: {bootstrap: [BOOTSTRAP]}
source: {topics: [TOPIC], rows_per_batch: 4000}
value: {format: json, schema: "id BIGINT"}
sink: {type: json, path: out}
spark: {master: "local[2]", driver_memory: 700m}
"""
END_SECONDS = 120


class Run:
    """`kctl etl run job.yaml -o json`, and what it says."""

    def __init__(self) -> None:
        words = [sys.executable, "-m", "kctl", "etl", "run", "job.yaml", "-o", "json"]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def until(self, kind: str) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event: dict[str, Any] = json.loads(line)
            if event["type"] == kind:
                return event
        raise AssertionError(f"no {kind}: {self.process.stderr and self.process.stderr.read()}")

    def end(self) -> tuple[int, str]:
        out, err = self.process.communicate(timeout=END_SECONDS)
        return self.process.returncode, out + err


def processes(directory: Path) -> dict[int, str]:
    """Of the runs in this directory: its name is in the words of each but the front."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if str(directory) in words and int(path.parent.name) != os.getpid():
            found[int(path.parent.name)] = words
    return found


def wait_for_none(directory: Path) -> None:
    end = time.monotonic() + END_SECONDS
    while left := processes(directory):
        assert time.monotonic() < end, f"still there: {left}"
        time.sleep(0.1)


@contextmanager
def until_batch() -> Iterator[Run]:
    """A run in the middle: one batch is written, others are not."""
    run = Run()
    try:
        run.until("batch")
        yield run
    finally:
        run.process.kill()
        run.end()


@pytest.fixture
def directory(
    spark_ready: SparkReady, on_broker: Kctl, broker: KafkadProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    topic = f"kills-{time.monotonic_ns()}"
    (tmp_path / "records").write_text("".join(f'{{"id": {number}}}\n' for number in range(ROWS)))
    assert on_broker("topics", "create", topic, "--partitions", 2, "-y").code == 0
    assert on_broker("produce", topic, "--file", tmp_path / "records").code == 0
    (tmp_path / "job.yaml").write_text(JOB.replace("TOPIC", topic).replace("BOOTSTRAP", broker.bootstrap))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def private(directory: Path) -> list[Path]:
    return list(directory.glob(f"{PREFIX}*"))


def test_every_row_is_there_once_whatever_was_killed(directory: Path) -> None:
    with until_batch() as run:
        jvm = next(pid for pid, words in processes(directory).items() if "SparkSubmit" in words)
        os.kill(jvm, signal.SIGKILL)
        code, said = run.end()
        assert code == EtlExit.FAILED, said
        assert "Spark was killed (SIGKILL) before the job finished" in said
        assert processes(directory) == {}
        assert private(directory) == []

    with until_batch() as run:
        run.process.kill()  # the front: the driver finishes its batch by itself
        wait_for_none(directory)
        assert len(private(directory)) == 1

    with until_batch() as run:
        assert len(private(directory)) == 1  # this run's own; what the killed one left is gone
        run.process.send_signal(signal.SIGINT)
        code, said = run.end()
        assert (code, processes(directory)) == (EtlExit.INTERRUPTED, {}), said
        assert '"outcome": "interrupted"' in said

    with until_batch() as run:
        run.process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        run.process.send_signal(signal.SIGINT)
        begin = time.monotonic()
        code, said = run.end()
        assert (code, processes(directory)) == (EtlExit.INTERRUPTED, {}), said
        assert time.monotonic() - begin < 20

    run = Run()
    code, said = run.end()
    assert code == EtlExit.DONE, said
    assert private(directory) == []
    ids = [
        json.loads(line)["id"] for path in (directory / "out").glob("*.json") for line in path.read_text().splitlines()
    ]
    assert len(ids) == ROWS
    assert set(ids) == set(range(ROWS))
