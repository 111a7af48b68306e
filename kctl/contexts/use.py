"""`kctl contexts use`."""

from __future__ import annotations

import click

from kctl.command.cluster_names import context_names
from kctl.command.verb import KctlCommand, pass_settings
from kctl.contexts.rows import COLUMNS, load, save_one
from kctl.errors import Exit
from kctl.settings import Settings


@click.command("use", cls=KctlCommand, columns=COLUMNS)
@click.argument("name", shell_complete=context_names)
@pass_settings
def use(settings: Settings, name: str) -> int:
    """Make a context the current one.

    This applies to all shells; -c and KCTL_CONTEXT choose another one for a command or a shell. An address (-b) without
    -c uses none, so that no context's password goes to another cluster.

    Example: kctl contexts use prod
    """
    contexts = load()
    contexts.get(name)
    before = f"; it was {contexts.current}" if contexts.current not in ("", name) else ""
    save_one(settings, contexts._replace(current=name), name, f"{name} is the current context{before}")
    return Exit.DONE
