"""`kctl contexts show`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from kctl.command.cluster_names import context_names
from kctl.command.verb import KctlCommand, pass_settings
from kctl.contexts.chosen import chosen
from kctl.contexts.rows import harmless, harmless_setting
from kctl.errors import Exit
from kctl.reach.access import FIELDS
from kctl.reach.contexts_file import OTHERS
from kctl.settings import Settings
from kctl.texts.output import Column, Document, Row, Writer

COLUMNS = (
    Column("field", "What kctl calls it, or the name of a setting that was kept at the import."),
    Column("value", "What it is; secrets are hidden."),
    Column("used", "Whether kctl uses it.", machine=True),
)


@click.command("show", cls=KctlCommand, columns=COLUMNS)
@click.argument("name", required=False, shell_complete=context_names)
@pass_settings
def show(settings: Settings, name: str | None) -> int:
    """Show a context without its secrets.

    Without a name it shows the current one. Commands that print a secret are shown, the secrets are not.

    Example: kctl contexts show prod
    """
    _, fields = chosen(settings, name)
    Writer(settings, COLUMNS, Document(settings.command)).write(_rows(fields))
    return Exit.DONE


def _rows(fields: dict[str, object]) -> Iterator[Row]:
    for field in FIELDS:
        if field in fields:
            yield {"field": field, "value": harmless(field, fields[field]), "used": True}
    others = fields.get(OTHERS)
    for name, value in others.items() if isinstance(others, dict) else ():
        yield {"field": name, "value": harmless_setting(name, str(value)), "used": False}
