"""`kctl contexts list`."""

from __future__ import annotations

import click

from kctl.command.verb import KctlCommand, pass_settings
from kctl.contexts.rows import COLUMNS, load, rows
from kctl.errors import Exit
from kctl.settings import Settings
from kctl.texts.output import Document, Writer, note


@click.command("list", cls=KctlCommand, columns=COLUMNS)
@pass_settings
def list_contexts(settings: Settings) -> int:
    """List the contexts.

    The current one is used unless -c, -b, KCTL_CONTEXT or KCTL_BOOTSTRAP say otherwise.

    Example: kctl contexts list -o wide
    """
    contexts = load()
    if not contexts.contexts:
        note(settings, "there are none; kctl contexts set NAME bootstrap=HOST:PORT makes one")
    Writer(settings, COLUMNS, Document(settings.command)).write(rows(contexts, contexts.contexts))
    return Exit.DONE
