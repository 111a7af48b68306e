"""Messages between the front and the driver inside Spark, sent as JSON lines over one socket.

The front knows the cluster, the checkpoint, the terminal and the consumer group; the driver knows Spark and nothing
else. So a Plan has everything resolved, secrets included, and is never written to a file or command line. The first
line to the driver is the Plan; after that the front may send `Stop`, and the driver sends events until `Ended` or
`Failed`. A closed socket means that the other side is gone.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from kafkad_etl.job import Job, Mode, Offsets

Client: TypeAlias = dict[str, str]
"""All settings of a Kafka client, including bootstrap.servers and security, without Spark's prefix `kafka.`."""


class Schema(Struct, frozen=True):
    """A schema from the job file or the registry."""

    kind: Literal["ddl", "spark", "avro", "json-schema", "protobuf"]
    text: str
    message: str = ""
    """protobuf: the full name of the message."""
    files: str = ""
    """protobuf: the schema compiled, with all that it imports."""


class Reading(Struct, frozen=True, kw_only=True):
    """A source of topics. `start` has every current partition and only applies without a checkpoint; `end` is for
    mode batch. `deleted` topics are in the checkpoint, and batches go on without them: no others may be missing."""

    client: Client
    how: Literal["assign", "subscribe", "subscribePattern"]
    what: str
    start: Offsets
    end: Offsets
    fail_on_data_loss: bool
    deleted: list[str] = []


class SampleRecord(Struct, frozen=True, kw_only=True):
    """A record of a case of a job's tests."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None = None
    value: bytes | None = None
    block: str = ""
    """JSON that is to be encoded in the value's format, instead of `value`."""
    headers: list[tuple[str, bytes | None]] = []


class SampleBatch(Struct, frozen=True, kw_only=True):
    """The records of one batch or, for a job that reads files, lines of a file; for Parquet, rows as JSON."""

    records: tuple[SampleRecord, ...] = ()
    lines: tuple[str, ...] = ()


class Case(Struct, frozen=True, kw_only=True):
    """One case of a job's tests, which runs without a cluster."""

    plan: Plan
    batches: tuple[SampleBatch, ...]
    lookups: dict[str, tuple[str, ...]] = {}
    """Rows as JSON, in place of what the job's lookups would read."""


class Plan(Struct, frozen=True, kw_only=True):
    """The resolved job that the driver runs: variables are filled in, and SQL from files is in `sql`."""

    task: Literal["run", "preview", "compact", "test"]
    job: Job
    mode: Mode
    reading: Reading | None
    value_schema: Schema | None = None
    key_schema: Schema | None = None
    sink_schema: Schema | None = None
    value_writers: dict[int, str] = {}
    """Schemas by their id in the registry of `value`: those that writers are known to have used."""
    key_writers: dict[int, str] = {}
    sink_schema_id: int | None = None
    """The id of `sink_schema` in its registry; None without a registry."""
    dead_letter_client: Client = {}
    sink_client: Client = {}
    sink_partitions: int = 0
    """Number of partitions of the target topic."""
    checkpoint: str = ""
    """An absolute path or a URL; empty for none."""
    owner: str = ""
    """The checkpoint, or in mode batch the directory whose lock the run holds: of runs with the same one, there is one
    at a time."""
    checkpoint_id: str = ""
    """Created with the checkpoint: batch 7 of another checkpoint is another batch."""
    committed: int | None = None
    """The last committed batch that a remote checkpoint must have; the front cannot check it."""
    limit: int = 0
    """preview: number of rows. run: stop after the batch that reaches it; 0: never."""
    cases: tuple[Case, ...] = ()
    """test: the cases, each with its own job; of `job` only the name and Spark's settings count."""


class Stop(Struct, frozen=True, tag="stop"):
    """Finish and commit the current batch."""


class Started(Struct, frozen=True, tag="started", kw_only=True):
    application: str
    spark: str
    pid: int


class Query(Struct, frozen=True, tag="query"):
    """The query is running; everything before was setup."""

    columns: list[tuple[str, str]]
    """Names and types of the columns written to the sink."""


class Tasks(Struct, frozen=True, tag="tasks", kw_only=True):
    """Task counts of the current batch."""

    batch: int
    done: int
    total: int


class Batch(Struct, frozen=True, tag="batch", kw_only=True):
    """A batch has been written and committed in the checkpoint. Mode batch has a single one, number 0."""

    batch: int
    start: Offsets = {}
    end: Offsets = {}
    latest: Offsets = {}
    rows_read: int
    rows_written: int
    bad: int = 0
    late: int = 0
    """Rows dropped because the watermark had passed them."""
    duplicates: int = 0
    """Rows dropped as duplicates."""
    files: int = 0
    bytes_written: int = 0
    seconds: float
    phases: dict[str, float] = {}
    watermark: str = ""
    """ISO 8601 in UTC."""
    open_groups: int = 0
    """Groups whose window the watermark has not passed, which are not written yet."""
    replayed: bool = False
    """True if an earlier run wrote it but ended before committing; nothing was written again."""


class OpenWindows(Struct, frozen=True, tag="open-windows", kw_only=True):
    """Groups that stay in Spark's state for the next run, reported at the end."""

    groups: int
    first: str = ""
    last: str = ""
    """The first and last window, if the groups are windows."""


class Compacted(Struct, frozen=True, tag="compacted", kw_only=True):
    """Small files of a sink were merged into large ones."""

    directory: str
    """Relative to `sink.path`, empty for `sink.path` itself; a table of Iceberg by its name."""
    rows: int
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int


class Expired(Struct, frozen=True, tag="expired", kw_only=True):
    """Old versions of a table were removed, and files that no others need."""

    files: int
    before: str
    """ISO 8601 in UTC."""


class Lost(Struct, frozen=True, tag="lost", kw_only=True):
    """Records that were deleted before they were read, from `first` up to, but not including, `end`. Detected by the
    front. If not `certain`, this is the maximum. `recreated`: the partition was deleted and made again, and Spark left
    out what is in it."""

    topic: str
    partition: int
    first: int
    end: int
    certain: bool = True
    recreated: bool = False


class Committed(Struct, frozen=True, tag="committed", kw_only=True):
    """The checkpoint has batches that the driver could not report, since it was shutting down. `batch` is the last
    one and `end` its end offsets. Detected by the front."""

    batch: int
    count: int
    end: Offsets


class Unsure(Struct, frozen=True, tag="unsure", kw_only=True):
    """A run ended in the middle of a batch for a topic: up to `rows` of its rows are there and will be written
    again. Detected by the front."""

    topic: str
    rows: int


class Ends(Struct, frozen=True, tag="ends"):
    """Current end offsets of the partitions being read. Polled by the front."""

    ends: Offsets


class Retrying(Struct, frozen=True, tag="retrying", kw_only=True):
    """A batch failed, and the query will be restarted after `seconds`."""

    text: str
    seconds: float
    attempt: int
    most: int


class Warned(Struct, frozen=True, tag="warned"):
    text: str


class Rows(Struct, frozen=True, tag="rows"):
    """Rows as Spark shows them: what would go to the sink (preview), or what did (console sink)."""

    columns: list[str]
    rows: list[list[str | None]]


class CaseResult(Struct, frozen=True, tag="case-result", kw_only=True):
    """What became of a case's records. Rows are JSON objects: a topic's record as key, value, partition and headers,
    anything else by its columns."""

    case: int
    """Its index in the Plan."""
    schema: str = ""
    """The rows' type, in Spark's JSON; empty if the case failed before it was known."""
    rows: list[str] = []
    dead_letters: list[str] = []
    bad: int = 0
    late: int = 0
    duplicates: int = 0
    warnings: list[str] = []
    failed: Failed | None = None
    seconds: float = 0.0


class Failed(Struct, frozen=True, tag="failed", kw_only=True):
    """The failure of a run. `kind` determines the exit code; `line` and `column` refer to the SQL of `step`, which may
    also be the key of a lookup."""

    kind: Literal[
        "sql",
        "setting",
        "schema",
        "registry",
        "store",
        "bad-rows",
        "timestamp",
        "check",
        "data-loss",
        "topic",
        "sink",
        "catalog",
        "checkpoint",
        "environment",
        "spark",
    ]
    text: str
    hints: list[str] = []
    step: str = ""
    line: int = 0
    column: int = 0
    retriable: bool = False
    trace: str = ""


EndReason: TypeAlias = Literal["done", "stopped", "limit"]


class Ended(Struct, frozen=True, tag="ended"):
    """The run has ended: `stopped` on request, or at a `limit` of rows, time or idleness."""

    reason: EndReason


Event: TypeAlias = (
    Started
    | Query
    | Tasks
    | Batch
    | Committed
    | OpenWindows
    | Compacted
    | Expired
    | Lost
    | Unsure
    | Ends
    | Retrying
    | Warned
    | Rows
    | CaseResult
    | Failed
    | Ended
)
Message: TypeAlias = Plan | Stop | Event

_encoder = msgspec.json.Encoder()


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """A decoder, made on demand so that commands without a driver do not pay for it."""
    return msgspec.json.Decoder(kind)


def line_of(message: Message) -> bytes:
    return _encoder.encode(message) + b"\n"


def event_of(line: bytes) -> Event:
    event: Event = _decoder(Event).decode(line)
    return event


def plan_of(line: bytes) -> Plan:
    plan: Plan = _decoder(Plan).decode(line)
    return plan


def stop_of(line: bytes) -> Stop:
    stop: Stop = _decoder(Stop).decode(line)
    return stop
