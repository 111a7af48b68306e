"""The options that every command has, before or after its name, with the same meaning everywhere."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

FORMATS = ("table", "wide", "json", "yaml", "csv", "name")


class Settings:
    """What the options say, for one run. The defaults are those of a command line without any of them."""

    __slots__ = ("color", "columns", "limit", "no_headers", "no_pager", "output", "quiet", "sort", "utc", "verbose")

    def __init__(self) -> None:
        self.output = "table"
        self.columns: tuple[str, ...] = ()
        self.sort = ""
        self.limit: int | None = None
        self.no_headers = False
        self.no_pager = False
        self.color = "auto"
        self.utc = False
        self.quiet = False
        self.verbose = False

    @property
    def is_text(self) -> bool:
        """Whether a person reads the output, rather than a program."""
        return self.output in ("table", "wide")

    def colored(self, stream: Any = None) -> bool:
        """Whether to colour what goes to `stream` (standard output): asked for, or a terminal that can and may."""
        if self.color != "auto":
            return self.color == "always"
        if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
            return False
        return bool(os.environ.get("FORCE_COLOR")) or (sys.stdout if stream is None else stream).isatty()


def _store(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value is not None and parameter.name:
        settings = context.ensure_object(Settings)
        setattr(settings, parameter.name, value)


def _columns(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        _store(context, parameter, tuple(name.strip() for name in value.split(",") if name.strip()))


def _flag(name: str, text: str, *short: str) -> click.Option:
    names = ["--" + name.replace("_", "-"), *short, name]
    return click.Option(names, is_flag=True, default=None, expose_value=False, callback=_store, help=text)


def options() -> list[click.Parameter]:
    """Fresh ones: a command adds them to its own."""
    return [
        click.Option(
            ["-o", "--output"],
            type=click.Choice(FORMATS),
            expose_value=False,
            callback=_store,
            help="How to print what was found.  [default: table]",
        ),
        click.Option(
            ["--columns"],
            metavar="A,B",
            expose_value=False,
            callback=_columns,
            help="Only these columns, in this order; --schema lists them.",
        ),
        click.Option(
            ["--sort"],
            metavar="[-]COLUMN",
            expose_value=False,
            callback=_store,
            help="Order of the rows; - is down.",
        ),
        click.Option(
            ["--limit"],
            type=click.IntRange(min=0),
            metavar="N",
            expose_value=False,
            callback=_store,
            help="At most N rows.",
        ),
        _flag("no_headers", "Tables and csv without a first line of names."),
        _flag("no_pager", "On a terminal: do not page what is longer than the screen."),
        click.Option(
            ["--color"],
            type=click.Choice(("auto", "always", "never")),
            expose_value=False,
            callback=_store,
            help="Colours; auto: on a terminal, unless NO_COLOR is set.",
        ),
        _flag("utc", "Times in UTC instead of local time."),
        _flag("quiet", "Nothing on standard error but errors.", "-q"),
        _flag("verbose", "Say how it was done, and where an error came from.", "-v"),
    ]
