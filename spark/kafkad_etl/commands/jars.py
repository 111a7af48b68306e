"""`kctl etl jars`: the jars of the Kafka connector and others, fetched before a job needs them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kafkad_etl.commands import options
from kafkad_etl.commands.base import EtlCommand
from kctl.command.noun import Noun
from kctl.command.verb import pass_settings
from kctl.settings import Settings
from kctl.texts.output import Column, Document, Row, Writer, counted, note, size_text

if TYPE_CHECKING:
    from kafkad_etl.machine.jars import Jar

jars = Noun(
    "jars",
    {
        "fetch": ("kafkad_etl.commands.jars:fetch", "Download all jars that any job may need."),
        "list": ("kafkad_etl.commands.jars:list_jars", "List the jars that jobs may need."),
        "path": ("kafkad_etl.commands.jars:path", "Print the jars as spark-submit's --jars takes them."),
        "archive": ("kafkad_etl.commands.jars:archive", "Archive the classes of Spark's jars: runs start faster."),
        "verify": ("kafkad_etl.commands.jars:verify", "Check the jars against their locked checksums."),
    },
    help="Download and check the jars that jobs need in addition to Spark's own.",
)

COLUMNS = (
    Column("jar", "Maven coordinate: group:name:version."),
    Column("bytes", "Its size.", "size", header="SIZE"),
    Column("state", "ok, missing, or the fault found.", "state"),
    Column("path", "Path in the cache.", wide=True),
    Column("sha256", "Its locked checksum.", wide=True),
)

_version = click.option(
    "--spark", "version", metavar="VERSION", default="", help="PySpark version.  [default: the installed one]"
)
_with = click.option(
    "--with",
    "sets",
    metavar="SET",
    type=click.Choice(["delta", "iceberg", "s3a"]),
    multiple=True,
    help="The jars of this set too: delta or iceberg for sinks of these types, s3a for paths s3a://. May be repeated.",
)
_to = click.option("--to", metavar="DIR", default="", help="A directory to use instead of the cache.")


@click.command("fetch", cls=EtlCommand, columns=COLUMNS)
@click.option("--repo", metavar="URL", default="", help="A Maven mirror or a directory.  [default: Maven Central]")
@_with
@_to
@_version
@pass_settings
def fetch(settings: Settings, repo: str, sets: Sequence[str], to: str, version: str) -> None:
    """Download all jars that any job may need.

    The Kafka connector, Avro, Protobuf and JDBC drivers are stored in the cache, or in a directory that another machine
    can use as its repository with KAFKAD_MAVEN_REPO=DIR. Jobs download these themselves; those of --with only this
    command does.

    Example: kctl etl jars fetch --to /media/stick/jars
    """
    from kafkad_etl.machine.download import fetched
    from kafkad_etl.machine.jars import every_jar, fault

    directory = _directory(to)
    wanted = every_jar(_chosen(version), sets)
    missing = [jar for jar in wanted if fault(jar, directory / jar.path)]
    fetched(wanted, directory, os.environ, repo)
    _write(settings, [_row(jar, directory, "ok") for jar in wanted])
    what = f"{counted(len(missing), 'jar')} downloaded ({size_text(sum(jar.bytes for jar in missing))})"
    note(settings, f"{what if missing else 'all jars were already there'}: {directory}")


@click.command("list", cls=EtlCommand, columns=COLUMNS)
@_with
@_to
@_version
@pass_settings
def list_jars(settings: Settings, sets: Sequence[str], to: str, version: str) -> None:
    """List the jars that jobs may need.

    Example: kctl etl jars list -o wide
    """
    _checked(settings, sets, to, version)


@click.command("path", cls=EtlCommand)
@click.option("--repo", metavar="URL", default="", help="A Maven mirror or a directory.  [default: Maven Central]")
@_with
@_to
@_version
@pass_settings
def path(settings: Settings, repo: str, sets: Sequence[str], to: str, version: str) -> None:
    """Print the jars as spark-submit's --jars takes them.

    These are the Kafka connector and Avro, and those of --with; missing ones are downloaded first. For a spark-submit
    called by hand: eval "$(kctl etl env)".

    Example: spark-submit --jars "$(kctl etl jars path)" job.py
    """
    from kafkad_etl.machine.download import fetched
    from kafkad_etl.machine.jars import for_programs, set_of

    chosen = _chosen(version)
    wanted = [*for_programs(chosen), *(jar for name in sets for jar in set_of(name, chosen))]
    print(",".join(map(str, fetched(wanted, _directory(to), os.environ, repo))))


@click.command("verify", cls=EtlCommand, columns=COLUMNS)
@_with
@_to
@_version
@pass_settings
def verify(settings: Settings, sets: Sequence[str], to: str, version: str) -> int:
    """Check the jars against their locked checksums.

    Exits with 4 if a jar is missing or differs from its checksum.

    Example: kctl etl jars verify
    """
    from kafkad_etl.errors import EtlExit

    return EtlExit.DONE if _checked(settings, sets, to, version) else EtlExit.ENVIRONMENT


def _checked(settings: Settings, sets: Sequence[str], to: str, version: str) -> bool:
    """Lists all jars and returns whether all of them are intact."""
    from kafkad_etl.machine.jars import every_jar, fault

    directory = _directory(to)
    found = {jar: fault(jar, directory / jar.path).removeprefix("is ") for jar in every_jar(_chosen(version), sets)}
    _write(settings, [_row(jar, directory, what or "ok") for jar, what in found.items()])
    return not any(found.values())


def _directory(to: str) -> Path:
    from kafkad_etl.machine.cache import cache_directory

    return Path(to).absolute() if to else cache_directory(os.environ) / "jars"


def _chosen(version: str) -> str:
    """The version given, the installed PySpark's, or the latest known one (to fetch jars for another machine)."""
    from kafkad_etl.errors import EtlError
    from kafkad_etl.machine import spark_home
    from kafkad_etl.machine.jars import known_versions

    if version:
        return version
    try:
        return spark_home.find().version
    except EtlError:
        return known_versions()[-1]


def _row(jar: Jar, directory: Path, state: str) -> Row:
    path = str(directory / jar.path)
    return {"jar": jar.coordinate, "bytes": jar.bytes, "state": state, "path": path, "sha256": jar.sha256}


def _write(settings: Settings, rows: list[Row]) -> None:
    Writer(settings, COLUMNS, Document(settings.command)).write(rows)


@click.command("archive", cls=EtlCommand)
@options.java_home
@pass_settings
def archive(settings: Settings, java_home: str) -> int:
    """Archive the classes of Spark's jars: runs start faster.

    Java maps the archive instead of loading and checking each class, which is about half of the processor time of a
    short run. It takes 170 MB in the cache, for this PySpark and this Java. Runs work without it.

    Exits with 4 if this Java makes none.

    Example: kctl etl jars archive
    """
    from kafkad_etl.errors import EtlError, EtlExit
    from kafkad_etl.machine import class_archive, environment
    from kafkad_etl.machine.cache import cache_directory
    from kafkad_etl.process import warming

    cache = cache_directory(os.environ)
    found = environment.bare(os.environ, java_home)
    if why := warming.archive(found, cache, os.environ):
        raise EtlError(
            f"no archive of Spark's classes: {why}",
            EtlExit.ENVIRONMENT,
            hints=("runs work without it, and start slower",),
        )
    path = class_archive.location(found.java, found.spark_home, cache)
    note(settings, f"Spark's classes are archived ({size_text(path.stat().st_size)}): {path}")
    return EtlExit.DONE
