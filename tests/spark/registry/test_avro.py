from __future__ import annotations

import json

from kafkad_etl.registry.avro import full_name, whole

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


def test_the_full_name_has_the_namespace() -> None:
    assert full_name({"name": "a", "namespace": "n"}) == "n.a"
    assert full_name({"name": "m.a", "namespace": "n"}) == "m.a"
    assert full_name({"name": "a"}) == "a"
