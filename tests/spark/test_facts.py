from __future__ import annotations

import re

import pytest

from kafkad_etl.facts import has_one_writer, hidden, redaction, topics_text, without_login
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


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("jdbc:mysql://root:hu@sh@h/d", "jdbc:mysql://h/d"),
        ("jdbc:postgresql://root:hu/sh@h/d", "jdbc:postgresql://h/d"),
        ("jdbc:mysql://address=(host=h)(user=u)(password=hu@sh)/d", "jdbc:mysql://address=(host=h)/d"),
        ("jdbc:mysql://(host=h,port=1,user=u,password=hush)/d", "jdbc:mysql://(host=h,port=1,)/d"),
        ("jdbc:oracle:thin:scott/hush@//h:1521/d", "jdbc:oracle:thin:@//h:1521/d"),
        ("jdbc:postgresql://h:5432,[::1]:5433/d@e", "jdbc:postgresql://h:5432,[::1]:5433/d@e"),
        ("https://h:8181/a@b", "https://h:8181/a@b"),
        ("SELECT count_if(user='a') FROM source", "SELECT count_if(user='a') FROM source"),
    ],
)
def test_logins_are_taken_out_of_urls_and_nothing_else(text: str, without: str) -> None:
    assert without_login(text) == without


@pytest.mark.parametrize(
    ("path", "is_hidden"),
    [
        ("part-0.parquet", False),
        ("day=1/part-0.parquet", False),
        ("_topic=a/_day=2/part-0.parquet", False),
        ("_SUCCESS", True),
        ("_temporary/0/_topic=a/part-0.parquet", True),
        ("day=1/.part-0.parquet.tmp", True),
        (".a=1/part-0.parquet", True),
    ],
)
def test_files_are_hidden_by_the_names_that_spark_ignores(path: str, is_hidden: bool) -> None:
    assert hidden(path) is is_hidden


@pytest.mark.parametrize(
    ("name", "is_left_out"),
    [
        ("kafka.ssl.keystore.key", True),
        ("kafka.sasl.jaas.config", True),
        ("spark.sql.catalog.lake.credential", True),
        ("spark.sql.catalog.lake.header.Authorization", True),
        ("spark.sql.catalog.lake.header.X-Api-Key", True),
        ("spark.hadoop.fs.azure.account.key.orders.dfs.core.windows.net", True),
        ("spark.my.pin", True),
        ("spark.myXpin", False),
        ("spark.theirs", True),
        ("kafka.bootstrap.servers", False),
    ],
)
def test_spark_shows_no_secrets(name: str, is_left_out: bool) -> None:
    assert bool(re.search(redaction("theirs$", ["spark.my.pin"]), name)) is is_left_out
    assert re.search(redaction("", ()), "anything") is None


def test_one_topic_is_no_topics() -> None:
    assert (topics_text(["a"]), topics_text(["a", "b"])) == ("topic a", "topics a, b")
