"""`kctl etl init`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kafkad_etl.commands.base import EtlCommand
from kctl.command.verb import pass_settings
from kctl.settings import Settings
from kctl.texts.output import Column, Document, Writer, note
from kctl.texts.spelling import command

COLUMNS = (
    Column("name", "The example's name, for --example."),
    Column("description", "What the job does."),
)


@click.command("init", cls=EtlCommand, columns=COLUMNS)
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--example", "name", metavar="NAME", help="The example to write.")
@click.option("--tests", is_flag=True, help="Also write its tests, to tests/FILE beside it.")
@pass_settings
def init(settings: Settings, file: Path | None, name: str | None, tests: bool) -> None:
    """Write a job file from an example, or list the examples.

    Without --example, lists the examples. FILE defaults to NAME.yaml; - writes to standard output. An existing file is
    never overwritten.

    Example: kctl etl init --example topic-to-parquet orders.yaml
    """
    from kafkad_etl.errors import EtlError, EtlExit
    from kafkad_etl.model.cases import cases_path
    from kafkad_etl.model.examples import example, examples

    if name is None:
        if file is not None:
            raise EtlError("name an example", EtlExit.USAGE, hints=("--example NAME; kctl etl init lists them",))
        rows = [{"name": one.name, "description": one.description} for one in examples()]
        Writer(settings, COLUMNS, Document(settings.command)).write(rows)
        return
    found = example(name)
    if file == Path("-"):
        sys.stdout.write(found.text)
        return
    file = file or Path(f"{name}.yaml")
    _write(file, found.text)
    note(settings, f"{file} written; next: kctl {command('etl validate', str(file))}")
    if tests:
        _write(cases_path(file), found.cases)
        note(settings, f"{cases_path(file)} written; next: kctl {command('etl test', str(file))}")


def _write(file: Path, text: str) -> None:
    from kafkad_etl.errors import EtlError, EtlExit
    from kafkad_etl.model.cases import FOLDER

    try:
        if file.parent.name == FOLDER:
            file.parent.mkdir(exist_ok=True)
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise EtlError(f"{file} already exists", EtlExit.USAGE, hints=("choose another file name",)) from None
    except OSError as error:
        raise EtlError(f"cannot write {file}: {error.strerror}", EtlExit.USAGE) from error
