"""Groups of commands that are imported when they are called.

Help lists a group from its table of names and texts, so that it stays fast; a test compares the tables with the
commands. A noun is known by its singular too, and `ls` and `rm` are `list` and `delete`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

import click

from kctl.command.help import HELP, format_options
from kctl.command.options import options, spelled_out
from kctl.errors import Exit, KctlError, did_you_mean
from kctl.settings import Settings

_SHORT = {"ls": "list", "rm": "delete"}

Commands = dict[str, tuple[str, str]]
"""Name to `module:attribute` and the one line of help."""


class LazyGroup(click.Group):
    def __init__(
        self, name: str, commands: Commands, meant: Mapping[str, str] = MappingProxyType({}), **others: Any
    ) -> None:
        """`meant`: what people may mean with a word that is no command."""
        super().__init__(name, **others)
        self.lazy = commands
        self._meant = meant
        self.params.extend(options())

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.lazy)

    def full_name(self, word: str) -> str:
        """The command that `word` means; itself if it is none."""
        if word in self.lazy:
            return word
        return next((name for name in (_SHORT.get(word, ""), word + "s") if name in self.lazy), word)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = self.full_name(cmd_name)
        if name not in self.lazy:
            return None
        module, _, attribute = self.lazy[name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0] if args else ""
        if word and self.full_name(word) not in self.lazy and not word.startswith("-"):
            hints = did_you_mean(word, list(self.lazy)) or (f"there are: {', '.join(self.lazy)}",)
            if word in self._meant:
                hints = (self._meant[word],)
            path = ctx.command_path.removeprefix("kctl").strip()
            what = f'"{path}" has no command "{word}"' if path else f'there is no command "{word}"'
            raise KctlError(what, exit_code=Exit.USAGE, hints=hints)
        settings = ctx.ensure_object(Settings)
        settings.command = f"{settings.command} {self.full_name(word)}".strip()
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, spelled_out(args))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[click.shell_completion.CompletionItem]:
        """Without importing the commands for their help, which click would."""
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=text) for name, (_, text) in self.lazy.items() if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def get_help_option(self, ctx: click.Context) -> click.Option:
        return HELP

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        format_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.lazy.items()])


class Noun(LazyGroup):
    """The group of commands for one kind of thing: `kctl topics …`."""
