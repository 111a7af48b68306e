"""The root of the command line: which commands there are, and how an error becomes text and an exit code.

A command's module is imported when that command is called. Help lists all of them from the table here, so that it
stays fast; a test compares the table with the commands.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

import click

from kctl.command.noun import LazyGroup
from kctl.command.verb import KctlCommand
from kctl.errors import Exit, KctlError, of_file
from kctl.settings import COMPLETION, Settings
from kctl.texts.output import Document, drop, envelope, render_errors
from kctl.texts.taming import without_c1

COMMANDS = {
    "topics": ("kctl.topics:topics", "List, create, change and delete topics."),
    "groups": ("kctl.groups:groups", "Show, reset, rebalance and delete consumer groups."),
    "partitions": ("kctl.partitions:partitions", "Show where replicas are, and move them."),
    "brokers": ("kctl.brokers:brokers", "Show brokers, their log directories and API versions."),
    "cluster": ("kctl.cluster:cluster", "Show the cluster as a whole."),
    "configs": (
        "kctl.configs:configs",
        "Show, change and compare settings of topics, brokers, groups, users and clients.",
    ),
    "acls": ("kctl.acls:acls", "Manage access control lists."),
    "users": ("kctl.users:users", "List, set and delete the SCRAM credentials of users."),
    "quotas": ("kctl.quotas:quotas", "Show and set quotas of users, clients and addresses."),
    "tokens": ("kctl.tokens:tokens", "Create, renew and expire delegation tokens."),
    "txns": ("kctl.txns:txns", "Show transactions, and end those that nobody else ends."),
    "produce": ("kctl.records.produce:produce", "Send records from standard input, files or the command line."),
    "consume": ("kctl.records.consume:consume", "Print records of topics, up to the current end or continuously."),
    "copy": ("kctl.records.copy:copy", "Copy the records of one topic to another, here or on another cluster."),
    "perf": ("kctl.records.perf:perf", "Measure throughput and latency."),
    "doctor": ("kctl.doctor.command:doctor", "Check the whole cluster, and report problems."),
    "etl": (
        "kafkad_etl.commands:etl",
        "Run Spark jobs that move data from topics through SQL to files, tables and other topics.",
    ),
    "dump-segment": ("kctl.segments.dump_segment:dump_segment", "Print the contents of log files."),
    "dump-index": ("kctl.segments.dump_index:dump_index", "Print indexes, producer snapshots and checkpoints."),
    "check-log": (
        "kctl.segments.check_log:check_log",
        "Check log directories, or directories of single partitions.",
    ),
    "contexts": ("kctl.contexts:contexts", "Manage named clusters and how to reach them."),
    "raw": ("kctl.raw:raw", "Send any request, given as JSON, and print the answer."),
    "completion": ("kctl.completion:completion", "Print a script that makes a shell complete kctl's commands."),
    "version": ("kctl.version:version", "Print the version of kctl."),
    "help": ("kctl.help_command:help_command", "Show the help of kctl, or of one of its commands."),
}


MEANT = {
    "reassign": "kctl partitions reassign, or kctl partitions plan for many at once",
    "drain": "kctl partitions drain",
    "elect": "kctl partitions elect",
    "reset-offsets": "kctl groups reset-offsets",
    "rebalance": "kctl groups rebalance for a consumer group, kctl partitions plan to spread partitions over brokers",
    "lag": "kctl groups lag",
    "offsets": "kctl topics offsets, or kctl groups describe for what a group has committed",
    "zk": "kctl cluster zk",
    "list": "kctl topics list, kctl groups list, kctl brokers list",
    "describe": "kctl topics describe, kctl groups describe, kctl brokers describe",
    "create": "kctl topics create",
    "delete": "kctl topics delete, kctl groups delete",
    "spark-submit": "kctl etl submit PROGRAM.py, or kctl etl run JOB.yaml",
}
"""Hints for words typed at the root: a command without its noun, or the name that another tool has for it."""


@click.pass_context
def _without_command(context: click.Context, version: bool) -> None:
    """What is left to say when there are options only."""
    if context.invoked_subcommand is not None:
        return
    if not version:
        context.fail("Missing command.")
    show = root.get_command(context, "version")
    assert show is not None
    context.ensure_object(Settings).command = "version"
    with show.make_context("version", [], parent=context) as of_version:
        show.invoke(of_version)


root = LazyGroup(
    "kctl",
    COMMANDS,
    meant=MEANT,
    callback=_without_command,
    invoke_without_command=True,
    no_args_is_help=True,
    subcommand_metavar="COMMAND [ARGS]...",
    params=[click.Option(["--version"], is_flag=True, help="Print the version of kctl, as `kctl version` does.")],
    help="Operate kafkad, or any other Kafka. `kctl COMMAND --help` says more of each command.",
    context_settings={"max_content_width": 120},
)


def run(arguments: Sequence[str]) -> int:
    """Runs a command line and returns its exit code; every failure is reported on standard error."""
    settings = Settings()
    streams = sys.stdout, sys.stderr
    try:
        code = _call(list(arguments), settings)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _flush()
        return Exit.FAILED if settings.changed else Exit.DONE
    except (KeyboardInterrupt, click.Abort):
        _flush()
        begin = "\n" if sys.stderr.isatty() else ""  # the terminal shows ^C
        print(f"{begin}interrupted{settings.changed and ': '}{settings.changed}", file=sys.stderr)
        return Exit.INTERRUPTED
    except Exception as error:  # the top of the program
        return _failed(error, settings)
    finally:
        sys.stdout, sys.stderr = streams


def _flush() -> None:
    """The exit must not try to write again what cannot be written."""
    try:
        sys.stdout.flush()
    except OSError:
        drop(sys.stdout)


def _call(arguments: list[str], settings: Settings) -> int:
    """Click's own `main` is not used: it takes a closed pipe for a failure."""
    if instruction := os.environ.get(COMPLETION):
        from kctl.completion import complete

        return complete(root, instruction)
    try:
        with root.make_context("kctl", arguments, obj=settings) as context:
            code = root.invoke(context)
            return code if isinstance(code, int) else Exit.DONE
    except click.exceptions.NoArgsIsHelpError as asked:
        click.echo(asked.ctx.get_help() if asked.ctx else "")
        return Exit.DONE
    except click.exceptions.Exit as done:
        return done.exit_code


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _failed(error: Exception, settings: Settings) -> int:
    told = _told(error)
    if settings.changed and not isinstance(error, KctlError):
        told.what += f"; {settings.changed}"
    with suppress(OSError):  # standard output may be what failed
        if settings.output in ("json", "yaml") and not settings.answered:
            _print_envelope([told, *settings.untold], settings)
    _flush()
    render_errors([told, *settings.untold], settings)
    if settings.debug:
        import traceback

        traceback.print_exception(error)
    return told.exit_code


def _told(error: Exception) -> KctlError:
    if isinstance(error, KctlError):
        return error
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "kctl"
        return KctlError(
            " ".join(error.format_message().split()),
            exit_code=Exit.USAGE,
            hints=(*_meant(error), f"{path} --help lists what is available"),
        )
    if isinstance(error, OSError) and error.filename:
        return of_file(error)
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        return KctlError(f"cannot write: {error.strerror}", hints=("the disk of standard output or of a file is full",))
    if isinstance(error, ModuleNotFoundError):
        from kctl.command.extras import missing

        if told := missing(error):
            return told
    what = f"{type(error).__name__}: {error}"
    return KctlError(what, hints=("this is a bug in kctl: please report it with the output of --debug",))


def _meant(error: click.UsageError) -> tuple[str, ...]:
    """The hint for an option that the command does not have, but another tool for the same work has."""
    option = error.option_name if isinstance(error, click.NoSuchOption) else ""
    known = error.ctx.command.foreign if error.ctx and isinstance(error.ctx.command, KctlCommand) else {}
    return (known[option],) if option in known else ()


def _print_envelope(errors: Sequence[KctlError], settings: Settings) -> None:
    whole = envelope(settings, Document(settings.command), [], errors)
    if settings.output == "json":
        import json

        print(without_c1(json.dumps(whole, ensure_ascii=False, indent=2)))
    else:
        import yaml

        print(yaml.safe_dump(whole, sort_keys=False, allow_unicode=True), end="")
