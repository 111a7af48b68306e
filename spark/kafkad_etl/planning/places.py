"""Checks places of a job without Spark: files to read, a writable directory, a responding server, an existing table.

Anything that cannot be checked from here, such as other file systems and databases, is left to the driver.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from contextlib import closing
from itertools import takewhile
from pathlib import Path

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.facts import POSTGRESQL, SQLITE, is_elsewhere, local_path, paths_of, paths_read
from kafkad_etl.job import JdbcSink, Job
from kafkad_etl.machine import hadoop, object_store
from kafkad_etl.machine.reachability import Connect, unreachable
from kafkad_etl.planning import catalogs
from kafkad_etl.planning.databases import addresses, sqlite_file


def faults(job: Job, connect: Connect = socket.create_connection) -> Iterator[EtlError]:
    """Errors for anything that a run would fail on once Spark had started."""
    yield from missing(job)
    sink = job.sink
    if sink.path and not is_elsewhere(sink.path):
        yield from _of_directory(Path(local_path(sink.path)))
    yield from _of_hdfs(job, connect)
    yield from object_store.faults(job, os.environ)
    if sink.jdbc and sink.jdbc.url.startswith(SQLITE):
        yield from _of_sqlite(sink.jdbc)
    if sink.jdbc and sink.jdbc.url.startswith(POSTGRESQL):
        yield from _of_server(sink.jdbc.url, connect)
    yield from catalogs.faults(job, connect)
    if job.run.textfile:
        yield from _of_metrics(Path(local_path(job.run.textfile)))


def missing(job: Job) -> Iterator[EtlError]:
    """Errors for what the job reads on this machine's disks and is not there; of a pattern, for where it begins."""
    for key, path in paths_read(job):
        if is_elsewhere(path):
            continue
        local = Path(local_path(path))
        known = Path(*takewhile(lambda part: not re.search(r"[*?\[{]", part), local.absolute().parts))
        if not known.exists():
            why = "" if local.is_absolute() else "; it is relative to the current directory"
            yield EtlError(
                f"{known} does not exist", EtlExit.CLUSTER, key=key, hints=(f"create it, or set {key}{why}",)
            )


def _of_directory(path: Path) -> Iterator[EtlError]:
    """Checks the directory and its parent, since files are written next to it and renamed into it."""
    path = path.absolute()
    there, beside = _nearest(path), _nearest(path.parent)
    if not there.is_dir():
        yield EtlError(f"{there} is a file, but the sink needs a directory", EtlExit.CLUSTER, key="sink.path")
        return
    for directory in dict.fromkeys((there, beside)):
        if why := unwritable(directory):
            hints = (f"files are first written next to {path}, then renamed into it",) if directory != there else ()
            yield EtlError(f"{directory} is not writable: {why}", EtlExit.CLUSTER, key="sink.path", hints=hints)
            return
    if there == path and path.stat().st_dev != beside.stat().st_dev:
        what = f"{path} is a mount point, and files cannot be renamed into it from the outside"
        hint = f"use a directory below it: {path / 'data'}"
        yield EtlError(what, EtlExit.CLUSTER, key="sink.path", hints=(hint,))


def _of_metrics(directory: Path) -> Iterator[EtlError]:
    """A directory of another program, so a missing one is a mistake."""
    if why := unwritable(directory):
        hint = "name the directory that node_exporter has as --collector.textfile.directory"
        what = f"{directory} is not writable: {why}"
        yield EtlError(what, EtlExit.USAGE, key="run.textfile", hints=(hint,))


def _nearest(path: Path) -> Path:
    return next(each for each in (path, *path.parents) if each.exists())


def unwritable(directory: Path) -> str:
    """The reason why no file can be created there; empty if one could, unnamed where the system supports that, and
    is gone again."""
    from tempfile import TemporaryFile

    try:
        with TemporaryFile(dir=directory):
            return ""
    except OSError as error:
        return (error.strerror or str(error)).lower()


def _of_hdfs(job: Job, connect: Connect) -> Iterator[EtlError]:
    """Checks each HDFS once."""
    found = hadoop.find(os.environ, job.spark.conf)
    asked = set()
    for key, path in paths_of(job):
        nodes = tuple(hadoop.name_nodes(found.settings, path)) if path.startswith("hdfs:") else ()
        if nodes and nodes not in asked:
            asked.add(nodes)
            if reasons := unreachable(nodes, connect):
                yield EtlError(f"the NameNode of {path} is not responding at {reasons}", EtlExit.CLUSTER, key=key)


def _of_sqlite(sink: JdbcSink) -> Iterator[EtlError]:
    import sqlite3

    path = sqlite_file(sink.url)
    if path is None:
        return
    hint = f"create it with: sqlite3 {path} 'CREATE TABLE {sink.table} (…)'"
    if not path.is_file():
        yield EtlError(f"database {path} does not exist", EtlExit.CLUSTER, hints=(hint,), key="sink.jdbc.url")
        return
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            names = [
                name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
            ]
    except sqlite3.Error as error:
        yield EtlError(f"{path} cannot be read: {error}", EtlExit.CLUSTER, key="sink.jdbc.url")
        return
    table = sink.table.rpartition(".")[2].strip('"').lower()
    if table not in (name.lower() for name in names):
        yield EtlError(f"{path} has no table {sink.table}", EtlExit.CLUSTER, hints=(hint,), key="sink.jdbc.table")


def _of_server(url: str, connect: Connect) -> Iterator[EtlError]:
    """Checks a list of servers, of which one suffices."""
    if reasons := unreachable(addresses(url), connect):
        yield EtlError(f"the database is not responding at {reasons}", EtlExit.CLUSTER, key="sink.jdbc.url")
