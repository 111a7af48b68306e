from __future__ import annotations

from pathlib import Path

import pytest

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.job import JdbcSink, Job, Sink, Source, Spark
from kafkad_etl.machine import spark_home
from kafkad_etl.machine.environment import MB, Machine, missing_jars, own_jars, room, size_of
from tests.spark.conftest import SparkReady

LARGE = Machine(16_000 * MB, 12_000 * MB, 50_000 * MB)


def test_there_is_room() -> None:
    assert room("1g", LARGE) == []
    assert room("1g", LARGE._replace(memory=None, available=None)) == []


def test_a_heap_that_the_machine_does_not_have_is_refused() -> None:
    with pytest.raises(
        EtlError, match="driver_memory 16g needs 16,684 MB, but this machine has only 16,000 MB"
    ) as raised:
        room("16g", LARGE)
    assert raised.value.exit_code == EtlExit.ENVIRONMENT
    (warning,) = room("12g", LARGE)
    assert warning == "only 12,000 MB of memory are free, and a heap of 12g may need 12,588 MB"


def test_a_disk_that_is_full_is_refused_and_one_that_is_nearly_full_is_told() -> None:
    with pytest.raises(EtlError, match="only 100 MB are free") as raised:
        room("1g", LARGE._replace(disk=100 * MB))
    assert "TMPDIR" in raised.value.hints[0]
    (warning,) = room("1g", LARGE._replace(disk=1000 * MB))
    assert warning.startswith("only 1,000 MB are free for temporary files")


@pytest.mark.parametrize(
    ("text", "size"), [("700m", 700 * MB), ("1G", 1024 * MB), ("512", 512 * MB), ("2gb", 2048 * MB)]
)
def test_sizes_are_those_of_spark(text: str, size: int) -> None:
    assert size_of(text) == size


def test_a_jar_that_a_job_names_and_that_is_not_there_is_missing() -> None:
    sink = Sink(type="none")
    job = Job(version=1, name="try", source=Source(topics=("x",)), sink=sink, spark=Spark(jars=("nope.jar",)))
    assert "nope.jar: no such jar" in next(missing_jars(job)).what


def test_what_is_no_size() -> None:
    with pytest.raises(EtlError, match='"lots" is not a size') as raised:
        size_of("lots")
    assert raised.value.exit_code == EtlExit.USAGE


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("4.0.0", ""),
        ("4.2.1", ""),
        ("3.5.4", r"PySpark 3.5.4 in .* is not supported \(>=4.0,<4.3\)"),
        ("4.3.0", "PySpark 4.3.0 in"),
        ("", "has no version.py, so its version is unknown"),
    ],
)
def test_which_pyspark_does(version: str, why: str, tmp_path: Path) -> None:
    import re

    (tmp_path / "bin").mkdir()
    (tmp_path / "jars").mkdir()
    (tmp_path / "bin" / "spark-submit").touch()
    said = spark_home.unfit(tmp_path, version)
    assert bool(said) == bool(why)
    assert re.search(why, said)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("# licence\n__version__: str = '4.0.0'\n", "4.0.0"),
        ('__version__ = "4.1.0.dev0"\n', "4.1.0.dev0"),
        ("from somewhere import __version__\n", ""),
    ],
)
def test_version_of_a_pyspark(text: str, version: str, tmp_path: Path) -> None:
    assert spark_home.version_of(tmp_path) == ""
    (tmp_path / "version.py").write_text(text)
    assert spark_home.version_of(tmp_path) == version


@pytest.mark.slow
@pytest.mark.spark
def test_the_pyspark_that_is_installed_has_the_version_that_pip_says(spark_ready: SparkReady) -> None:
    from importlib.metadata import version

    assert spark_ready.version == version("pyspark")


def test_a_client_without_spark_does_not_do(tmp_path: Path) -> None:
    assert "is only the client" in spark_home.unfit(tmp_path, "4.0.0")


def test_jars_of_the_job_itself() -> None:
    sink = Sink(type="jdbc", jdbc=JdbcSink(url="jdbc:db2:x", table="t", driver_jar="db2.jar"))
    job = Job(version=1, name="try", source=Source(topics=("x",)), sink=sink, spark=Spark(jars=("a.jar",)))
    assert own_jars(job) == ["a.jar", "db2.jar"]
