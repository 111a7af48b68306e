"""Files and directories that a command line names: how the shell completes them, and where undo files go."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

F = TypeVar("F", bound=Callable[..., object])


def files(_: click.Context, __: click.Parameter, incomplete: str) -> list[click.shell_completion.CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def directories(_: click.Context, __: click.Parameter, incomplete: str) -> list[click.shell_completion.CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="dir")]


def undo_dir_option(told: str = "Directory for the undo file.  [default: the current one]") -> Callable[[F], F]:
    return click.option("--undo-dir", shell_complete=directories, default=".", metavar="DIR", help=told)
