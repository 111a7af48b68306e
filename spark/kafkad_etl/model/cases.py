"""The tests of a job: cases in `tests/` beside the job file, under the same name. Each gives records and says what
becomes of them.

As with job files, types say which keys there are, and all mistakes are found at once, each with its line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.job import Job, Scalar, Source
from kafkad_etl.messages import SampleBatch, SampleRecord
from kafkad_etl.model import checking
from kafkad_etl.model.document import Mistake, Unreadable, compose, places, wrong_keys
from kafkad_etl.model.loading import JobError, mistake_lines, read
from kctl.errors import did_you_mean
from kctl.records.jsonlines import read_json_line

FOLDER = "tests"
_FIRST_MS = 946_684_800_000
"""The time of records that do not say theirs: the first of January 2000."""
_EXPECTATIONS = ("rows", "dead_letters", "bad", "late", "duplicates", "warns", "fails")
_INPUTS = ("records", "values", "batches")


_ENCODED = ("avro", "protobuf")
"""Formats in which Spark encodes a block."""


class Block(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base class of the file's blocks."""


class Record(Block, frozen=True):
    """A record, as `kctl consume -o json` prints it; all keys may be left out."""

    key: Annotated[Any, Meta(description="Text; a block of keys is written as JSON.")] = None
    value: Annotated[
        Any, Meta(description="As `key`; for avro and protobuf, a block is encoded by the job's schema.")
    ] = None
    headers: Annotated[Any, Meta(description="A block of names and texts.")] = None
    topic: Annotated[str, Meta(description="The job's first topic by default.")] = ""
    partition: Annotated[int, Meta(ge=0, description="Its partition.")] = 0
    offset: Annotated[int | None, Meta(description="The next one of its partition by default.")] = None
    timestamp: Annotated[str, Meta(description="2000-01-01T00:00:00Z by default.")] = ""
    timestamp_ms: Annotated[int | None, Meta(description="The same in milliseconds.")] = None


Records = str | tuple[Record, ...]
Values = str | tuple[Any, ...]
Rows = str | tuple[dict[str, Any], ...]


class Batch(Block, frozen=True):
    records: Annotated[Records, Meta(description="As in a case.")] = ()
    values: Annotated[Values, Meta(description="As in a case.")] = ()


class CaseBlock(Block, frozen=True):
    name: Annotated[str, Meta(min_length=1, description="What the case shows; for --case and reports.")]
    vars: Annotated[dict[str, Scalar], Meta(description="Variables, as --var gives them.")] = {}
    records: Annotated[
        Records, Meta(description="Records, or a file of them as `kctl consume -o json` prints them.")
    ] = ()
    values: Annotated[
        Values,
        Meta(description="Only the records' values, or a file with one on each line; for source.files, its rows."),
    ] = ()
    batches: Annotated[
        tuple[Batch, ...], Meta(description="Several batches, one after the other, instead of one.")
    ] = ()
    lookups: Annotated[
        dict[str, Rows], Meta(description="Rows of the job's lookups, in place of what they would read.")
    ] = {}
    rows: Annotated[
        Rows | None, Meta(description="The rows that the sink gets, in any order, or a file of them as JSON lines.")
    ] = None
    dead_letters: Annotated[Rows | None, Meta(description="The same for the dead letter topic.")] = None
    bad: Annotated[Annotated[int, Meta(ge=0)] | None, Meta(description="How many rows do not parse.")] = None
    late: Annotated[Annotated[int, Meta(ge=0)] | None, Meta(description="How many the watermark drops.")] = None
    duplicates: Annotated[
        Annotated[int, Meta(ge=0)] | None, Meta(description="How many are dropped as duplicates.")
    ] = None
    warns: Annotated[str, Meta(description="A part of a warning that the job gives.")] = ""
    fails: Annotated[str, Meta(description="A part of the error that the job ends with.")] = ""


class CaseFile(Block, frozen=True):
    version: Annotated[Literal[1], Meta(description="Version of the format.")]
    cases: Annotated[tuple[CaseBlock, ...], Meta(min_length=1, description="The cases.")]
    vars: Annotated[dict[str, Scalar], Meta(description="Variables of all cases.")] = {}
    set: Annotated[
        dict[str, Any], Meta(description="Keys of the job that cases set, as --set does: {value.schema: …}.")
    ] = {}


class Expected(NamedTuple):
    """An expected row and its place: tests/orders.yaml:14, or a line of another file."""

    where: str
    row: dict[str, Any]


class CaseSource(NamedTuple):
    """A case as its file has it. What depends on the job is made by `samples`."""

    block: CaseBlock
    where: str
    variables: Mapping[str, str]
    sets: tuple[str, ...]
    rows: tuple[Expected, ...] | None
    dead_letters: tuple[Expected, ...] | None
    lookups: Mapping[str, tuple[str, ...]]
    batches: tuple[Sequence[tuple[str, Record]], ...]
    """The records of each batch, with the place of each."""
    lines: tuple[tuple[str, ...], ...]
    """The same for a job that reads files."""


def cases_path(job: Path) -> Path:
    return job.parent / FOLDER / job.name


def job_path(named: Path) -> Path:
    """The job that was meant: whoever names the file of its cases means the job as well."""
    job = named.parent.parent / named.name
    return job if named.parent.name == FOLDER and job.is_file() else named


def load_cases(path: Path) -> list[CaseSource]:
    """Loads a file of cases. Raises EtlError USAGE with all mistakes."""
    text = read(path)
    try:
        root = compose(text)
    except Unreadable as error:
        raise JobError(path, [f"{path}:{error.line}: {error.text}"]) from error
    if root is None:
        raise JobError(path, [f"{path}:1: this file has no cases"])
    lines = dict(places(root, text.splitlines()))
    values, found = checking.check(root, _kind())
    mistakes = [*wrong_keys(root), *found]
    if not mistakes:
        file = msgspec.convert(values, CaseFile)
        loaded = [_Loading(path, f"cases.{at}", block, file) for at, block in enumerate(file.cases)]
        cases = [each.case(lambda key: f"{path}:{lines[key].line}") for each in loaded]
        mistakes += [mistake for each in loaded for mistake in each.mistakes]
        names = [case.block.name for case in cases]
        again = [at for at, name in enumerate(names) if name in names[:at]]
        mistakes += [Mistake(f"cases.{at}.name", f'there are two cases "{names[at]}"') for at in again]
        if not mistakes:
            return cases
    raise JobError(path, mistake_lines(path, lines, mistakes))


@cache
def _kind() -> msgspec.inspect.Type:
    return msgspec.inspect.type_info(CaseFile)


class _Loading:
    """Reads one case and the files that it names."""

    def __init__(self, path: Path, key: str, block: CaseBlock, file: CaseFile) -> None:
        self._path, self._key, self._block, self._file = path, key, block, file
        self.mistakes: list[Mistake] = []

    def case(self, place: Any) -> CaseSource:
        block, key = self._block, self._key
        self._need_both()
        batches = block.batches or (Batch(records=block.records, values=block.values),)
        keys = [f"{key}.batches.{at}" if block.batches else key for at in range(len(batches))]
        read = [list(self._records(each, at, place)) for each, at in zip(batches, keys, strict=True)]
        return CaseSource(
            block,
            place(key),
            {name: _scalar(value) for name, value in {**self._file.vars, **block.vars}.items()},
            tuple(f"{name}={json.dumps(value)}" for name, value in self._file.set.items()),
            self._expected(block.rows, f"{key}.rows", place),
            self._expected(block.dead_letters, f"{key}.dead_letters", place),
            {name: self._lookup(rows, f"{key}.lookups.{name}", place) for name, rows in block.lookups.items()},
            tuple(read),
            tuple(tuple(_line(record.value) for _, record in records) for records in read),
        )

    def _need_both(self) -> None:
        block = self._block
        given = [name for name in _INPUTS if getattr(block, name)]
        if len(given) != 1:
            what = f"has both {given[0]} and {given[1]}" if given else "gives no records"
            self.mistakes.append(Mistake(self._key, what, ("exactly one of records, values and batches",)))
        if not any(getattr(block, name) not in (None, "") for name in _EXPECTATIONS):
            self.mistakes.append(Mistake(self._key, "expects nothing", (f"give one of {', '.join(_EXPECTATIONS)}",)))

    def _records(self, batch: Batch, key: str, place: Any) -> Iterator[tuple[str, Record]]:
        if isinstance(batch.records, str):
            for where, line in self._lines(batch.records, f"{key}.records"):
                record = self._decoded(line, where, f"{key}.records", Record)
                if record is not None:
                    yield where, record
        else:
            yield from ((place(f"{key}.records.{at}"), record) for at, record in enumerate(batch.records))
        if isinstance(batch.values, str):
            yield from ((where, Record(value=line)) for where, line in self._lines(batch.values, f"{key}.values"))
        else:
            yield from ((place(f"{key}.values.{at}"), Record(value=each)) for at, each in enumerate(batch.values))

    def _expected(self, rows: Rows | None, key: str, place: Any) -> tuple[Expected, ...] | None:
        if rows is None:
            return None
        if not isinstance(rows, str):
            return tuple(Expected(place(f"{key}.{at}"), row) for at, row in enumerate(rows))
        found = ((where, self._decoded(line, where, key, dict[str, Any])) for where, line in self._lines(rows, key))
        return tuple(Expected(where, row) for where, row in found if row is not None)

    def _lookup(self, rows: Rows, key: str, place: Any) -> tuple[str, ...]:
        expected = self._expected(rows, key, place) or ()
        return tuple(json.dumps(each.row, ensure_ascii=False, default=float) for each in expected)

    def _lines(self, name: str, key: str) -> list[tuple[str, str]]:
        """The lines of a file beside this one, each with its place."""
        file = self._path.parent / name
        try:
            text = read(file)
        except EtlError as error:
            self.mistakes.append(Mistake(key, error.what, error.hints))
            return []
        return [(f"{file}:{number}", line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]

    def _decoded(self, line: str, where: str, key: str, kind: Any) -> Any:
        try:
            return msgspec.convert(json.loads(line, parse_float=Decimal), kind)
        except (ValueError, msgspec.ValidationError) as error:
            self.mistakes.append(Mistake(key, f"{where}: {error}"))
            return None


def samples(case: CaseSource, job: Job) -> tuple[SampleBatch, ...]:
    """The case's batches for a job. Raises EtlError USAGE for what the job cannot take."""
    _need_known_lookups(case, job)
    if job.source.files is not None:
        if any(record != Record(value=record.value) for batch in case.batches for _, record in batch):
            raise _mistake(case.where, "the job reads files, whose rows have neither key nor offset", "give `values`")
        return tuple(SampleBatch(lines=lines) for lines in case.lines)
    following: dict[tuple[str, int], int] = {}
    return tuple(
        SampleBatch(records=tuple(_sample(where, record, job, following) for where, record in batch))
        for batch in case.batches
    )


def _need_known_lookups(case: CaseSource, job: Job) -> None:
    for name in case.lookups:
        if name not in job.transform.lookups:
            hints = did_you_mean(name, list(job.transform.lookups))
            raise _mistake(case.where, f'the job has no lookup "{name}"', *hints)


def _sample(where: str, record: Record, job: Job, following: dict[tuple[str, int], int]) -> SampleRecord:
    topic = record.topic or _topic(job.source)
    if not topic:
        raise _mistake(where, "the job reads topics by a pattern, and the record names none", "topic: …")
    is_block = isinstance(record.value, dict) and set(record.value) != {"base64"} and job.value.format in _ENCODED
    document = {"key": record.key, "value": None if is_block else record.value, "headers": record.headers}
    try:
        parsed = read_json_line(json.dumps(document, ensure_ascii=False, default=_number).encode())
        moment = _moment_ms(record)
    except ValueError as error:
        raise _mistake(where, f"the record {error}") from error
    place = (topic, record.partition)
    offset = following.get(place, 0) if record.offset is None else record.offset
    following[place] = offset + 1
    return SampleRecord(
        topic=topic,
        partition=record.partition,
        offset=offset,
        timestamp_ms=moment,
        key=parsed.key,
        value=parsed.value,
        block=json.dumps(record.value, ensure_ascii=False, default=_number) if is_block else "",
        headers=list(parsed.headers),
    )


def _topic(source: Source) -> str:
    return next(iter((*source.topics, *source.partitions)), "")


def _moment_ms(record: Record) -> int:
    if record.timestamp_ms is not None:
        return record.timestamp_ms
    if not record.timestamp:
        return _FIRST_MS
    try:
        moment = datetime.fromisoformat(record.timestamp)
    except ValueError:
        raise ValueError(f'has a timestamp "{record.timestamp}" that is none, such as 2026-11-01T12:00:00Z') from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _line(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=_number)


def _number(value: Decimal) -> float:
    return float(value)


def _scalar(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _mistake(where: str, what: str, *hints: str) -> EtlError:
    return EtlError(what, EtlExit.USAGE, where=where, hints=hints)
