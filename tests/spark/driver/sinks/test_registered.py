"""Records whose schema is in a registry, on real Spark and without a broker."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from kafkad_etl.driver.columns import columns_of
from kafkad_etl.driver.failures import failure_of
from kafkad_etl.driver.sinks.topic import Records
from kafkad_etl.driver.terms import JobFailed
from kafkad_etl.messages import Schema
from tests.spark.driver.rows import IN_PROCESS, plan_of

pytestmark = IN_PROCESS

ADDRESS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
JSON = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "at": ADDRESS, "tags": {"type": "array", "items": {"type": "string"}}},
    "required": ["id"],
    "additionalProperties": False,
}
AVRO = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}
COLUMNS = "id BIGINT, at STRUCT<city: STRING>, tags ARRAY<STRING>"


def records(spark: Any, form: str, schema: Any) -> Records:
    kind = "avro" if form == "avro" else "json-schema"
    plan = plan_of(
        {"sink": {"type": "topic", "topic": {"topic": "out", "format": form, "registry": {"url": "http://r"}}}}
    )
    plan = replace(plan, sink_schema=Schema(kind, json.dumps(schema)), sink_schema_id=258)
    settings = plan.job.sink.topic
    assert settings is not None
    return Records(spark, plan, settings)


def values(spark: Any, made: Records, rows: list[Any]) -> list[bytes]:
    frame = spark.createDataFrame(rows, COLUMNS)
    return [bytes(row.value) for row in frame.select(*made.of(frame)).collect()]


def test_values_begin_with_the_id_and_are_of_the_schema(spark: Any) -> None:
    made = records(spark, "json", JSON)
    made.check([("id", "bigint"), ("at", "struct<city:string>"), ("tags", "array<string>")])
    found = values(spark, made, [(1, ("Bern",), ["a"]), (2, None, None)])
    assert found == [
        b'\x00\x00\x00\x01\x02{"id":1,"at":{"city":"Bern"},"tags":["a"]}',
        b'\x00\x00\x00\x01\x02{"id":2}',
    ]
    for lacking in ((None, None, None), (3, (None,), None), (4, None, ["a", None])):
        with pytest.raises(Exception, match="requires") as failed:
            values(spark, made, [lacking])
        assert failure_of(failed.value).kind == "schema"
    nullable = {"properties": {name: {"type": [kind, "null"]} for name, kind in (("id", "integer"), ("at", "object"))}}
    assert values(spark, records(spark, "json", nullable), [(5, None, None)]) == [
        b'\x00\x00\x00\x01\x02{"id":5,"at":null,"tags":null}'
    ]


def test_names_within_columns_may_be_any(spark: Any) -> None:
    made = records(spark, "json", {"properties": {"to": {"type": "object", "properties": {"ship-to": {}}}}})
    frame = spark.sql("SELECT named_struct('ship-to', 'x') AS to")
    made.check(columns_of(frame))
    assert bytes(frame.select(*made.of(frame)).first().value)[5:] == b'{"to":{"ship-to":"x"}}'


@pytest.mark.parametrize(
    ("form", "schema", "columns", "says"),
    [
        ("json", JSON, [("id", "string")], "JSON Schema of sink.topic: id is string, and the schema wants integer"),
        ("json", JSON, [("id", "int"), ("x", "int")], "x is not in the schema"),
        ("avro", AVRO, [("id", "string")], "the columns do not fit the Avro schema of sink.topic: Cannot convert"),
        ("avro", AVRO, [("id", "bigint"), ("x", "int")], "the columns do not fit the Avro schema"),
    ],
)
def test_columns_that_do_not_fit_are_told_before_anything_is_read(
    spark: Any, form: str, schema: Any, columns: list[tuple[str, str]], says: str
) -> None:
    with pytest.raises(JobFailed, match=says):
        records(spark, form, schema).check(columns)
