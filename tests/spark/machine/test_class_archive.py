from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from kafkad_etl.machine import class_archive
from kafkad_etl.machine.java import Java
from tests.spark.conftest import SparkReady

JAVA = Java(Path("/jdk"), "17.0.1", "PATH")


def test_each_java_and_each_spark_has_its_own(tmp_path: Path) -> None:
    others = [(JAVA._replace(version="17.0.2"), "/spark"), (JAVA._replace(home=Path("/j")), "/spark"), (JAVA, "/s")]
    paths = {class_archive.location(java, Path(home), tmp_path) for java, home in [(JAVA, "/spark"), *others]}
    assert len(paths) == 4


def test_those_of_a_spark_that_is_gone_are_removed(tmp_path: Path) -> None:
    homes = [tmp_path / "old", tmp_path / "new"]
    archives = []
    for home in homes:
        home.mkdir()
        class_archive.claim(home, tmp_path)
        archives.append(class_archive.location(JAVA, home, tmp_path))
        archives[-1].touch()
    assert class_archive.find(JAVA, homes[0], tmp_path) == archives[0]
    shutil.rmtree(homes[0])
    class_archive.claim(homes[1], tmp_path)
    assert [archive.exists() for archive in archives] == [False, True]


def test_a_java_without_an_archive_of_its_own_makes_none(tmp_path: Path) -> None:
    assert "no archive of its own classes" in class_archive.unfit(JAVA._replace(home=tmp_path))
    own = tmp_path / "lib" / "server" / "classes.jsa"
    own.parent.mkdir(parents=True)
    own.touch()
    assert class_archive.unfit(JAVA._replace(home=tmp_path)) == ""


@pytest.mark.slow
@pytest.mark.spark
def test_spark_starts_from_it(spark: Any, spark_ready: SparkReady) -> None:
    """Java says nothing of an archive that it does not take: what it has mapped tells."""
    if spark_ready.archive is None:
        pytest.skip("this Java makes no archives")
    mapped = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/maps").read_text()
    assert str(spark_ready.archive) in mapped
