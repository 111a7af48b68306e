"""Decodes Avro values, plain or with the five-byte prefix that names their writer's schema in a registry.

`from_avro` gets only bytes that are one value of the writer's schema, as `AvroBytes.java` says: it ignores what follows
a value, and takes as much memory as any length in it asks for. For bytes that do not match the reader's schema, it
returns a row of NULLs, as for a row of NULLs. So that schema gets an additional field whose default shows that a row
was decoded.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kafkad_etl.driver.compiling import applied, object_of
from kafkad_etl.driver.source import framing
from kafkad_etl.driver.source.json_rows import Type, because
from kafkad_etl.driver.source.registry import Schemas
from kafkad_etl.driver.terms import DataFrame

READ = "_read"
_BYTES = Path(__file__).with_name("AvroBytes.java")


def reader_schema(avro: str) -> str:
    record = json.loads(avro)
    return json.dumps(record | {"fields": [*record["fields"], {"name": READ, "type": "boolean", "default": True}]})


def avro_of(spark: Any, schema: Type) -> str:
    """The Avro schema for columns that were not declared as Avro."""
    jvm = spark._jvm
    converters = jvm.org.apache.spark.sql.avro.SchemaConverters
    kind = jvm.org.apache.spark.sql.types.DataType.fromJson(json.dumps(schema))
    return str(converters.toAvroType(kind, False, "record", "").toString())


def plain(spark: Any, frame: DataFrame, part: str, into: str, avro: str) -> DataFrame:
    """Adds a column with the decoded value."""
    from pyspark.sql import functions as f

    return frame.withColumn(into, _decoded(spark, f.col(part), avro, avro))


def registered(spark: Any, frame: DataFrame, part: str, into: str, reader: str, schemas: Schemas) -> DataFrame:
    """The same, with each row decoded by its own writer's schema."""
    from pyspark.sql import functions as f

    payload, number = f.expr(framing.payload(part)), f.expr(framing.schema_id(part))
    column = f.when(f.lit(False), _decoded(spark, payload, reader, reader))  # of its type, if nothing is registered
    for of, writer in sorted(schemas.known.items()):
        column = column.when(number == of, _decoded(spark, payload, writer, reader))
    return frame.withColumn(into, column)


def _decoded(spark: Any, value: Any, writer: str, reader: str) -> Any:
    from pyspark.sql import functions as f
    from pyspark.sql.avro.functions import from_avro

    is_one = applied(spark, object_of(spark, _BYTES).judge(writer), value)
    options = {"mode": "PERMISSIVE", "avroSchema": reader_schema(reader)}
    return from_avro(f.when(is_one, value), writer, options)


def fault(spark: Any, writer: str) -> str | None:
    """Why Avro's library for Java does not take a schema, which a registry may have taken."""
    from py4j.protocol import Py4JJavaError

    try:
        spark._jvm.org.apache.avro.Schema.Parser().setValidateDefaults(False).parse(writer)
    except Py4JJavaError as error:
        return str(error.java_exception.toString()).partition("\n")[0]
    return None


def is_broken(into: str) -> str:
    return f"{into}.{READ} IS NULL"


def reason(part: str, schemas: Schemas | None) -> str:
    otherwise = because("''", f"'its ' || length({part}) || ' bytes do not match the Avro schema'")
    return framing.why(framing.reasons(part, schemas), otherwise)
