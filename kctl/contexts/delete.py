"""`kctl contexts delete`."""

from __future__ import annotations

import click

from kctl.command.changes import confirm
from kctl.command.cluster_names import context_names
from kctl.command.verb import KctlCommand, pass_settings
from kctl.contexts.rows import COLUMNS, load, save, tell_of_one
from kctl.errors import Exit
from kctl.reach.contexts_file import Contexts
from kctl.settings import Settings


@click.command("delete", cls=KctlCommand, columns=COLUMNS)
@click.argument("name", shell_complete=context_names)
@pass_settings
def delete(settings: Settings, name: str) -> int:
    """Delete a context.

    The cluster itself is not changed. Asks for confirmation, unless -y is given.

    Example: kctl contexts delete old-dev
    """

    def left(contexts: Contexts) -> Contexts:
        contexts.get(name)
        return contexts.without(name)

    left(load())
    if not settings.dry_run:
        confirm(settings, f'Delete context "{name}", with any password in it?')
    before, after = save(settings, left)
    gone = "; there is no current one now" if before.current == name and after.contexts else ""
    tell_of_one(settings, after, name, f"context {name} is deleted{gone}")
    return Exit.DONE
