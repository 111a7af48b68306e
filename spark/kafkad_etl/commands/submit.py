"""`kctl etl submit`, which is spark/submit in a clone: a job or a program, told apart by the file's name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from kafkad_etl.commands import options
from kafkad_etl.commands.base import EtlCommand, for_people
from kafkad_etl.commands.run import SubmitContext
from kafkad_etl.commands.run import run as run_job
from kctl.command.paths import files
from kctl.command.verb import pass_settings
from kctl.settings import Settings

_JOBS = (".yaml", ".yml")
_GRACE_SECONDS = 25.0

SPARK_OPTIONS = {
    "--master": ("URL", "local[2], yarn, spark://…, k8s://….  [default: local[*]]"),
    "--name": ("NAME", "The application's name."),
    "--py-files": ("FILES", "Python modules that the program imports: .py, .zip or .egg, with commas."),
    "--files": ("FILES", "Files for the working directory of each executor."),
    "--archives": ("FILES", "Archives to unpack there: env.tar.gz#env."),
    "--jars": ("FILES", "Jars, in addition to those of Kafka and Avro."),
    "--packages": ("COORDINATES", "Jars that Spark downloads: group:name:version."),
    "--properties-file": ("FILE", "Spark settings, one a line."),
    "--driver-memory": ("SIZE", "The driver's heap size.  [default: 1g]"),
    "--executor-memory": ("SIZE", "Each executor's heap size."),
    "--executor-cores": ("N", "Each executor's cores."),
    "--num-executors": ("N", "The number of executors."),
    "--queue": ("NAME", "YARN's queue."),
    "--exclude-packages": ("COORDINATES", ""),
    "--repositories": ("URLS", ""),
    "--driver-java-options": ("OPTIONS", ""),
    "--driver-library-path": ("PATH", ""),
    "--driver-class-path": ("PATH", ""),
    "--driver-cores": ("N", ""),
    "--total-executor-cores": ("N", ""),
    "--proxy-user": ("NAME", ""),
    "--principal": ("NAME", ""),
    "--keytab": ("FILE", ""),
    "--deploy-mode": ("MODE", ""),
}
"""Those of spark-submit; --conf is apart. Help leaves out those without a text."""


class SubmitCommand(EtlCommand):
    """A command whose arguments after `--` are the program's."""

    context_class = SubmitContext

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """A job's context is that of `kctl etl run`, with its options."""
        if is_job(operand(args, (*self.params, *run_job.params))):
            return run_job.make_context(info_name, args, parent, **extra)
        return super().make_context(info_name, args, parent, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        rest = super().parse_args(ctx, args[:end])
        ctx.params["arguments"] = tuple(args[end + 1 :])
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- ARGUMENTS]"]

    def get_help(self, ctx: click.Context) -> str:
        return super().get_help(ctx).replace("kctl etl submit", ctx.command_path)


def operand(words: Sequence[str], parameters: Iterable[click.Parameter]) -> str:
    """The first word before `--` that is neither an option nor an option's value."""
    known = [parameter for parameter in parameters if isinstance(parameter, click.Option)]
    with_value = {name for option in known if not option.is_flag for name in option.opts}
    rest = iter(words)
    for word in rest:
        if word == "--":
            break
        if not word.startswith("-"):
            return word
        if word in with_value:
            next(rest, "")
    return ""


def is_job(name: str) -> bool:
    return Path(name).suffix.lower() in _JOBS


def _spark_options(function: Any) -> Any:
    for name, (metavar, text) in reversed(SPARK_OPTIONS.items()):
        function = click.option(name, metavar=metavar, help=text, hidden=not text)(function)
    return function


@click.command("submit", cls=SubmitCommand)
@click.argument("file", nargs=-1, metavar="PROGRAM.py|JOB.yaml", shell_complete=files)
@_spark_options
@click.option("--conf", metavar="NAME=VALUE", multiple=True, help="A Spark setting; repeatable.")
@options.java_home
@click.option(
    "--grace",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=_GRACE_SECONDS,
    help=f"How long the program may take to end after SIGTERM.  [default: {_GRACE_SECONDS:g}]",
)
@pass_settings
def submit(settings: Settings, /, **given: Any) -> int:
    """Run a PySpark program, or a job as kctl etl run does.

    A program gets Java, PySpark, the Kafka connector, and in KCTL_* variables the brokers and the login of -b, -c or
    the current context; kafkad_etl.topic makes readers and writers of them. spark-submit's options are taken, and
    what follows -- is the program's. Its output is passed on without secrets, its exit code is the command's. Ctrl-C
    reaches the program, a second Ctrl-C ends it at once. For a job the options are those of kctl etl run.

    Example: kctl etl submit daily_totals.py --py-files lib.zip -- --day 2026-11-01
    """
    from kafkad_etl.tasks.programs import Request, submit

    request = Request(
        file=_single(given["file"]),
        options={name: value for name in SPARK_OPTIONS if (value := given[name[2:].replace("-", "_")])},
        conf=given["conf"],
        arguments=given["arguments"],
        java_home=given["java_home"],
        grace=given["grace"],
    )
    with for_people(settings) as stream:
        return submit(settings, request, stream)


def _single(words: Sequence[str]) -> str:
    if not words:
        raise click.UsageError("Missing argument 'PROGRAM.py|JOB.yaml'.")
    if len(words) > 1:
        raise click.UsageError(f"the program's arguments go after --: {words[0]} … -- {' '.join(words[1:])}")
    return words[0]
