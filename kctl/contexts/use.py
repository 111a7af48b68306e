"""`kctl contexts use`."""

from __future__ import annotations

import click

from kctl.command.cluster_names import context_names
from kctl.command.verb import KctlCommand, pass_settings
from kctl.contexts.rows import COLUMNS, save, tell_of_one
from kctl.errors import Exit
from kctl.reach.contexts_file import Contexts
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

    def used(contexts: Contexts) -> Contexts:
        contexts.get(name)
        return contexts._replace(current=name)

    before, after = save(settings, used)
    other = f"; it was {before.current}" if before.current not in ("", name) else ""
    tell_of_one(settings, after, name, f"{name} is the current context{other}")
    return Exit.DONE
