"""The options that every command has, before or after its name, with the same meaning everywhere."""

from __future__ import annotations

from typing import Any

import click

from kctl.command.paths import files
from kctl.settings import Settings

FORMATS = ("table", "wide", "json", "yaml", "csv", "name")
_WATCH_SECONDS = "2"


def _store(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value is not None and parameter.name:
        settings = context.ensure_object(Settings)
        setattr(settings, parameter.name, value)


def names_in(text: str) -> list[str]:
    """What stands between commas; a comma too many names nothing."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _columns(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        _store(context, parameter, tuple(names_in(value)))


def _extra(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> None:
    for word in value:
        name, equals, text = word.partition("=")
        if not equals:
            raise click.BadParameter(f'"{word}" is not key=value, as in -X client.id=nightly')
        settings = context.ensure_object(Settings)
        settings.extra = {**settings.extra, name.strip(): text}


def _seconds(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is None:
        return
    from kctl.errors import KctlError
    from kctl.texts.parsing import parse_duration_ms

    try:
        milliseconds = parse_duration_ms(value, unit="s")
    except KctlError as error:
        raise error.reason_of(parameter.opts[0]) from None
    if milliseconds <= 0:
        raise click.BadParameter(f'"{value}" is not a time to wait: 10s, 500ms, 1m')
    _store(context, parameter, milliseconds / 1000)


def spelled_out(arguments: list[str]) -> list[str]:
    """`--watch` without a time gets the default one; click would take the next word for it."""
    return [f"--watch={_WATCH_SECONDS}" if word == "--watch" else word for word in arguments]


_LITERAL = "kctl.literal"


def note_literal(context: click.Context, arguments: list[str]) -> None:
    """Keeps how many arguments stand behind `--`: click does not tell them from others."""
    context.meta[_LITERAL] = len(arguments) - arguments.index("--") - 1 if "--" in arguments else 0


def literal_arguments() -> int:
    """How many of the last arguments of this command stand behind `--`, where each is a name, also `-`."""
    context = click.get_current_context(silent=True)
    return 0 if context is None else int(context.meta.get(_LITERAL, 0))


def _flag(name: str, text: str, *short: str) -> CommonOption:
    names = ["--" + name.replace("_", "-"), *short, name]
    return CommonOption(names, is_flag=True, default=None, expose_value=False, callback=_store, help=text)


class CommonOption(click.Option):
    """One that all commands have: help shows them apart from the command's own."""

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        refuse_empty(ctx, self, value)
        return super().process_value(ctx, value)


def refuse_empty(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """An option with an empty word is a variable that is not set, more often than a wish for everything."""
    if value == "" or (isinstance(value, (tuple, list)) and "" in value):
        what = f"{parameter.opts[0]} is given an empty word: a variable that is not set?"
        raise click.BadParameter(what, ctx=context)


def options() -> list[click.Parameter]:
    """Fresh ones: a command adds them to its own."""
    return [*_reach(), *_output(), *_conduct()]


def _context_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from kctl.command.cluster_names import context_names

    return context_names(context, parameter, incomplete)


def _text(spellings: list[str], metavar: str, text: str, callback: Any = _store, **others: Any) -> CommonOption:
    return CommonOption(spellings, metavar=metavar, expose_value=False, callback=callback, help=text, **others)


def _reach() -> list[click.Parameter]:
    return [
        _text(["-c", "--context"], "NAME", "The context to use; see kctl contexts.", shell_complete=_context_names),
        _text(["-b", "--bootstrap"], "HOST:PORT,…", "Bootstrap brokers.  [default: localhost:9092]"),
        _text(
            ["--command-config"],
            "FILE",
            "A Kafka client's .properties file, in ISO 8859-1 as for Java.",
            shell_complete=files,
        ),
        _text(
            ["-X", "extra"],
            "KEY=VALUE",
            "A Kafka client setting of how brokers are reached, as in client.id=nightly; repeatable.",
            _extra,
            multiple=True,
        ),
        _text(["--timeout"], "TIME", "How long to wait for brokers.  [default: 10s]", _seconds),
    ]


def _conduct() -> list[click.Parameter]:
    return [
        _text(["--watch"], "[=SECONDS]", "Repeat every 2 seconds, or as often as given.", _seconds),
        _flag("yes", "Do not ask for confirmation.", "-y"),
        _flag("dry_run", "Show what would be done, and change nothing."),
        _flag("quiet", "Print only errors on standard error.", "-q"),
        _flag("verbose", "Log each request: its broker and how long it took.", "-v"),
        _flag("debug", "Print a traceback with errors."),
    ]


def _output() -> list[click.Parameter]:
    return [
        CommonOption(
            ["-o", "--output"],
            type=click.Choice(FORMATS),
            expose_value=False,
            callback=_store,
            help="Output format.  [default: table]",
        ),
        CommonOption(
            ["--columns"],
            metavar="A,B",
            expose_value=False,
            callback=_columns,
            help="Only these columns, in this order; --schema lists them.",
        ),
        CommonOption(
            ["--sort"],
            metavar="[-]COLUMN",
            expose_value=False,
            callback=_store,
            help="Sort the rows by this column; - for descending order.",
        ),
        CommonOption(
            ["--limit"],
            type=click.IntRange(min=0),
            metavar="N",
            expose_value=False,
            callback=_store,
            help="Print at most N rows; not with what changes something.",
        ),
        _flag("no_headers", "Leave out the header of tables and csv."),
        _flag("no_pager", "Do not use a pager for output longer than the screen."),
        CommonOption(
            ["--color"],
            type=click.Choice(("auto", "always", "never")),
            expose_value=False,
            callback=_store,
            help="Colors; auto: on a terminal, unless NO_COLOR is set.",
        ),
        _flag("utc", "Show times in UTC instead of local time."),
    ]
