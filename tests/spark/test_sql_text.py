from __future__ import annotations

import pytest

from kafkad_etl.sql_text import as_needed, casting, named, quoted


def test_names_and_texts_are_what_sql_takes_them_for() -> None:
    assert [named("ship-to"), named("a`b")] == ["`ship-to`", "`a``b`"]
    assert [as_needed("_a1"), as_needed("1a")] == ["_a1", "`1a`"]
    assert [quoted("it's"), quoted(r"\d")] == [r"'it\'s'", r"'\\d'"]


@pytest.mark.parametrize(
    ("kind", "into", "is_there"),
    [
        ("bigint", "int", True),
        ("DOUBLE", "INT", True),
        ("decimal(12,2)", "decimal(10,2)", True),
        ("decimal(12,2)", "bigint", True),
        ("varchar(9)", "string", True),
        ("array<int>", "string", True),
        ("array<int>", "array<bigint>", True),
        ("string", "boolean", True),
        ("date", "timestamp", True),
        ("timestamp_ntz", "date", True),
        ("timestamp", "bigint", True),
        ("string", "array<int>", False),
        ("array<int>", "bigint", False),
        ("binary", "bigint", False),
        ("int", "binary", False),
        ("date", "int", False),
        ("date", "bigint", False),
        ("int", "date", False),
        ("double", "date", False),
        ("boolean", "date", False),
        ("boolean", "timestamp", False),
        ("timestamp", "boolean", False),
        ("timestamp_ntz", "int", False),
        ("", "int", False),
    ],
)
def test_only_casts_that_spark_has_are_recommended(kind: str, into: str, is_there: bool) -> None:
    assert casting("c", kind, into) == ([f"CAST(c AS {into.upper()}) in the SQL"] if is_there else [])


def test_hints_name_columns_as_sql_takes_them() -> None:
    assert casting("ship-to", "string", "int") == ["CAST(`ship-to` AS INT) in the SQL"]
    assert casting("a`b", "struct<a:int>", "struct<`A-b`:int>") == ["CAST(`a``b` AS struct<`A-b`:int>) in the SQL"]
