from __future__ import annotations

from typing import Any

import pytest

from kafkad_etl.model.types import of_avro, of_spark


def struct(**types: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"name": name, "type": kind} for name, kind in types.items()]}


def record(name: str, **types: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": kind} for field, kind in types.items()]}


SPARK = struct(
    a="long",
    b="decimal(12,2)",
    c="varchar(10)",
    d="timestamp_ntz",
    e={"type": "array", "elementType": struct(x="string"), "containsNull": True},
    f={"type": "map", "keyType": "string", "valueType": "double", "valueContainsNull": True},
    g="interval day to second",
)
AVRO = record(
    "com.shop.Order",
    id="long",
    note=["null", "string"],
    at={"type": "long", "logicalType": "timestamp-millis"},
    state={"type": "enum", "name": "State", "symbols": ["NEW"]},
    before=["null", "State", "com.shop.Order"],
    lines={"type": "array", "items": record("Line", sku="string")},
    more={"type": "map", "values": "Line"},
)


def test_types_that_are_known() -> None:
    assert list(of_spark(SPARK)) == []
    assert list(of_avro(AVRO)) == []


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (of_spark(struct(id="bigint")), 'id: unknown type "bigint"'),
        (of_spark(struct(id="lnog")), 'id: unknown type "lnog"; did you mean "long"?'),
        (of_spark(struct(a={"type": "array", "elementType": "text"})), 'a[]: unknown type "text"'),
        (of_spark(struct(a="decimal(99,2)")), "a: decimal(99,2) is impossible; scale <= precision <= 38"),
        (of_spark(struct(a="decimal(2,12)")), "a: decimal(2,12) is impossible"),
        (of_spark(struct(a={"type": "list"})), 'a: unknown type "list"'),
        (of_spark({"type": "struct", "fields": [{"type": "long"}]}), "the schema has a field without a name"),
        (of_avro(record("R", id="strnig")), 'id: unknown type "strnig"; did you mean "string"?'),
        (of_avro(record("R", a=["null", "Line"])), 'a: unknown type "Line"'),
        (of_avro(record("R", a={"type": "array", "items": record("L", b=7)})), 'a[].b: unknown type "7"'),
        (of_avro({"type": "record", "name": "R", "fields": [{"name": "a"}]}), "the record has a field without a type"),
    ],
)
def test_types_that_nobody_knows(found: Any, told: str) -> None:
    (line,) = found
    assert line.startswith(told)
