from __future__ import annotations

import time
from pathlib import Path

import pytest

from kafkad_etl.machine import environment
from kafkad_etl.process.launching import PREFIX
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl, Ran
from tests.spark.fake_spark import fake_spark
from tests.spark.tasks.runs import JOB, Run


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
