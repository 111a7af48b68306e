from __future__ import annotations

from kafkad_etl.driver.sinks.lake.merging import statement


def test_only_keys_with_null_in_the_batch_are_compared_as_null_may_be() -> None:
    found = statement("lake.shop.orders", "batch", ("id", "my day"), {"my day"})
    assert " AS s ON t.`id` = s.`id` AND t.`my day` <=> s.`my day` WHEN MATCHED " in found
