"""The job file's types: every key, its documentation and its default.

Everything else derives from these types: reading the YAML (`loading`), the JSON Schema for editors (`schema`) and the
table of keys in docs/etl.md (`reference`). A key's description is its documentation. Rules that span several keys are
in `rules`. A Job is a parsed file with its variables filled in; nothing in it has been looked up in a cluster.

This module does without `from __future__ import annotations`: msgspec would have to evaluate each annotation from its
text, twice, at every start.
"""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct

_INT, _SHORT = 2**31 - 1, 2**15 - 1
"""The largest int and short of Java."""
Scalar: TypeAlias = str | int | float | bool
Offsets: TypeAlias = dict[str, dict[int, int]]
"""Offsets by topic and partition."""


class Key(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Base class of the job file's blocks."""


class Security(Key, frozen=True):
    protocol: Annotated[
        Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"], Meta(description="As in Kafka's own clients.")
    ] = "PLAINTEXT"
    mechanism: Annotated[
        Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"], Meta(description="The SASL mechanism to log in with.")
    ] = ""
    username: Annotated[str, Meta(description="The user to log in as.")] = ""
    password: Annotated[str, Meta(description="Best given as ${env:NAME}; it is never shown.")] = ""
    ca: Annotated[str, Meta(description="PEM file of trusted CA certificates; the system's by default.")] = ""
    cert: Annotated[str, Meta(description="PEM file of the client's certificate, for mutual TLS.")] = ""
    key: Annotated[str, Meta(description="PEM file of the client's private key.")] = ""


class Kafka(Key, frozen=True):
    cluster: Annotated[
        str, Meta(description="A kctl context. Alternatively `bootstrap`; with neither, kctl's current context.")
    ] = ""
    bootstrap: Annotated[tuple[str, ...], Meta(description="Bootstrap brokers, as host:port.")] = ()
    security: Annotated[Security | None, Meta(description="How to log in; only with `bootstrap`.")] = None
    options: Annotated[
        dict[str, Scalar],
        Meta(description="Further Kafka client settings for Spark's readers and writers."),
    ] = {}


class Files(Key, frozen=True):
    format: Annotated[Literal["parquet", "json", "csv"], Meta(description="The files' format.")]
    path: Annotated[str, Meta(description="A directory or a file, on any file system that Spark supports.")]
    schema: Annotated[
        str, Meta(description="Columns as DDL. Required for json and csv, and to resume where a run stopped.")
    ] = ""
    options: Annotated[dict[str, Scalar], Meta(description="Options for Spark's reader.")] = {}


Position: TypeAlias = str | dict[str, dict[int, int | str]]


class Source(Key, frozen=True):
    topics: Annotated[tuple[str, ...], Meta(description="Topics to read, by name.")] = ()
    pattern: Annotated[
        str, Meta(description="A regular expression; all topics whose full name matches it are read.")
    ] = ""
    partitions: Annotated[dict[str, tuple[int, ...]], Meta(description="Single partitions: {orders: [0, 1]}.")] = {}
    files: Annotated[Files | None, Meta(description="Read files instead of topics.")] = None
    start: Annotated[
        Position,
        Meta(
            description="Where to start when there is no checkpoint: earliest, latest, a time (2026-11-01T00:00:00Z), "
            "a time ago (-1h), offsets ({orders: {0: 100}}; other partitions: earliest), or group: the offsets "
            "committed by `run.group`."
        ),
    ] = "earliest"
    end: Annotated[Position, Meta(description="Where to stop, in the same forms; only in mode batch.")] = "latest"
    isolation: Annotated[
        Literal["read_committed", "read_uncommitted"],
        Meta(
            description="read_committed skips records of aborted and open transactions. Spark's own default is "
            "read_uncommitted."
        ),
    ] = "read_committed"
    on_data_loss: Annotated[
        Literal["fail", "continue"],
        Meta(
            description="What to do when records were deleted before they were read: stop the job, or count and "
            "report them and continue."
        ),
    ] = "fail"
    rows_per_batch: Annotated[int, Meta(ge=1, description="Maximum number of offsets in one micro-batch.")] = 200_000
    min_partitions: Annotated[
        int, Meta(ge=0, le=_INT, description="Minimum number of tasks to read with; 0: one per partition.")
    ] = 0
    poll_records: Annotated[
        int,
        Meta(
            ge=1,
            le=_INT,
            description="max.poll.records; Kafka's default of 500 costs two ListOffsets requests per 500 rows.",
        ),
    ] = 20_000
    headers: Annotated[bool, Meta(description="Whether the view `source` has a column `_headers`.")] = False


class SchemaFile(Key, frozen=True):
    file: Annotated[str, Meta(description="A .ddl, .json (Spark's own format or a JSON Schema), .avsc or .proto file.")]


class Registry(Key, frozen=True):
    """A schema registry that serves Confluent's HTTP API."""

    url: Annotated[str, Meta(description="The schema registry's URL.")]
    subject: Annotated[
        str,
        Meta(
            description="Reading: the subject whose latest schema defines the columns, unless `schema` does. Writing: "
            "the subject of the schema. <topic>-value by default, or -key."
        ),
    ] = ""
    username: Annotated[str, Meta(description="User for basic authentication.")] = ""
    password: Annotated[str, Meta(description="Best given as ${env:NAME}; it is never shown.")] = ""
    token: Annotated[str, Meta(description="Bearer token, instead of a user; best given as ${env:NAME}.")] = ""
    ca: Annotated[str, Meta(description="PEM file of trusted CA certificates; the system's by default.")] = ""
    cert: Annotated[str, Meta(description="PEM file of the client's certificate, for mutual TLS.")] = ""
    key: Annotated[str, Meta(description="PEM file of the client's private key.")] = ""


class SinkRegistry(Registry, frozen=True):
    """A schema registry whose schema is written."""

    subject_naming: Annotated[
        Literal["topic", "record", "topic-record"],
        Meta(
            description="The subject, unless it is given: <topic>-value, the record's full name, or <topic>-<record>."
        ),
    ] = "topic"
    auto_register: Annotated[
        bool,
        Meta(
            description="Register `schema` as the subject's next version, if the registry finds it compatible. "
            "Otherwise it has to be there."
        ),
    ] = False


class Csv(Key, frozen=True):
    delimiter: Annotated[str, Meta(min_length=1, description="The column separator.")] = ","
    header: Annotated[bool, Meta(description="For files: whether the first line holds the column names.")] = False
    null: Annotated[str, Meta(description="The text that stands for null.")] = ""


class BadRows(Key, frozen=True):
    action: Annotated[
        Literal["fail", "drop", "dead_letter"],
        Meta(
            description="What happens to a row that cannot be parsed: it stops the job, is dropped and counted, or "
            "goes to a dead letter topic."
        ),
    ] = "fail"
    topic: Annotated[str, Meta(description="The dead letter topic; it must exist.")] = ""
    max: Annotated[
        Annotated[int, Meta(ge=0)] | None, Meta(description="Stop the job once a run has met more bad rows than this.")
    ] = None
    max_ratio: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | None,
        Meta(description="Stop the job once more than this fraction of a run's rows is bad."),
    ] = None


class Format(Key, frozen=True):
    """The encoding of a record's value or key."""

    format: Annotated[
        Literal["json", "avro", "protobuf", "csv", "text", "raw"],
        Meta(description="raw: the bytes as they are; text: UTF-8."),
    ]
    schema: Annotated[
        str | SchemaFile | None, Meta(description="Columns as DDL (id BIGINT, amount DECIMAL(12,2)), or {file: …}.")
    ] = None
    message: Annotated[
        str, Meta(description="protobuf: which message of the schema, shop.Order; its first one by default.")
    ] = ""
    mode: Annotated[
        Literal["strict", "lenient"],
        Meta(
            description="json: strict treats a field that is not in the schema as an error; lenient ignores it, as "
            "json with a registry always does."
        ),
    ] = "strict"
    registry: Annotated[
        Registry | None,
        Meta(
            description="avro, protobuf, json: each record begins with five bytes that name its writer's schema in "
            "this registry. Avro is read with that."
        ),
    ] = None
    csv: Annotated[Csv, Meta(description="csv: the format of lines.")] = Csv()
    bad_rows: Annotated[
        BadRows,
        Meta(description="Under `value` only: what happens to rows whose value or key cannot be parsed."),
    ] = BadRows()


class Step(Key, frozen=True):
    name: Annotated[
        str, Meta(pattern="^[A-Za-z][A-Za-z0-9_]*$", description="The name of the view that later steps read.")
    ]
    sql: Annotated[str, Meta(description="A SELECT over `source`, lookups and earlier steps.")] = ""
    file: Annotated[str, Meta(description="A file with the SQL, instead of `sql`.")] = ""


class Watermark(Key, frozen=True):
    column: Annotated[str, Meta(description="A TIMESTAMP column of `source`.")]
    delay: Annotated[str, Meta(description="How late a row may arrive: 10 minutes.")]


class Deduplicate(Key, frozen=True):
    keys: Annotated[
        tuple[str, ...],
        Meta(
            min_length=1, description="Rows with equal values in these columns are duplicates; the first one is kept."
        ),
    ]
    within: Annotated[
        str,
        Meta(
            description="How far apart duplicates may be: 1 hour. Requires a watermark, whose delay is then at "
            "least as long. "
            "By default, duplicates are found within one batch only."
        ),
    ] = ""


class Lookup(Key, frozen=True):
    format: Annotated[Literal["parquet", "json", "csv", "jdbc"], Meta(description="The format to read.")]
    path: Annotated[str, Meta(description="The file or directory to read.")] = ""
    schema: Annotated[str, Meta(description="Columns as DDL; required for json and csv.")] = ""
    options: Annotated[dict[str, Scalar], Meta(description="Options for Spark's reader.")] = {}


class Transform(Key, frozen=True):
    sql: Annotated[str, Meta(description="A SELECT over the view `source`.")] = ""
    file: Annotated[str, Meta(description="A file with the SQL, instead of `sql`.")] = ""
    steps: Annotated[
        tuple[Step, ...], Meta(description="Several SELECTs instead of `sql`, in order; the last one is the result.")
    ] = ()
    watermark: Annotated[
        Watermark | None, Meta(description="How long windows and deduplication wait for late rows.")
    ] = None
    deduplicate: Annotated[Deduplicate | None, Meta(description="Drop duplicate rows before the SQL runs.")] = None
    lookups: Annotated[dict[str, Lookup], Meta(description="Further views for the SQL, read once at the start.")] = {}


class Create(Key, frozen=True):
    partitions: Annotated[int, Meta(ge=1, le=_INT, description="Number of partitions.")]
    replication: Annotated[
        int, Meta(ge=-1, le=_SHORT, description="Replication factor; -1: the cluster's default.")
    ] = -1
    config: Annotated[dict[str, Scalar], Meta(description="Topic settings.")] = {}


class TopicSink(Key, frozen=True):
    topic: Annotated[str, Meta(description="The topic to write to.")]
    kafka: Annotated[Kafka | None, Meta(description="The topic's cluster, if it is not the source's.")] = None
    format: Annotated[
        Literal["json", "avro", "protobuf", "csv", "text", "raw"],
        Meta(description="How the columns are encoded; text and raw write only the column `value`."),
    ] = "json"
    schema: Annotated[
        str | SchemaFile | None,
        Meta(
            description="avro, protobuf: the schema to write; json: its JSON Schema, with a registry. With a registry, "
            "its subject's latest by default."
        ),
    ] = None
    message: Annotated[
        str, Meta(description="protobuf: which message of the schema, shop.Order; its first one by default.")
    ] = ""
    registry: Annotated[
        SinkRegistry | None,
        Meta(description="avro, protobuf, json: records begin with five bytes that name the schema in this registry."),
    ] = None
    key: Annotated[str, Meta(description="The column to use as the record's key; it also stays in the value.")] = ""
    partition: Annotated[str, Meta(description="The INT column that holds the partition number.")] = ""
    headers: Annotated[str, Meta(description="The column that holds the headers, of the type of `_headers`.")] = ""
    acks: Annotated[
        Literal["all", "1", "0"], Meta(description="Which replicas must have a record before it counts as written.")
    ] = "all"
    delivery: Annotated[
        Literal["at-least-once", "exactly-once"],
        Meta(
            description="exactly-once: each batch is one transaction, written by the driver alone; for readers with "
            "isolation.level=read_committed."
        ),
    ] = "at-least-once"
    options: Annotated[dict[str, Scalar], Meta(description="Further Kafka producer settings.")] = {}
    create: Annotated[
        Create | None,
        Meta(description="Create the topic if it does not exist; without this, a missing topic is an error."),
    ] = None
    source_header: Annotated[
        bool,
        Meta(
            description="Add the header `source` = topic/partition/offset, by which readers can detect duplicates. The "
            "SQL has to select `_topic`, `_partition` and `_offset`."
        ),
    ] = False


class JdbcSink(Key, frozen=True):
    url: Annotated[str, Meta(description="jdbc:postgresql://host/db, jdbc:sqlite:file.db, …")]
    table: Annotated[str, Meta(description="The table to write to; it must exist.")]
    user: Annotated[str, Meta(description="The database user.")] = ""
    password: Annotated[str, Meta(description="Best given as ${env:NAME}.")] = ""
    driver_jar: Annotated[
        str, Meta(description="The database's JDBC driver. For PostgreSQL and SQLite it is downloaded by default.")
    ] = ""
    mode: Annotated[
        Literal["append", "upsert"], Meta(description="upsert: a row replaces the one with the same `keys`.")
    ] = "append"
    keys: Annotated[tuple[str, ...], Meta(description="upsert: the columns of a unique index.")] = ()
    batch: Annotated[int, Meta(ge=1, le=_INT, description="Rows per statement.")] = 1000
    options: Annotated[dict[str, Scalar], Meta(description="Options for Spark's JDBC writer.")] = {}


class Catalog(Key, frozen=True):
    type: Annotated[
        Literal["hadoop", "jdbc", "rest"],
        Meta(
            description="Where tables are looked up. hadoop: in the directories below `sink.path`; jdbc: in a "
            "database; rest: at a server with Iceberg's REST API."
        ),
    ] = "hadoop"
    name: Annotated[
        str,
        Meta(
            pattern="^[A-Za-z][A-Za-z0-9_]*$",
            description="The catalog's name in Spark's SQL; in a jdbc catalog's database, tables are found by it.",
        ),
    ] = "lake"
    url: Annotated[
        str, Meta(description="jdbc: jdbc:postgresql://host/db, jdbc:sqlite:file.db, …; rest: https://host/path.")
    ] = ""
    user: Annotated[str, Meta(description="jdbc: the database user; rest: user for basic authentication.")] = ""
    password: Annotated[str, Meta(description="Best given as ${env:NAME}; it is never shown.")] = ""
    token: Annotated[str, Meta(description="rest: bearer token; best given as ${env:NAME}.")] = ""
    credential: Annotated[
        str, Meta(description="rest: OAuth2 client, as id:secret, which gets a token; best given as ${env:NAME}.")
    ] = ""
    warehouse: Annotated[
        str, Meta(description="rest: which of the server's warehouses; it may have only one, or a default.")
    ] = ""
    options: Annotated[dict[str, Scalar], Meta(description="Further properties of the catalog.")] = {}


class IcebergSink(Key, frozen=True):
    table: Annotated[str, Meta(description="The table, with its namespace: shop.orders. Created if it is missing.")]
    catalog: Annotated[Catalog, Meta(description="The catalog that has the table.")] = Catalog()


class ConsoleSink(Key, frozen=True):
    limit: Annotated[int, Meta(ge=1, le=_INT, description="Maximum number of rows to show per batch.")] = 20
    vertical: Annotated[bool, Meta(description="Show one line per column.")] = False


class Compact(Key, frozen=True):
    after: Annotated[
        Literal["run", "never"], Meta(description="When to merge small files; `kctl etl compact` does so at any time.")
    ] = "never"
    min_files: Annotated[
        int, Meta(ge=2, description="Merge only in directories with at least this many small files.")
    ] = 8
    expire_after: Annotated[
        str,
        Meta(
            description="delta, iceberg: also remove, for good, versions of the table that are older than this (30d) "
            "and files that only they need, or nobody. By default nothing is removed."
        ),
    ] = ""


class Sink(Key, frozen=True):
    type: Annotated[
        Literal["parquet", "json", "csv", "topic", "jdbc", "console", "delta", "iceberg", "none"],
        Meta(
            description="none: rows are only counted. iceberg and delta need `kctl etl jars fetch --with iceberg`, or "
            "delta, once."
        ),
    ]
    path: Annotated[
        str,
        Meta(
            description="parquet, json, csv, delta: the target directory. iceberg: the warehouse, which has all "
            "tables; with a rest catalog the server decides."
        ),
    ] = ""
    partition_by: Annotated[
        tuple[str, ...],
        Meta(
            description="Columns that become directories, such as day=2026-11-01; those of a new table for delta and "
            "iceberg."
        ),
    ] = ()
    mode: Annotated[
        Literal["append", "overwrite", "overwrite_partitions", "upsert", "error"],
        Meta(
            description="What happens to existing data. upsert (delta, iceberg): a row replaces the one with the same "
            "`keys`. Others than append and upsert require mode batch or output complete; of delta and iceberg also "
            "overwrite_partitions does not."
        ),
    ] = "append"
    keys: Annotated[tuple[str, ...], Meta(description="upsert: the columns that identify a row.")] = ()
    compression: Annotated[
        Literal["", "none", "snappy", "gzip", "zstd", "lz4"],
        Meta(description="By default, zstd for parquet and iceberg, and none for json and csv."),
    ] = ""
    csv: Annotated[Csv, Meta(description="csv: the format of lines.")] = Csv()
    target_file_mb: Annotated[int, Meta(ge=1, description="Target size of a file, in MB.")] = 128
    compact: Annotated[Compact, Meta(description="Compaction of small files.")] = Compact()
    options: Annotated[dict[str, Scalar], Meta(description="Options for Spark's writer.")] = {}
    schema_changes: Annotated[
        Literal["refuse", "add_columns"],
        Meta(
            description="delta, iceberg: what happens if the result has columns that the table lacks: the job stops, "
            "or they are added to the table."
        ),
    ] = "refuse"
    topic: Annotated[TopicSink | None, Meta(description="Settings for type topic.")] = None
    jdbc: Annotated[JdbcSink | None, Meta(description="Settings for type jdbc.")] = None
    iceberg: Annotated[IcebergSink | None, Meta(description="Settings for type iceberg.")] = None
    console: Annotated[ConsoleSink, Meta(description="Settings for type console.")] = ConsoleSink()


class S3(Key, frozen=True):
    endpoint: Annotated[
        str,
        Meta(
            description="URL of another object store than Amazon's, such as http://127.0.0.1:9000; the environment's "
            "AWS_ENDPOINT_URL by default."
        ),
    ] = ""
    region: Annotated[str, Meta(description="The region of the buckets. With an `endpoint`, us-east-1 by default.")] = (
        ""
    )
    path_style: Annotated[
        bool,
        Meta(description="With an `endpoint`: whether buckets are in the path of URLs, and not in the host's name."),
    ] = True


class StopAfter(Key, frozen=True):
    rows: Annotated[int, Meta(ge=0, description="Stop after the batch that reaches this many rows; 0: never.")] = 0
    time: Annotated[str, Meta(description="Stop after this time, such as 10m; 0s: never.")] = "0s"
    idle: Annotated[str, Meta(description="Stop when no rows have arrived for this time; 0s: never.")] = "0s"


class Retries(Key, frozen=True):
    max: Annotated[int, Meta(ge=0, description="How often the query is restarted after a transient error.")] = 3
    backoff: Annotated[str, Meta(description="How long to wait before the first retry; doubled each time.")] = "10s"


Mode: TypeAlias = Literal["batch", "available-now", "continuous"]


class Run(Key, frozen=True):
    mode: Annotated[
        Mode,
        Meta(
            description="batch: everything from start to end, in every run. available-now: what is new since the "
            "last run. "
            "continuous: without end, in micro-batches."
        ),
    ] = "available-now"
    every: Annotated[str, Meta(description="continuous: the interval between batches; 0s: none.")] = "0s"
    output: Annotated[
        Literal["append", "update", "complete"],
        Meta(
            description="Which groups of an aggregate are written: finished ones once, those changed by the batch, "
            "or all of them every time."
        ),
    ] = "append"
    checkpoint: Annotated[
        str, Meta(description="The checkpoint directory; ${KAFKAD_ETL_STATE:-./.etl}/<name> by default.")
    ] = ""
    group: Annotated[
        str | Literal[False],
        Meta(description="The consumer group that shows the progress; etl-<name> by default, false for none."),
    ] = ""
    stop_after: Annotated[StopAfter, Meta(description="When a run stops by itself.")] = StopAfter()
    retries: Annotated[Retries, Meta(description="What happens after transient errors.")] = Retries()
    listen: Annotated[str, Meta(description="host:port on which to serve metrics to Prometheus.")] = ""
    textfile: Annotated[
        str,
        Meta(description="Directory of Prometheus' node exporter, for a file with metrics once the run has ended."),
    ] = ""


class Spark(Key, frozen=True):
    master: Annotated[str, Meta(description="local[*], yarn, k8s://…, spark://….")] = "local[*]"
    driver_memory: Annotated[str, Meta(description="The driver's heap size.")] = "1g"
    executor_memory: Annotated[str, Meta(description="Each executor's heap size.")] = "1g"
    jars: Annotated[tuple[str, ...], Meta(description="Additional jars.")] = ()
    conf: Annotated[dict[str, Scalar], Meta(description="Spark settings.")] = {}


class Check(Key, frozen=True):
    sql: Annotated[
        str, Meta(description="A SELECT of one value; the view `out` holds the rows the batch is about to write.")
    ]
    expect: Annotated[Any, Meta(description="The expected value.")]
    on_fail: Annotated[
        Literal["fail", "warn"], Meta(description="fail: the batch is not written and the job stops.")
    ] = "fail"


class Job(Key, frozen=True):
    version: Annotated[Literal[1], Meta(description="Version of the job file's format.")]
    name: Annotated[
        str,
        Meta(
            pattern="^[a-z0-9-]{1,64}$",
            description="The job's name, also used for its checkpoint, Spark application and consumer group.",
        ),
    ]
    source: Annotated[Source, Meta(description="Where rows come from.")]
    sink: Annotated[Sink, Meta(description="Where rows go.")]
    description: Annotated[str, Meta(description="A description for people.")] = ""
    vars: Annotated[
        dict[str, Scalar], Meta(description="Variables, used as ${name}; --var name=value overrides them.")
    ] = {}
    kafka: Annotated[Kafka, Meta(description="The cluster.")] = Kafka()
    key: Annotated[Format, Meta(description="How record keys are decoded, into `_key`.")] = Format(format="text")
    value: Annotated[Format, Meta(description="How record values are decoded.")] = Format(format="raw")
    transform: Annotated[Transform, Meta(description="What to do with the rows.")] = Transform()
    s3: Annotated[
        S3,
        Meta(
            description="The object store of paths s3a://. Keys come from the environment: AWS_ACCESS_KEY_ID, "
            "AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN."
        ),
    ] = S3()
    run: Annotated[Run, Meta(description="How the job runs.")] = Run()
    spark: Annotated[Spark, Meta(description="Settings of Spark itself.")] = Spark()
    checks: Annotated[tuple[Check, ...], Meta(description="Conditions that must hold before rows are written.")] = ()
