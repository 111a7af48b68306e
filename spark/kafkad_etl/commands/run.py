"""`kctl etl run`."""

from __future__ import annotations

import os
import sys
from functools import partial
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

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        rest = super().parse_args(ctx, args[:end])
        ctx.params["submit_options"] = tuple(args[end + 1 :])
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- SPARK-SUBMIT OPTIONS]"]

    def get_help(self, ctx: click.Context) -> str:
        return super().get_help(ctx).replace("kctl etl run", ctx.command_path)


@click.command("run", cls=ProgressCommand)
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True, type=click.Path(path_type=Path))
@options.variables
@options.sets
@options.mode
@click.option("--limit-rows", type=click.IntRange(min=1), metavar="N", help="Stop after the batch that reaches N rows.")
@click.option("--accept-data-loss", is_flag=True, help="Continue despite deleted records, for this run only.")
@click.option("--trust-sql", is_flag=True, help="Leave SQL and schemas that look wrong to Spark.")
@click.option("--reset-checkpoint", is_flag=True, help="Start over; the old checkpoint is renamed and kept.")
@options.master
@options.java_home
@pass_settings
def run(settings: Settings, /, **given: Any) -> int:
    """Run a job, or several in one Spark.

    Ctrl-C stops it after the current batch (exit code 130), a second Ctrl-C at once; the next run resumes from there.
    Of several jobs, one that fails does not stop the others, and the exit code is the worst; mistakes in any of the
    files are reported before one of them starts. Everything after -- is passed to spark-submit.

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
    from kctl.texts.output import keep_writing

    keep_writing()
    request = Request(
        files=[
            JobFile(job, given["variables"], given["sets"], given["mode"], is_one_of_several=len(given["jobs"]) > 1)
            for job in given["jobs"]
        ],
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
        return run(settings, request, stream, partial(_print_job_error, settings, how))


def _print_job_error(settings: Settings, how: How, label: str, error: KctlError) -> None:
    """Prints the error of one of several jobs; the others go on."""
    import io

    from kctl.texts.output import render_error

    if how == "json":
        _print_error_line(error, {"job": label.removesuffix("| ").rstrip()})
    told = io.StringIO()
    render_error(error, settings, told)
    for line in told.getvalue().splitlines():
        print(f"{label}{line}", file=sys.stderr, flush=True)


def _print_json_error(error: KctlError, settings: Settings) -> int:
    """Prints the error as the last JSON line on standard output, and for people on standard error."""
    from kafkad_etl.errors import exit_of
    from kctl.texts.output import render_error

    _print_error_line(error, {})
    render_error(error, settings, sys.stderr)
    return exit_of(error)


def _print_error_line(error: KctlError, about: dict[str, str]) -> None:
    import json

    told = {**about, "type": "error", "error": error.what, "code": error.code or None, "hints": list(error.hints)}
    print(json.dumps(told, ensure_ascii=False), flush=True)
