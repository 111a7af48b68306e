"""A command of kctl: click's, with the options that all have, and `--schema`; and how it answers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from functools import update_wrapper
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import click
from click.core import ParameterSource

from kctl.command.help import HELP, format_options
from kctl.command.options import note_literal, options, refuse_empty, spelled_out
from kctl.errors import Exit, KctlError, exit_code
from kctl.settings import Settings
from kctl.texts.output import Column, Document, Row, Writer, render_errors, time_text

if TYPE_CHECKING:
    from kctl.reach.session import Session

P = ParamSpec("P")
R = TypeVar("R")

_SCHEMA = (
    Column("name", "What the field is called in json, yaml and csv, and for --columns and --sort."),
    Column("kind", "What its values are."),
    Column("column", "Its header in a table; those of the wide table only are in brackets."),
    Column("doc", "What it says.", header="MEANING"),
)


class KctlCommand(click.Command):
    """`columns` are those that the command prints. A `watchable` one is run again and again by --watch; one that
    `watches` looks again by itself. `foreign` are options of other tools for the same, and what to say instead. An
    empty word is a mistake, but for the options that `may_be_empty`."""

    def __init__(
        self,
        *arguments: Any,
        columns: Sequence[Column] = (),
        watchable: bool = False,
        watches: bool = False,
        foreign: Mapping[str, str] = MappingProxyType({}),
        may_be_empty: Collection[str] = (),
        **others: Any,
    ) -> None:
        super().__init__(*arguments, **others)
        self.columns = tuple(columns)
        self.watchable = watchable
        self.watches = watches
        self.foreign = foreign
        self.may_be_empty = may_be_empty
        self.params.extend(options())
        if columns:
            self.params.append(
                click.Option(
                    ["--schema"],
                    is_flag=True,
                    is_eager=False,
                    expose_value=False,
                    callback=self._print_schema,
                    help="Print the fields of this command's output, and what they mean.",
                )
            )

    def get_help_option(self, ctx: click.Context) -> click.Option:
        return HELP

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        format_options(self, ctx, formatter)

    def _print_schema(self, context: click.Context, _: click.Parameter, asked: bool) -> None:
        if not asked or context.resilient_parsing:
            return
        rows = [
            {
                "name": column.name,
                "kind": column.kind,
                "column": None if column.machine else f"({column.title})" if column.wide else column.title,
                "doc": column.doc,
            }
            for column in self.columns
        ]
        settings = context.ensure_object(Settings)
        Writer(settings, _SCHEMA, Document("schema")).write(rows)
        context.exit()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`--schema` needs none of the arguments that the command needs."""
        note_literal(ctx, args)
        if "--schema" not in args or not self.columns:
            left = super().parse_args(ctx, spelled_out(args))
            self._refuse_empty(ctx)
            return left
        required = [parameter for parameter in self.params if parameter.required]
        for parameter in required:
            parameter.required = False
        try:
            return super().parse_args(ctx, spelled_out(args))
        finally:
            for parameter in required:
                parameter.required = True

    def _refuse_empty(self, ctx: click.Context) -> None:
        """Arguments are names, and an empty one is none; an empty option would often be one that is not given."""
        for parameter in self.params:
            name = parameter.name or ""
            given = ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
            if given and isinstance(parameter, click.Option) and name not in self.may_be_empty:
                refuse_empty(ctx, parameter, ctx.params.get(name))

    def invoke(self, ctx: click.Context) -> Any:
        settings = ctx.ensure_object(Settings)
        if settings.watch is None or self.watches:
            return super().invoke(ctx)
        if not self.watchable:
            raise KctlError(f"{ctx.command_path} does not support --watch", exit_code=Exit.USAGE)
        from kctl.command.watching import watch

        return watch(settings, settings.watch, lambda: super(KctlCommand, self).invoke(ctx) or Exit.DONE, watched(ctx))


def watched(context: click.Context) -> Callable[[], str]:
    """The first line of a picture of --watch: the command, the cluster and the time."""

    def title() -> str:
        import time

        settings = context.ensure_object(Settings)
        session: Session | None = context.find_root().meta.get("kctl.session")
        where = "" if session is None else f"  cluster {session.access.context or session.cluster.cluster_id or '-'}"
        now = time_text(int(time.time()) * 1000, settings.utc).partition(".")[0]
        return f"kctl {settings.command}{where}  {now}  every {settings.watch:g}s"

    return title


pass_settings = click.make_pass_decorator(Settings, ensure=True)


def pass_session(function: Callable[Concatenate[Session, P], R]) -> Callable[P, R]:
    """Gives the command a session on the cluster that the settings name. It is closed when the command line ends."""

    def with_session(*arguments: P.args, **others: P.kwargs) -> R:
        context = click.get_current_context()
        root = context.find_root()
        session = root.meta.get("kctl.session")
        if session is None:
            from kctl.reach.session import open_session

            session = root.meta["kctl.session"] = open_session(context.ensure_object(Settings))
            root.call_on_close(session.close)
        return function(session, *arguments, **others)

    return update_wrapper(with_session, function)


def answer(
    session: Session,
    columns: Sequence[Column],
    rows: Iterable[Row],
    errors: Sequence[KctlError] = (),
    *,
    text: Callable[[], Iterable[str]] | None = None,
    stream: bool = False,
    dry_run: bool = False,
) -> IntEnum:
    """Prints what a command found and what it could not, and returns its exit code. `text` makes the lines for
    people, where one table does not say it all."""
    settings = session.settings
    document = Document(settings.command, stream or settings.watch is not None, session.cluster.cluster_id, dry_run)
    writer = Writer(settings, columns, document)
    if errors:
        rows = list(rows)
    if errors and not rows and settings.is_text:
        pass  # the errors say it all: no table without a row
    elif text is not None and settings.is_text and not settings.columns:
        writer.print_text(text())
    else:
        writer.write(rows, errors)
    sys.stdout.flush()
    render_errors(errors, settings)
    return exit_code(errors)
