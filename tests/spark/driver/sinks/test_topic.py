from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kafkad_etl.driver.sinks import topic
from kafkad_etl.job import TopicSink
from kafkad_etl.messages import Schema

COLUMNS = [("id", "bigint"), ("name", "string"), ("day", "date"), ("tags", "array<string>"), ("p", "bigint")]
HEADERS = "array<struct<key:string,value:binary>>"


def topic_of(**settings: Any) -> TopicSink:
    return msgspec.convert({"topic": "out", **settings}, TopicSink)


@pytest.mark.parametrize(
    ("settings", "columns", "text"),
    [
        ({"key": "nme"}, COLUMNS, "sink.topic.key needs the column nme; the result has id bigint, name string"),
        ({"partition": "p"}, COLUMNS, "sink.topic.partition: the column p is bigint but must be int"),
        ({"headers": "tags"}, COLUMNS, f"the column tags is array<string> but must be {HEADERS}"),
        ({"source_header": True}, COLUMNS, "sink.topic.source_header needs the column _topic"),
        ({"format": "csv"}, COLUMNS, "csv does not support columns of these types: tags"),
        ({"format": "text"}, COLUMNS, "needs a column `value` of type string"),
        ({"format": "text"}, [("value", "binary")], "needs a column `value` of type string"),
        ({"format": "raw"}, [("value", "binary"), ("_offset", "bigint")], ""),
        ({"format": "raw"}, [("value", "string"), ("id", "bigint")], "these would be lost: id"),
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


def test_only_casts_that_spark_has_are_recommended() -> None:
    columns = [("p", "bigint"), ("tags", "array<string>"), ("name", "string")]

    def hints(**settings: Any) -> list[str]:
        failed = topic.mistake(topic_of(**settings), columns)
        assert failed is not None
        return failed.hints

    assert hints(partition="p") == ["CAST(p AS INT) in the SQL"]
    assert hints(partition="tags") == []
    for name in ("name", "tags"):
        assert hints(headers=name)[0].startswith("select `_headers`, with source.headers: true, or array(struct('name'")


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
