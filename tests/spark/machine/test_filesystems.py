"""Jars that object stores need."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from kafkad_etl.errors import EtlExit
from kafkad_etl.machine.filesystems import faults
from tests.kctl.conftest import Kctl
from tests.spark.jobs import job

PACKAGE = 'spark.conf: {spark.jars.packages: "org.apache.hadoop:hadoop-azure:3.4.1"} makes Spark download it'
AZURE = "abfss://c@a.dfs.core.windows.net/x"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars/hadoop-client-api-3.4.1.jar").touch()
    return tmp_path


def told(home: Path, path: str = AZURE, *words: str, environ: Any = None, **spark: Any) -> list[str]:
    found = list(faults(job(sink={"type": "parquet", "path": path}, spark=spark), words, environ or {}, home))
    assert {error.exit_code for error in found} <= {EtlExit.ENVIRONMENT}
    return [error.what for error in found]


def test_a_store_without_its_jar_is_told(home: Path) -> None:
    text = "sink.path: abfss:// needs a jar that does not come with Spark: hadoop-azure"
    assert told(home) == [text]
    (fault,) = faults(job(sink={"type": "parquet", "path": AZURE}), (), {}, home)
    assert fault.hints[0] == PACKAGE
    assert told(home, "gs://lake/x")[0].endswith("gcs-connector")
    for path in ("/lake/orders", "file:///lake", "hdfs:///lake", "viewfs://c/x", "s3a://lake/x"):
        assert told(home, path) == []


def test_what_may_bring_it_is_believed(home: Path, tmp_path: Path) -> None:
    assert told(home, conf={"spark.jars.packages": "org.apache.hadoop:hadoop-azure:3.4.1"}) == []
    assert told(home, AZURE, "--packages", "org.apache.spark:spark-hadoop-cloud_2.13:4.0.0") == []
    assert told(home, jars=["https://repo/hadoop-azure.jar"]) == []
    (tmp_path / "spark-defaults.conf").write_text("spark.jars.packages org.apache.hadoop:hadoop-azure:3.4.1\n")
    assert told(home, environ={"SPARK_CONF_DIR": str(tmp_path)}) == []
    (home / "jars/hadoop-azure-3.4.1.jar").touch()
    assert told(home) == []


def test_a_jar_of_the_job_is_looked_into(home: Path, tmp_path: Path) -> None:
    for name, content in (
        ("other.jar", "A.class"),
        ("fat.jar", "org/apache/hadoop/fs/azurebfs/AzureBlobFileSystem.class"),
    ):
        with ZipFile(tmp_path / name, "w") as file:
            file.writestr(content, "")
    assert told(home, jars=[str(tmp_path / "other.jar")])
    assert told(home, jars=[str(tmp_path / "other.jar"), str(tmp_path / "fat.jar")]) == []


def test_validate_tells_the_line(kctl: Kctl, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        f"version: 1\nname: j\nsource: {{files: {{format: parquet, path: {tmp_path}, schema: 'id INT'}}}}\n"
        f"sink:\n  type: parquet\n  path: {AZURE}\n"
    )
    ran = kctl("etl", "validate", path)
    assert ran.code == EtlExit.ENVIRONMENT
    assert f"{path}:6 sink.path: abfss:// needs a jar that does not come with Spark: hadoop-azure" in ran.err
