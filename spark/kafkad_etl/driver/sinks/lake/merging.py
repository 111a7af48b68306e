"""Upserts into a table of a lake: the statement that merges a batch, and its check."""

from __future__ import annotations

from typing import Any

from kafkad_etl.driver.compiling import loaded
from kafkad_etl.driver.terms import DataFrame, JobFailed
from kafkad_etl.messages import Failed
from kafkad_etl.sql_text import named

CLASS = "kafkad.etl.Merge"
SOURCE = """
package kafkad.etl;

import java.util.Map;
import java.util.concurrent.Callable;
import org.apache.iceberg.spark.CommitMetadata;
import org.apache.spark.sql.SparkSession;

public class Merge implements Callable {
    private SparkSession spark;
    private String sql;

    public Object call() {
        return spark.sql(sql);
    }

    public void run(SparkSession spark, String sql, Map properties) throws Exception {
        this.spark = spark;
        this.sql = sql;
        CommitMetadata.withCommitProperties(properties, this, RuntimeException.class);
    }
}
"""
"""Runs a statement whose snapshot gets properties of ours: writers take them as options, and statements do not."""
COUNT = "_rows_of_a_key"
"""A column beside the keys, of which one may be named `count`."""


def need_distinct(rows: DataFrame, keys: tuple[str, ...], batch: int) -> None:
    from pyspark.sql import functions as f

    counted = rows.groupBy(*map(named, keys)).agg(f.count("*").alias(COUNT))
    doubled = counted.where(f"{COUNT} > 1").take(1)
    if doubled:
        *values, count = doubled[0]
        shown = ", ".join(f"{key}={value}" for key, value in zip(keys, values, strict=True))
        raise JobFailed(
            Failed(
                kind="sink",
                text=f"a key occurs more than once in batch {batch} ({shown}: {count} rows), and it is unknown which "
                "row is the newest",
                hints=["also SELECT _offset, so that the last row wins", "or GROUP BY the keys in the SQL"],
            )
        )


def statement(table: str, view: str, keys: tuple[str, ...], null: set[str]) -> str:
    """For a batch that has null in those of the keys. By `=`, which means the same where there is none, Spark joins
    with less work."""
    same = " AND ".join(f"t.{named(key)} {'<=>' if key in null else '='} s.{named(key)}" for key in keys)
    return (
        f"MERGE INTO {table} AS t USING {view} AS s ON {same} "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


def merge(spark: Any, session: Any, sql: str, properties: dict[str, str]) -> None:
    jvm, gateway = spark._jvm, spark.sparkContext._gateway
    given = jvm.java.util.HashMap()
    for name, value in properties.items():
        given.put(name, value)
    constructor = loaded(spark, SOURCE, CLASS).getConstructor(gateway.new_array(jvm.java.lang.Class, 0))
    constructor.newInstance(gateway.new_array(jvm.java.lang.Object, 0)).run(session._jsparkSession, sql, given)
