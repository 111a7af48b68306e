"""`kctl etl compact`, up to where Spark begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkad_etl.checkpoint.checkpoints import Checkpoint, record_of
from kafkad_etl.model.effective import effective
from kafkad_etl.model.loading import JobFile, load
from kafkad_etl.tasks.compacting import plan_of
from tests.kctl.conftest import Kctl

JOB = """\
version: 1
name: orders
kafka: {bootstrap: [localhost:9092]}
source: {topics: [orders]}
sink: {type: parquet, path: /lake, compact: {min_files: 4}}
run: {checkpoint: CHECKPOINT}
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    file = tmp_path / "orders.yaml"
    file.write_text(JOB.replace("CHECKPOINT", str(tmp_path / "state")))
    return file


def test_only_files_are_merged(kctl: Kctl, job: Path) -> None:
    job.write_text(job.read_text().replace("{type: parquet, path: /lake, compact: {min_files: 4}}", "{type: none}"))
    ran = kctl("etl", "compact", job)
    assert ran.code == 2
    assert (
        "orders.yaml:5 sink.type: sink.type is none: only files of parquet, json, csv, delta, iceberg can be" in ran.err
    )


def test_files_are_not_merged_where_the_checkpoint_is(kctl: Kctl, job: Path, tmp_path: Path) -> None:
    job.write_text(job.read_text().replace("/lake", str(tmp_path)))
    ran = kctl("etl", "compact", job)
    assert ran.code == 2
    assert f"orders.yaml:5 sink.path: {tmp_path} is above run.checkpoint, {tmp_path}/state" in ran.err


def test_files_are_not_merged_where_the_job_is(kctl: Kctl, job: Path, tmp_path: Path) -> None:
    job.write_text(job.read_text().replace("/lake", str(tmp_path)).replace(str(tmp_path / "state"), "/elsewhere"))
    assert f"{tmp_path} is above the job file, {job}" in kctl("etl", "compact", job).err


def test_the_driver_is_told_of_the_checkpoint_whose_files_they_are(job: Path, tmp_path: Path) -> None:
    loaded = effective(load(JobFile(job), {}))
    checkpoint = Checkpoint(str(tmp_path / "state"), tmp_path)
    assert plan_of(loaded, checkpoint, None).checkpoint_id == ""
    checkpoint.write_record(record_of(loaded.job, "0123", "now", {}))
    plan = plan_of(loaded, checkpoint, 2)
    assert (plan.task, plan.checkpoint, plan.checkpoint_id) == ("compact", str(tmp_path / "state"), "0123")
    assert plan.job.sink.compact.min_files == 2
    assert plan_of(loaded, checkpoint, None).job.sink.compact.min_files == 4


def test_what_owns_staging_is_the_checkpoint_or_in_mode_batch_the_directory_that_is_locked(
    job: Path, tmp_path: Path
) -> None:
    path = "s3a://bucket/c"
    here, there = (Checkpoint(path, tmp_path / name) for name in ("a", "b"))
    assert here.lock_path != there.lock_path
    keeping, batch = (effective(load(JobFile(job, mode=mode), {})) for mode in ("available-now", "batch"))
    assert plan_of(keeping, here, None).owner == path
    assert plan_of(batch, here, None).owner != plan_of(batch, there, None).owner
