"""What the front and the driver both know of jobs: their words and limits, and what follows from a job alone. Imports
nothing but `job`."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator

from kafkad_etl.job import S3, Catalog, Job, Scalar, Sink

FILES = ("parquet", "json", "csv")
"""Sinks that write files themselves."""

TABLES = ("delta", "iceberg")
"""Sinks that are tables of a lake: files, and a log of what was committed."""

POSTGRESQL, SQLITE = "jdbc:postgresql:", "jdbc:sqlite:"
KNOWN_DATABASES = (POSTGRESQL, SQLITE)
"""The URLs of databases whose drivers come along."""

S3A = "s3a"
"""The scheme of paths in an object store that speaks Amazon's S3."""

PRODUCER = {"linger.ms": "20", "compression.type": "lz4", "batch.size": "131072"}
"""Producer defaults: a fifth of the requests that Kafka's own defaults cause, and more than twice the rows per
second of CPU time."""

PRECISION = 38
"""The largest precision of a DECIMAL."""

MANIFESTS, MERGES = "sink", "sink/merging"
"""Directories in a checkpoint with the manifests of batches and of merges."""
MERGED = f"*-{'[0-9a-f]' * 8}-merged-{'[0-9]' * 4}.*"
"""The names of files that a merge has made, as a pattern of Hadoop."""

META = ("_key", "_topic", "_partition", "_offset", "_timestamp")
"""Columns that a record has beside those of its value's schema."""
HEADERS = "_headers"
"""One more, where the job asks for it."""
HEADERS_FROM = "`_headers`, with source.headers: true, or array(struct('name' AS key, CAST(text AS BINARY) AS value))"
"""SQL that makes a column of that type."""
POSITION = ("_topic", "_partition", "_offset")
"""Those that say where a record is, and so which of two rows is the newer one. They are written to tables that have
them."""
RAW, BAD = ("_raw_key", "_raw_value"), "_bad"
"""Columns with what bad rows were, and why they are bad."""
FILE, CORRUPT, END_OF_LINE = "_file", "_corrupt", "_end_of_line"
"""The file that a row is from; a text that does not match its schema; in CSV, what follows a delimiter that is put
behind each line."""

_UNITS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
    **dict.fromkeys(("w", "week", "weeks"), 604_800_000),
}
_SHIFTS = {"": 20, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40}
"""Units of sizes, as powers of two."""
_DURATION = re.compile(r"(\d+)\s*([a-z]+)\s*")


def duration_ms(text: str) -> int:
    """Parses 30s, 1h30m or, in Spark's style, 10 minutes. Raises ValueError for anything else."""
    parts = _DURATION.findall(text.strip().lower())
    if not parts or _DURATION.sub("", text.strip().lower()):
        raise ValueError(f'"{text}" is not a duration')
    try:
        return sum(int(count) * _UNITS[unit] for count, unit in parts)
    except KeyError:
        raise ValueError(f'"{text}" is not a duration') from None


def heap_bytes(text: str) -> int:
    """Parses a heap size as Spark does: 700m, 1g; a bare number is in MiB. Raises ValueError for anything else."""
    match = re.fullmatch(r"([0-9]{1,18})([bkmgt]?)b?", text.strip().lower())
    if match is None:
        raise ValueError(f'"{text}" is not a size')
    return int(match[1]) << _SHIFTS[match[2]]


def is_like_a_time(position: str) -> bool:
    """True for a position that is no word: 2026-11-01T00:00:00Z, -1h, 1763700000, @1763700000."""
    return re.match(r"@|[+-]?\d", position) is not None


def delivery_name(job: str, checkpoint_id: str = "") -> str:
    """The transactional id of a job that writes a topic exactly once, and the name of the group with its mark; without
    a checkpoint's id, how those of all its checkpoints begin."""
    return f"etl-{job}-{checkpoint_id}"


def dead_letter_topics(job: Job) -> list[str]:
    bad = job.value.bad_rows
    return [bad.topic] if bad.action == "dead_letter" else []


def is_streaming(job: Job) -> bool:
    return job.run.mode != "batch"


def is_stateful(job: Job) -> bool:
    """True if Spark keeps groups or rows from one batch to the next. Only then are windows, watermarks and
    deduplication part of the streaming query; otherwise all SQL runs over one batch."""
    transform = job.transform
    within = transform.deduplicate is not None and bool(transform.deduplicate.within)
    return is_streaming(job) and (transform.watermark is not None or within or job.run.output != "append")


def source_text(job: Job) -> str:
    source = job.source
    if source.files:
        return f"{source.files.format} files in {source.files.path}"
    if source.pattern:
        return f"topics that match {source.pattern}"
    if source.partitions:
        listed = (f"{topic}-{p}" for topic, found in sorted(source.partitions.items()) for p in sorted(found))
        return f"partitions {', '.join(listed)}"
    return f"topics {', '.join(sorted(source.topics))}"


def topics_text(names: Collection[str]) -> str:
    """Topics in a sentence."""
    return f"{'topic' if len(names) == 1 else 'topics'} {', '.join(names)}"


def has_scheme(path: str) -> bool:
    """True if a path is a URL such as hdfs:/data or s3a://bucket/data. A one-letter scheme would be a Windows drive."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", path) is not None


def is_elsewhere(path: str) -> bool:
    """True if a path is on another file system than the local one."""
    return has_scheme(path) and not path.startswith("file:")


def local_path(path: str) -> str:
    """A path on the local file system without its scheme: `file:/a`, `file:///a` and `file://localhost/a` are `/a`, and
    `~/a` is in the user's home."""
    return os.path.expanduser(re.sub(r"^file:(//[^/]*)?/*", "/", path))


def hidden(relative: str) -> bool:
    """True if Spark, Hive and others ignore the file because of a name anywhere below the table's directory. A
    partition's directory they do not ignore, whatever its column is called."""
    return any(re.match(r"\.|_[^=]*$", part) for part in relative.split("/"))


def paths_read(job: Job) -> Iterator[tuple[str, str]]:
    """Paths of what the job reads, each with its key in the job file."""
    for name, lookup in job.transform.lookups.items():
        if lookup.path:
            yield f"transform.lookups.{name}.path", lookup.path
    if job.source.files:
        yield "source.files.path", job.source.files.path


def paths_of(job: Job) -> Iterator[tuple[str, str]]:
    """All data paths, each with its key in the job file."""
    yield from paths_read(job)
    yield "run.checkpoint", job.run.checkpoint
    yield "sink.path", job.sink.path


def has_s3_paths(job: Job) -> bool:
    return any(path.startswith(f"{S3A}://") for _, path in paths_of(job))


def has_one_writer(sink: Sink) -> bool:
    """True for a table whose commits nothing keeps apart: a file is put in place, which an object store does not refuse
    to the second of two writers. Other tables have a rename that does, or a catalog."""
    if sink.type not in TABLES or not sink.path.startswith(f"{S3A}://"):
        return False
    return sink.iceberg is None or sink.iceberg.catalog.type == "hadoop"


_S3_KEY = re.compile(r"spark\.hadoop\.fs\.s3a\..*(access\.key|secret\.key|session\.token)")


def is_s3_key(name: str) -> bool:
    """True for settings of Spark that log in to an object store."""
    return _S3_KEY.fullmatch(name) is not None


REDACTED = "spark.redaction.regex"
SECRET_WORDS = "(?i:secret|password|token|credential|authorization|jaas|keystore|(?:access|account|api)[._-]?key)"
"""What Spark leaves out of its web page, plans and event logs, wherever a name or a value matches. By default it does
neither with a JAAS line nor with a private key."""


def redaction(theirs: str, names: Iterable[str]) -> str:
    """The same, with the settings of these names and what the user's own expression says."""
    return "|".join(part for part in (SECRET_WORDS, *map(re.escape, sorted(names)), theirs) if part)


def spark_conf(job: Job) -> dict[str, Scalar]:
    """The job's settings of Spark, after those of its object store."""
    return {**(_s3_settings(job.s3) if has_s3_paths(job) else {}), **job.spark.conf}


def _s3_settings(s3: S3) -> dict[str, Scalar]:
    prefix = "spark.hadoop.fs.s3a"
    found: dict[str, Scalar] = {
        f"{prefix}.attempts.maximum": 2,  # of requests, each of which is then tried 4 times more:
        f"{prefix}.retry.limit": 4,  # Hadoop would go on for minutes, and `run.retries` does so where it is seen
    }
    if s3.endpoint:
        found |= {f"{prefix}.endpoint": s3.endpoint, f"{prefix}.path.style.access": s3.path_style}
    if region := s3.region or (s3.endpoint and "us-east-1"):
        found[f"{prefix}.endpoint.region"] = region
    return found


def sink_text(job: Job) -> str:
    """The sink in words, without secrets."""
    sink = job.sink
    if sink.topic:
        return f"topic {sink.topic.topic}"
    if sink.jdbc:
        return f"jdbc table {sink.jdbc.table} in {database_text(sink.jdbc.url)}"
    if sink.iceberg:
        return f"iceberg table {sink.iceberg.table} in {_catalog_text(sink.iceberg.catalog) or sink.path}"
    return f"{sink.type} {sink.path}".strip()


def database_text(url: str) -> str:
    """A JDBC URL without login and parameters, which may have a password."""
    return without_login(url).partition("?")[0].partition(";")[0]


HOSTS = r"(?:[\w.,-]|\[[\w:.%]*\]|:\d+(?=[,/]))+/"
"""Hosts, perhaps with ports, and the slash that ends them: an @ after it is part of a path."""
_LOGIN = re.compile(
    rf"((?:jdbc:[\w:+.-]*|https?:)//)(?:[^\s/?;]*|(?!{HOSTS})[^\s/?;:]+:[^\s?;]*)@|(jdbc:oracle:\w+:)[^\s?;]+(?=@)",
    re.IGNORECASE,
)
"""What stands before the host of a URL: `user:password@`, or Oracle's `user/password`."""
_DATABASE = re.compile(r"jdbc:[^\s'\"]+", re.IGNORECASE)
_LOGIN_BESIDE_HOST = re.compile(
    r"\((?:user|\w*password)=[^),]*\)|(?<=[(,])(?:user|\w*password)=[^),]*,?", re.IGNORECASE
)
"""MySQL's `address=(host=db)(user=u)(password=p)`, and `(host=db,user=u,password=p)`."""


def without_login(text: str) -> str:
    """A text without the logins of URLs in it."""
    return _LOGIN.sub(r"\1\2", _DATABASE.sub(lambda url: _LOGIN_BESIDE_HOST.sub("", url[0]), text))


def _catalog_text(catalog: Catalog) -> str:
    """A catalog apart from its tables' files; empty if it has no place of its own."""
    if catalog.type == "jdbc":
        return f"catalog {catalog.name} of {database_text(catalog.url)}"
    if catalog.type == "rest":
        return f"{f'warehouse {catalog.warehouse} of ' if catalog.warehouse else ''}{without_login(catalog.url)}"
    return ""


CATALOG = "spark.sql.catalog."
"""Settings of a catalog, which Spark takes at any time and knows by no name."""

_FIXED = (
    CATALOG,
    "spark.sql.catalogImplementation",
    "spark.sql.extensions",
    "spark.sql.globalTempDatabase",
    "spark.sql.hive.metastore.",
    "spark.sql.queryExecutionListeners",
    "spark.sql.streaming.streamingQueryListeners",
    "spark.sql.streaming.ui.",
    "spark.sql.ui.",
    "spark.sql.warehouse.",
)
"""Settings of SQL that count for all sessions, or that jobs in one Spark may not set differently."""


def is_of_session(name: str) -> bool:
    """True for settings that each job's session has for itself."""
    return name.startswith("spark.sql.") and not name.startswith(_FIXED)
