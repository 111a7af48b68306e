"""Rules for `source`."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator

from kafkad_etl.facts import is_like_a_time, is_streaming
from kafkad_etl.job import Files, Job, Position, Source
from kafkad_etl.model.document import Mistake
from kctl.errors import KctlError, did_you_mean
from kctl.texts.parsing import parse_time_ms

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PLACES = "earliest, latest, group, a time (2026-11-01T00:00:00Z), a time ago (-1h) or {topic: {0: 100}}"


def mistakes(job: Job) -> Iterator[Mistake]:
    source = job.source
    given = [name for name in ("topics", "pattern", "partitions", "files") if getattr(source, name)]
    if len(given) != 1:
        said = f"has {' and '.join(given)}" if given else "names nothing to read"
        yield Mistake("source", said, ("give exactly one of topics, pattern, partitions and files",))
    if source.files is not None:
        yield from _files(source, source.files, is_streaming(job))
        return
    yield from _topics(source)
    yield from _position(source, source.start, "source.start")
    yield from _position(source, source.end, "source.end")
    if source.end != "latest" and is_streaming(job):
        yield Mistake("source.end", f"mode {job.run.mode} has no end", ("use run.mode: batch",))
    if source.end == "group":
        yield Mistake("source.end", "a group can only be where to start, not where to stop")
    if source.start == "group" and job.run.group is False:
        yield Mistake("source.start", "`run.group` is false, so there is no group to start from")


def _files(source: Source, files: Files, streaming: bool) -> Iterator[Mistake]:
    if not files.schema and (streaming or files.format != "parquet"):
        why = "to resume where a run stopped" if streaming else f"for {files.format}"
        yield Mistake("source.files", f"`schema` is required {why}", ('schema: "id BIGINT, name STRING"',))
    for name in ("start", "end"):
        if getattr(source, name) != getattr(Source(), name):
            yield Mistake(f"source.{name}", "all files are always read", ("remove it",))
    if source.headers:
        yield Mistake("source.headers", "files have no headers")


def _topics(source: Source) -> Iterator[Mistake]:
    yield from _names(source.topics, "source.topics")
    if source.pattern:
        try:
            re.compile(source.pattern)
        except re.error as error:
            yield Mistake("source.pattern", f"is not a regular expression: {error}")
    for topic, partitions in source.partitions.items():
        path = f"source.partitions.{topic}"
        yield from topic_name(topic, path)
        if not partitions:
            yield Mistake(path, "has no partitions", (f"{topic}: [0, 1]",))
        if any(partition < 0 for partition in partitions):
            yield Mistake(path, "partition numbers start at 0")
        if len(set(partitions)) < len(partitions):
            yield Mistake(path, "names a partition twice")


def _names(topics: Iterable[str], path: str) -> Iterator[Mistake]:
    seen: set[str] = set()
    for index, topic in enumerate(topics):
        yield from topic_name(topic, f"{path}.{index}")
        if topic in seen:
            yield Mistake(f"{path}.{index}", f'"{topic}" appears twice')
        seen.add(topic)


def topic_name(topic: str, path: str) -> Iterator[Mistake]:
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        yield Mistake(
            path, f'"{topic}" is not a valid topic name', ("use at most 249 letters, digits, `.`, `_` and `-`",)
        )


def reads(source: Source, topic: str) -> bool:
    """True if the job reads this topic."""
    if topic in source.topics or topic in source.partitions:
        return True
    try:
        return bool(source.pattern and re.fullmatch(source.pattern, topic))
    except re.error:
        return False  # told by `_topics`


def _position(source: Source, position: Position, path: str) -> Iterator[Mistake]:
    if isinstance(position, dict):
        yield from _offsets(source, position, path)
        return
    word = position.strip()
    if word in ("earliest", "latest", "group"):
        return
    try:
        if is_like_a_time(word):
            parse_time_ms(word, time.time_ns() // 1_000_000, utc=True)
            return
    except (KctlError, OverflowError, ValueError):  # of more digits than Python takes for a number
        pass  # told below, as what is no time at all
    close = did_you_mean(word, ("earliest", "latest", "group"))
    yield Mistake(path, f'"{word}" is not a position in a topic', close or (_PLACES,))


def _offsets(source: Source, position: dict[str, dict[int, int | str]], path: str) -> Iterator[Mistake]:
    known = [*source.topics, *source.partitions]
    for topic, offsets in position.items():
        if not reads(source, topic):
            yield Mistake(f"{path}.{topic}", f'"{topic}" is not read by this job', did_you_mean(topic, known))
        for partition, offset in offsets.items():
            if offset not in ("earliest", "latest") and not (isinstance(offset, int) and offset >= 0):
                yield Mistake(f"{path}.{topic}.{partition}", f'"{offset}" is not an offset, earliest or latest')
            if topic in source.partitions and partition not in source.partitions[topic]:
                yield Mistake(f"{path}.{topic}.{partition}", f"{topic}-{partition} is not read by this job")
