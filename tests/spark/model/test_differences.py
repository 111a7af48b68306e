"""Expected rows against those that came, by the types of their columns."""

from __future__ import annotations

import json
from datetime import UTC, timedelta, timezone
from typing import Any

import pytest

from kafkad_etl.model.cases import Expected
from kafkad_etl.model.differences import LETTER, differences, normalised


def schema(**types: Any) -> str:
    return json.dumps({"type": "struct", "fields": [{"name": name, "type": kind} for name, kind in types.items()]})


ORDERS = schema(id="long", name="string", at="timestamp")
RECORDS = schema(
    key="string", value=json.loads(schema(id="long", amount="decimal(12,2)")), partition="integer", headers="headers"
)


def compared(expected: list[dict[str, Any]], came: list[dict[str, Any]], types: str = ORDERS) -> list[str]:
    places = [Expected(f"t.yaml:{at}", row) for at, row in enumerate(expected, 1)]
    return differences(places, [json.dumps(row) for row in came], types)


def test_rows_have_no_order_and_each_counts_once() -> None:
    one, two = {"id": 1, "name": "a"}, {"id": 2, "name": "b"}
    assert compared([one, two], [two, one]) == []
    assert compared([one, two], [one, two, two]) == ['not expected: {"id": 2, "name": "b"}']
    assert compared([one, one], [one]) == ['t.yaml:2: did not come: {"id": 1, "name": "a"}']
    assert compared([], [one]) == ['not expected: {"id": 1, "name": "a"}']
    assert compared([], []) == []


def test_a_row_is_compared_with_the_one_that_is_most_like_it() -> None:
    expected = [{"id": 1, "name": "a", "at": None}, {"id": 2, "name": "b", "at": None}]
    came = [{"id": 2, "name": "c", "at": None}, {"id": 1, "name": "a", "at": "2026-11-01T00:00:00.000000Z"}]
    assert compared(expected, came) == [
        't.yaml:1: at: expected null, came "2026-11-01T00:00:00.000000Z"',
        't.yaml:2: name: expected "b", came "c"',
    ]


def test_columns_that_no_row_names_are_not_compared() -> None:
    came = [{"id": 1, "name": "a", "at": None}, {"id": 2, "name": None, "at": None}]
    assert compared([{"id": 1}, {"id": 2}], came) == []
    assert compared([{"id": 1, "name": "a"}, {"id": 2}], came) == [], "left out where others have it: null"
    assert compared([{"id": 1, "name": "a"}, {"id": 2, "nmae": "x"}], came) == [
        't.yaml:2: the result has no column nmae; did you mean "name"?'
    ]


def test_many_differences_are_counted() -> None:
    found = compared([{"id": number} for number in range(50)], [])
    assert (len(found), found[-1]) == (21, "and 30 more differences")


@pytest.mark.parametrize(
    ("kind", "one", "two", "same"),
    [
        ("long", 1, 1, True),
        ("long", 1, "1", False),
        ("long", 1, True, False),
        ("string", "1", 1, False),
        ("string", "a", "a", True),
        ("decimal(12,2)", 1.5, "1.50", True),
        ("decimal(38,0)", 10, "1E+1", True),
        ("double", 2, 2.0, True),
        ("double", "NaN", "NaN", True),
        ("boolean", True, True, True),
        ("boolean", True, "true", False),
        ("timestamp", "2026-11-01T12:00:00Z", "2026-11-01T13:00:00.000000+01:00", True),
        ("timestamp", "2026-11-01T12:00:00", "2026-11-01T11:00:00Z", True),
        ("timestamp", "noon", "2026-11-01T11:00:00Z", False),
        ("timestamp_ntz", "2026-11-01 12:00:00", "2026-11-01T12:00:00.000000", True),
        ("date", "2026-11-01", "2026-11-01", True),
        ({"type": "array", "elementType": "double"}, [1, 2], [1.0, 2.0], True),
        ({"type": "array", "elementType": "long"}, [1, 2], [2, 1], False),
        ({"type": "map", "valueType": "long"}, {"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        (json.loads(schema(a="long", b="string")), {"a": 1}, {"a": 1, "b": None}, True),
        (json.loads(schema(a="long")), {"a": 1, "c": 2}, {"a": 1}, False),
        ("json", {"a": [1]}, '{ "a": [1] }', True),
        ("json", {"a": 1}, "no JSON", False),
    ],
)
def test_values_are_compared_by_their_type(kind: Any, one: Any, two: Any, same: bool) -> None:
    zone = timezone(timedelta(hours=1))
    assert (normalised(one, kind, zone) == normalised(two, kind, zone)) is same
    assert normalised(None, kind, UTC) is None


def test_a_record_is_compared_by_its_columns_and_headers() -> None:
    came = {"key": "1", "value": {"id": 1, "amount": 2.5}, "partition": None, "headers": {"source": "o/0/1", "h": "x"}}
    assert compared([{"value": {"id": 1}, "headers": {"source": "o/0/1"}}], [came], RECORDS) == []
    wrong = {"key": "1", "value": {"id": 1, "amount": 3}, "headers": {"source": "o/0/2", "none": "x"}}
    assert compared([wrong], [came], RECORDS) == [
        "t.yaml:1: value.amount: expected 3, came 2.5",
        't.yaml:1: headers.source: expected "o/0/2", came "o/0/1"',
        't.yaml:1: headers.none: expected "x", came null',
    ]
    assert compared([{"value": {"idd": 1}}], [came], RECORDS) == [
        't.yaml:1: the result has no column value.idd; did you mean "value.id"?'
    ]


def test_a_dead_letter_may_be_expected_as_json_or_as_it_came() -> None:
    came = {"key": None, "value": '{"id":"x", "n": 1.50}', "headers": {"column": "id"}}
    assert compared([{"value": {"id": "x", "n": 1.5}, "headers": {"column": "id"}}], [came], LETTER) == []
    assert compared([{"value": '{"id":"x", "n": 1.50}'}], [came], LETTER) == []
    assert len(compared([{"value": '{"id":"y"}'}], [came], LETTER)) == 2
    assert compared([{"value": {"base64": "/w=="}}], [{"value": {"base64": "/w=="}, "headers": {}}], LETTER) == []
