"""Whether the files of a sink are apart from what else the job has: what it reads, its own files, and its checkpoint.

Mode overwrite removes whatever it sees below `sink.path`, merging replaces files there, and a source there would be
read without end. Names that begin with `_` or a dot neither of them sees, nor who reads a directory above them.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import chain, islice, product
from typing import NamedTuple

from kafkad_etl.checkpoint.checkpoints import checkpoint_of
from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.facts import FILES, TABLES, hidden, is_elsewhere, local_path, paths_read
from kafkad_etl.job import Job

_SECURE = {"abfss": "abfs"}
"""Schemes that are another name of the same store."""
_NAME_NODE = ":8020"
"""The port of HDFS where a path names none."""
_METRICS, _HERE = "run.textfile", "the working directory"
"""Directories that have more than the job, and may have the sink's."""
_MOST = 10_000
"""Places of one path that are looked at: a pattern may match more than a start can wait for."""
_MOST_LISTED = 100_000
"""Files and directories of one path that are looked at for links."""


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

    def has(self, other: Place) -> bool:
        return len(self.parts) <= len(other.parts) and self.overlaps(other)


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


def _links(path: str) -> Iterator[tuple[str, Place]]:
    """Links to directories below a path that readers see, and those below such links, each with where it leads. The
    uppermost come first."""
    if is_elsewhere(path):
        return
    tops = (local_path(path), *(f"/{'/'.join(place.parts)}" for place in places_of(path)))
    waiting = deque({os.path.realpath(top): top for top in reversed(tops)}.values())
    seen, left = set(map(os.path.realpath, waiting)), _MOST_LISTED
    while waiting and left > 0:
        with suppress(OSError), os.scandir(waiting.popleft()) as entries:
            for entry in islice(entries, left):
                left -= 1
                is_link = entry.is_symlink() and os.path.isdir(entry.path)
                if hidden(entry.name) or not (is_link or entry.is_dir(follow_symlinks=False)):
                    continue
                if is_link:
                    real = os.path.realpath(entry.path)
                    yield entry.path, Place("file", "", _parts(real))
                    if real in seen:
                        continue
                    seen.add(real)
                waiting.append(entry.path)


def refuse(job: Job, files: Iterable[tuple[str, str]], environment: Mapping[str, str]) -> None:
    """Raises EtlError USAGE if the sink's files would be where others of the job are. `files` are those that the job
    names beside its data, each with its key."""
    target = _target(job)
    if not target:
        return
    sink = _reach(target, [target])
    for key, path in paths_read(job):
        _need_apart(job, sink, key, _reach(path, [*_alternatives(path)]))
    for key, path in _others(job, files, environment):
        _need_apart(job, sink._replace(links=[]), key, _Reach(_places_under(path, _alternatives(path)), []))
    if _removes_what_it_finds(job) and sink.links:
        raise _linked(sink.links[0][0])


class _Reach(NamedTuple):
    """Everywhere that a path leads, and the links below it, each place under its name."""

    own: list[tuple[str, Place]]
    links: list[tuple[str, Place]]

    def outside(self) -> list[tuple[str, Place]]:
        """The links that lead out of the path."""
        return [(link, place) for link, place in self.links if not any(each.has(place) for _, each in self.own)]


def _reach(path: str, alternatives: Collection[str]) -> _Reach:
    """`alternatives`: the paths that this one stands for."""
    return _Reach(_places_under(path, alternatives), [link for each in alternatives for link in _links(each)])


def _places_under(path: str, alternatives: Iterable[str]) -> list[tuple[str, Place]]:
    return [(path, place) for each in alternatives for place in places_of(each)]


def _need_apart(job: Job, sink: _Reach, key: str, other: _Reach) -> None:
    """Raises EtlError if a place of the sink overlaps with one of the other, links last: the paths as they are written
    are told first."""
    sinks, others = sink.outside(), other.outside()
    pairs = chain(product(sink.own, other.own), product(sink.own, others), product(sinks, other.own + others))
    for (target, one), (path, another) in pairs:
        if one.overlaps(another) and not _is_harmless(job, key, one.parts, another.parts):
            raise _refused(target, key, path, len(another.parts) - len(one.parts))


def _removes_what_it_finds(job: Job) -> bool:
    """True if files are removed that the job does not know by its own notes or a table's log."""
    if job.sink.type in FILES:
        return job.sink.mode.startswith("overwrite")
    return job.sink.type in TABLES and bool(job.sink.compact.expire_after)


def _target(job: Job) -> str:
    """The directory that has the sink's files and no others; empty if there is none that the job names."""
    sink = job.sink
    if sink.iceberg is None or not sink.path:
        return sink.path
    return "/".join((sink.path.rstrip("/"), *sink.iceberg.table.split(".")))


def _others(job: Job, files: Iterable[tuple[str, str]], environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Paths of what is the job's beside its data, each with its key."""
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
    relation = "above" if depth > 0 else "below" if depth else "also"
    reads = "read its own rows, or " if key == "source.files.path" else ""
    hint = f"give the sink a directory that has nothing else: it could {reads}remove what the job needs"
    return EtlError(f"{target} is {relation} {key}, {path}", EtlExit.USAGE, key="sink.path", hints=(hint,))


def _linked(link: str) -> EtlError:
    hint = "remove the link, or give the sink a directory without any: what it leads to may not be the sink's"
    return EtlError(f"{link} is a link to a directory", EtlExit.USAGE, key="sink.path", hints=(hint,))


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
