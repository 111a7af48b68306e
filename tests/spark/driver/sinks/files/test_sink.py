from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kafkad_etl.driver.sinks.files import sink
from kafkad_etl.job import Sink

COLUMNS = [("id", "bigint"), ("name", "string"), ("day", "date"), ("tags", "array<string>"), ("p", "bigint")]


def sink_of(**settings: Any) -> Sink:
    return msgspec.convert(settings, Sink)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"type": "parquet", "partition_by": ["dya"]}, "sink.partition_by names dya, which the result does not have"),
        ({"type": "parquet", "partition_by": ["tags"]}, r"tags is array<string>, which cannot name directories"),
        ({"type": "json", "partition_by": ["id", "name", "day", "p"]}, ""),
        ({"type": "csv"}, r"csv does not support columns of these types: tags array<string>"),
        ({"type": "csv", "compression": "zstd", "partition_by": ["tags"]}, "tags is array"),
        ({"type": "json", "compression": "zstd"}, "Spark's json files cannot be compressed by zstd"),
        ({"type": "parquet", "compression": "zstd"}, ""),
    ],
)
def test_what_files_cannot_have_is_told_at_once(settings: dict[str, Any], text: str) -> None:
    failed = sink.mistake(sink_of(**settings), COLUMNS)
    assert text in failed.text if failed else text == ""


def test_a_column_has_to_be_left_for_the_files() -> None:
    failed = sink.mistake(sink_of(type="parquet", partition_by=["id"]), [("id", "bigint")])
    assert failed
    assert "names every column" in failed.text


def test_files_are_compressed_as_the_job_says_and_options_win() -> None:
    assert sink.options(sink_of(type="parquet"))["compression"] == "zstd"
    assert sink.options(sink_of(type="json"))["compression"] == "none"
    assert sink.options(sink_of(type="parquet", compression="lz4"))["compression"] == "lz4_raw"
    assert sink.options(sink_of(type="csv", csv={"delimiter": ";", "null": "-"}, options={"sep": "|"}))["sep"] == "|"


def test_csv_doubles_quotes_and_keeps_blanks_unless_the_job_says_otherwise() -> None:
    assert sink.options(sink_of(type="csv"))["escape"] == '"'
    assert sink.options(sink_of(type="csv"))["ignoreLeadingWhiteSpace"] == "false"
    assert sink.options(sink_of(type="csv", options={"escape": "\\"}))["escape"] == "\\"
    assert sink.options(sink_of(type="csv", options={"quote": "'"}))["escape"] == "'"


@pytest.mark.parametrize(
    ("offsets", "bytes_per_offset", "cores", "expected"),
    [
        (10, 100, 8, 1),
        (200_000, 100, 2, 2),  # 20 MB: one file would do, but then a core idles
        (200_000, 100, 64, 8),
        (100_000_000, 100, 2, 75),  # 9.3 GB in files of 128 MB
        (0, 100, 2, 1),
    ],
)
def test_files_become_large_but_no_core_idles(offsets: int, bytes_per_offset: int, cores: int, expected: int) -> None:
    assert sink.tasks(offsets, bytes_per_offset, 128, cores) == expected


def test_a_store_that_cannot_rename_is_warned_of() -> None:
    assert sink.copied("s3a", "append") == (
        "s3a:// cannot rename: files are copied from staging one by one, and each appears only once complete"
    )
    assert "both the old files and" in sink.copied("s3a", "overwrite")
