"""Sink `topic`: writes each row as a record.

json contains every column of every row, null ones included (Spark alone would omit them), and times in microseconds.
The columns named by `partition` and `headers`, and with `source_header` also `_topic`, `_partition` and `_offset`,
describe the record and are not part of its value. text and raw write the column `value`, whose null is a tombstone;
other columns would be lost and are refused, except the source's own, such as `_offset`.

At least once: Spark's writer has no transactions, so a batch repeated after a crash is written again. With the header
`source`, as topic/partition/offset, readers can detect duplicates. `delivery: exactly-once` is in `transactional`.
"""

from __future__ import annotations

import json
from typing import Any

from kafkad_etl.driver import protobuf
from kafkad_etl.driver.counting import counted
from kafkad_etl.driver.failures import first_sentence, sending_to, trace_of
from kafkad_etl.driver.sinks.text_formats import TIMES, column, csv_mistake, csv_options, nested
from kafkad_etl.driver.source import framing
from kafkad_etl.driver.terms import BatchId, DataFrame, JobFailed, Written
from kafkad_etl.facts import HEADERS_FROM, POSITION, PRODUCER
from kafkad_etl.job import TopicSink as Settings
from kafkad_etl.messages import Client, Failed, Plan, Schema
from kafkad_etl.registry import protobuf as protobuf_schemas
from kafkad_etl.registry.json_schema import JsonSchema
from kafkad_etl.sql_text import casting, named

OPTIONS = "sink.topic.options"
HEADERS = "array<struct<key:string,value:binary>>"
SERIALIZERS = dict.fromkeys(
    ("key.serializer", "value.serializer"), "org.apache.kafka.common.serialization.ByteArraySerializer"
)
NULL_REQUIRED = "a row lacks a property that the JSON Schema of sink.topic requires: its column is null"


class TopicSink:
    def __init__(self, spark: Any, plan: Plan, settings: Settings) -> None:
        self._spark = spark
        self._plan = plan
        self._settings = settings
        self._records = Records(spark, plan, settings)

    def prepare(self, columns: list[tuple[str, str]]) -> None:
        self._records.check(columns)

    def finished(self, batch: BatchId) -> Written | None:
        return None

    def write(self, rows: DataFrame, batch: BatchId) -> Written:
        """Calls the connector itself: a DataFrame's writer would either show the login in the plan of its query, which
        event logs and Spark's web page have, or not tell observed counts."""
        jvm = self._spark._jvm
        settings = producer(self._plan.sink_client, self._settings) | SERIALIZERS
        records = counted(rows.select(*self._records.of(rows)))
        execution = records.rows._jdf.queryExecution()
        topic = jvm.scala.Option.apply(self._settings.topic)
        with sending_to(self._settings.topic, OPTIONS):
            jvm.org.apache.spark.sql.kafka010.KafkaWriter.write(execution, settings, topic)
        return Written(records.total_of(execution))


class Records:
    """Makes records of a job's rows: the columns `value`, and as far as the job has them `key`, `partition` and
    `headers`."""

    def __init__(self, spark: Any, plan: Plan, settings: Settings) -> None:
        self._spark = spark
        self._plan = plan
        self._settings = settings

    def check(self, columns: list[tuple[str, str]]) -> None:
        """Fails for rows that no record can be made of."""
        failed = mistake(self._settings, columns) or schema_mistake(self._settings, self._plan.sink_schema)
        if failed is not None:
            raise JobFailed(failed)
        if self._settings.format == "avro":
            self._need_avro()
        if self._plan.sink_schema is not None:
            self._need_fitting(columns, self._plan.sink_schema)

    def of(self, rows: DataFrame) -> list[Any]:
        from pyspark.sql import functions

        settings = self._settings
        types = dict(rows.dtypes)
        columns = [self._value(rows).alias("value")]
        if settings.key:
            columns.append(_key(settings.key, types[settings.key]).alias("key"))
        if settings.partition:
            columns.append(self._partition(settings).alias("partition"))
        headers = [column(settings.headers)] if settings.headers else []
        if settings.source_header:
            position = functions.concat_ws("/", *map(functions.col, POSITION)).cast("binary")
            pair = functions.struct(functions.lit("source").alias("key"), position.alias("value"))
            nothing = functions.array().cast(HEADERS)
            headers = [functions.coalesce(it, nothing) for it in headers] + [functions.array(pair)]
        if headers:
            columns.append(functions.concat(*headers).alias("headers"))
        return columns

    def _partition(self, settings: Settings) -> Any:
        """The partition column. A partition that the topic lacks fails the batch at once; Kafka's client would wait
        a minute for it."""
        from pyspark.sql import functions

        named, there = column(settings.partition).cast("int"), self._plan.sink_partitions
        if not there:
            return named
        ending = f', and topic "{settings.topic}" had {there} when the run began'
        text = functions.concat(functions.lit("a row names partition "), named, functions.lit(ending))
        return functions.when((named < 0) | (named >= there), functions.raise_error(text)).otherwise(named)

    def _value(self, rows: DataFrame) -> Any:
        from pyspark.sql import functions

        settings = self._settings
        if settings.format in ("text", "raw"):
            return functions.col("value")
        row = functions.struct(*map(column, value_columns(settings, rows.columns)))
        if settings.format == "json" and self._plan.sink_schema_id is not None:
            return self._framed(self._json_of_schema(row, rows))
        if settings.format == "json":
            return functions.to_json(row, {"ignoreNullFields": "false", **TIMES})
        if settings.format == "csv":
            return functions.to_csv(row, csv_options(self._plan.job.sink.csv))
        schema = self._plan.sink_schema
        assert schema is not None
        if settings.format == "protobuf":
            index = protobuf_schemas.index_bytes(schema.files, schema.message)[0]
            return self._framed(protobuf.written(self._spark, schema, row, _struct(row, rows)), index)
        from pyspark.sql.avro.functions import to_avro

        return self._framed(to_avro(row, schema.text))

    def _json_of_schema(self, row: Any, rows: DataFrame) -> Any:
        """JSON as the JSON Schema wants its nulls: written, or left out where one of the columns must not be null. A
        null that is required fails the batch."""
        from pyspark.sql import functions

        struct = _struct(row, rows)
        schema = self._json_schema()
        if schema.writes_nulls(struct):
            return functions.to_json(row, {"ignoreNullFields": "false", **TIMES}).cast("binary")
        value = functions.to_json(row, {"ignoreNullFields": "true", **TIMES}).cast("binary")
        tests = list(schema.lacking(struct))
        fails = functions.raise_error(functions.lit(NULL_REQUIRED)).cast("binary")
        return functions.when(functions.expr(" OR ".join(tests)), fails).otherwise(value) if tests else value

    def _json_schema(self) -> JsonSchema:
        assert self._plan.sink_schema is not None
        return JsonSchema(json.loads(self._plan.sink_schema.text))

    def _framed(self, value: Any, index: bytes = b"") -> Any:
        """The value after the five bytes that name its schema in a registry, if there is one, and for Protobuf those of
        the message in it."""
        from pyspark.sql import functions

        number = self._plan.sink_schema_id
        return value if number is None else functions.concat(functions.lit(framing.prefix(number) + index), value)

    def _need_fitting(self, columns: list[tuple[str, str]], schema: Schema) -> None:
        """Fails for columns that the schema does not describe. Spark would find out with the first row, or never."""
        jvm, types = self._spark._jvm, dict(columns)
        names = value_columns(self._settings, list(types))
        try:
            ddl = ", ".join(f"{named(name)} {types[name]}" for name in names)
            struct = jvm.org.apache.spark.sql.types.StructType.fromDDL(ddl)
            if schema.kind == "avro":
                avro = jvm.org.apache.avro.Schema.Parser().parse(schema.text)
                jvm.org.apache.spark.sql.avro.AvroSerializer(struct, avro, False)
                return
        except Exception as error:
            raise JobFailed(_unfitting(first_sentence(trace_of(error)[-1].text), schema)) from error
        kind = json.loads(struct.json())
        if schema.kind == "protobuf":
            faults = list(protobuf_schemas.faults(protobuf.compiled(schema), kind))
        else:
            faults = list(JsonSchema(json.loads(schema.text)).faults(kind))
        if faults:
            raise JobFailed(_unfitting("; ".join(faults), schema))

    def _need_avro(self) -> None:
        try:
            self._spark._jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(
                "org.apache.spark.sql.avro.AvroSerializer"
            )
        except Exception as error:
            raise JobFailed(_no_avro()) from error


def _struct(row: Any, rows: DataFrame) -> Any:
    """The type of a column in Spark's JSON."""
    return rows.select(row.alias("row")).schema.jsonValue()["fields"][0]["type"]


def producer(client: Client, settings: Settings) -> Client:
    """Producer settings; the job's options override our defaults."""
    options = {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.options.items()
    }
    return {**PRODUCER, **client, "acks": settings.acks, **options}


def value_columns(settings: Settings, names: list[str]) -> list[str]:
    about = {settings.partition, settings.headers, *(POSITION if settings.source_header else ())}
    return [name for name in names if name not in about]


def mistake(settings: Settings, columns: list[tuple[str, str]]) -> Failed | None:
    types = dict(columns)
    has = f"the result has {', '.join(f'{name} {kind}' for name, kind in columns)}"
    wanted = {
        "key": ((settings.key,), None),
        "partition": ((settings.partition,), ("int", "smallint", "tinyint")),
        "headers": ((settings.headers,), (HEADERS,)),
        "source_header": (POSITION if settings.source_header else (), None),
    }
    for option, (names, kinds) in wanted.items():
        for name in filter(None, names):
            if name not in types:
                return Failed(kind="schema", text=f"sink.topic.{option} needs the column {name}; {has}")
            if kinds and types[name] not in kinds:
                text = f"sink.topic.{option}: the column {name} is {types[name]} but must be {kinds[0]}"
                return Failed(kind="schema", text=text, hints=_remedy(option, name, types[name], kinds[0]))
    return _value_mistake(settings, columns, has)


def _remedy(option: str, name: str, kind: str, wanted: str) -> list[str]:
    return [f"select {HEADERS_FROM}"] if option == "headers" else casting(name, kind, wanted)


def _value_mistake(settings: Settings, columns: list[tuple[str, str]], has: str) -> Failed | None:
    names = value_columns(settings, [name for name, _ in columns])
    if not names:
        return Failed(kind="schema", text=f"no column is left for the record's value; {has}")
    if settings.format in ("text", "raw"):
        return _one_value_mistake(settings, columns, has)
    if settings.format == "csv":
        return csv_mistake([(name, kind) for name, kind in columns if name in names])
    return None


def _one_value_mistake(settings: Settings, columns: list[tuple[str, str]], has: str) -> Failed | None:
    types = dict(columns)
    kinds = ("string",) if settings.format == "text" else ("binary", "string")
    if types.get("value") not in kinds:
        text = f"sink.topic.format {settings.format} needs a column `value` of type {' or '.join(kinds)}; {has}"
        return Failed(kind="schema", text=text, hints=["SELECT … AS value in the SQL"])
    used = {"value", settings.key, settings.partition, settings.headers}
    lost = [name for name in types if name not in used and not name.startswith("_")]
    if lost:
        text = (
            f"sink.topic.format {settings.format} writes only the column `value`; these would be lost: "
            f"{', '.join(lost)}"
        )
        return Failed(kind="schema", text=text, hints=["drop them in the SQL, or use format: json"])
    return None


def schema_mistake(settings: Settings, schema: Schema | None) -> Failed | None:
    if settings.format != "avro" or (schema is not None and schema.kind == "avro"):
        return None
    return Failed(
        kind="schema",
        text="sink.topic.format avro needs an Avro schema",
        hints=["sink.topic.schema: {file: orders.avsc}, or sink.topic.registry: {url: …}"],
    )


def _key(name: str, kind: str) -> Any:
    """The key: text and bytes as they are, nested types as JSON, anything else as text."""
    from pyspark.sql import functions

    if kind in ("string", "binary"):
        return column(name)
    return functions.to_json(column(name), TIMES) if nested(kind) else column(name).cast("string")


def _unfitting(why: str, schema: Schema) -> Failed:
    kind = {"avro": "Avro schema", "protobuf": "Protobuf schema"}.get(schema.kind, "JSON Schema")
    hints = ["name the columns in the SQL as the schema does, and CAST them to its types"]
    return Failed(kind="schema", text=f"the columns do not fit the {kind} of sink.topic: {why}", hints=hints)


def _no_avro() -> Failed:
    return Failed(
        kind="environment",
        text="the jar org.apache.spark:spark-avro_2.13 of Spark's version is missing",
        hints=["run kctl etl jars fetch, or set spark.jars: [/path/to/spark-avro.jar]"],
    )
