from __future__ import annotations

import re
from typing import Any

import pytest

from kafkad_etl.driver.sinks.lake.merging import need_distinct, statement
from kafkad_etl.driver.terms import JobFailed
from tests.spark.driver.rows import IN_PROCESS


def test_only_keys_with_null_in_the_batch_are_compared_as_null_may_be() -> None:
    found = statement("lake.shop.orders", "batch", ("id", "my day"), {"my day"})
    assert " AS s ON t.`id` = s.`id` AND t.`my day` <=> s.`my day` WHEN MATCHED " in found


class TestOnSpark:
    pytestmark = IN_PROCESS

    @pytest.mark.parametrize("key", ["id", "count", "my day"])
    def test_a_key_that_occurs_twice_is_named_whatever_its_column(self, spark: Any, key: str) -> None:
        need_distinct(spark.sql(f"SELECT id AS `{key}` FROM range(3)"), (key,), 7)
        twice = spark.sql(f"SELECT greatest(id, 1) AS `{key}`, id AS n FROM range(3)")
        with pytest.raises(JobFailed, match=rf"more than once in batch 7 \({re.escape(key)}=1: 2 rows\)"):
            need_distinct(twice, (key,), 7)
