"""`kctl etl run` by its other name, and what commands that only read leave behind: nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl
from tests.spark.checkpoint_files import spark_checkpoint

CLONE = Path(__file__).parents[3]
JOB = """version: 1
name: orders
kafka: {bootstrap: [BOOTSTRAP]}
source: {topics: [no-such]}
value: {format: json, schema: "id BIGINT"}
sink: {type: json, path: out/orders}
"""


def test_the_script_for_clones_names_itself(tmp_path: Path) -> None:
    if not (CLONE / ".venv/bin/python").exists():
        pytest.skip("not a clone with its virtual environment")
    script = os.path.relpath(CLONE / "spark/submit", tmp_path)
    asked = subprocess.run([script, "--help"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert asked.stdout.splitlines()[0].startswith(f"Usage: {script} ")
    assert f"Example: {script} daily_totals.py" in asked.stdout
    assert "kctl etl submit" not in asked.stdout
    of_jobs = subprocess.run([script, "x.yaml", "--help"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert f"Example: {script} orders.yaml" in of_jobs.stdout
    assert "kctl etl" not in of_jobs.stdout
    wrong = subprocess.run([script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (wrong.returncode, f"{script} --help lists what is available" in wrong.stderr) == (2, True)


@pytest.mark.parametrize("state", [False, True])
def test_what_only_reads_creates_nothing_in_the_current_directory(
    kctl: Kctl, broker: KafkadProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KAFKAD_ETL_STATE", raising=False)
    (tmp_path / "job.yaml").write_text(JOB.replace("BOOTSTRAP", broker.bootstrap))
    if state:
        spark_checkpoint(tmp_path / ".etl/orders", [{"no-such": {0: 1}}])
    before = sorted(tmp_path.rglob("*"))
    for words in (
        ["list"],
        ["validate", "job.yaml"],
        ["validate", "job.yaml", "--offline"],
        ["status", "job.yaml"],
        ["plan", "job.yaml"],
    ):
        kctl("etl", *words)
        assert sorted(tmp_path.rglob("*")) == before, words
