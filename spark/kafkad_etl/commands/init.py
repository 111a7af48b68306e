"""`kctl etl init`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kafkad_etl.commands.base import EtlCommand
from kctl.command.verb import pass_settings
from kctl.settings import Settings
from kctl.texts.output import Column, Document, Writer, note

COLUMNS = (
    Column("name", "For --example."),
    Column("description", "What the job does."),
)


@click.command("init", cls=EtlCommand, columns=COLUMNS)
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--example", "name", metavar="NAME", help="Which one to write.")
@pass_settings
def init(settings: Settings, file: Path | None, name: str | None) -> None:
    """Write a job file to begin with; list the examples.

    Without --example it lists them. The file is NAME.yaml if not named, and - is standard output. What is there already
    is not overwritten.

    Example: kctl etl init --example topic-to-parquet orders.yaml
    """
    from kafkad_etl.errors import EtlError, EtlExit
    from kafkad_etl.model.examples import example, examples

    if name is None:
        if file is not None:
            raise EtlError("which example?", EtlExit.USAGE, hints=("--example NAME; kctl etl init lists them",))
        rows = [{"name": one.name, "description": one.description} for one in examples()]
        Writer(settings, COLUMNS, Document(settings.command)).write(rows)
        return
    text = example(name).text
    if file == Path("-"):
        sys.stdout.write(text)
        return
    file = file or Path(f"{name}.yaml")
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise EtlError(f"{file} is there already", EtlExit.USAGE, hints=("name another file",)) from None
    except OSError as error:
        raise EtlError(f"cannot write {file}: {error.strerror}", EtlExit.USAGE) from error
    note(settings, f"{file} written; next: kctl etl validate {file}")
