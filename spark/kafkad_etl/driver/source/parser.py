"""Parses record bytes into columns, and determines what is wrong with those that do not match.

After `parsed`, a frame has the value's columns and `_key`, `_topic`, `_partition`, `_offset`, `_timestamp`
(`_headers`). For bad rows `_bad` is a struct of the column and the reason, NULL for good rows, and only bad rows keep
their raw bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from kafkad_etl.driver import protobuf
from kafkad_etl.driver.source import avro_rows, csv_rows, excess, framing, json_rows, protobuf_rows
from kafkad_etl.driver.source.json_rows import Type
from kafkad_etl.driver.source.registry import Schemas
from kafkad_etl.driver.terms import DataFrame, JobFailed
from kafkad_etl.facts import BAD, CORRUPT, HEADERS, META, RAW
from kafkad_etl.job import Format, Registry
from kafkad_etl.messages import Failed, Plan, Schema
from kafkad_etl.registry.protobuf import columns
from kafkad_etl.sql_text import named, quoted

BROKEN = "_broken"


class Decoding(NamedTuple):
    """The decoding of a record's key or value; all fields but `add` are SQL."""

    add: Callable[[DataFrame], DataFrame]
    """Adds the columns that the other fields name."""
    value: str
    """A struct; a single value for text and raw."""
    broken: str = ""
    """A condition that is never NULL; empty if nothing can be wrong."""
    reason: str = ""
    """SQL for struct<column, why> of a broken row."""


class Part:
    """The key or the value of records."""

    def __init__(
        self, spark: Any, block: Format, name: str, declared: Schema | None, writers: Mapping[int, str]
    ) -> None:
        self.name = name
        self._spark = spark
        self._block = block
        self._declared = declared
        self.schemas = self._schemas(block.registry, writers) if block.registry else None
        self.schema = None if block.format in ("text", "raw") else self._spark_schema()

    def _schemas(self, registry: Registry, writers: Mapping[int, str]) -> Schemas:
        if self._block.format == "avro":
            return Schemas(registry, "avro", writers, partial(avro_rows.fault, self._spark))
        return Schemas(registry, self._block.format, writers)

    @property
    def columns(self) -> list[str]:
        return [field["name"] for field in self.schema["fields"]] if self.schema else []

    def decoding(self) -> Decoding:
        if self.schema is None:
            value = self.name if self._block.format == "raw" else f"CAST({self.name} AS STRING)"
            return Decoding(lambda frame: frame, value)
        ways = {"json": self._json, "csv": self._csv, "avro": self._avro, "protobuf": self._protobuf}
        return ways[self._block.format]()

    def _json(self) -> Decoding:
        from pyspark.sql import functions as f

        schemas = self.schemas
        strict = self._block.mode == "strict" and schemas is None  # writers with other schemas have other fields
        source = self.name if schemas is None else framing.payload(self.name)
        at = json_rows.Columns(source, f"_{self.name}_parsed", f"_{self.name}_excess")
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"}
        nullable = with_corrupt(self.schema)

        def add(frame: DataFrame) -> DataFrame:
            added = [f.from_json(f.expr(at.text), nullable, options).alias(at.parsed)]
            if json_rows.is_limited(self.schema, strict):
                found = excess.may_exceed(self._spark, self.schema, strict, f.expr(source))
                added.append(found.alias(at.excess))
            return frame.select("*", *added)

        broken, reason = json_rows.is_broken(at, self.schema, strict), json_rows.reason(at, self.schema, strict)
        if schemas is not None:
            framed = list(framing.reasons(self.name, schemas))
            broken = " OR ".join([broken, *(f"coalesce({test}, false)" for test, _ in framed)])
            reason = framing.why(framed, reason)
        return Decoding(add, at.parsed, broken, reason)

    def _csv(self) -> Decoding:
        text, struct, strings = f"_{self.name}_text", f"_{self.name}_struct", f"_{self.name}_strings"
        csv = self._block.csv
        delimiter = self._spark._jvm.org.apache.spark.sql.catalyst.csv.CSVExprUtils.toDelimiterStr(csv.delimiter)
        lines = csv_rows.Lines(text, self.schema, csv, delimiter)

        def add(frame: DataFrame) -> DataFrame:
            frame = frame.selectExpr("*", f"CAST({self.name} AS STRING) AS {text}")
            return frame.selectExpr("*", f"{lines.parsed()} AS {struct}", f"{lines.strings()} AS {strings}")

        return Decoding(add, struct, lines.is_broken(struct), lines.reason(struct, strings))

    def _avro(self) -> Decoding:
        struct, schemas = f"_{self.name}_struct", self.schemas
        declared = self._declared
        avro = declared.text if declared and declared.kind == "avro" else avro_rows.avro_of(self._spark, self.schema)

        def add(frame: DataFrame) -> DataFrame:
            if schemas is None:
                return avro_rows.plain(self._spark, frame, self.name, struct, avro)
            return avro_rows.registered(self._spark, frame, self.name, struct, avro, schemas)

        return Decoding(add, struct, avro_rows.is_broken(struct), avro_rows.reason(self.name, schemas))

    def _protobuf(self) -> Decoding:
        struct, schemas, declared = f"_{self.name}_struct", self.schemas, self._declared
        assert declared is not None

        def add(frame: DataFrame) -> DataFrame:
            return protobuf_rows.decoded(self._spark, frame, self.name, struct, declared, self.schema, schemas)

        reason = protobuf_rows.reason(self.name, declared, schemas)
        return Decoding(add, struct, protobuf_rows.is_broken(struct), reason)

    def _spark_schema(self) -> Type:
        """The schema in Spark's JSON."""
        declared, jvm = self._declared, self._spark._jvm
        if declared is None:
            raise _refused(f"{self.name}: format {self._block.format} needs a schema")
        if declared.kind == "protobuf":
            return columns(protobuf.compiled(declared))
        if declared.kind == "spark":
            text = declared.text
        elif declared.kind == "ddl":
            text = jvm.org.apache.spark.sql.types.StructType.fromDDL(declared.text).json()
        else:
            avro = jvm.org.apache.avro.Schema.Parser().parse(declared.text)
            text = jvm.org.apache.spark.sql.avro.SchemaConverters.toSqlType(avro).dataType().json()
        found = json.loads(text)
        if not json_rows.is_struct(found):
            raise _refused(f"{self.name}: the schema is a {json_rows.type_name(found)}, not a record")
        return found


class Parser:
    """Parses all rows of a job."""

    def __init__(self, spark: Any, plan: Plan) -> None:
        job, self._parts = plan.job, []
        self._headers = job.source.headers
        if plan.reading is not None:
            value = Part(spark, job.value, "value", plan.value_schema, plan.value_writers)
            key = Part(spark, job.key, "key", plan.key_schema, plan.key_writers)
            self._parts = [value, key]
            taken = [name for name in value.columns if name in (*META, HEADERS, *RAW, BAD)]
            if taken:
                raise _refused(
                    f"the schema has a column {taken[0]}, which is a reserved name",
                    f"rename it: {', '.join((*META, HEADERS))} are reserved",
                )

        files = job.source.files
        self._lines = files is not None and files.format != "parquet" and bool(files.schema)
        self.can_be_bad = self._lines or any(part.schema for part in self._parts)

    def parsed(self, raw: DataFrame, *, explained: bool = True) -> DataFrame:
        """With `explained` false, bad rows have only a mark: Spark takes long to make code of what explains them."""
        if not self._parts:
            return _lines_of_files(raw) if self._lines else raw
        value, key = (part.decoding() for part in self._parts)
        shown = [f"{value.value}.{named(name)} AS {named(name)}" for name in self._parts[0].columns]
        shown = shown or [f"{value.value} AS value"]
        shown += [f"{_without_marks(key.value, self._parts[1])} AS _key", "topic AS _topic"]
        shown += ["partition AS _partition", "offset AS _offset", "timestamp AS _timestamp"]
        if self._headers:
            shown.append("headers AS _headers")
        rows = key.add(value.add(raw))
        if self.can_be_bad:
            shown += _bad_columns(value, key) if explained else [f"IF({BROKEN}, true, NULL) AS {BAD}"]
            broken = " OR ".join(part.broken for part in (value, key) if part.broken)
            rows = rows.selectExpr("*", f"{broken} AS {BROKEN}")  # of its own, so that it is found out once
        return rows.selectExpr(*shown)

    def learn(self, bad: DataFrame) -> bool:
        """Fetches unknown writer schemas. Returns whether there are new ones, so that parsing again may succeed."""
        registries = [part.schemas for part in self._parts if part.schemas is not None]
        if not registries:
            return False
        reasons = bad.where(f"startswith({BAD}.why, '{framing.UNKNOWN}')").selectExpr(f"{BAD}.why").distinct()
        ids = framing.unknown_ids([row[0] for row in reasons.collect()])
        return any([schemas.learn(ids) for schemas in registries])


def _lines_of_files(raw: DataFrame) -> DataFrame:
    why = json_rows.because("''", "'the line does not match the schema'")
    return raw.selectExpr(
        *[named(name) for name in raw.columns if name != CORRUPT],
        f"CASE WHEN {CORRUPT} IS NOT NULL THEN {why} END AS {BAD}",
        "CAST(NULL AS BINARY) AS _raw_key",
        f"CAST({CORRUPT} AS BINARY) AS _raw_value",
    )


def _without_marks(struct: str, part: Part) -> str:
    """The key's struct exactly as declared in its schema."""
    if part.schema is None:
        return struct
    members = ", ".join(f"{quoted(name)}, {struct}.{named(name)}" for name in part.columns)
    return f"named_struct({members})"


def _bad_columns(value: Decoding, key: Decoding) -> list[str]:
    whens = [f"WHEN {value.broken} THEN {value.reason}"] if value.broken else []
    if key.broken:
        in_key = "named_struct('column', concat_ws('.', '_key', nullif(r.column, '')), 'why', r.why)"
        whens.append(f"WHEN {key.broken} THEN transform(array({key.reason}), r -> {in_key})[0]")
    why = _apart(f"CASE {' '.join(whens)} END")
    return [
        f"CASE WHEN {BROKEN} THEN {why} END AS {BAD}",
        f"CASE WHEN {BROKEN} THEN key END AS _raw_key",
        f"CASE WHEN {BROKEN} THEN value END AS _raw_value",
    ]


def _apart(sql: str) -> str:
    """The same SQL in a lambda, for which Spark makes no code: as part of the loop over all rows it would make that too
    large for Java to compile."""
    return f"transform(array(0), _row -> {sql})[0]"


def with_corrupt(schema: Type) -> str:
    """The schema with all columns nullable; NOT NULL is checked separately."""
    fields = [field | {"nullable": True} for field in schema["fields"]]
    fields.append({"name": "_corrupt", "type": "string", "nullable": True, "metadata": {}})
    return json.dumps({"type": "struct", "fields": fields})


def _refused(text: str, *hints: str) -> JobFailed:
    return JobFailed(Failed(kind="schema", text=text, hints=list(hints)))
