"""What a sink decides from its settings and the result's columns."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kafkad_etl.driver.sinks import files, topic
from kafkad_etl.job import JdbcSink, Sink, TopicSink
from kafkad_etl.messages import Schema

COLUMNS = [("id", "bigint"), ("name", "string"), ("day", "date"), ("tags", "array<string>"), ("p", "bigint")]
HEADERS = "array<struct<key:string,value:binary>>"


def sink_of(**settings: Any) -> Sink:
    return msgspec.convert(settings, Sink)


def topic_of(**settings: Any) -> TopicSink:
    return msgspec.convert({"topic": "out", **settings}, TopicSink)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"type": "parquet", "partition_by": ["dya"]}, "sink.partition_by names dya, which the result does not have"),
        ({"type": "parquet", "partition_by": ["tags"]}, r"tags is array<string>, and cannot name directories"),
        ({"type": "json", "partition_by": ["id", "name", "day", "p"]}, ""),
        ({"type": "csv"}, r"csv has no such columns: tags array<string>"),
        ({"type": "csv", "compression": "zstd", "partition_by": ["tags"]}, "tags is array"),
        ({"type": "json", "compression": "zstd"}, "Spark's json files cannot be compressed by zstd"),
        ({"type": "parquet", "compression": "zstd"}, ""),
    ],
)
def test_what_files_cannot_have_is_told_at_once(settings: dict[str, Any], text: str) -> None:
    failed = files.mistake(sink_of(**settings), COLUMNS)
    assert text in failed.text if failed else text == ""


def test_a_column_has_to_be_left_for_the_files() -> None:
    failed = files.mistake(sink_of(type="parquet", partition_by=["id"]), [("id", "bigint")])
    assert failed
    assert "names every column" in failed.text


def test_files_are_compressed_as_the_job_says_and_options_win() -> None:
    assert files.options(sink_of(type="parquet"))["compression"] == "zstd"
    assert files.options(sink_of(type="json"))["compression"] == "none"
    assert files.options(sink_of(type="parquet", compression="lz4"))["compression"] == "lz4_raw"
    assert files.options(sink_of(type="csv", csv={"delimiter": ";", "null": "-"}, options={"sep": "|"}))["sep"] == "|"


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
    assert files.tasks(offsets, bytes_per_offset, 128, cores) == expected


def test_a_store_that_cannot_rename_is_warned_of() -> None:
    assert files.copied("s3a", "append") == (
        "s3a:// cannot rename: files are copied from staging one by one, each appears whole"
    )
    assert "beside the new" in files.copied("s3a", "overwrite")


@pytest.mark.parametrize(
    ("settings", "columns", "text"),
    [
        ({"key": "nme"}, COLUMNS, "sink.topic.key needs the column nme; the result has id bigint, name string"),
        ({"partition": "p"}, COLUMNS, "sink.topic.partition: the column p is bigint, and has to be int"),
        ({"headers": "tags"}, COLUMNS, f"the column tags is array<string>, and has to be {HEADERS}"),
        ({"source_header": True}, COLUMNS, "sink.topic.source_header needs the column _topic"),
        ({"format": "csv"}, COLUMNS, "csv has no such columns: tags"),
        ({"format": "text"}, COLUMNS, "needs a column `value` of type string"),
        ({"format": "text"}, [("value", "binary")], "needs a column `value` of type string"),
        ({"format": "raw"}, [("value", "binary"), ("_offset", "bigint")], ""),
        ({"format": "raw"}, [("value", "string"), ("id", "bigint")], "lost would be: id"),
        ({"format": "raw", "key": "id"}, [("value", "string"), ("id", "bigint")], ""),
        ({"partition": "p"}, [("p", "int")], "no column is left for the record's value"),
        ({}, COLUMNS, ""),
    ],
)
def test_what_records_cannot_have_is_told_at_once(
    settings: dict[str, Any], columns: list[tuple[str, str]], text: str
) -> None:
    failed = topic.mistake(topic_of(**settings), columns)
    assert text in failed.text if failed else text == ""


def test_avro_needs_an_avro_schema() -> None:
    avro = topic_of(format="avro")
    assert topic.schema_mistake(avro, Schema("avro", "{}")) is None
    assert topic.schema_mistake(avro, Schema("ddl", "id INT")) is not None
    assert topic.schema_mistake(topic_of(), None) is None


def test_columns_about_the_record_are_not_in_its_value() -> None:
    names = ["id", "p", "h", "_topic", "_partition", "_offset", "_timestamp"]
    about = topic_of(partition="p", headers="h", key="id", source_header=True)
    assert topic.value_columns(about, names) == ["id", "_timestamp"]
    assert topic.value_columns(topic_of(), names) == names


def test_the_jobs_options_of_the_producer_win() -> None:
    options = topic.producer(
        {"bootstrap.servers": "b:9092", "linger.ms": "7"},
        topic_of(acks="1", options={"compression.type": "zstd", "enable.idempotence": False}),
    )
    assert options == {
        "bootstrap.servers": "b:9092",
        "acks": "1",
        "linger.ms": "7",
        "compression.type": "zstd",
        "batch.size": "131072",
        "enable.idempotence": "false",
    }


def test_the_password_of_a_database_is_no_part_of_its_url() -> None:
    from kafkad_etl.driver.sinks.jdbc import connection_options

    given = {"url": "jdbc:postgresql://h/d", "table": "t", "user": "u", "password": "secret"}
    options = connection_options(msgspec.convert({**given, "options": {"ssl": True}}, JdbcSink))
    assert options["password"] == "secret"
    assert "secret" not in options["url"]
    assert (options["driver"], options["ssl"]) == ("org.postgresql.Driver", True)
