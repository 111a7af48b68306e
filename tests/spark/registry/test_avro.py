from __future__ import annotations

import json
from typing import Any

import pytest

from kafkad_etl.registry.avro import full_name, whole
from kafkad_etl.registry.unsupported import Unsupported

MONEY = {"type": "record", "name": "Money", "namespace": "pay", "fields": [{"name": "unit", "type": "Unit"}]}
UNIT = {"type": "enum", "name": "pay.Unit", "symbols": ["EUR"]}


def test_a_schema_without_references_stays_as_it_is() -> None:
    assert whole('{"type":  "long"}', {}) == '{"type":  "long"}'


def test_each_reference_is_defined_where_it_is_met_first() -> None:
    fields = [
        {"name": "price", "type": ["null", "pay.Money"], "default": None},
        {"name": "paid", "type": {"type": "array", "items": "pay.Money"}},
        {"name": "unit", "type": "pay.Unit"},
    ]
    order = {"type": "record", "name": "Order", "fields": fields}
    found = json.loads(whole(json.dumps(order), {"pay.Money": json.dumps(MONEY), "pay.Unit": json.dumps(UNIT)}))
    price, paid, unit = found["fields"]
    assert price["type"][1]["name"] == "Money"
    assert price["type"][1]["fields"][0]["type"] == UNIT
    assert price["default"] is None
    assert paid["type"] == {"type": "array", "items": "pay.Money"}
    assert unit["type"] == "pay.Unit"


def inlined(schema: object, *others: object) -> Any:
    return json.loads(whole(json.dumps(schema), {f"{at}.avsc": json.dumps(each) for at, each in enumerate(others)}))


def fields(*types: object) -> dict[str, Any]:
    return {"fields": [{"name": f"f{at}", "type": each} for at, each in enumerate(types)]}


def test_types_are_found_by_their_names_wherever_a_reference_defines_them() -> None:
    city = {"type": "record", "name": "City", **fields("string")}
    address = {"type": "record", "name": "Address", "namespace": "geo", **fields(["null", city])}
    order = {"type": "record", "name": "Order", "namespace": "shop", **fields("geo.City", "geo.Address", "geo.City")}
    found = [each["type"] for each in inlined(order, address)["fields"]]
    assert found == [city | {"namespace": "geo"}, address | fields(["null", "geo.City"]), "geo.City"]


def test_a_type_keeps_its_namespace_and_its_owners_name_comes_first() -> None:
    other = {"type": "enum", "name": "Unit", "symbols": ["a"]}
    own = {"type": "fixed", "name": "Unit", "size": 1}
    assert inlined({"type": "record", "name": "shop.A", **fields("Unit")}, other)["fields"][0]["type"] == {
        **other,
        "namespace": "",
    }
    order = {"type": "record", "name": "shop.A", **fields(own, "Unit")}
    assert inlined(order, other) == order


@pytest.mark.parametrize("text", ["mess", '{"type": "record", "name": "B", "fields": [{"name": "x"}]}', "{} {}"])
def test_what_is_no_schema_is_told(text: str) -> None:
    for schema, other in ((text, '"long"'), ('"long"', text)):
        with pytest.raises(Unsupported, match="it is no Avro schema, or refers to what is none: "):
            whole(schema, {"b": other})


def test_the_full_name_has_the_namespace() -> None:
    assert full_name({"name": "a", "namespace": "n"}) == "n.a"
    assert full_name({"name": "m.a", "namespace": "n"}) == "m.a"
    assert full_name({"name": "a"}) == "a"
