"""Protobuf in Spark's JVMs, by `Protobuf.java`.

Spark's own module for Protobuf is not used, as it is not in every repository that has the rest of Spark.
"""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

from kafkad_etl.driver.compiling import applied, object_of
from kafkad_etl.driver.terms import JobFailed
from kafkad_etl.messages import Failed, Schema
from kafkad_etl.registry.protobuf import Compiled

_SOURCE = Path(__file__).with_name("Protobuf.java")


def compiled(schema: Schema) -> Compiled:
    return Compiled(schema.files, schema.message)


def read(spark: Any, schema: Schema, struct: Any, column: Any) -> Any:
    """The column of a message's bytes as a struct; null for bytes that are no such message."""
    function = _conversion(spark).reader(b64decode(schema.files), schema.message, json.dumps(struct))
    return applied(spark, function, column)


def written(spark: Any, schema: Schema, row: Any, struct: Any) -> Any:
    """The row as a message's bytes."""
    return applied(spark, _conversion(spark).writer(b64decode(schema.files), schema.message), _in_micros(row, struct))


def _in_micros(column: Any, kind: Any) -> Any:
    """The column with each time in it as microseconds: functions in Java get Timestamps, whose calendar lacks ten
    days of 1582 and whose range is smaller."""
    from pyspark.sql import functions as f

    if kind == "timestamp":
        return f.unix_micros(column)
    if '"timestamp"' not in json.dumps(kind):
        return column
    if kind["type"] == "array":
        return f.transform(column, lambda item: _in_micros(item, kind["elementType"]))
    if kind["type"] == "map":
        return f.transform_values(column, lambda _, value: _in_micros(value, kind["valueType"]))
    fields = (_in_micros(column.getField(each["name"]), each["type"]).alias(each["name"]) for each in kind["fields"])
    return f.when(column.isNotNull(), f.struct(*fields))


def _conversion(spark: Any) -> Any:
    """The object that makes conversions."""
    try:
        spark._jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(
            "com.google.protobuf.DynamicMessage"
        )
    except Exception as error:
        raise JobFailed(_no_protobuf()) from error
    return object_of(spark, _SOURCE)


def _no_protobuf() -> Failed:
    return Failed(
        kind="environment",
        text="the jar com.google.protobuf:protobuf-java is missing",
        hints=["run kctl etl jars fetch, or set spark.jars: [/path/to/protobuf-java.jar]"],
    )
