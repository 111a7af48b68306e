from __future__ import annotations

import pytest

from kafkad_etl.facts import has_one_writer
from tests.spark.model.jobs import loaded

ICEBERG = "sink={type: iceberg, path: 's3a://lake', iceberg: {table: shop.orders, catalog: {type: TYPE, url: 'URL'}}}"


@pytest.mark.parametrize(
    ("sink", "alone"),
    [
        ("sink={type: delta, path: 's3a://lake/orders'}", True),
        ("sink={type: delta, path: /lake/orders}", False),
        ("sink={type: delta, path: 'hdfs:///lake/orders'}", False),
        ("sink={type: iceberg, path: 's3a://lake', iceberg: {table: shop.orders}}", True),
        ("sink={type: iceberg, path: /lake, iceberg: {table: shop.orders}}", False),
        (ICEBERG.replace("TYPE", "jdbc").replace("URL", "jdbc:sqlite:a"), False),
        (ICEBERG.replace("TYPE", "rest").replace("URL", "https://catalog").replace("path: 's3a://lake', ", ""), False),
        ("sink={type: parquet, path: 's3a://lake/orders'}", False),
    ],
)
def test_tables_in_an_object_store_without_a_catalog_have_one_writer(sink: str, alone: bool) -> None:
    assert has_one_writer(loaded(sets=[sink]).job.sink) == alone
