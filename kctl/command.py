"""A command of kctl: click's, with the options that all have, and `--schema`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from kctl.output import Column, Document, Writer
from kctl.settings import Settings, options

_SCHEMA = (
    Column("name", "What the field is called in json, yaml and csv, and for --columns and --sort."),
    Column("kind", "What its values are."),
    Column("column", "Its header in a table; those of the wide table only are in brackets."),
    Column("doc", "What it says.", header="MEANING"),
)


class KctlCommand(click.Command):
    """`columns` are those that the command prints."""

    def __init__(self, *arguments: Any, columns: Sequence[Column] = (), **others: Any) -> None:
        super().__init__(*arguments, **others)
        self.columns = tuple(columns)
        self.params.extend(options())
        if columns:
            self.params.append(
                click.Option(
                    ["--schema"],
                    is_flag=True,
                    is_eager=False,
                    expose_value=False,
                    callback=self._print_schema,
                    help="Print the fields of this command's rows, and what they mean.",
                )
            )

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
        if "--schema" in args and self.columns:
            for parameter in self.params:
                parameter.required = False
        return super().parse_args(ctx, args)


pass_settings = click.make_pass_decorator(Settings, ensure=True)
