from __future__ import annotations

import csv
import io
import json
import random
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from kafkad_etl.driver.source import framing
from kafkad_etl.driver.source.parser import Parser, Part
from kafkad_etl.driver.terms import JobFailed
from kafkad_etl.facts import BAD
from kafkad_etl.messages import Plan, Schema
from tests.spark.driver.rows import IN_PROCESS, Bytes, plan_of, records
from tests.spark.schema_registry import Stored, running

pytestmark = IN_PROCESS

ORDERS = (
    "id BIGINT NOT NULL, amount DECIMAL(12,2), ts TIMESTAMP, paid BOOLEAN, "
    "address STRUCT<city: STRING, zip: INT>, items ARRAY<STRUCT<n: INT, tags: MAP<STRING, STRUCT<t: INT>>>>"
)
GOOD_JSON = [
    b'{"id": 1, "amount": "12.50", "ts": "2026-11-01T00:00:00Z", "paid": true}',
    b'{"id": 2, "address": {"city": "Bern", "zip": 3000}, "items": [{"n": 1}, {"n": null, "tags": {"a": {"t": 1}}}]}',
    b'{"id": 3, "amount": null, "address": null, "items": null}',
    b' {"id": 4} \n',
    b'{"id": 5, "items": []}',
    b'{"id": 6, "address": {"city": "\\ud83d\\uDE00 \\\\ud83d \xf0\x9f\x98\x80 \\u00fc"}}',
]
HALF = r"it escapes a surrogate (\ud800 to \udfff) without the other one of its pair"
BAD_JSON = [
    (b'{"id": "x"}', "id", "'\"x\"' is not BIGINT"),
    (b'{"id": "12"}', "id", "'\"12\"' is not BIGINT"),
    (b'{"id": 1.5}', "id", "'1.5' is not BIGINT"),
    (b'{"id": 99999999999999999999}', "id", "'99999999999999999999' is not BIGINT"),
    (b'{"id": 1, "amount": "12.5.0"}', "amount", "'\"12.5.0\"' is not DECIMAL(12,2)"),
    (b'{"id": 1, "amount": 1e-999999999}', "amount", "'1e-999999999' is not DECIMAL(12,2)"),
    (b'{"id": 1, "amount": 12345678901234567.5}', "amount", "'12345678901234567.5' is not DECIMAL(12,2)"),
    (b'{"id": 1, "ts": "yesterday"}', "ts", "'\"yesterday\"' is not TIMESTAMP"),
    (b'{"id": 1, "paid": "perhaps"}', "paid", "'\"perhaps\"' is not BOOLEAN"),
    (b'{"id": 1, "address": 5}', "address", "'5' is not STRUCT<`city`: STRING, `zip`: INT>"),
    (b'{"id": 1, "address": {"zip": "x"}}', "address.zip", "'\"x\"' is not INT"),
    (b'{"id": 26, "address": {"city": "a\nb"}}', "", "it has a control character that is not escaped"),
    (b'{"id": "x", "address": {"city": "a\nb"}}', "id", "'\"x\"' is not BIGINT"),
    (b'{"id": 1, "address": {"city": "Z\xfcrich"}}', "", "it is not UTF-8"),
    (b'{"id": 1, "address": {"city": "\\ud83d"}}', "", HALF),
    (b'{"id": 1, "address": {"city": "\\\\\\uDC00"}}', "", HALF),
    (b'{"id": 1, "address": {"city": "\\\\ud83d\\udc00"}}', "", HALF),
    (b'{"id": 1, "address": {"city": "\\ud83d\\\\\\udc00"}}', "", HALF),
    (b'{"id": 1, "address": {"city": "\\uDE00\\uD83D"}}', "", HALF),
    (b'{"id": 1, "items": 7}', "items", None),
    (b'{"id": 1, "items": [{"n": 1}, {"n": "x"}]}', "items", None),
    (b'{"amount": 1}', "id", "it is missing but declared NOT NULL"),
    (b'{"id": null}', "id", "it is missing but declared NOT NULL"),
    (b'{"id": 1} x', "", "it is not one JSON object"),
    (b'{"id": 1}{"id": 2}', "", "it is not one JSON object"),
    (b'{"id": 1}, {"id": 2}', "", "it is not one JSON object"),
    (b'{"id": 1} }', "", "it is not one JSON object"),
    (b'{"id": 1, "address": {"city": "}"}}}', "", "it is not one JSON object"),
    (b'{"zz": "\xf0"} x}', "", "it is not one JSON object"),
    (b'{"id": 1', "", "it is not one JSON object"),
    (b"", "", "it is not one JSON object"),
    (b"nonsense", "", "it is not one JSON object"),
    (b"[1]", "", "it is not a JSON object"),
    (b'[{"id": 1}]', "", "it is not a JSON object"),
    (b"null", "", "it is not a JSON object"),
    (b"5", "", "it is not a JSON object"),
    (None, "", "it is null"),
]
UNKNOWN = [
    (b'{"id": 1, "zz": 0}', "zz"),
    (b'{"ID": 1, "id": 1}', "ID"),
    (b'{"zz": "}", "id": 1}', "zz"),
    (b'{"id": 1, "zz": null}', "zz"),
    (b'{"id": 1, "address": {"city": "x", "street": "y"}}', "address.street"),
    (b'{"id": 1, "items": [{"n": 1}, {"n": 2, "m": 3}]}', "items[].m"),
    (b'{"id": 1, "items": [{"n": 1, "tags": {"a": {"u": 3}}}]}', "items[].tags[].u"),
]


def _parsed(spark: Any, plan: Plan, *values: Bytes | tuple[Bytes, Bytes]) -> list[Any]:
    return list(Parser(spark, plan).parsed(records(spark, *values)).orderBy("_offset").collect())


def _bad(row: Any) -> tuple[str, str] | None:
    return tuple(row[BAD]) if row[BAD] else None


@pytest.mark.parametrize("mode", ["strict", "lenient"])
def test_json_that_fits_is_good_and_the_rest_is_named_by_column_and_reason(spark: Any, mode: str) -> None:
    plan = plan_of({"value": {"format": "json", "schema": ORDERS, "mode": mode}})
    rows = _parsed(spark, plan, *GOOD_JSON, *[value for value, _, _ in BAD_JSON])
    good, bad = rows[: len(GOOD_JSON)], rows[len(GOOD_JSON) :]
    assert [_bad(row) for row in good] == [None] * len(GOOD_JSON)
    assert [row.id for row in good] == [1, 2, 3, 4, 5, 6]
    assert good[5].address.city == "\U0001f600 \\ud83d \U0001f600 ü"
    assert good[0].amount == Decimal("12.50") and good[0].paid is True
    assert good[1]["items"][1].tags["a"].t == 1
    assert [row._raw_value for row in good] == [None] * len(GOOD_JSON)
    for row, (value, column, why) in zip(bad, BAD_JSON, strict=True):
        found = _bad(row)
        assert found is not None, value
        assert found[0] == column, value
        assert why is None or found[1] == why, value
        assert row._raw_value == value


def test_unknown_fields_are_errors_in_strict_mode_alone_however_deep(spark: Any) -> None:
    values = [value for value, _ in UNKNOWN]
    strict = _parsed(spark, plan_of({"value": {"format": "json", "schema": ORDERS}}), *values)
    assert [_bad(row) for row in strict] == [(column, "the schema has no such field") for _, column in UNKNOWN]
    lenient = _parsed(spark, plan_of({"value": {"format": "json", "schema": ORDERS, "mode": "lenient"}}), *values)
    assert [_bad(row) for row in lenient] == [None] * len(UNKNOWN)


NEVER_NULL = (
    "id BIGINT NOT NULL, at STRUCT<zip: INT NOT NULL, geo: STRUCT<lat: INT NOT NULL>>, "
    "items ARRAY<STRUCT<n: INT NOT NULL, tags: MAP<STRING, STRUCT<t: INT NOT NULL>>>>"
)
LACKING = [
    ('{"id": 1, "at": {}}', "at.zip"),
    ('{"id": 1, "at": {"zip": null}}', "at.zip"),
    ('{"id": 1, "at": {"zip": 1, "geo": {}}}', "at.geo.lat"),
    ('{"id": 1, "items": [{"n": 1}, {"n": null}]}', "items[].n"),
    ('{"id": 1, "items": [{"n": 1, "tags": {"a": {"t": 1}, "b": {}}}]}', "items[].tags[].t"),
]
NOT_LACKING = [
    '{"id": 1}',
    '{"id": 1, "at": null, "items": [null, {"n": 1}]}',
    '{"id": 1, "at": {"zip": 1}, "items": []}',
    '{"id": 1, "at": {"zip": 1, "geo": null}, "items": [{"n": 1, "tags": {"a": null, "b": {"t": 1}}}]}',
    '{"id": 1, "at": {"zip": 1, "geo": {"lat": 2}}, "items": null}',
]


def test_json_may_lack_nothing_that_is_declared_not_null_however_deep(spark: Any) -> None:
    plan = plan_of({"value": {"format": "json", "schema": NEVER_NULL}})
    rows = _parsed(spark, plan, *[text.encode() for text in [*NOT_LACKING, *(text for text, _ in LACKING)]])
    why = "it is missing but declared NOT NULL"
    assert [_bad(row) for row in rows] == [None] * len(NOT_LACKING) + [(column, why) for _, column in LACKING]


def test_arrays_and_maps_of_a_spark_schema_may_be_without_nulls(spark: Any) -> None:
    array = {"type": "array", "elementType": "long", "containsNull": False}
    nested = {"type": "map", "keyType": "string", "valueType": array, "valueContainsNull": False}
    fields = [{"name": "m", "type": nested, "nullable": True, "metadata": {}}]
    schema = Schema(kind="spark", text=json.dumps({"type": "struct", "fields": fields}))
    plan = plan_of({"value": {"format": "json"}}, schema=schema)
    rows = _parsed(spark, plan, b'{"m": {"a": [1]}}', b"{}", b'{"m": {"a": null}}', b'{"m": {"a": [1, null]}}')
    assert [_bad(row) and _bad(row)[0] for row in rows] == [None, None, "m[]", "m[][]"]


DEEP = (
    "id BIGINT, name STRING, PRICE, list ARRAY<STRING>, address STRUCT<city: STRING, geo: STRUCT<lat: DOUBLE>>, "
    "items ARRAY<STRUCT<n: INT, tag: STRING>>, tags MAP<STRING, STRUCT<t: INT>>"
)
FIELDS: dict[str, Any] = {
    "id": 1,
    "name": "a",
    "price": 1.5,
    "list": ["a"],
    "address": {"city": "a", "geo": {"lat": 1.5}},
    "items": [{"n": 1, "tag": "a"}],
    "tags": ({"t": 1},),
}
"""The fields of DEEP, each with an example; a tuple stands for a map."""
FLAT = "id BIGINT, name STRING, PRICE, list ARRAY<STRING>, `,` STRING, rest MAP<STRING, INT>"
FLAT_FIELDS = {"id": 1, "name": "a", "price": 1.5, "list": ["a"], ",": "a", "rest": (1,)}
STRINGS = ["", "Bern", "Bern, CH", 'a "b", {c}', "\\,", "é", "{", "it's", "'", '"zz":1']


class Documents:
    """Draws JSON with these fields, and notes whether it has a field more."""

    def __init__(self, fields: dict[str, Any], nulls: float, seed: int) -> None:
        self._fields = fields
        self._nulls = nulls
        self._random = random.Random(seed)
        self.has_unknown = False

    def text(self) -> str:
        comma, colon = self._random.choice([(",", ":"), (", ", ": "), (" ,", " :"), (",\n ", "\t: ")])
        document = self._like(self._fields)
        return json.dumps(document, ensure_ascii=self._random.random() < 0.5, separators=(comma, colon))

    def _like(self, example: Any) -> Any:
        draw = self._random
        if isinstance(example, dict):
            names = [name for name in example if draw.random() < 0.9]
            drawn = {name: None if draw.random() < self._nulls else self._like(example[name]) for name in names}
            if draw.random() < 0.06:
                self.has_unknown = True
                drawn[draw.choice(["zz", "ID", "n ", "lat" if "lat" not in example else "city"])] = self._anything()
            return dict(draw.sample(sorted(drawn.items()), len(drawn)))
        if isinstance(example, list):
            return [None if draw.random() < 0.1 else self._like(example[0]) for _ in range(draw.randrange(4))]
        if isinstance(example, tuple):
            return {name: self._like(example[0]) for name in draw.sample(["a", "t", "zz", "c,d"], draw.randrange(4))}
        return draw.choice(STRINGS) if isinstance(example, str) else example * draw.randrange(1000)

    def _anything(self) -> Any:
        return self._random.choice([None, 1, "a", "a,b", [], [1, 2], {}, {"id": 1, "lat": 2}, {"t": None}])


@pytest.mark.parametrize("price", ["DOUBLE", "DECIMAL(12,2)"])
@pytest.mark.parametrize(("schema", "fields", "nulls"), [(DEEP, FIELDS, 0.05), (FLAT, FLAT_FIELDS, 0.4)])
def test_a_row_is_bad_exactly_if_it_has_a_field_too_many(
    spark: Any, schema: str, fields: dict[str, Any], nulls: float, price: str
) -> None:
    drawn = []
    for seed in range(3000):
        documents = Documents(fields, nulls, seed)
        drawn.append((documents.text(), documents.has_unknown))
    assert 150 < sum(has_unknown for _, has_unknown in drawn) < 2500
    block = {"format": "json", "schema": schema.replace("PRICE", f"price {price}")}
    rows = _parsed(spark, plan_of({"value": block}), *[text.encode() for text, _ in drawn])
    for row, (text, has_unknown) in zip(rows, drawn, strict=True):
        found = _bad(row)
        assert (found is not None) == has_unknown, (text, found)
        assert found is None or found[1] == "the schema has no such field", (text, found)


WITH_NULLS = [
    (b'{"a":null,"b":null}', ""),
    (b'{"b": null, "a": "it\'s, well", "n": 1}', ""),
    (b'{"a":null,"n":null,"list":[null,1]}', ""),
    (b'{"list":null,"e1":null}', ""),
    (b'{"a":null,"zz":null}', "zz"),
    (b'{"xa":null}', "xa"),
    (b'{"zz":{"a":null}}', "zz"),
    (b'{"a":null,"zz":[{"b":null}]}', "zz"),
    (b'{"zz":"\\"a\\":null"}', "zz"),
    (b"{'zz':'\"a\":null'}", "zz"),
    (b"{'zz':'\"a\":','b':null}", "zz"),
    (b'{"a":null,"a":null,"zz":1}', "zz"),
    (b'{"zz":["x",":y"]}', "zz"),
    (b'{"zz":":x"}', "zz"),
]
"""Texts with nulls written out, or what looks so, and the field that the schema lacks."""


def test_nulls_hide_no_unknown_field(spark: Any) -> None:
    schema = "a STRING, b STRING, n INT, e1 INT, list ARRAY<INT>, `,` STRING, `:` STRING"
    values = [value for value, _ in WITH_NULLS]
    rows = _parsed(spark, plan_of({"value": {"format": "json", "schema": schema}}), *values)
    expected = [(unknown, "the schema has no such field") if unknown else None for _, unknown in WITH_NULLS]
    assert [_bad(row) for row in rows] == expected


def test_only_texts_that_may_have_more_are_read_again(spark: Any) -> None:
    schema = "id BIGINT, name STRING, price DECIMAL(12,2), more STRUCT<a: INT>, tags MAP<STRING, STRUCT<b: INT>>"
    once = [
        b'{"id":1,"name":"a","price":1.5,"more":{"a":1}}',
        b'{"name":null,"price":null,"more":null,"id":null}',
        b' { "price" : "1.5" , "name" : "O\'Neil, \\"Eve\\"" , "tags" : { "x,y" : { "b" : null } , "z" : null } } ',
        b'{"name":{"any":["thing","}"]},"more":{},"tags":{}}',
        None,
    ]
    again = [
        b'{"id":1,"zz":0}',
        b'{"price":"1,5"}',
        b'{"n\\u0061me":1}',
        b'{"more":{"c":1}}',
        b'{"tags":{"x":{"c":1}}}',
        b'{"more":[{"a":1}]}',
        b"[1]",
        b'{"id":1',
        b"[\x01\xff",
        b"{,,",
        b"",
    ]
    block = plan_of({"value": {"format": "json", "schema": schema}}).job.value
    part = Part(spark, block, "value", Schema("ddl", schema), {})
    rows = part.decoding().add(records(spark, *once, *again)).orderBy("offset").collect()
    assert [row._value_excess for row in rows] == [False] * len(once) + [True] * len(again)


@pytest.mark.parametrize("block", [{}, {"mode": "lenient"}, {"registry": {"url": "http://127.0.0.1:1"}}])
def test_a_decimal_comma_is_not_taken_for_nothing_however_deep(spark: Any, block: dict[str, Any]) -> None:
    schema = (
        "amount DECIMAL(12,2), `a b` STRUCT<price: DECIMAL(12,2), other: STRUCT<`x.y`: DECIMAL(5,1)>>, name STRING, "
        "items ARRAY<STRUCT<price: DECIMAL(12,2), n: INT>>, rates MAP<STRING, DECIMAL(12,2)>"
    )
    why = "a decimal must not contain a comma"
    cases = [
        (b'{"amount": "12,5"}', "amount"),
        (b'{"amount": "12\\u002c5"}', "amount"),
        (b'{"amount":"12,5" }', "amount"),
        (b'{"amount": "1", "amount": "12,5"}', "amount"),
        (b'{"a b": {"price": "12,5"}}', "a b.price"),
        (b'{"a b": {"price": 1, "other": {"x.y": "1,5"}}}', "a b.other.x.y"),
        (b'{"items": [{"price": 1, "n": 2}, {"price": "1,5"}]}', "items[].price"),
        (b'{"rates": {"a": 1, "b": "1,5"}}', "rates[]"),
        (
            b'{"amount": "12.5", "name": "a,b", "a b": {"other": null}, "items": [{"n": 1}, null], "rates": {"a,": 1}}',
            "",
        ),
    ]
    if block:
        cases += [
            (b'{"zz": "1,5", "amount": "12,5"}', "amount"),
            (b'{"am\\u006funt": "12,5"}', "amount"),
            (b'{"zz": {"amount": "1,5"}, "a b": {"zz": ["1,5"], "other": {"x.y": "1,5"}}}', "a b.other.x.y"),
            (b'{"zz": {"amount": "1,5"}, "name": "1,5", "a b": {"zz": ["1,5"], "\\u0061": 1}}', ""),
        ]
    plan = replace(plan_of({"value": {"format": "json", "schema": schema, **block}}), value_writers={10: "{}"})
    prefix = framing.prefix(10) if "registry" in block else b""
    rows = _parsed(spark, plan, *[prefix + value for value, _ in cases])
    assert [_bad(row) for row in rows] == [(column, why) if column else None for _, column in cases]


def test_lenient_texts_are_read_again_for_decimals_alone(spark: Any) -> None:
    once = [
        b'{"id":1,"zz":"1,5","price":"1.5","more":{"price":"1,5","id":[{"price":"1,5"}]}}',
        b'{"more":{"a":1,"zz":{"c":"}"}},"name":"1,5","price":null}',
    ]
    again = [b'{"zz":0,"price":"1,5"}', b'{"pr\\u0069ce":"1,5"}', b'{"zz":1,"more":{"b":"1\\u002c5"}}']
    schema = "name STRING, price DECIMAL(12,2), more STRUCT<a: INT, b: DECIMAL(12,2)>"

    def read_again(schema: str) -> list[bool]:
        block = plan_of({"value": {"format": "json", "schema": schema, "mode": "lenient"}}).job.value
        part = Part(spark, block, "value", Schema("ddl", schema), {})
        rows = part.decoding().add(records(spark, *once, *again)).orderBy("offset").collect()
        return [row["_value_excess"] for row in rows if "_value_excess" in row]

    assert read_again(schema) == [False] * len(once) + [True] * len(again)
    assert read_again("name STRING, price DOUBLE") == []


def test_hundreds_of_columns(spark: Any) -> None:
    names = [f"column_{number}" for number in range(300)]
    plan = plan_of({"value": {"format": "json", "schema": ", ".join(f"{name} DECIMAL(12,2)" for name in names)}})
    full = dict.fromkeys(names, 1.5)
    documents = [full, full | {"column_7": None}, full | {"zz": 1}, full | {"column_299": "1,5"}]
    found = [_bad(row) for row in _parsed(spark, plan, *[json.dumps(document).encode() for document in documents])]
    unknown, comma = "the schema has no such field", "a decimal must not contain a comma"
    assert found == [None, None, ("zz", unknown), ("column_299", comma)]


def test_names_of_columns_may_be_anything(spark: Any) -> None:
    plan = plan_of({"value": {"format": "json", "schema": "`a b` INT, `it's` STRING, `x.y` INT, `q\"` INT"}})
    good, bad, unknown = _parsed(spark, plan, b'{"a b": 1, "it\'s": "o\\"k", "x.y": 2}', b'{"x.y": "no"}', b'{"a": 1}')
    assert _bad(good) is None and (good["a b"], good["it's"], good["x.y"]) == (1, 'o"k', 2)
    assert _bad(bad) == ("x.y", "'\"no\"' is not INT")
    assert _bad(unknown) == ("a", "the schema has no such field")


def test_keys_are_parsed_as_values_are(spark: Any) -> None:
    plan = plan_of(
        {"value": {"format": "text"}, "key": {"format": "json", "schema": "k INT"}, "source": {"topics": ["orders"]}}
    )
    good, bad, missing = _parsed(spark, plan, (b'{"k": 1}', b"one"), (b'{"k": "x"}', b"two"), b"three")
    assert (good._key.asDict(), good.value, _bad(good)) == ({"k": 1}, "one", None)
    assert (_bad(bad), bad._raw_key, bad._raw_value) == (("_key.k", "'\"x\"' is not INT"), b'{"k": "x"}', b"two")
    assert _bad(missing) == ("_key", "it is null")


def test_columns_of_a_key_may_be_called_as_anything(spark: Any) -> None:
    blocks = {"value": {"format": "text"}, "key": {"format": "json", "schema": "`it's` INT, `a``b` INT"}}
    (row,) = _parsed(spark, plan_of(blocks), (b'{"it\'s": 1, "a`b": 2}', b"one"))
    assert (row._key.asDict(), _bad(row)) == ({"it's": 1, "a`b": 2}, None)


def test_text_and_raw_take_everything(spark: Any) -> None:
    values = [b"one", None, b"\xff"]
    text = _parsed(spark, plan_of({"value": {"format": "text"}}), *values[:2])
    assert [row.value for row in text] == ["one", None]
    raw = _parsed(spark, plan_of({"value": {"format": "raw"}}), *values)
    assert [row.value for row in raw] == values
    assert BAD not in raw[0]


def test_csv_is_named_by_column_too(spark: Any) -> None:
    block = {"format": "csv", "schema": "id INT NOT NULL, name STRING, at DATE", "csv": {"delimiter": ";", "null": "-"}}
    cases = [
        (b'1;"a;b";2026-11-01', None),
        (b"2;-;-", None),
        (b"x;a;2026-11-01", ("id", "'x' is not INT")),
        (b"3;a;soon", ("at", "'soon' is not DATE")),
        (b"-;a;2026-11-01", ("id", "it is missing but declared NOT NULL")),
        (b"4;a", ("", "it does not have 3 columns")),
        (b"4;a;2026-11-01;more", ("", "it does not have 3 columns")),
        (b"5;Z\xfcrich;2026-11-01", ("", "it is not UTF-8")),
        (b"", ("", "it is empty")),
        (None, ("", "it is null")),
    ]
    rows = _parsed(spark, plan_of({"value": block}), *[value for value, _ in cases])
    assert [_bad(row) for row in rows] == [bad for _, bad in cases]
    assert (rows[0].name, rows[1].name, rows[1].at) == ("a;b", None, None)


def test_quotes_in_csv_are_doubled_as_others_write_them(spark: Any) -> None:
    schema = {"format": "csv", "schema": "id INT, s STRING, n STRING"}
    good = [
        (1, 'a "b", c', "x"),
        (2, 'a "b"', "x"),
        (3, '"', '"",'),
        (4, "a\\", "\\"),
        (5, " a ", " "),
        (6, 'x,"', "a\nb"),
    ]
    lines = []
    for row in good:
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(row)
        lines.append(line.getvalue().encode())
    rows = _parsed(spark, plan_of({"value": schema}), *lines)
    assert [(row.id, row.s, row.n, _bad(row)) for row in rows] == [(*row, None) for row in good]


@pytest.mark.parametrize("delimiter", [",", ";", "\\t", "||"])
def test_a_quote_that_is_not_closed_makes_csv_bad(spark: Any, delimiter: str) -> None:
    block = {"format": "csv", "schema": "id INT, s STRING, n STRING", "csv": {"delimiter": delimiter}}
    unclosed, few = ("", "its last quote is not closed"), ("", "it does not have 3 columns")
    cases = [
        ('1;2.5;"a', unclosed),
        ('1;2.5;"', unclosed),
        ('1;2.5;"a""', unclosed),
        ('1;2.5;"a;', unclosed),
        ('1;"a;b', few),
        ('1;"a;b;c', few),
        ('1;2.5;"a"', None),
        ('1;2.5;"a" ', None),
        ('1;2.5;""', None),
        ('1;2.5;""""', None),
        ("1;;", None),
        ('1;5" disk;a"', None),
    ]
    values = [text.replace(";", "\t" if delimiter == "\\t" else delimiter).encode() for text, _ in cases]
    rows = _parsed(spark, plan_of({"value": block}), *values)
    assert [(text, _bad(row)) for row, (text, _) in zip(rows, cases, strict=True)] == cases


@pytest.mark.parametrize("delimiter", [",", ";", ", "])
def test_a_decimal_comma_in_csv_is_not_taken_for_nothing(spark: Any, delimiter: str) -> None:
    schema = "name STRING, amount DECIMAL(12,2), `a b` DECIMAL(5,1)"
    block = {"format": "csv", "schema": schema, "csv": {"delimiter": delimiter}}
    why = "a decimal must not contain a comma"
    cases = [
        (('"a,b"', "12.5", ""), None),
        (("a", '"12,5"', "1"), ("amount", why)),
        (("a", "1", '"1,234.5"'), ("a b", why)),
        (("a", '"1,x"', "1"), ("amount", "'1,x' is not DECIMAL(12,2)")),
    ]
    if delimiter != ",":
        cases.append((("a,b", "12,5", "1"), ("amount", why)))
    rows = _parsed(spark, plan_of({"value": block}), *[delimiter.join(line).encode() for line, _ in cases])
    assert [_bad(row) for row in rows] == [bad for _, bad in cases]


def _zigzag(number: int) -> bytes:
    encoded, out = (number << 1) ^ (number >> 63), io.BytesIO()
    while encoded > 0x7F:
        out.write(bytes([encoded & 0x7F | 0x80]))
        encoded >>= 7
    out.write(bytes([encoded]))
    return out.getvalue()


ONE = {"type": "record", "name": "order", "fields": [{"name": "id", "type": "long"}]}
TWO = ONE | {"fields": [*ONE["fields"], {"name": "n", "type": ["null", "long"], "default": None}]}


TWICE = "Duplicate field id in record order: id type:LONG pos:1 and id type:LONG pos:0."


def test_avro_is_read_by_its_schema(spark: Any) -> None:
    plan = plan_of({"value": {"format": "avro"}}, schema=Schema("avro", json.dumps(TWO)))
    good, null, cut, none = _parsed(spark, plan, _zigzag(7) + b"\x02" + _zigzag(5), _zigzag(8) + b"\x00", b"", None)
    assert (good.id, good.n, _bad(good)) == (7, 5, None)
    assert (null.id, null.n, _bad(null)) == (8, None, None)
    assert _bad(cut) == ("", "its 0 bytes do not match the Avro schema")
    assert _bad(none) == ("", "it is null")


def test_bytes_after_an_avro_value_make_it_bad(spark: Any) -> None:
    fields = [
        {"name": "id", "type": "long"},
        {"name": "s", "type": "string"},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "bytes"}}, "default": {}},
    ]
    schema = Schema("avro", json.dumps(ONE | {"fields": fields}))
    value = _zigzag(7) + b"\x04ab" + b"\x02\x02k\x02\x04xy\x00\x00"
    blank = _zigzag(0) + b"\x00\x00"
    values = [value, blank, value + b"xyz", blank + b"\x00", framing.prefix(9) + value]
    rows = _parsed(spark, plan_of({"value": {"format": "avro"}}, schema=schema), *values)
    assert [(row.id, row.s, _bad(row)) for row in rows[:2]] == [(7, "ab", None), (0, "", None)]
    assert [_bad(row) for row in rows[2:]] == [
        ("", f"its {len(value)} bytes do not match the Avro schema") for value in values[2:]
    ]


def test_avro_takes_no_more_memory_than_its_bytes_are_worth(spark: Any) -> None:
    node = {"type": "record", "name": "node", "fields": [{"name": "next", "type": ["null", "node"]}]}
    fields = [
        {"name": "s", "type": "string"},
        {"name": "b", "type": "bytes"},
        {"name": "m", "type": {"type": "map", "values": "float"}},
        {"name": "e", "type": {"type": "array", "items": "null"}},
        {"name": "f", "type": {"type": "fixed", "name": "two", "size": 2}},
        {"name": "n", "type": ["null", node]},
    ]
    writer, number = ONE | {"fields": fields}, b"\x00\x00\x00\x00\x0a"
    some = {
        "s": b"\x02x",
        "b": b"\x02y",
        "m": b"\x02\x02k\x00\x00\x80\x3f\x00",
        "e": b"\x06\x00",
        "f": b"zz",
        "n": b"\x00",
    }
    one_block = b"\x01\x0c\x02k\x00\x00\x80\x3f\x00"
    huge, deep = _zigzag(1_900_000_000), b"\x02" * 498  # in the record and unions, with a null: 999 parts
    good: list[dict[str, bytes]] = [{}, {"m": one_block}, {"n": deep + b"\x00"}]
    bad: list[dict[str, bytes]] = [
        {"s": huge + b"abc"},
        {"s": b"\x01"},
        {"b": huge},
        {"m": b"\x02" + huge},
        {"m": huge},
        {"m": one_block.replace(b"\x0c", b"\x0a")},
        {"m": b"\xff" * 9 + b"\x01\x00"},
        {"e": huge + b"\x00"},
        {"f": b"z", "n": b""},
        {"n": b"\x04"},
        {"n": deep + b"\x02\x00"},
        {"n": deep * 1000 + b"\x00"},
    ]
    values = [number + b"".join((some | each).values()) for each in (*good, *bad)]
    reader = ONE | {"fields": fields[:-1]}  # of what has itself no column can be
    block = {"format": "avro", "registry": {"url": "http://127.0.0.1:1"}}
    plan = replace(
        plan_of({"value": block}, schema=Schema("avro", json.dumps(reader))), value_writers={10: json.dumps(writer)}
    )
    rows = _parsed(spark, plan, *values)
    assert [(row.s, bytes(row.b), row.m, row.e, bytes(row.f)) for row in rows[:3]] == [
        ("x", b"y", {"k": 1.0}, [None, None, None], b"zz")
    ] * 3
    assert [_bad(row) for row in rows] == [None] * 3 + [
        ("", f"its {len(value)} bytes do not match the Avro schema") for value in values[3:]
    ]


def test_each_avro_row_is_read_by_its_writers_schema(spark: Any) -> None:
    with running() as registry:
        unreadable = json.dumps(ONE).replace("order", "not-a-name")
        twice = json.dumps(ONE | {"fields": ONE["fields"] * 2})
        found = [(11, json.dumps(TWO), "AVRO"), (13, "{}", "JSON"), (14, unreadable, "AVRO"), (15, twice, "AVRO")]
        registry.subjects["orders-value"] = [Stored(*each, []) for each in found]
        _writers_differ(spark, registry.url)


def _writers_differ(spark: Any, url: str) -> None:
    plan = plan_of({"value": {"format": "avro", "registry": {"url": url}}}, schema=Schema("avro", json.dumps(TWO)))
    plan = replace(plan, value_writers={10: json.dumps(ONE)})
    parser = Parser(spark, plan)
    raw = records(
        spark,
        b"\x00\x00\x00\x00\x0a" + _zigzag(1),
        b"\x00\x00\x00\x00\x0b" + _zigzag(2) + b"\x02" + _zigzag(20),
        b"\x00\x00\x00\x00\x0c" + _zigzag(3),
        b"\x01\x00\x00\x00\x0a" + _zigzag(4),
        b"\x00\x00",
        b"\x00\x00\x00\x00\x0b" + _zigzag(2) + b"\x00" + b"\x00",
        b"\x00\x00\x00\x00\x0d" + _zigzag(1),
        b"\x00\x00\x00\x00\x0e" + _zigzag(1),
        b"\x00\x00\x00\x00\x0f" + _zigzag(1) * 2,
    )
    unusable = "the registry's schema"
    first = parser.parsed(raw).orderBy("_offset").collect()
    assert [row[BAD] is None for row in first] == [True] + [False] * 8
    assert parser.learn(parser.parsed(raw))
    rows = parser.parsed(raw).orderBy("_offset").collect()
    assert [(row.id, row.n) for row in rows[:2]] == [(1, None), (2, 20)]
    assert [_bad(row) for row in rows[2:]] == [
        ("", "the registry has no schema 12"),
        ("", "it does not begin with the five-byte prefix of a schema registry"),
        ("", "it does not begin with the five-byte prefix of a schema registry"),
        ("", "its 8 bytes do not match the Avro schema"),
        ("", "the registry's schema 13 cannot be used: its type is JSON, not AVRO"),
        ("", f"{unusable} 14 cannot be used: org.apache.avro.SchemaParseException: Illegal character in: not-a-name"),
        ("", f"{unusable} 15 cannot be used: org.apache.avro.AvroRuntimeException: {TWICE}"),
    ]
    assert not parser.learn(parser.parsed(raw))


def test_json_of_a_registry_begins_with_a_known_id(spark: Any) -> None:
    plan = plan_of({"value": {"format": "json", "registry": {"url": "http://127.0.0.1:1"}, "schema": "id INT, n INT"}})
    plan = replace(plan, value_writers={10: "{}", 11: "{}"})
    one, more, unknown, bare, broken, none = _parsed(
        spark,
        plan,
        b'\x00\x00\x00\x00\x0a{"id": 1, "n": 2}',
        b'\x00\x00\x00\x00\x0b{"id": 2, "later": true}',
        b'\x00\x00\x00\x00\x0c{"id": 3}',
        b'{"id": 4}',
        b'\x00\x00\x00\x00\x0a{"id": "x"}',
        None,
    )
    assert [(row.id, row.n, _bad(row)) for row in (one, more)] == [(1, 2, None), (2, None, None)]
    assert _bad(unknown) == ("", "the registry has no schema 12")
    assert _bad(bare) == ("", "it does not begin with the five-byte prefix of a schema registry")
    assert _bad(broken) == ("id", "'\"x\"' is not INT")
    assert _bad(none) == ("", "it is null")


@pytest.mark.parametrize("name", ["_key", "_offset", "_bad"])
def test_a_schema_must_leave_the_records_own_columns_alone(spark: Any, name: str) -> None:
    with pytest.raises(JobFailed, match=f"has a column {name}") as refused:
        Parser(spark, plan_of({"value": {"format": "json", "schema": f"id INT, {name} INT"}}))
    assert refused.value.failed.kind == "schema"
