"""The root of the command line: which commands there are, and how an error becomes text and an exit code.

A command's module is imported when that command is called. Help lists all of them from the table here, so that it
stays fast; a test compares the table with the commands.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from kctl.errors import Exit, KctlError, did_you_mean
from kctl.output import envelope, render_error
from kctl.settings import Settings, options

COMMANDS = {
    "version": ("kctl.version:version", "Print the version of kctl."),
    "dump-segment": ("kctl.segments.dump_segment:dump_segment", "Print what is in the files of a log."),
    "dump-index": ("kctl.segments.dump_index:dump_index", "Print indexes, producer snapshots and checkpoints."),
    "check-log": (
        "kctl.segments.check_log:check_log",
        "Check log directories, or directories of single partitions.",
    ),
    "completion": ("kctl.completion:completion", "Print what makes a shell complete kctl's commands."),
}


COMPLETE = "_KCTL_COMPLETE"
"""The variable in which the shell's completion asks."""


class LazyGroup(click.Group):
    """Commands by name, as `module:attribute` with a line of help."""

    def __init__(self, *arguments: Any, commands: dict[str, tuple[str, str]], **others: Any) -> None:
        super().__init__(*arguments, **others)
        self.lazy = commands
        self.params.extend(options())

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy:
            return None
        module, _, attribute = self.lazy[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.lazy and not args[0].startswith("-"):
            hints = did_you_mean(args[0], list(self.lazy)) or (f"there are: {', '.join(self.lazy)}",)
            raise KctlError(f'there is no command "{args[0]}"', exit_code=Exit.USAGE, hints=hints)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[click.shell_completion.CompletionItem]:
        """Without importing the commands for their help, which click would."""
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=text) for name, (_, text) in self.lazy.items() if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.lazy.items()])


root = LazyGroup(
    "kctl",
    commands=COMMANDS,
    help="Operate kafkad, or any other Kafka. `kctl COMMAND --help` says more of each command.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


def run(arguments: Sequence[str]) -> int:
    """The exit code of a command line; everything that fails is told on standard error."""
    settings = Settings()
    try:
        code = _call(list(arguments), settings)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # whoever read has gone; the exit must not try to flush again
        return Exit.DONE
    except (KeyboardInterrupt, click.Abort):
        print("interrupted", file=sys.stderr)
        return Exit.INTERRUPTED
    except Exception as error:  # the top of the program
        return _failed(error, settings, _command_name(arguments))


def _call(arguments: list[str], settings: Settings) -> int:
    """Click's own `main` is not used: it takes a closed pipe for a failure."""
    if instruction := os.environ.get(COMPLETE):
        from click.shell_completion import shell_complete

        return shell_complete(root, {}, "kctl", COMPLETE, instruction)
    try:
        with root.make_context("kctl", arguments, obj=settings) as context:
            code = root.invoke(context)
            return code if isinstance(code, int) else Exit.DONE
    except click.exceptions.Exit as done:
        return done.exit_code


def _failed(error: Exception, settings: Settings, command: str) -> int:
    told = _told(error)
    if settings.output in ("json", "yaml"):
        _print_envelope(told, settings, command)
    render_error(told, settings, sys.stderr)
    if settings.verbose:
        import traceback

        traceback.print_exception(error)
    return told.exit_code


def _told(error: Exception) -> KctlError:
    if isinstance(error, KctlError):
        return error
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "kctl"
        return KctlError(error.format_message(), exit_code=Exit.USAGE, hints=(f"{path} --help says what there is",))
    if isinstance(error, OSError) and error.filename:
        code = Exit.NOT_FOUND if isinstance(error, FileNotFoundError) else Exit.FAILED
        return KctlError(f"{os.fsdecode(error.filename)}: {error.strerror}", exit_code=code)
    what = f"{type(error).__name__}: {error}"
    return KctlError(what, hints=("this is a defect of kctl: please report it with what -v prints",))


def _print_envelope(error: KctlError, settings: Settings, command: str) -> None:
    whole = envelope(command, [], [error])
    if settings.output == "json":
        import json

        print(json.dumps(whole, ensure_ascii=False, indent=2))
    else:
        import yaml

        print(yaml.safe_dump(whole, sort_keys=False, allow_unicode=True), end="")
    sys.stdout.flush()


def _command_name(arguments: Sequence[str]) -> str:
    return next((word for word in arguments if word in COMMANDS), "")
