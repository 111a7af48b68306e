"""Whether the files of a sink are apart from what else the job has: what it reads, its own files, and its checkpoint.

Mode overwrite removes whatever it sees below `sink.path`, merging replaces files there, and a source there would be
read without end. Names that begin with `_` or a dot neither of them sees, nor who reads a directory above them.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import islice, product
from typing import NamedTuple

from kafkad_etl.checkpoint.checkpoints import checkpoint_of
from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.facts import FILES, hidden, is_elsewhere, local_path, paths_read
from kafkad_etl.job import Job

_SECURE = {"abfss": "abfs"}
"""Schemes that are another name of the same store."""
_NAME_NODE = ":8020"
"""The port of HDFS where a path names none."""
_METRICS, _HERE = "run.textfile", "the working directory"
"""Directories that have more than the job, and may have the sink's."""
_MOST = 10_000
"""Places of one path that are looked at: a pattern may match more than a start can wait for."""


class Place(NamedTuple):
    """A directory, comparable with others whatever they are called; its parts may be patterns, as Hadoop has them."""

    scheme: str
    store: str
    """The host or the bucket; empty for the file system's default."""
    parts: tuple[str, ...]

    def overlaps(self, other: Place) -> bool:
        """True if one of both has the other, or is it."""
        is_one_store = self.scheme == other.scheme and (self.store == other.store or not (self.store and other.store))
        return is_one_store and all(map(_match, self.parts, other.parts))


def places_of(path: str) -> list[Place]:
    """Everywhere that a path leads, its own place first: on this machine's disks also as it stands, and by way of each
    link that is on it or that a pattern in it matches now."""
    if is_elsewhere(path):
        scheme, _, rest = path.partition(":")
        store, _, below = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest)
        scheme = scheme.lower()
        if scheme == "hdfs":
            store = store.lower().removesuffix(_NAME_NODE)
        return [Place(_SECURE.get(scheme, scheme), store, _parts(posixpath.normpath(f"/{below}")))]
    local = local_path(path)
    reached = islice(_reached("/", _parts(os.path.abspath(local))), _MOST)
    return [Place("file", "", parts) for parts in dict.fromkeys((_parts(os.path.realpath(local)), *reached))]


def _reached(directory: str, rest: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Where the rest of a path leads from a directory without links."""
    yield (*_parts(directory), *rest)
    for path in _matches(directory, rest[0]) if rest else ():
        if len(rest) > 1 or os.path.islink(path):
            yield from _reached(os.path.realpath(path), rest[1:])


def _matches(directory: str, name: str) -> Iterator[str]:
    """Links and directories of this name, or of one that matches it."""
    if not re.search(r"[*?\[]", name):
        yield os.path.join(directory, name)
        return
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if _match(entry.name, name) and (entry.is_symlink() or entry.is_dir()):
                yield entry.path


def refuse(job: Job, files: Iterable[tuple[str, str]], environment: Mapping[str, str]) -> None:
    """Raises EtlError USAGE if the sink's files would be where others of the job are. `files` are those that the job
    names beside its data, each with its key."""
    target = _target(job)
    sinks = places_of(target) if target else []
    for key, path in _others(job, files, environment) if target else ():
        for sink, other in product(sinks, (place for each in _alternatives(path) for place in places_of(each))):
            if sink.overlaps(other) and not _is_harmless(job, key, sink.parts, other.parts):
                raise _refused(target, key, path, len(other.parts) - len(sink.parts))


def _target(job: Job) -> str:
    """The directory that has the sink's files and no others; empty if there is none that the job names."""
    sink = job.sink
    if sink.iceberg is None or not sink.path:
        return sink.path
    return "/".join((sink.path.rstrip("/"), *sink.iceberg.table.split(".")))


def _others(job: Job, files: Iterable[tuple[str, str]], environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    yield from paths_read(job)
    checkpoint = checkpoint_of(job, environment)
    yield from (("run.checkpoint", path) for path in dict.fromkeys((checkpoint.path, str(checkpoint.directory))))
    yield from files
    if job.run.textfile:
        yield _METRICS, job.run.textfile
    if job.sink.type in FILES and job.sink.mode == "overwrite":
        yield _HERE, os.getcwd()


def _is_harmless(job: Job, key: str, sink: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """True for what is below the other under a name that nobody sees who has the other, for a sink in a directory that
    it does not have to itself, and for rows of earlier runs as a lookup, where none are replaced. The default
    checkpoint is told all the same: the sink would have the working directory."""
    if key == "run.checkpoint" and (not job.run.checkpoint or len(other) <= len(sink)):
        return False
    if key in (_METRICS, _HERE) and len(other) < len(sink):
        return True
    if key.startswith("transform.lookups.") and job.sink.mode == "append" and sink == other:
        return True
    inside = other[len(sink) :] or sink[len(other) :]
    return hidden("/".join(inside))


def _refused(target: str, key: str, path: str, depth: int) -> EtlError:
    """`depth`: of the other below the sink; negative if it is above it."""
    relation = f"is {'above' if depth > 0 else 'below'} {key}, {path}" if depth else f"is also {key}"
    reads = "read its own rows, or " if key == "source.files.path" else ""
    hint = f"give the sink a directory that has nothing else: it could {reads}remove what the job needs"
    return EtlError(f"{target} {relation}", EtlExit.USAGE, key="sink.path", hints=(hint,))


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part)


def _match(one: str, pattern: str) -> bool:
    """Whether a name is this one, or may be one of the pattern's."""
    return one == pattern or fnmatchcase(one, pattern.replace("[^", "[!"))


def _alternatives(path: str) -> Iterator[str]:
    """The paths that one with `{a,b}` stands for."""
    braces = re.search(r"\{([^{}]*)\}", path)
    if braces is None:
        yield path
        return
    for each in braces[1].split(","):
        yield from _alternatives(path[: braces.start()] + each + path[braces.end() :])
