"""`kctl help`."""

from __future__ import annotations

import click

from kctl.command.verb import KctlCommand


@click.command("help", cls=KctlCommand)
@click.argument("words", nargs=-1, metavar="[COMMAND…]")
@click.pass_context
def help_command(context: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of kctl, or of one of its commands.

    The same as adding --help to the command.

    Example: kctl help groups reset-offsets
    """
    root = context.find_root().command
    path = click.Context(root, info_name="kctl", obj=context.obj, **root.context_settings)
    for word in words:
        group = path.command
        if not isinstance(group, click.Group):
            break  # an argument of that command
        name, command, _ = group.resolve_command(path, [word])
        assert command is not None  # resolve_command raises for a word that is none
        path = click.Context(command, parent=path, info_name=name)
    click.echo(path.get_help())
