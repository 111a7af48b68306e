"""`kctl etl run`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kafkad_etl.commands import options
from kafkad_etl.commands.base import EtlCommand, for_people
from kctl.command.options import CommonOption
from kctl.command.verb import pass_settings
from kctl.errors import KctlError
from kctl.settings import Settings

if TYPE_CHECKING:
    from kafkad_etl.reporting import How

HOW = ("rich", "plain", "json")
_PROGRAM = "KAFKAD_ETL_PROGRAM"
"""Environment variable with the path of spark/submit, which is this command under another name."""


class SubmitContext(click.Context):
    @property
    def command_path(self) -> str:
        return os.environ.get(_PROGRAM) or super().command_path


class ProgressCommand(EtlCommand):
    """A command whose -o selects how progress is shown, since it prints no table."""

    context_class = SubmitContext

    def __init__(self, *arguments: Any, **others: Any) -> None:
        super().__init__(*arguments, **others)
        (output,) = (option for option in self.params if option.name == "output" and isinstance(option, CommonOption))
        output.type = click.Choice(HOW)
        output.help = "How to show progress.  [default: rich on a terminal, otherwise plain]"

    def get_help(self, ctx: click.Context) -> str:
        return super().get_help(ctx).replace("kctl etl run", ctx.command_path)


@click.command("run", cls=ProgressCommand)
@click.argument("job", type=click.Path(path_type=Path))
@options.variables
@options.sets
@options.mode
@click.option("--limit-rows", type=click.IntRange(min=1), metavar="N", help="Stop after the batch that reaches N rows.")
@click.option("--accept-data-loss", is_flag=True, help="Continue despite deleted records, for this run only.")
@click.option("--trust-sql", is_flag=True, help="Leave SQL and schemas that look wrong to Spark.")
@click.option("--reset-checkpoint", is_flag=True, help="Start over; the old checkpoint is renamed and kept.")
@options.master
@options.java_home
@click.argument("submit_options", nargs=-1, type=click.UNPROCESSED, metavar="[-- SPARK-SUBMIT OPTIONS]")
@pass_settings
def run(settings: Settings, /, **given: Any) -> int:
    """Run a job.

    Ctrl-C stops it after the current batch (exit code 130), a second Ctrl-C at once; the next run resumes from there.
    Everything after -- is passed to spark-submit.

    Example: kctl etl run orders.yaml --var day=2026-11-01 -- --queue night
    """
    how: How = settings.output if settings.output in HOW else "rich" if sys.stderr.isatty() else "plain"  # type: ignore[assignment]
    try:
        return _run(settings, how, **given)
    except KctlError as error:
        if how != "json":
            raise
        return _print_json_error(error, settings)


def _run(settings: Settings, how: How, **given: Any) -> int:
    from kafkad_etl.model.loading import JobFile
    from kafkad_etl.planning.planned import RunOptions
    from kafkad_etl.process.submitting import options_of
    from kafkad_etl.tasks.running import Request, run

    request = Request(
        file=JobFile(given["job"], given["variables"], given["sets"], given["mode"]),
        asked=RunOptions(
            limit_rows=given["limit_rows"] or 0,
            accept_data_loss=given["accept_data_loss"],
            reset_checkpoint=given["reset_checkpoint"],
        ),
        master=given["master"],
        java_home=given["java_home"],
        options=options_of(given["submit_options"]),
        trusts_sql=given["trust_sql"],
        how="plain" if settings.quiet and how == "rich" else how,
    )
    with for_people(settings) as stream:
        return run(settings, request, stream)


def _print_json_error(error: KctlError, settings: Settings) -> int:
    """Prints the error as the last JSON line on standard output, and for people on standard error."""
    import json

    from kafkad_etl.errors import exit_of
    from kctl.texts.output import render_error

    told = {"type": "error", "error": error.what, "code": error.code or None, "hints": list(error.hints)}
    print(json.dumps(told, ensure_ascii=False), flush=True)
    render_error(error, settings, sys.stderr)
    return exit_of(error)
