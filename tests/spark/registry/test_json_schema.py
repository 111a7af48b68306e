from __future__ import annotations

import json
from typing import Any

import pytest

from kafkad_etl.registry.json_schema import JsonSchema
from kafkad_etl.registry.unsupported import Unsupported


def struct(**columns: Any) -> dict[str, Any]:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
    return {"type": "struct", "fields": fields}


def array(kind: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": kind, "containsNull": True}


def props(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


TEXT, WHOLE = {"type": "string"}, {"type": "integer"}


def test_references_and_alternatives_with_null_become_columns() -> None:
    schema = props(
        at={"$ref": "#/definitions/Address"},
        maybe={"oneOf": [{"type": "null"}, WHOLE]},
        other={"anyOf": [TEXT, {"type": "null"}]},
        price={"$ref": "money.json"},
        many={"type": "array", "items": {"$ref": "#/definitions/Address"}},
    ) | {"definitions": {"Address": props(city=TEXT)}}
    address = struct(city="string")
    found = JsonSchema(schema, {"money.json": json.dumps(props(cents=WHOLE))}).columns()
    assert found == struct(at=address, maybe="long", other="string", price=struct(cents="long"), many=array(address))


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (props(a={"oneOf": [TEXT, WHOLE]}), r"\$\.a: a column needs exactly one simple `type`"),
        (props(a={"$ref": "#/definitions/b"}), "names nothing"),
        (props(a={"$ref": "b.json"}), "names a schema that is not there"),
        (props(a={"$ref": "#/properties/a"}), "leads back to itself"),
        (props(a={"$ref": "#"}), "nested without end"),
        ({"type": "string"}, "neither a Spark schema nor a JSON Schema object"),
    ],
)
def test_what_has_no_columns_is_told(schema: Any, says: str) -> None:
    with pytest.raises(Unsupported, match=says):
        JsonSchema(schema).columns()


@pytest.mark.parametrize(
    ("schema", "columns", "faults"),
    [
        (props(a=WHOLE), struct(a="long"), []),
        (props(a={"type": "number"}), struct(a="decimal(12,2)"), []),
        (props(a={"type": ["null", "string"]}), struct(a="timestamp"), []),
        (props(a=WHOLE), struct(a="double"), ["a is double, and the schema wants integer"]),
        (props(a=props(b=WHOLE)), struct(a=struct(b="string")), ["a.b is string, and the schema wants integer"]),
        (
            props(a={"type": "array", "items": WHOLE}),
            struct(a=array("string")),
            ["a[] is string, and the schema wants"],
        ),
        (props(a=TEXT), struct(a=array("string")), ["a is array, and the schema wants string"]),
        (props(a=TEXT) | {"required": ["a", "b"]}, struct(a="string"), ["b is missing, and the schema requires it"]),
        (props(a=TEXT), struct(a="string", x="long"), []),
        (props(a=TEXT) | {"additionalProperties": False}, struct(x="long"), ["x is not in the schema"]),
        (
            props(a={"type": "object", "additionalProperties": WHOLE}),
            struct(a={"type": "map", "keyType": "string", "valueType": "string"}),
            ["a.* is string, and the schema wants integer"],
        ),
    ],
)
def test_columns_fit_a_schema_or_not(schema: Any, columns: Any, faults: list[str]) -> None:
    found = list(JsonSchema(schema).faults(columns))
    assert len(found) == len(faults)
    assert all(one.startswith(start) for one, start in zip(found, faults, strict=True)), found


def test_nulls_are_written_only_where_all_columns_may_be_null() -> None:
    nullable = {"type": ["integer", "null"]}
    assert JsonSchema(props(a=nullable)).writes_nulls(struct(a="long", x="long"))
    assert JsonSchema(props(a={"anyOf": [WHOLE, {"type": "null"}]})).writes_nulls(struct(a="long"))
    assert not JsonSchema(props(a=nullable, b=WHOLE)).writes_nulls(struct(a="long", b="long"))
    inner = {"type": ["array", "null"], "items": props(b=WHOLE)}
    assert not JsonSchema(props(a=inner)).writes_nulls(struct(a=array(struct(b="long"))))


def test_required_properties_are_looked_for_where_they_would_be_left_out() -> None:
    inner = props(c=TEXT) | {"required": ["c"]}
    schema = props(a=TEXT, b=inner, l={"type": "array", "items": inner}) | {"required": ["a"]}
    columns = struct(a="string", b=struct(c="string"), l=array(struct(c="string")))
    assert list(JsonSchema(schema).lacking(columns)) == [
        "`a` IS NULL",
        "(`b` IS NOT NULL AND (`b`.`c` IS NULL))",
        "(`l` IS NOT NULL AND (exists(`l`, x1 -> (x1 IS NOT NULL AND (x1.`c` IS NULL)) OR x1 IS NULL)))",
    ]
    assert list(JsonSchema(props(a=TEXT)).lacking(struct(a="string"))) == []
