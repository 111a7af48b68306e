"""Decodes Protobuf values, plain or with the prefix that names their schema in a registry and a message in it.

Fields are found by their numbers, so a record of any version of the schema is read as the message that the columns are
of; only its name has to be the same. Fields without a column are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkad_etl.driver import protobuf
from kafkad_etl.driver.source import framing
from kafkad_etl.driver.source.json_rows import Type, because
from kafkad_etl.driver.source.registry import Schemas
from kafkad_etl.driver.terms import DataFrame
from kafkad_etl.messages import Schema
from kafkad_etl.registry.protobuf import index_bytes


def decoded(
    spark: Any, frame: DataFrame, part: str, into: str, schema: Schema, struct: Type, schemas: Schemas | None
) -> DataFrame:
    from pyspark.sql import functions as f

    payload = part if schemas is None else message_in(part, schemas.known, schema.message)
    return frame.withColumn(into, protobuf.read(spark, schema, struct, f.expr(payload)))


def message_in(part: str, known: Mapping[int, str], message: str) -> str:
    """SQL for the message's bytes; null if the record is of another message, or of an unknown schema."""
    number, rest = framing.schema_id(part), framing.payload(part)
    cases = [
        f"WHEN {number} = {each} AND startswith({rest}, X'{index.hex()}') "
        f"THEN substring({part}, {framing.PREFIX + len(index) + 1})"
        for each, files in sorted(known.items())
        for index in index_bytes(files, message)
    ]
    return f"CASE {' '.join(cases)} END" if cases else "CAST(NULL AS BINARY)"


def is_broken(into: str) -> str:
    return f"{into} IS NULL"


def reason(part: str, schema: Schema, schemas: Schemas | None) -> str:
    tests = list(framing.reasons(part, schemas))
    if schemas is not None:
        of_another = f"({message_in(part, schemas.known, schema.message)}) IS NULL"
        tests.append((of_another, f"'it is not a message {schema.message}'"))
    otherwise = because("''", f"'its ' || length({part}) || ' bytes do not match the message {schema.message}'")
    return framing.why(tests, otherwise)
