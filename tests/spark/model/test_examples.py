from __future__ import annotations

import re
from pathlib import Path

import pytest

from kafkad_etl.model.effective import effective
from kafkad_etl.model.examples import Example, examples
from kafkad_etl.model.inspection import inspect
from kafkad_etl.model.loading import JobFile, load

ROOT = Path(__file__).parents[3]
JOBS = ROOT / "spark" / "jobs"
VARIABLES = {"backfill-by-time": {"day": "2026-11-01", "next": "2026-11-02"}}
EXPECTED = {
    "avro-registry",
    "avro-to-csv",
    "backfill-by-time",
    "exactly-once-by-stored-offset",
    "json-clean-to-topic",
    "parquet-to-topic",
    "topic-copy-between-clusters",
    "topic-to-delta",
    "topic-to-iceberg",
    "topic-to-jdbc",
    "topic-to-parquet",
    "windowed-counts",
}


def test_all_are_there() -> None:
    assert {one.name for one in examples()} == EXPECTED == {file.stem for file in JOBS.glob("*.yaml")}
    assert {file.stem for file in (JOBS / "tests").iterdir()} == EXPECTED


@pytest.mark.parametrize("one", examples(), ids=lambda one: one.name)
def test_each_is_right_and_explains_itself(one: Example) -> None:
    loaded = load(JobFile(JOBS / f"{one.name}.yaml", VARIABLES.get(one.name, {})), {})
    assert inspect(loaded, effective(loaded), strict=True) == []
    assert loaded.job.name == one.name
    assert loaded.job.description == one.description
    assert re.search(rf"#   kctl etl run {one.name}\.yaml", one.text)
    assert one.text.count("#") >= 6


def test_they_are_part_of_the_package() -> None:
    assert '"spark/jobs" = "kafkad_etl/jobs"' in (ROOT / "pyproject.toml").read_text()
