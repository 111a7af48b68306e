"""The layout of help: a command's own options first, those that all commands have below in few lines."""

from __future__ import annotations

import click

from kctl.command.options import CommonOption


def _show_help(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        click.echo(context.get_help())
        context.exit()


HELP = click.Option(
    ["-h", "--help"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_help,
    help="Show this message and exit.",
)
"""Click would make one for each command, and search for translations of its text."""


def format_options(command: click.Command, context: click.Context, formatter: click.HelpFormatter) -> None:
    own = [p for p in command.get_params(context) if isinstance(p, click.Option) and not isinstance(p, CommonOption)]
    records = [record for parameter in own if (record := parameter.get_help_record(context))]
    if records:
        with formatter.section("Options"):
            formatter.write_dl(records)
    common = [p for p in command.get_params(context) if isinstance(p, CommonOption)]
    if context.parent is None:
        with formatter.section("Options of every command"):
            formatter.write_dl([record for p in common if (record := p.get_help_record(context))])
        return
    with formatter.section("Options of every command (kctl --help says more)"):
        formatter.write_text("  ".join("/".join(sorted(p.opts, key=len)) for p in common))
