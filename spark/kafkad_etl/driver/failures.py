"""Translates Spark's exceptions into plain words. Decisions are pure: a trace is a list of exceptions, from
outermost to innermost."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, TypeAlias

from kafkad_etl.driver.terms import JobFailed
from kafkad_etl.messages import Failed

Kind: TypeAlias = Literal[
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


class Thrown(NamedTuple):
    name: str
    """The Java or Python class."""
    text: str


class Rule(NamedTuple):
    kind: Kind
    pattern: str
    """Matched against `name: message`."""
    retriable: bool = False
    says: str = ""
    """Text that replaces Spark's message; may use the pattern's groups."""
    hint: str = ""


RULES = (
    Rule(
        "store",
        r"No AWS Credentials provided|NoAuthWithAWSException|Unable to load credentials",
        says="no keys for the object store were found",
        hint="export AWS_ACCESS_KEY_ID=… AWS_SECRET_ACCESS_KEY=…",
    ),
    Rule(
        "store",
        r"SignatureDoesNotMatch|InvalidAccessKeyId|request signature we calculated|AWS Access Key Id you provided"
        r"|S3Exception: .*Status Code: 40[13]",
        says="the object store does not accept the keys, or does not allow them what the job does",
        hint="check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and the policy of their user",
    ),
    Rule("store", r"PATH_NOT_FOUND"),
    Rule("store", r"UnknownStoreException|NoSuchBucket", says="the object store has no such bucket"),
    Rule(
        "store",
        r"awssdk\.core\.exception\.(?:SdkClient|ApiCall\w*Timeout|Abort)\w*|AWSClientIOException"
        r"|AWSServiceThrottled|AWSStatus500|S3Exception: .*Status Code: 5\d\d",
        retriable=True,
        says="the object store is not responding",
        hint="nothing is lost: the next run completes the batch, or writes it again",
    ),
    Rule("setting", r"kafka\.common\.config\.ConfigException: (?!No resolvable bootstrap)"),
    Rule(
        "setting",
        r"INVALID_CONF_VALUE|IllegalArgumentException: \S*spark\.\S+ should be \w+, but was"
        r"|Illegal value for config key"
        r"|Decimal scale \(\d+\) cannot be greater than precision",
    ),
    Rule("schema", r"a row lacks a property that the JSON Schema"),
    Rule("schema", r"a row does not fit the Protobuf message"),
    Rule(
        "timestamp",
        r"ArithmeticException: long overflow\s[\s\S]*KafkaRecordToRowConverter",
        says="a record's timestamp is beyond what Spark can read",
    ),
    Rule(
        "data-loss",
        r"Some data may have been lost|KafkaIllegalStateException|offset was changed from|OffsetOutOfRange"
        r"|partitions? .* (?:are|have been) gone|KAFKA_DATA_LOSS",
        says="records were deleted before they were read",
        hint="--accept-data-loss continues without them, for one run",
    ),
    Rule(
        "topic",
        r"a row names partition -?\d+, and topic|Partition \d+ of topic \S+ with partition count \d+ is not present",
        hint="add partitions to the topic, or remove sink.topic.partition, so that the record's key decides",
    ),
    Rule("topic", r"UnknownTopicOrPartition|UnknownTopicId|UNKNOWN_TOPIC"),
    Rule("topic", r"(?:Topic|Group|Cluster|TransactionalId)AuthorizationException"),
    Rule(
        "sink",
        r"InvalidTxnTimeoutException|transaction timeout is larger than the max",
        says="the brokers do not allow transactions of that length",
        hint="sink.topic.options: {transaction.timeout.ms: …}, not more than their transaction.max.timeout.ms",
    ),
    Rule(
        "sink",
        r"ProducerFenced|InvalidProducerEpoch|InvalidTxnState|TransactionAborted",
        retriable=True,
        says="the batch's transaction was ended before it was committed: by its time-out, or by another run",
        hint="if it took too long: lower source.rows_per_batch",
    ),
    Rule(
        "sink",
        r"iceberg\.exceptions\.(?:CommitFailed|CommitStateUnknown)|Found (?:new )?conflicting"
        r"|Missing required files to delete|Cannot commit, found new|the table has been concurrently modified"
        r"|delta\.exceptions\.(?:Concurrent|MetadataChanged|ProtocolChanged)",
        retriable=True,
        says="somebody else changed the table while the batch was being written",
        hint="the batch was not written, or will be found in the table; run again",
    ),
    Rule(
        "topic",
        r"SaslAuthentication|SslAuthentication|AuthenticationException",
        hint="check kafka.security of the job (or of sink.topic), or the login of its context: kctl contexts test",
    ),
    Rule("environment", r"No space left on device|ENOSPC|Disk quota exceeded", hint="free up disk space and run again"),
    Rule(
        "environment",
        r"OutOfMemoryError|GC overhead limit",
        hint="raise spark.driver_memory, or lower source.rows_per_batch",
    ),
    Rule(
        "environment",
        r"Py4JNetworkError|Answer from Java side is empty|ConnectionRefusedError.*127\.0\.0\.1",
        says="Spark's JVM has exited",
        hint="it was killed, possibly for running out of memory; see the log",
    ),
    Rule(
        "environment", r"ClassNotFoundException: ([\w.$]+)|Failed to find the data source: (\w+)|DATA_SOURCE_NOT_FOUND"
    ),
    Rule(
        "checkpoint",
        r"should provide the same topic partitions|PARTITIONS_MISMATCH|"
        r"There are \[\d+\] sources in the checkpoint|StateSchemaNotCompatible"
        r"|STATE_STORE_.*(?:MISMATCH|NOT_COMPATIBLE)|batch \d+ doesn't exist|CANNOT_LOAD_STATE_STORE|"
        r"multiple streaming queries are concurrently using|CONCURRENT_STREAM_LOG_UPDATE|INCOMPATIBLE_CHECKPOINT",
    ),
    Rule(
        "schema",
        r"AvroRuntimeException|AvroTypeException|IncompatibleSchemaException|MALFORMED_(?:RECORD|AVRO)"
        r"|SchemaParseException",
    ),
    Rule(
        "spark",
        r"RetriableException|kafka\.common\.errors\.(?:Timeout|Disconnect|Network|NotLeader|LeaderNotAvailable|"
        r"CoordinatorNotAvailable|NotEnoughReplicas|BrokerNotAvailable|NotCoordinator|UnknownServer|KafkaStorage|"
        r"ReplicaNotAvailable|FencedLeaderEpoch|CorruptRecord)\w*",
        retriable=True,
    ),
    Rule(
        "spark",
        r"java\.util\.concurrent\.TimeoutException|SocketTimeoutException|ConnectException|Connection refused|"
        r"Connection reset|SQLTransient|SQLRecoverable|SQLITE_(?:BUSY|LOCKED)|"
        r"PSQLException: (?:This connection has been closed|An I/O error|FATAL: (?:terminating|the database system))|"
        r"ExecutorLostFailure|FetchFailed|Broken pipe",
        retriable=True,
    ),
)

SQL_ERRORS = ("AnalysisException", "ParseException")
WRAPPERS = (
    "StreamingQueryException",
    "Py4JJavaError",
    "SparkException",
    "ExecutionException",
    "CompletionException",
    "UndeclaredThrowableException",
    "InvocationTargetException",
)
_POSITION = re.compile(r"line (\d+),? pos(?:ition)? (\d+)")
_CONDITION = re.compile(r"^\[[A-Z][A-Z0-9_.]*\]\s*")
_STATE = re.compile(r"\s*SQLSTATE: \w+.*", re.DOTALL)


def failed(trace: Sequence[Thrown], *, whole: str = "", step: str = "") -> Failed:
    """The failure for a trace. The innermost exception is the most specific, but a rule may match an outer one."""
    sql = next((t for t in trace if t.name.endswith(SQL_ERRORS)), None)
    if sql and (step or _POSITION.search(sql.text)):
        line, column = position(sql.text)
        return Failed(kind="sql", text=first_sentence(sql.text), step=step, line=line, column=column, trace=whole)
    for rule in RULES:
        for thrown in reversed(trace):
            match = re.search(rule.pattern, f"{thrown.name}: {thrown.text}")
            if match:
                text = rule.says or first_sentence(thrown.text) or thrown.name
                hints = [rule.hint] if rule.hint else []
                return Failed(kind=rule.kind, text=text, hints=hints, retriable=rule.retriable, trace=whole)
    speaking = [t for t in trace if not t.name.endswith(WRAPPERS) and t.text] or [t for t in trace if t.text]
    last = speaking[-1] if speaking else trace[-1]
    kind: Kind = "schema" if sql else "spark"
    return Failed(kind=kind, text=first_sentence(last.text) or last.name, trace=whole)


def position(text: str) -> tuple[int, int]:
    """Line and column, from 1, in any of Spark's forms; 0 if not given."""
    match = _POSITION.search(text)
    return (int(match[1]), int(match[2]) + 1) if match else (0, 0)


def first_sentence(text: str) -> str:
    """The first sentence without error class, SQLSTATE and plan, but with the suggestion that follows it."""
    line = _STATE.sub("", _CONDITION.sub("", text.strip())).strip()
    head = line.split("\n\n")[0].split(";\n")[0].splitlines()
    return re.sub(r"\s+", " ", head[0]).rstrip(":; ") if head else ""


def trace_of(error: BaseException) -> list[Thrown]:
    """Java's chain of causes, if Py4J or PySpark carries one."""
    origin = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    found: list[Thrown] = []
    while origin is not None and len(found) < 30:
        found.append(Thrown(str(origin.getClass().getName()), str(origin.getMessage() or "")))
        cause = origin.getCause()
        origin = None if cause is None or cause.equals(origin) else cause
    return found or [Thrown(type(error).__name__, str(error))]


def failure_of(error: BaseException, *, step: str = "") -> Failed:
    import traceback

    if isinstance(error, JobFailed):
        return error.failed
    trace = trace_of(error)
    whole = "".join(traceback.format_exception(error))
    return failed(trace, whole=whole, step=step)


@contextmanager
def sending_to(topic: str, options: str) -> Iterator[None]:
    """Has a record that is too large told with its topic, which Kafka's client does not name. `options` is the key with
    the client's settings."""
    try:
        yield
    except Exception as error:
        told = next((it.text for it in trace_of(error) if it.name.endswith("RecordTooLargeException")), None)
        if told is None:
            raise
        raise JobFailed(too_large(topic, options, told)) from error


def too_large(topic: str, options: str, told: str) -> Failed:
    limit = re.search(r"max\.request\.size|buffer\.memory", told)
    if limit:
        hint = f"{options}: {{{limit[0]}: …}} allows more, as far as max.message.bytes of the topic does"
    else:
        hint = f"kctl configs set topic/{topic} max.message.bytes=… allows more"
    return Failed(kind="sink", text=f'a record is too large for topic "{topic}": {told}', hints=[hint])


def sql_failed(error: Any, step: str) -> JobFailed:
    return JobFailed(failure_of(error, step=step))
