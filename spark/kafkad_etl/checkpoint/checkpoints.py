"""Reads and guards a job's checkpoint: its progress as Spark's files record it, and whether it still matches the job.

Spark writes `metadata`, `offsets/N` before batch N and `commits/N` after it. `job.json` beside them is ours: the job as
it was when the checkpoint was created. Decisions are functions of values; only `Checkpoint` touches files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.facts import MERGES, is_elsewhere, is_stateful, local_path, sink_text, source_text
from kafkad_etl.job import Job, Offsets
from kafkad_etl.syncing import sync

RECORD = "job.json"
ASIDE = ".reset-"
"""Infix in the names of checkpoints that were set aside, before the timestamp."""
_STATE = "KAFKAD_ETL_STATE"
_LEAST_LINES = {"offsets": 3, "commits": 2}
"""The version; of batches then facts, and the offsets of each source."""
_RESET = "--reset-checkpoint sets it aside and starts over at source.start"


def directory_of(job: Job, environment: Mapping[str, str]) -> str:
    """The checkpoint directory: an absolute path, or a URL with its scheme."""
    path = job.run.checkpoint or str(Path(environment.get(_STATE) or ".etl") / job.name)
    if is_elsewhere(path):
        return path
    return str(Path(local_path(path)).absolute())


def checkpoint_of(job: Job, environment: Mapping[str, str]) -> Checkpoint:
    return Checkpoint(directory_of(job, environment), state_directory(environment) / job.name)


def beside(record: Path) -> Checkpoint:
    """The checkpoint that belongs to a record."""
    here = Checkpoint(str(record.parent.absolute()), record.parent)
    found = here.record()
    return Checkpoint(found.remote, record.parent) if found and found.remote else here


def state_directory(environment: Mapping[str, str]) -> Path:
    return Path(environment.get(_STATE) or ".etl").expanduser().absolute()


@contextmanager
def written(path: Path) -> Iterator[None]:
    """Raises EtlError ENVIRONMENT, with what to set, if this path of the state cannot be written."""
    try:
        yield
    except OSError as error:
        hints = (f"set {_STATE} to a directory that can be written", "or run.checkpoint, if it is of the job's own")
        raise EtlError(f"{error.filename or path}: {error.strerror}", EtlExit.ENVIRONMENT, hints=hints) from error


class Standing(Struct, frozen=True):
    """A checkpoint's progress, from which the next run resumes. `reached` holds the end offsets of the last
    committed batch."""

    query_id: str = ""
    batch: int | None = None
    """The last committed batch."""
    planned: int | None = None
    """The batch that was started but not committed; it will be repeated with the same offsets."""
    reached: Offsets = {}
    watermark_ms: int = 0


class Record(Struct, frozen=True, kw_only=True):
    """The `job.json` beside a checkpoint. `facts` are the parts of the job that must not change, by the key a user
    would edit."""

    version: int = 1
    job: str
    checkpoint_id: str
    made: str
    facts: dict[str, str]
    """For people, with **** in place of secrets."""
    digests: dict[str, str] = {}
    """Of the same facts with what `${env:NAME}` gave, by which they are compared; earlier versions wrote none."""
    hash: str
    spark: str = ""
    """As x.y; empty if unknown."""
    begun: bool = True
    """False as long as no query can have begun, so that no sink knows the id; earlier versions did not say it."""
    topics: dict[str, str] = {}
    """Topic ids by topic name, as the cluster assigned them."""
    remote: str = ""
    """The checkpoint's location, if it is not beside this file."""
    seen: Standing = Standing()
    """For a remote checkpoint: its progress after the last run from this machine."""


class Files(NamedTuple):
    """The files found in a checkpoint. Only those that decide its progress are read; the others are empty strings, as
    are those with a flaw."""

    metadata: str | None = None
    initial: str | None = None
    offsets: Mapping[int, str] = {}
    commits: Mapping[int, str] = {}
    flaws: Mapping[str, str] = {}
    """What is wrong with those that were read, by name: a power failure may leave a file without its content, or with
    a part of it."""

    @property
    def is_begun(self) -> bool:
        return bool(self.offsets or self.commits)


def facts(job: Job) -> dict[str, str]:
    """The parts of an effective job without which its checkpoint cannot be used; nothing secret."""
    found = {"source": source_text(job), "sink": sink_text(job)}
    if not is_stateful(job):
        return found
    transform = job.transform
    found["run.output"] = job.run.output
    if transform.watermark:
        found["transform.watermark"] = f"{transform.watermark.column}, {transform.watermark.delay}"
    if transform.deduplicate:
        found["transform.deduplicate"] = (
            f"{', '.join(transform.deduplicate.keys)} within {transform.deduplicate.within}"
        )
    steps = [(step.name, step.sql) for step in transform.steps] or [("sql", transform.sql)]
    for name, sql in steps:
        found[f"transform {name}"] = " ".join(sql.split())
    return found


def hash_of(found: Mapping[str, str]) -> str:
    import hashlib

    return hashlib.sha256(json.dumps(dict(found), sort_keys=True).encode()).hexdigest()[:16]


def digest_of(checkpoint_id: str, fact: str) -> str:
    """A fact's digest, which is another one in each checkpoint."""
    import hashlib

    return hashlib.sha256(f"{checkpoint_id} {fact}".encode()).hexdigest()


def record_of(job: Job, checkpoint_id: str, made: str, topics: Mapping[str, str], spark: str = "") -> Record:
    found = facts(job)
    return Record(
        job=job.name,
        checkpoint_id=checkpoint_id,
        made=made,
        facts=found,
        hash=hash_of(found),
        spark=".".join(spark.split(".")[:2]),
        topics=dict(topics),
    )


# --- the guard


def differences(before: Record, now: Record) -> list[str]:
    """Reasons, for people, why the job as it is now cannot resume from the checkpoint."""
    found = []
    if before.job != now.job:
        found.append(f"it belongs to job {before.job}")
    for key in dict.fromkeys((*before.facts, *now.facts)):
        was, is_now = before.facts.get(key), now.facts.get(key)
        if key in before.digests and key in now.digests:
            is_same = before.digests[key] == now.digests[key]
        else:
            is_same = was == is_now
        if not is_same:
            found.append(f"{key}: was {was or 'not set'}; is now {_another(is_now, was)}")
    if before.spark and now.spark and before.spark != now.spark:
        found.append(f"Spark: was {before.spark}; is now {now.spark}")
    found += recreated(before.topics, now.topics)
    return found


def _another(fact: str | None, was: str | None) -> str:
    return f"another {fact}, whose **** is not the same" if fact == was else fact or "not set"


def recreated(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    others = remade(before, now)
    return [
        f'topic "{name}" was deleted and recreated (its id was {was}; is now {now[name]}), '
        "so its offsets refer to different records"
        for name, was in before.items()
        if name in others
    ]


def remade(before: Mapping[str, str], now: Mapping[str, str]) -> set[str]:
    """Topics that have another id than before, as far as both are known: their offsets are those of other records."""
    return {name for name, was in before.items() if was and now.get(name) and now[name] != was}


def pieces_missing(files: Files) -> list[str]:
    """Problems for which Spark would silently start over, writing everything again, or stop with a stack trace."""
    if not files.is_begun:
        return []
    found = []
    if files.metadata is None:
        found.append("the file metadata is missing: Spark would treat the checkpoint as new")
    last = max((*files.offsets, *files.commits))
    needed = {last, max(files.commits, default=last)}
    found += [f"the file offsets/{number} is missing" for number in sorted(needed) if number not in files.offsets]
    if last and last - 1 not in files.commits and last not in files.commits:
        found.append(f"the file commits/{last - 1} is missing")
    return found + [f"the file {name} {flaw}" for name, flaw in files.flaws.items()]


def _flaw(name: str, text: str) -> str:
    """What is wrong with a file that was read; empty if nothing is."""
    lines = text.split("\n")
    if not text:
        return "is empty"
    if len(lines) < _LEAST_LINES.get(name.partition("/")[0], 1) or not _is_whole(lines[-1]):
        return "is damaged"
    return ""


def _is_whole(line: str) -> bool:
    """`-` stands for a source without offsets."""
    try:
        return line == "-" or isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _deletable(files: Files) -> list[str]:
    """The way out that loses nothing: only the newest file has a flaw, and without it the checkpoint is whole. Spark
    would stumble over its checksum."""
    newest = max((*files.offsets, *files.commits))
    folder = "commits" if newest in files.commits else "offsets"
    if list(files.flaws) != [f"{folder}/{newest}"] or len(pieces_missing(files)) > 1:
        return []
    names = f"{folder}/{newest} and {folder}/.{newest}.crc"
    return [f"deleting {names} is safe: no batch follows, and the next run repeats batch {newest}"]


def guard(before: Record | None, now: Record, files: Files, path: str) -> None:
    """Raises EtlError CHECKPOINT unless the job may resume from this checkpoint."""
    missing = pieces_missing(files)
    if missing:
        raise _refused(f"the checkpoint {path} is incomplete", [*missing, *_deletable(files)])
    if not files.is_begun and not is_elsewhere(path):
        return
    if before is None and is_elsewhere(path):
        return
    if before is None:
        raise _refused(f"the checkpoint {path} has no {RECORD}: it was not created by kctl etl, or is incomplete", [])
    if found := differences(before, now):
        raise _refused(f"the checkpoint {path} does not match the job as it is now", found)


def _refused(what: str, why: list[str]) -> EtlError:
    return EtlError(what, EtlExit.CHECKPOINT, hints=(*why, _RESET))


# --- what Spark's files say


def standing_of(files: Files) -> Standing:
    """The progress recorded in a checkpoint's files, without what those that are missing or damaged would say."""
    batch = max(files.commits, default=None)
    last = max(files.offsets, default=None)
    planned = last if last is not None and (batch is None or last > batch) else None
    reached: Offsets = {}
    if batch is not None:
        reached = _offsets(files.offsets.get(batch, ""))
    elif files.initial:
        reached = _offsets(files.initial)
    return Standing(_id(files.metadata), batch, planned, reached, _watermark(files, batch))


def _id(metadata: str | None) -> str:
    return str(json.loads(metadata).get("id", "")) if metadata else ""


def _offsets(text: str) -> Offsets:
    """Parses the last line; a source of files has a line without topics."""
    lines = text.strip().splitlines()
    found = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}
    if not all(isinstance(offsets, dict) for offsets in found.values()):
        return {}
    return {topic: {int(p): offset for p, offset in offsets.items()} for topic, offsets in found.items()}


def _watermark(files: Files, batch: int | None) -> int:
    lines = files.commits[batch].splitlines() if batch is not None else []
    return int(json.loads(lines[-1]).get("nextBatchWatermarkMs", 0)) if lines else 0


class Checkpoint:
    """A checkpoint at an absolute path or a URL. One with a URL is never read from here; its record is in `local`."""

    def __init__(self, path: str, local: Path) -> None:
        self.path = path
        self.is_remote = is_elsewhere(path)
        self.directory = local if self.is_remote else Path(path)

    @property
    def lock_path(self) -> Path:
        """The lock file, outside the checkpoint so that setting the checkpoint aside does not free the lock."""
        return self.directory.with_name(f"{self.directory.name}.lock")

    def owner(self, *, keeps_progress: bool) -> str:
        """Who a target's staging belongs to, of whom there is one at a time: the checkpoint, or in mode batch the
        directory whose lock the run holds. A remote checkpoint's path would be that of runs with other locks too."""
        return self.path if keeps_progress else str(self.directory)

    def record(self) -> Record | None:
        """The checkpoint's record; raises EtlError CHECKPOINT if it cannot be read."""
        try:
            return msgspec.json.decode((self.directory / RECORD).read_bytes(), type=Record)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            raise _refused(f"{self.directory / RECORD} is damaged: {error}", []) from None

    def write_record(self, record: Record) -> None:
        """Writes the record so that it survives a power failure; one that is there already is left alone."""
        text = msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"
        path, fresh = self.directory / RECORD, self.directory / f".{RECORD}.new"
        with written(fresh):
            if path.exists() and path.read_bytes() == text:
                return
            self.directory.mkdir(parents=True, exist_ok=True)
            fresh.write_bytes(text)
            sync(fresh)
            fresh.rename(path)
            sync(self.directory)

    def standing(self) -> Standing:
        """The checkpoint's progress; for a remote one, as this machine last saw it."""
        if not self.is_remote:
            return standing_of(self.files())
        record = self.record()
        return record.seen if record else Standing()

    def files(self) -> Files:
        if self.is_remote:
            return Files()
        offsets, commits = self._numbers("offsets"), self._numbers("commits")
        done, last = max(commits, default=-1), max(offsets, default=-1)
        names = ["metadata", *(f"offsets/{number}" for number in sorted({done, last - 1, last}))]
        names.append(f"commits/{done}" if commits else "sources/0/0")
        texts = {name: text for name in names if (text := self._text(name)) is not None}
        flaws = {name: flaw for name, text in texts.items() if (flaw := _flaw(name, text))}
        texts |= dict.fromkeys(flaws, "")
        return Files(
            texts.get("metadata"),
            texts.get("sources/0/0"),
            {number: texts.get(f"offsets/{number}", "") for number in offsets},
            {number: texts.get(f"commits/{number}", "") for number in commits},
            flaws,
        )

    def unfinished(self) -> str:
        """A description of what keeps the next run from starting, or of a merge that was left unfinished; empty if
        there is neither."""
        if self.is_remote:
            return ""
        missing = pieces_missing(self.files())
        found = [f"the checkpoint is incomplete: {', '.join(missing)}"] if missing else []
        if any((self.directory / MERGES).glob("*.json")):
            found.append("a merge of small files was interrupted; the next run or kctl etl compact completes it")
        return "; ".join(found)

    def _numbers(self, folder: str) -> list[int]:
        there = self.directory / folder
        return [int(file.name) for file in there.iterdir() if file.name.isdecimal()] if there.is_dir() else []

    def _text(self, name: str) -> str | None:
        """The file's text without zero bytes: Spark begins some files with one, and power failures leave nothing but
        them."""
        path = self.directory / name
        return path.read_text(encoding="utf-8", errors="replace").replace("\0", "").strip() if path.exists() else None

    def last_commit(self) -> float | None:
        """The time of the last commit, in seconds since 1970; for a remote checkpoint, as known from runs on this
        machine."""
        if self.is_remote:
            return (self.directory / RECORD).stat().st_mtime if self.standing().batch is not None else None
        number = max(self._numbers("commits"), default=None)
        return None if number is None else (self.directory / f"commits/{number}").stat().st_mtime

    def put_aside(self, stamp: str) -> Path | None:
        """Renames the checkpoint without deleting it; returns None if there was none."""
        if not self.directory.exists():
            return None
        target = self.directory.with_name(f"{self.directory.name}{ASIDE}{stamp}")
        self.directory.rename(target)
        return target
