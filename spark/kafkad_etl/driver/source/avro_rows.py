"""Decodes Avro values, plain or with the five-byte prefix that names their writer's schema in a registry.

For bytes that do not match, `from_avro` returns a row of NULLs, as for a row of NULLs. So the reader's schema gets an
additional field whose default shows that a row was decoded. Bytes after the value it ignores: `Rest.java` finds them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kafkad_etl.driver.compiling import applied, object_of
from kafkad_etl.driver.source import framing
from kafkad_etl.driver.source.json_rows import Type
from kafkad_etl.driver.source.registry import Schemas
from kafkad_etl.driver.terms import DataFrame

READ = "_read"
_REST = Path(__file__).with_name("Rest.java")


def reader_schema(avro: str) -> str:
    record = json.loads(avro)
    return json.dumps(record | {"fields": [*record["fields"], {"name": READ, "type": "boolean", "default": True}]})


def avro_of(spark: Any, schema: Type) -> str:
    """The Avro schema for columns that were not declared as Avro."""
    jvm = spark._jvm
    converters = jvm.org.apache.spark.sql.avro.SchemaConverters
    kind = jvm.org.apache.spark.sql.types.DataType.fromJson(json.dumps(schema))
    return str(converters.toAvroType(kind, False, "record", "").toString())


def plain(spark: Any, frame: DataFrame, part: str, into: str, rest: str, avro: str) -> DataFrame:
    """Adds two columns: the decoded value, and whether bytes follow it."""
    from pyspark.sql import functions as f
    from pyspark.sql.avro.functions import from_avro

    options = {"mode": "PERMISSIVE", "avroSchema": reader_schema(avro)}
    decoded = frame.withColumn(into, from_avro(f.col(part), avro, options))
    return _followed(decoded, into, rest, _has_rest(spark, f.col(part), avro))


def registered(
    spark: Any, frame: DataFrame, part: str, into: str, rest: str, reader: str, schemas: Schemas
) -> DataFrame:
    """The same, with each row decoded by its own writer's schema."""
    from pyspark.sql import functions as f
    from pyspark.sql.avro.functions import from_avro

    options = {"mode": "PERMISSIVE", "avroSchema": reader_schema(reader)}
    payload, number = f.expr(framing.payload(part)), f.expr(framing.schema_id(part))
    known = sorted(schemas.known.items())

    def by_writer(made: Callable[[str], Any]) -> Any:
        column = f.when(f.lit(False), made(reader))  # of its type, if nothing has been registered
        for of, writer in known:
            column = column.when(number == of, made(writer))
        return column

    decoded = by_writer(lambda writer: from_avro(payload, writer, options))
    followed = by_writer(lambda writer: _has_rest(spark, payload, writer))
    return _followed(frame.withColumn(into, decoded), into, rest, followed)


def _followed(frame: DataFrame, into: str, rest: str, has_rest: Any) -> DataFrame:
    """Looks for a rest only behind what could be decoded: passing over other bytes may take as long as they say."""
    from pyspark.sql import functions as f

    return frame.withColumn(rest, f.when(f.expr(f"{into}.{READ} IS NOT NULL"), has_rest))


def _has_rest(spark: Any, column: Any, writer: str) -> Any:
    return applied(spark, object_of(spark, _REST).finder(writer), column)


def is_broken(into: str, rest: str) -> str:
    return f"{into}.{READ} IS NULL OR coalesce({rest}, false)"


def reason(part: str, schemas: Schemas | None) -> str:
    tests = [(f"{part} IS NULL", "'it is null'")] if schemas is None else framing.reasons(part, schemas.known)
    cases = (f"WHEN {test} THEN {why}" for test, why in tests)
    why = f"CASE {' '.join(cases)} ELSE 'its ' || length({part}) || ' bytes do not match the Avro schema' END"
    return f"named_struct('column', '', 'why', {why})"
