from __future__ import annotations

import pytest

from kafkad_etl.driver.sinks.lake.columns import Column, Name, fit, need_keys, need_partitions, widens
from kafkad_etl.driver.terms import JobFailed

TABLE = (Column("id", "bigint", nullable=False), Column("Name", "string"), Column("amount", "decimal(12,2)"))


SHOP = Name("shop.orders", "`c`.`shop`.`orders`")


def test_columns_are_matched_by_name_and_missing_ones_are_null() -> None:
    found = fit([("NAME", "string"), ("id", "int")], TABLE, SHOP, adds=False)
    assert found.selected == (
        "CAST(`id` AS bigint) AS `id`",
        "CAST(`NAME` AS string) AS `Name`",
        "CAST(NULL AS decimal(12,2)) AS `amount`",
    )
    assert found.added == ()


def test_new_columns_are_refused_or_added() -> None:
    columns = [("id", "bigint"), ("day`s", "date"), ("plain", "int")]
    with pytest.raises(JobFailed, match=r"table shop.orders has no column day`s, plain") as raised:
        fit(columns, TABLE, SHOP, adds=False)
    assert raised.value.failed.hints == [
        "ALTER TABLE `c`.`shop`.`orders` ADD COLUMNS (`day``s` date, plain int)",
        "or sink.schema_changes: add_columns",
    ]
    found = fit(columns, TABLE, SHOP, adds=True)
    assert found.added == (Column("day`s", "date"), Column("plain", "int"))
    assert found.selected[-2] == "CAST(`day``s` AS date) AS `day``s`"


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ([("Name", "string")], "table t needs a value in id, which the result does not have"),
        ([("id", "string")], "id is string, but id of table t is bigint"),
        ([("id", "int"), ("amount", "double")], r"amount is double, but amount of table t is decimal\(12,2\)"),
    ],
)
def test_what_does_not_fit(columns: list[tuple[str, str]], text: str) -> None:
    with pytest.raises(JobFailed, match=text) as raised:
        fit(columns, TABLE, Name("t", "t"), adds=True)
    assert raised.value.failed.kind == "schema"
    assert raised.value.failed.hints


@pytest.mark.parametrize(
    ("kind", "into", "fits"),
    [
        ("int", "bigint", True),
        ("bigint", "int", False),
        ("float", "double", True),
        ("int", "double", False),
        ("decimal(10,2)", "decimal(12,2)", True),
        ("decimal(12,2)", "decimal(10,2)", False),
        ("decimal(10,2)", "decimal(12,3)", False),
        ("void", "date", True),
        ("array<int>", "array<int>", True),
        ("timestamp", "timestamp_ntz", False),
    ],
)
def test_widening(kind: str, into: str, fits: bool) -> None:
    assert widens(kind, into) is fits


def test_partitions_are_columns_of_the_result() -> None:
    need_partitions([("Day", "date")], ["day"])
    with pytest.raises(JobFailed, match=r"sink.partition_by names hour, which the result does not have: Day"):
        need_partitions([("Day", "date")], ["hour"])
    with pytest.raises(JobFailed, match=r"sink.keys names nr, which the result does not have: Day"):
        need_keys([("Day", "date")], ["day", "nr"])


def test_only_casts_that_spark_has_are_recommended() -> None:
    table = [Column("id", "bigint"), Column("tags", "array<string>")]
    for given, hints in (
        (("id", "string"), ["CAST(id AS BIGINT) in the SQL"]),
        (("id", "array<int>"), []),
        (("tags", "string"), []),
        (("tags", "array<int>"), ["CAST(tags AS ARRAY<STRING>) in the SQL"]),
    ):
        with pytest.raises(JobFailed) as raised:
            fit([given], table, Name("t", "t"), adds=False)
        assert raised.value.failed.hints == hints
