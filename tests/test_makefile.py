"""The installations of `make`, each done only once. Python is played: no package is fetched."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """With a virtual environment whose programs do nothing, in which PySpark is unpacked."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    (tmp_path / ".venv/lib/python3.11/site-packages/pyspark").mkdir(parents=True)
    for name in ("python", "kctl"):
        (programs / name).write_text('#!/bin/sh\necho "$0" "$@"\n')
        (programs / name).chmod(0o755)
    return tmp_path


def make(clone: Path, target: str) -> str:
    done = subprocess.run(["make", "--no-print-directory", target], cwd=clone, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("first", ["spark", "test", "test-spark"])
def test_a_broker_runs_after_another_target_without_installing_again(clone: Path, first: str) -> None:
    assert "pip install" in make(clone, first)
    assert "pip install" not in make(clone, "run")
    assert "pip install" not in make(clone, first)


def test_what_tests_of_spark_need_is_all_that_others_need(clone: Path) -> None:
    make(clone, "test-spark")
    for target in ("spark", "test", "run"):
        assert "pip install" not in make(clone, target)


def test_spark_comes_after_the_broker_and_leaves_its_extras(clone: Path) -> None:
    make(clone, "run")
    installs = next(line for line in make(clone, "spark").splitlines() if "pip install" in line)
    assert ".[fast,security,spark]" in installs
    assert "pip install" not in make(clone, "run")


def test_modules_are_compiled_once_for_all_processes(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the user has set for others."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    (clone / ".venv/bin/python").write_text('#!/bin/sh\necho "forbids it: ${PYTHONDONTWRITEBYTECODE-no}"\n')
    said = make(clone, "test")
    assert "forbids it: no" in said
    assert "forbids it: 1" not in said


def test_what_jobs_create_is_ignored_by_git() -> None:
    created = [".etl/j/job.json", ".orders-etl-staging/j", "data/orders/day=1/x.parquet", "orders.db", "events.db"]
    done = subprocess.run(["git", "check-ignore", *created], cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 128:
        pytest.skip("not a clone")
    assert done.stdout.split() == created
