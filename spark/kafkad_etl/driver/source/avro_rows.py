"""Decodes Avro values, plain or with the five-byte prefix that names their writer's schema in a registry.

For bytes that do not match, `from_avro` returns a row of NULLs, as for a row of NULLs. So the reader's schema gets an
additional field whose default shows that a row was decoded.
"""

from __future__ import annotations

import json
from typing import Any

from kafkad_etl.driver.source import framing
from kafkad_etl.driver.source.json_rows import Type
from kafkad_etl.driver.source.registry import Schemas
from kafkad_etl.driver.terms import DataFrame

READ = "_read"


def reader_schema(avro: str) -> str:
    record = json.loads(avro)
    return json.dumps(record | {"fields": [*record["fields"], {"name": READ, "type": "boolean", "default": True}]})


def avro_of(spark: Any, schema: Type) -> str:
    """The Avro schema for columns that were not declared as Avro."""
    jvm = spark._jvm
    converters = jvm.org.apache.spark.sql.avro.SchemaConverters
    kind = jvm.org.apache.spark.sql.types.DataType.fromJson(json.dumps(schema))
    return str(converters.toAvroType(kind, False, "record", "").toString())


def plain(frame: DataFrame, part: str, into: str, avro: str) -> DataFrame:
    from pyspark.sql import functions as f
    from pyspark.sql.avro.functions import from_avro

    options = {"mode": "PERMISSIVE", "avroSchema": reader_schema(avro)}
    return frame.withColumn(into, from_avro(f.col(part), avro, options))


def registered(frame: DataFrame, part: str, into: str, reader: str, schemas: Schemas) -> DataFrame:
    """Decodes each row with its own writer's schema."""
    from pyspark.sql import functions as f
    from pyspark.sql.avro.functions import from_avro

    options = {"mode": "PERMISSIVE", "avroSchema": reader_schema(reader)}
    payload, number = f.expr(framing.payload(part)), f.expr(framing.schema_id(part))
    column = None
    for known, writer in sorted(schemas.known.items()):
        value = from_avro(payload, writer, options)
        column = f.when(number == known, value) if column is None else column.when(number == known, value)
    if column is None:  # nothing has been registered: all rows are of schemas that are unknown
        column = f.when(f.lit(False), from_avro(payload, reader, options))
    return frame.withColumn(into, column)


def is_broken(into: str) -> str:
    return f"{into}.{READ} IS NULL"


def reason(part: str, schemas: Schemas | None) -> str:
    tests = [(f"{part} IS NULL", "'it is null'")] if schemas is None else framing.reasons(part, schemas.known)
    cases = (f"WHEN {test} THEN {why}" for test, why in tests)
    why = f"CASE {' '.join(cases)} ELSE 'its ' || length({part}) || ' bytes do not match the Avro schema' END"
    return f"named_struct('column', '', 'why', {why})"
