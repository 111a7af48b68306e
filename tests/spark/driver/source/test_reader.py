from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any, Self

import pytest

from kafkad_etl.driver.source.reader import PlannedSource, bounded_options, options_of, stream_options
from kafkad_etl.driver.terms import JobFailed
from kafkad_etl.job import Files, Lookup
from tests.spark.driver.rows import plan_of


def test_reads_are_committed_polls_are_large_and_the_job_may_say_otherwise() -> None:
    plan = plan_of({"source": {"topics": ["t"], "rows_per_batch": 10, "min_partitions": 3, "headers": True}})
    assert plan.reading is not None
    options = stream_options(plan, plan.reading)
    assert options["kafka.isolation.level"] == "read_committed" and options["kafka.max.poll.records"] == "20000"
    assert (options["maxOffsetsPerTrigger"], options["minPartitions"], options["includeHeaders"]) == ("10", "3", "true")
    assert options["subscribe"] == "orders" and json.loads(options["startingOffsets"]) == {"orders": {"0": 0}}
    assert options["failOnDataLoss"] == "true"


def test_a_bounded_read_has_these_partitions_alone_and_new_ones_from_their_beginning() -> None:
    plan = plan_of({})
    assert plan.reading is not None
    options = bounded_options(plan, plan.reading, {"t": {0: 5}}, {"t": {0: 9, 1: 3}})
    assert json.loads(options["assign"]) == {"t": [0, 1]}
    assert json.loads(options["startingOffsets"]) == {"t": {"0": 5, "1": -2}}
    assert json.loads(options["endingOffsets"]) == {"t": {"0": 9, "1": 3}}
    assert "maxOffsetsPerTrigger" not in options and "subscribe" not in options


def test_quotes_in_csv_files_are_doubled_unless_the_job_says_otherwise() -> None:
    assert options_of(Files(format="csv", path="a"))["escape"] == '"'
    assert options_of(Lookup(format="csv", path="a", options={"escape": "\\"})) == {"escape": "\\"}
    assert options_of(Files(format="csv", path="a", options={"Quote": "'"}))["escape"] == "'", "it is that quote then"
    assert "escape" not in options_of(Files(format="csv", path="a", options={"quote": ""}))
    assert options_of(Lookup(format="json", path="a", options={"multiLine": True})) == {"multiLine": "True"}


def test_a_stream_of_files_reads_old_ones_too_unless_the_job_says_otherwise() -> None:
    assert options_of(Files(format="json", path="a")) == {"maxFileAge": "36500d"}
    assert options_of(Files(format="json", path="a", options={"maxFileAge": "1d"})) == {"maxFileAge": "1d"}


class FakeReader:
    """Reads a directory with these files, of which it tells those that its option chooses."""

    def __init__(self, *names: str) -> None:
        self.read = self.readStream = self
        self._names, self._pattern = names, "*"

    def format(self, name: str) -> Self:
        return self

    def schema(self, columns: str) -> Self:
        return self

    def options(self, **options: str) -> Self:
        self._pattern = options.get("pathGlobFilter", "*")
        return self

    def load(self, path: str) -> Self:
        return self

    def inputFiles(self) -> list[str]:  # noqa: N802
        return [f"file:/in/{name}" for name in self._names if PurePosixPath(name).match(self._pattern)]


def stream_of(*names: str, **options: str) -> Any:
    files = {"format": "parquet", "path": "/in", "schema": "id BIGINT", "options": options}
    return PlannedSource(FakeReader(*names), plan_of({"source": {"files": files}})).stream()


def test_a_stream_of_files_does_not_read_again_the_rows_of_files_that_were_merged() -> None:
    batch, merged = "etl-0a1b2c3d-000000004-0000.zstd.parquet", "etl-0a1b2c3d-merged-0000.zstd.parquet"
    with pytest.raises(JobFailed) as refused:
        stream_of(batch, merged)
    assert refused.value.failed.text.endswith(f"would be read again: file:/in/{merged}")
    stream_of(batch, "orders-merged-0001.parquet")
    stream_of(batch, merged, pathGlobFilter="*")
