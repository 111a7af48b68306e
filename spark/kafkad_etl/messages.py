"""What the program in front and the driver inside Spark tell each other, as JSON lines over one socket.

The front knows the cluster, the checkpoint's guard, the terminal and the consumer group; the driver knows Spark and
nothing else. So a Plan has everything looked up already, secrets too, and goes to no file and no command line. The
first line to the driver is the Plan; after that the front may send `Stop`, and the driver sends events until `Ended`
or `Failed`. A socket that closes tells either that the other one has gone.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from kafkad_etl.job import Job, Mode, Offsets

Client: TypeAlias = dict[str, str]
"""All settings of a Kafka client, bootstrap.servers and security included, without Spark's prefix `kafka.`."""


class Schema(Struct, frozen=True):
    """Columns, as the job file or the registry gave them."""

    kind: Literal["ddl", "spark", "avro"]
    text: str


class Reading(Struct, frozen=True, kw_only=True):
    """A source of topics. `start` names every partition there is now; it counts only without a checkpoint. `end` is
    for mode batch."""

    client: Client
    how: Literal["assign", "subscribe", "subscribePattern"]
    what: str
    start: Offsets
    end: Offsets
    fail_on_data_loss: bool


class Plan(Struct, frozen=True, kw_only=True):
    """`job` is the effective one: variables are filled in, and every `file` of SQL is in its `sql`."""

    task: Literal["run", "preview", "compact"]
    job: Job
    mode: Mode
    reading: Reading | None
    value_schema: Schema | None = None
    key_schema: Schema | None = None
    sink_schema: Schema | None = None
    dead_letter_client: Client = {}
    sink_client: Client = {}
    sink_partitions: int = 0
    """Of the topic that rows go to."""
    checkpoint: str = ""
    """A directory, absolute or with a scheme; empty: none."""
    checkpoint_id: str = ""
    """Made with the checkpoint: batch 7 of another checkpoint is another batch."""
    committed: int | None = None
    """The batch that a checkpoint which the front cannot look at must have."""
    limit: int = 0
    """preview: how many rows. run: stop after the batch that reaches it; 0: never."""


class Stop(Struct, frozen=True, tag="stop"):
    """Finish the batch that runs and commit it, or `now`: drop it; it comes again with the next run."""

    now: bool = False


class Started(Struct, frozen=True, tag="started", kw_only=True):
    application: str
    spark: str
    pid: int


class Query(Struct, frozen=True, tag="query"):
    """The query runs: everything before was set-up."""

    columns: list[tuple[str, str]]
    """Names and types of what goes to the sink."""


class Tasks(Struct, frozen=True, tag="tasks", kw_only=True):
    """Of the batch that runs."""

    batch: int
    done: int
    total: int


class Batch(Struct, frozen=True, tag="batch", kw_only=True):
    """One batch is written, and committed in the checkpoint. In mode batch there is one, number 0."""

    batch: int
    start: Offsets = {}
    end: Offsets = {}
    latest: Offsets = {}
    rows_read: int
    rows_written: int
    bad: int = 0
    late: int = 0
    """Rows that came after the watermark had passed them, and were dropped."""
    duplicates: int = 0
    """Rows dropped as duplicates."""
    files: int = 0
    bytes_written: int = 0
    seconds: float
    phases: dict[str, float] = {}
    watermark: str = ""
    """As ISO 8601 in UTC."""
    open_groups: int = 0
    """Groups whose window the watermark has not passed: not written yet."""
    replayed: bool = False
    """It was written by an earlier run that ended before it was committed; nothing was written again."""


class OpenWindows(Struct, frozen=True, tag="open-windows", kw_only=True):
    """At the end: what stays in the state for the next run."""

    groups: int
    first: str = ""
    last: str = ""
    """The earliest and the latest window, where there are windows."""


class Compacted(Struct, frozen=True, tag="compacted", kw_only=True):
    """Small files of a sink became large ones."""

    directory: str
    """Below `sink.path`; empty: that itself."""
    rows: int
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int


class Lost(Struct, frozen=True, tag="lost", kw_only=True):
    """Records that were deleted before they were read, from `first` up to, but not including, `end`. The front finds it
    out by itself. Not `certain`: so many at most."""

    topic: str
    partition: int
    first: int
    end: int
    certain: bool = True


class Committed(Struct, frozen=True, tag="committed", kw_only=True):
    """The checkpoint has batches that the driver has not told of: it was ended before it could. `end` is that of the
    last one, whose number is `batch`. The front finds it out by itself."""

    batch: int
    count: int
    end: Offsets


class Unsure(Struct, frozen=True, tag="unsure", kw_only=True):
    """A run ended in the middle of a batch for a topic: up to so many of its rows are there, and come again. The front
    finds it out by itself."""

    topic: str
    rows: int


class Ends(Struct, frozen=True, tag="ends"):
    """Where the partitions that are read end now. The front asks for it by itself."""

    ends: Offsets


class Retrying(Struct, frozen=True, tag="retrying", kw_only=True):
    """A batch failed, and the query begins anew after so many seconds."""

    text: str
    seconds: float
    attempt: int
    most: int


class Warned(Struct, frozen=True, tag="warned"):
    text: str


class Rows(Struct, frozen=True, tag="rows"):
    """preview: what would go to the sink. console sinks: what did. Values as Spark shows them."""

    columns: list[str]
    rows: list[list[str | None]]


class Failed(Struct, frozen=True, tag="failed", kw_only=True):
    """`kind` says what it concerns, from which the exit code follows. `line` and `column` are of `step`'s SQL."""

    kind: Literal[
        "sql", "schema", "bad-rows", "check", "data-loss", "topic", "sink", "checkpoint", "environment", "spark"
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
    """`reason` `stopped`: asked to; `limit`: as many rows, as much time or idleness as the job allows."""

    reason: EndReason


Event: TypeAlias = (
    Started
    | Query
    | Tasks
    | Batch
    | Committed
    | OpenWindows
    | Compacted
    | Lost
    | Unsure
    | Ends
    | Retrying
    | Warned
    | Rows
    | Failed
    | Ended
)
Message: TypeAlias = Plan | Stop | Event

_encoder = msgspec.json.Encoder()


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Made when it is needed: commands without a driver do not pay for it."""
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
