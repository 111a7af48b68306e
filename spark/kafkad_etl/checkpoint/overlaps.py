"""Whether the files of a sink are apart from what else the job has: what it reads, and its checkpoint.

Mode overwrite removes whatever it sees below `sink.path`, merging replaces files there, and a source there would be
read without end. Names that begin with `_` or a dot neither of them sees, nor who reads a directory above them.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

from kafkad_etl.checkpoint.checkpoints import checkpoint_of
from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.facts import is_elsewhere, local_path, paths_read
from kafkad_etl.job import Job

_SECURE = {"abfss": "abfs"}
"""Schemes that are another name of the same store."""
_NAME_NODE = ":8020"
"""The port of HDFS where a path names none."""


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


def place_of(path: str) -> Place:
    if is_elsewhere(path):
        scheme, _, rest = path.partition(":")
        store, _, below = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest)
        scheme = scheme.lower()
        if scheme == "hdfs":
            store = store.lower().removesuffix(_NAME_NODE)
        return Place(_SECURE.get(scheme, scheme), store, _parts(posixpath.normpath(f"/{below}")))
    return Place("file", "", _parts(os.path.realpath(local_path(path))))


def refuse(job: Job, environment: Mapping[str, str]) -> None:
    """Raises EtlError USAGE if the sink's files would be where others of the job are."""
    target = _target(job)
    for key, path in _others(job, environment) if target else ():
        for each in _alternatives(path):
            if place_of(target).overlaps(place_of(each)) and not _is_harmless(job, key, target, each):
                raise _refused(target, key, path)


def _target(job: Job) -> str:
    """The directory that has the sink's files and no others; empty if there is none that the job names."""
    sink = job.sink
    if sink.iceberg is None or not sink.path:
        return sink.path
    return "/".join((sink.path.rstrip("/"), *sink.iceberg.table.split(".")))


def _others(job: Job, environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    yield from paths_read(job)
    checkpoint = checkpoint_of(job, environment)
    yield from (("run.checkpoint", path) for path in dict.fromkeys((checkpoint.path, str(checkpoint.directory))))


def _is_harmless(job: Job, key: str, target: str, path: str) -> bool:
    """True for what is below the other under a name that nobody sees who has the other, and for rows of earlier runs as
    a lookup, where none are replaced. The default checkpoint is told all the same: the sink would have the working
    directory."""
    sink, other = place_of(target).parts, place_of(path).parts
    if key == "run.checkpoint":
        if not job.run.checkpoint or len(other) <= len(sink):
            return False
    elif key != "source.files.path" and job.sink.mode == "append" and sink == other:
        return True
    inside = other[len(sink) :] or sink[len(other) :]
    return any(re.match(r"\.|_[^=]*$", part) for part in inside)


def _refused(target: str, key: str, path: str) -> EtlError:
    sink, other = len(place_of(target).parts), len(place_of(path).parts)
    relation = f"is also {key}" if sink == other else f"is {'above' if sink < other else 'below'} {key}, {path}"
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
