"""The job file, key by key: what it may say, what each key means, and what holds when it is silent.

Everything else derives from these types: reading the YAML (`loading`), the JSON Schema for editors (`schema`) and the
table of keys in docs/etl.md (`reference`). A key's text is its documentation. Rules that concern several keys at once
are in `rules`. A Job is what the file means: variables filled in, but nothing looked up in any cluster.

Annotations are evaluated here, as everywhere without `from __future__ import annotations`: msgspec would have to
compile each of them from its text, twice, at every start.
"""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct

Scalar: TypeAlias = str | int | float | bool
Offsets: TypeAlias = dict[str, dict[int, int]]
"""Topic to partition to offset."""


class Key(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A block of the job file."""


class Security(Key, frozen=True):
    protocol: Annotated[
        Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"], Meta(description="As in Kafka's clients.")
    ] = "PLAINTEXT"
    mechanism: Annotated[
        Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"], Meta(description="How to log in, with SASL.")
    ] = ""
    username: Annotated[str, Meta(description="Who logs in.")] = ""
    password: Annotated[str, Meta(description="Best as ${env:NAME}; shown nowhere.")] = ""
    ca: Annotated[
        str, Meta(description="PEM file with the authorities that are trusted; the system's if not given.")
    ] = ""
    cert: Annotated[str, Meta(description="PEM file with the client's certificate, for mutual TLS.")] = ""
    key: Annotated[str, Meta(description="PEM file with the client's key.")] = ""


class Kafka(Key, frozen=True):
    cluster: Annotated[str, Meta(description="A kctl context. Or `bootstrap`; or neither: kctl's current context.")] = (
        ""
    )
    bootstrap: Annotated[tuple[str, ...], Meta(description="Brokers to begin with, as host:port.")] = ()
    security: Annotated[Security | None, Meta(description="With `bootstrap`: how to log in.")] = None
    options: Annotated[
        dict[str, Scalar],
        Meta(description="Settings of Kafka's client for Spark's readers and writers, by their names."),
    ] = {}


class Files(Key, frozen=True):
    format: Annotated[Literal["parquet", "json", "csv"], Meta(description="What the files are.")]
    path: Annotated[str, Meta(description="A directory or a file; any file system that Spark knows.")]
    schema: Annotated[
        str, Meta(description="Columns as DDL. Needed for json and csv, and to go on where a run stopped.")
    ] = ""
    options: Annotated[dict[str, Scalar], Meta(description="Options of Spark's reader.")] = {}


Position: TypeAlias = str | dict[str, dict[int, int | str]]


class Source(Key, frozen=True):
    topics: Annotated[tuple[str, ...], Meta(description="Topics by name.")] = ()
    pattern: Annotated[str, Meta(description="All topics whose whole name this regular expression matches.")] = ""
    partitions: Annotated[dict[str, tuple[int, ...]], Meta(description="Single partitions: {orders: [0, 1]}.")] = {}
    files: Annotated[Files | None, Meta(description="Files instead of topics.")] = None
    start: Annotated[
        Position,
        Meta(
            description="Where to begin while there is no checkpoint: earliest, latest, a time (2026-11-01T00:00:00Z), "
            "a time ago (-1h), offsets ({orders: {0: 100}}; others: earliest), or group: where `run.group` stands."
        ),
    ] = "earliest"
    end: Annotated[Position, Meta(description="Where to stop, in the same forms; mode batch only.")] = "latest"
    isolation: Annotated[
        Literal["read_committed", "read_uncommitted"],
        Meta(
            description="Whether records of aborted and open transactions are left out. Spark's own default is not to."
        ),
    ] = "read_committed"
    on_data_loss: Annotated[
        Literal["fail", "continue"],
        Meta(description="When records were deleted before they were read: stop, or count them, say so and go on."),
    ] = "fail"
    rows_per_batch: Annotated[int, Meta(ge=1, description="At most this many offsets in one micro-batch.")] = 200_000
    min_partitions: Annotated[
        int, Meta(ge=0, description="Read with at least so many tasks; 0: one for each partition.")
    ] = 0
    poll_records: Annotated[
        int, Meta(ge=1, description="max.poll.records; Kafka's 500 costs two ListOffsets for every 500 rows.")
    ] = 20_000
    headers: Annotated[bool, Meta(description="Whether the view `source` has `_headers`.")] = False


class SchemaFile(Key, frozen=True):
    file: Annotated[str, Meta(description="A .ddl, .json (Spark's or a JSON Schema's object) or .avsc file.")]


class Registry(Key, frozen=True):
    url: Annotated[str, Meta(description="Where the schema registry is.")]
    subject: Annotated[str, Meta(description="Whose newest schema the columns have; <topic>-value if not given.")] = ""
    username: Annotated[str, Meta(description="Basic authentication.")] = ""
    password: Annotated[str, Meta(description="Best as ${env:NAME}.")] = ""


class Csv(Key, frozen=True):
    delimiter: Annotated[str, Meta(min_length=1, description="Between columns.")] = ","
    header: Annotated[bool, Meta(description="Files: whether the first line names the columns.")] = False
    null: Annotated[str, Meta(description="What stands for no value.")] = ""


class BadRows(Key, frozen=True):
    action: Annotated[
        Literal["fail", "drop", "dead_letter"],
        Meta(
            description="What becomes of a row that does not parse: it stops the job, is counted, or goes to a topic."
        ),
    ] = "fail"
    topic: Annotated[str, Meta(description="The dead letter topic; it has to exist.")] = ""
    max: Annotated[
        Annotated[int, Meta(ge=0)] | None, Meta(description="Stop the job when a run met more bad rows than this.")
    ] = None
    max_ratio: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | None,
        Meta(description="Stop the job when more than this part of a run's rows is bad."),
    ] = None


class Format(Key, frozen=True):
    """How bytes become columns: the same for a record's value and its key."""

    format: Annotated[Literal["json", "avro", "csv", "text", "raw"], Meta(description="raw: the bytes; text: UTF-8.")]
    schema: Annotated[
        str | SchemaFile | None, Meta(description="Columns as DDL: id BIGINT, amount DECIMAL(12,2). Or {file: …}.")
    ] = None
    mode: Annotated[
        Literal["strict", "lenient"],
        Meta(description="json: whether a field that the schema does not have is an error."),
    ] = "strict"
    registry: Annotated[
        Registry | None, Meta(description="avro: values begin with the registry's five bytes, and it has the schemas.")
    ] = None
    csv: Annotated[Csv, Meta(description="csv: how lines are written.")] = Csv()
    bad_rows: Annotated[
        BadRows,
        Meta(description="Of `value` only: what becomes of rows whose value or key does not parse."),
    ] = BadRows()


class Step(Key, frozen=True):
    name: Annotated[str, Meta(pattern="^[A-Za-z][A-Za-z0-9_]*$", description="The view that later steps read.")]
    sql: Annotated[str, Meta(description="A SELECT over `source`, lookups and earlier steps.")] = ""
    file: Annotated[str, Meta(description="Or a file with it.")] = ""


class Watermark(Key, frozen=True):
    column: Annotated[str, Meta(description="A TIMESTAMP column of `source`.")]
    delay: Annotated[str, Meta(description="How late a row may be: 10 minutes.")]


class Deduplicate(Key, frozen=True):
    keys: Annotated[
        tuple[str, ...], Meta(min_length=1, description="Rows with equal values here are one row; the first stays.")
    ]
    within: Annotated[
        str,
        Meta(
            description="How far apart they may be: 1 hour. Needs a watermark, which then waits at least as long. "
            "None: within a batch."
        ),
    ] = ""


class Lookup(Key, frozen=True):
    format: Annotated[Literal["parquet", "json", "csv", "jdbc"], Meta(description="What it is read as.")]
    path: Annotated[str, Meta(description="A file or directory.")] = ""
    schema: Annotated[str, Meta(description="Columns as DDL, for json and csv.")] = ""
    options: Annotated[dict[str, Scalar], Meta(description="Options of Spark's reader.")] = {}


class Transform(Key, frozen=True):
    sql: Annotated[str, Meta(description="A SELECT over the view `source`.")] = ""
    file: Annotated[str, Meta(description="Or a file with it.")] = ""
    steps: Annotated[tuple[Step, ...], Meta(description="Or several, in order; the last one is the result.")] = ()
    watermark: Annotated[
        Watermark | None, Meta(description="How long windows and deduplication wait for late rows.")
    ] = None
    deduplicate: Annotated[Deduplicate | None, Meta(description="Before the SQL.")] = None
    lookups: Annotated[dict[str, Lookup], Meta(description="Further views, read once at the start.")] = {}


class Create(Key, frozen=True):
    partitions: Annotated[int, Meta(ge=1, description="Of the new topic.")]
    replication: Annotated[int, Meta(ge=-1, description="-1: the cluster's default.")] = -1
    config: Annotated[dict[str, Scalar], Meta(description="Its settings.")] = {}


class TopicSink(Key, frozen=True):
    topic: Annotated[str, Meta(description="Where rows go.")]
    kafka: Annotated[Kafka | None, Meta(description="Another cluster than the source's.")] = None
    format: Annotated[
        Literal["json", "avro", "csv", "text", "raw"],
        Meta(description="What becomes of the columns; text and raw: of the one column `value`."),
    ] = "json"
    schema: Annotated[str | SchemaFile | None, Meta(description="avro: the schema that is written.")] = None
    key: Annotated[str, Meta(description="The column that is the record's key; it stays in the value as well.")] = ""
    partition: Annotated[str, Meta(description="The INT column that names the partition.")] = ""
    headers: Annotated[str, Meta(description="The column with headers, as `_headers` has them.")] = ""
    acks: Annotated[
        Literal["all", "1", "0"], Meta(description="Who has to have a record before it counts as written.")
    ] = "all"
    options: Annotated[dict[str, Scalar], Meta(description="Settings of Kafka's producer.")] = {}
    create: Annotated[
        Create | None, Meta(description="Create the topic when it is missing; else that is an error.")
    ] = None
    source_header: Annotated[
        bool,
        Meta(
            description="Add the header `source` = topic/partition/offset: readers find by it what was written twice."
        ),
    ] = False


class JdbcSink(Key, frozen=True):
    url: Annotated[str, Meta(description="jdbc:postgresql://host/db, jdbc:sqlite:file.db, …")]
    table: Annotated[str, Meta(description="It has to exist.")]
    user: Annotated[str, Meta(description="Who logs in.")] = ""
    password: Annotated[str, Meta(description="Best as ${env:NAME}.")] = ""
    driver_jar: Annotated[
        str, Meta(description="The database's JDBC driver. For PostgreSQL and SQLite it is fetched when not given.")
    ] = ""
    mode: Annotated[
        Literal["append", "upsert"], Meta(description="upsert: a row with known `keys` replaces the old one.")
    ] = "append"
    keys: Annotated[tuple[str, ...], Meta(description="upsert: the columns of a unique index.")] = ()
    batch: Annotated[int, Meta(ge=1, description="Rows in one statement.")] = 1000
    options: Annotated[dict[str, Scalar], Meta(description="Options of Spark's JDBC writer.")] = {}


class ConsoleSink(Key, frozen=True):
    limit: Annotated[int, Meta(ge=1, description="Rows of each batch.")] = 20
    vertical: Annotated[bool, Meta(description="One line for each column.")] = False


class Compact(Key, frozen=True):
    after: Annotated[
        Literal["run", "never"], Meta(description="When small files are merged; kctl etl compact does it too.")
    ] = "never"
    min_files: Annotated[int, Meta(ge=2, description="Only directories with so many files.")] = 8


class Sink(Key, frozen=True):
    type: Annotated[
        Literal["parquet", "json", "csv", "topic", "jdbc", "console", "delta", "none"],
        Meta(description="none: rows are counted only. delta needs its jar in `spark.jars`."),
    ]
    path: Annotated[str, Meta(description="parquet, json, csv, delta: the directory.")] = ""
    partition_by: Annotated[tuple[str, ...], Meta(description="Columns that become directories: day=2026-11-01.")] = ()
    mode: Annotated[
        Literal["append", "overwrite", "overwrite_partitions", "error"],
        Meta(description="What becomes of what is there; all but append: mode batch only, or output complete."),
    ] = "append"
    compression: Annotated[
        Literal["", "none", "snappy", "gzip", "zstd", "lz4"],
        Meta(description="zstd for parquet, none for json and csv."),
    ] = ""
    csv: Annotated[Csv, Meta(description="csv: how lines are written.")] = Csv()
    target_file_mb: Annotated[int, Meta(ge=1, description="How large files should become.")] = 128
    compact: Annotated[Compact, Meta(description="Merging of small files.")] = Compact()
    options: Annotated[dict[str, Scalar], Meta(description="Options of Spark's writer.")] = {}
    topic: Annotated[TopicSink | None, Meta(description="With type topic.")] = None
    jdbc: Annotated[JdbcSink | None, Meta(description="With type jdbc.")] = None
    console: Annotated[ConsoleSink, Meta(description="With type console.")] = ConsoleSink()


class StopAfter(Key, frozen=True):
    rows: Annotated[int, Meta(ge=0, description="Stop after the batch that reaches so many; 0: never.")] = 0
    time: Annotated[str, Meta(description="Stop after so long: 10m. 0s: never.")] = "0s"
    idle: Annotated[str, Meta(description="Stop when nothing came for so long. 0s: never.")] = "0s"


class Retries(Key, frozen=True):
    max: Annotated[int, Meta(ge=0, description="How often the query starts anew after an error that may pass.")] = 3
    backoff: Annotated[str, Meta(description="How long to wait before; twice as long each time.")] = "10s"


Mode: TypeAlias = Literal["batch", "available-now", "continuous"]


class Run(Key, frozen=True):
    mode: Annotated[
        Mode,
        Meta(
            description="batch: from start to end, every time. available-now: what is new since the last run. "
            "continuous: for ever, in micro-batches."
        ),
    ] = "available-now"
    every: Annotated[str, Meta(description="continuous: how often a batch begins; 0s: at once.")] = "0s"
    output: Annotated[
        Literal["append", "update", "complete"],
        Meta(description="Aggregates: finished groups once, changed groups in every batch, or all groups every time."),
    ] = "append"
    checkpoint: Annotated[
        str, Meta(description="Where progress is kept; ${KAFKAD_ETL_STATE:-./.etl}/<name> if not given.")
    ] = ""
    group: Annotated[
        str | Literal[False],
        Meta(description="The consumer group that shows the progress; etl-<name> if not given. false: none."),
    ] = ""
    stop_after: Annotated[StopAfter, Meta(description="When a run ends by itself.")] = StopAfter()
    retries: Annotated[Retries, Meta(description="What happens after errors that may pass.")] = Retries()
    listen: Annotated[str, Meta(description="host:port where Prometheus finds lag, rows and seconds.")] = ""


class Spark(Key, frozen=True):
    master: Annotated[str, Meta(description="local[*], yarn, k8s://…, spark://….")] = "local[*]"
    driver_memory: Annotated[str, Meta(description="Heap of the driver.")] = "1g"
    executor_memory: Annotated[str, Meta(description="Heap of each executor.")] = "1g"
    jars: Annotated[tuple[str, ...], Meta(description="Further jars.")] = ()
    conf: Annotated[dict[str, Scalar], Meta(description="Settings of Spark.")] = {}


class Check(Key, frozen=True):
    sql: Annotated[str, Meta(description="A SELECT of one value; the view `out` is what a batch writes.")]
    expect: Annotated[Any, Meta(description="What it has to be.")]
    on_fail: Annotated[Literal["fail", "warn"], Meta(description="fail: the batch is not written.")] = "fail"


class Job(Key, frozen=True):
    version: Annotated[Literal[1], Meta(description="Of this format.")]
    name: Annotated[
        str, Meta(pattern="^[a-z0-9-]{1,64}$", description="Names the checkpoint, the application and the group.")
    ]
    source: Annotated[Source, Meta(description="Where rows come from.")]
    sink: Annotated[Sink, Meta(description="Where rows go.")]
    description: Annotated[str, Meta(description="For people.")] = ""
    vars: Annotated[dict[str, Scalar], Meta(description="${name} elsewhere; --var name=value overrides.")] = {}
    kafka: Annotated[Kafka, Meta(description="The cluster.")] = Kafka()
    key: Annotated[Format, Meta(description="How records' keys are read, into `_key`.")] = Format(format="text")
    value: Annotated[Format, Meta(description="How records' values are read.")] = Format(format="raw")
    transform: Annotated[Transform, Meta(description="What happens to the rows.")] = Transform()
    run: Annotated[Run, Meta(description="How it runs.")] = Run()
    spark: Annotated[Spark, Meta(description="Spark itself.")] = Spark()
    checks: Annotated[tuple[Check, ...], Meta(description="What has to hold of the rows before they are written.")] = ()
