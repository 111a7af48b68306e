from __future__ import annotations

from typing import Any

from kafkad_etl.driver.columns import columns_of
from tests.spark.driver.rows import IN_PROCESS

pytestmark = IN_PROCESS


def test_types_are_written_as_spark_shows_them(spark: Any) -> None:
    types = "STRUCT<a: INT, _b: DECIMAL(12,2)>", "MAP<STRING, ARRAY<TIMESTAMP>>", "BIGINT", "INTERVAL DAY TO SECOND"
    frame = spark.sql(f"SELECT {', '.join(f'CAST(NULL AS {kind}) AS c{at}' for at, kind in enumerate(types))}")
    assert columns_of(frame) == frame.dtypes


def test_names_within_types_that_need_quotes_have_them(spark: Any) -> None:
    parts = "`ship-to`: ARRAY<STRUCT<`a b`: INT>>, `by``s`: MAP<STRUCT<`1st`: INT>, STRUCT<`ö`: INT>>, plain: INT"
    frame = spark.sql(f"SELECT CAST(NULL AS STRUCT<{parts}>) AS `the one`")
    ((name, kind),) = columns_of(frame)
    assert name == "the one"
    assert kind == (
        "struct<`ship-to`:array<struct<`a b`:int>>,`by``s`:map<struct<`1st`:int>,struct<`ö`:int>>,plain:int>"
    )
    assert columns_of(spark.sql(f"SELECT CAST(NULL AS {kind}) AS `the one`")) == [(name, kind)]
