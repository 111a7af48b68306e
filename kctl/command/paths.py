"""Completes files and directories that a command line names; for `shell_complete=`."""

from __future__ import annotations

import click


def files(_: click.Context, __: click.Parameter, incomplete: str) -> list[click.shell_completion.CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def directories(_: click.Context, __: click.Parameter, incomplete: str) -> list[click.shell_completion.CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="dir")]
