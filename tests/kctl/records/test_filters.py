from __future__ import annotations

from typing import Any

import pytest

from kafkad.wire.records import Record
from kctl.errors import KctlError
from kctl.records.expressions import compile_expression
from kctl.records.filters import wanted
from kctl.records.located import Located

NOW = 1_763_700_000_000
VALUE = b'{"amount": 120.5, "items": [{"price": 3}], "odd name": "x", "none": null, "ok": true, "no": false}'
ONE = Located("orders", 2, Record(100, 5000, b"user-7", VALUE, (("type", b"order"), ("raw", b"\xff"), ("nil", None))))
TEXT = Located("orders", 0, Record(1, 0, None, "plain é text\nline two".encode()))
NULL = Located("orders", 0, Record(1, 0, None, None))


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"key": "user-7"}, [ONE]),
        ({"key": "user-?"}, [ONE]),
        ({"key": "USER-*"}, []),
        ({"key": "*"}, [ONE]),
        ({"value": "plain*two"}, [TEXT]),
        ({"value": "*é*"}, [TEXT]),
        ({"headers": ["type=order"]}, [ONE]),
        ({"headers": ["type=o*", "raw"]}, [ONE]),
        ({"headers": ["nil=*"]}, []),
        ({"headers": ["nil"]}, [ONE]),
        ({"headers": ["type=order", "absent"]}, []),
        ({"grep": "l.ne two$"}, [TEXT]),
        ({"grep": "^user"}, [ONE]),
        ({"grep": "é", "value": "plain*"}, [TEXT]),
        ({"expression": "partition == 0", "grep": "plain"}, [TEXT]),
    ],
)
def test_wanted(options: dict[str, Any], found: list[Located]) -> None:
    test = wanted(**options)
    assert test is not None
    assert [at for at in (ONE, TEXT, NULL) if test(at)] == found


def test_without_filters_there_is_nothing_to_ask() -> None:
    assert wanted() is None


def test_wrong_regular_expression() -> None:
    with pytest.raises(KctlError, match="--grep"):
        wanted(grep="(")


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("value.amount > 100", True),
        ("value.amount>120.5", False),
        ("value.amount >= 120.5 and partition == 2", True),
        ("value.items[0].price == 3", True),
        ("value.items[0].price < 3 or offset <= 100", True),
        ("value.items[1].price == 3", False),
        ("value.items.price == 3", False),
        ('value["odd name"] == "x"', True),
        ("value.'odd name' == 'x'", True),
        ("value.none == null and value.absent == null", True),
        ("value.none.deeper == null", True),
        ("value.ok", True),
        ("value.no", False),
        ("value.ok == true and value.no == false", True),
        ("value.ok == 1", False),
        ("value.absent", False),
        ("not value.absent", True),
        ("not not value.absent", False),
        ('key == "user-7"', True),
        ('key ~ "^user-\\d$"', True),
        ('key ~ "^nobody"', False),
        ('value.absent ~ ""', False),
        ('value.items ~ "price"', True),
        ('headers.type == "order"', True),
        ("headers.absent == null", True),
        ("headers.nil == null", True),
        ("headers.raw", True),
        ('topic == "orders" and timestamp == 5000', True),
        ("timestamp < @2026-11-21T05:30", True),
        ("timestamp > @-30m", False),
        ("offset == -100", False),
        ('value.amount == "120.5"', False),
        ('value.amount < "z"', False),
        ("value.amount != null", True),
        ("(offset == 1 or offset == 100) and not (partition == 1)", True),
        ("offset == 1 or offset == 100 and partition == 1", False),
        ("null < 1", False),
        ("true > false", False),
        ('key == "user-\\7"', True),
    ],
)
def test_expressions(text: str, holds: bool) -> None:
    assert compile_expression(text, NOW, utc=True)(ONE) is holds


@pytest.mark.parametrize("text", ['key ~ "x"', "value.a", "value == 1", "key", "headers.a", "key < 1"])
def test_expressions_of_what_is_not_there_are_false(text: str) -> None:
    assert compile_expression(text, NOW, utc=True)(NULL) is False


@pytest.mark.parametrize(
    "text",
    [
        "",
        "and",
        "offset ==",
        "offset = 1",
        "offset == 1 offset",
        "(offset == 1",
        "offset == 1)",
        "price > 1",
        "headers == 1",
        "headers.a.b == 1",
        "offset.a == 1",
        "value. == 1",
        "value[0 == 1",
        "value[] == 1",
        "key ~ key",
        'key ~ "("',
        '"unfinished',
        "timestamp > @nonsense",
        "__import__('os')",
        "offset == 1; offset",
        "(" * 5000,
    ],
)
def test_expressions_that_are_wrong_say_where(text: str) -> None:
    with pytest.raises(KctlError) as caught:
        compile_expression(text, NOW, utc=True)
    assert caught.value.exit_code == 2
    assert caught.value.what.startswith("--filter")
