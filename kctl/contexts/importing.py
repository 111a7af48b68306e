"""`kctl contexts import`."""

from __future__ import annotations

import os.path
from typing import Any

import click

from kctl.command.changes import confirm
from kctl.command.paths import files
from kctl.command.verb import KctlCommand, pass_settings
from kctl.contexts.rows import harmless, harmless_setting, load, save, tell, undo_of_new
from kctl.errors import Exit, KctlError
from kctl.reach.access import access_of
from kctl.reach.contexts_file import OTHERS, Contexts, check_name
from kctl.reach.properties import Translated, read, translate
from kctl.reach.stores import check
from kctl.settings import Settings
from kctl.texts.output import Column, Document, Row, Writer, keep_writing, note
from kctl.texts.spelling import command

COLUMNS = (
    Column("setting", "The setting's name in Kafka's clients."),
    Column("field", "What a context calls it; - : kctl has no use for it, and keeps it."),
    Column("value", "What it is; secrets are hidden."),
)
_FILES = ("ca", "certificate", "key")


@click.command("import", cls=KctlCommand, columns=COLUMNS)
@click.argument("file", shell_complete=files)
@click.option("--name", required=True, metavar="NAME", help="Name of the context.")
@pass_settings
def import_properties(settings: Settings, file: str, name: str) -> int:
    """Create a context from a Kafka client's .properties file.

    Imports security.protocol, sasl.* with the JAAS line, and ssl.* with PEM and PKCS12 stores. Settings that kctl does
    not use are kept in the context, and listed. Stores stay where they are.

    Example: kctl contexts import client.properties --name prod
    """
    check_name(name)
    translated = translate(read(file))
    fields = {field: _absolute(field, value) for field, value in translated.fields.items()}
    for field in _FILES:
        if fields.get(field):
            check(fields[field])
    access_of([fields])
    is_new = name not in load().contexts
    if not is_new and not settings.dry_run:
        confirm(settings, f'There is a context "{name}". Replace it?')
    others = {OTHERS: translated.unknown} if translated.unknown else {}

    def imported(contexts: Contexts) -> Contexts:
        if is_new and name in contexts.contexts and not settings.yes:
            what = f'context "{name}" is new: somebody else has just made it'
            raise KctlError(what, exit_code=Exit.REFUSED, hints=("nothing was changed; import it again",))
        return contexts.with_context(name, fields | others)

    keep_writing()
    Writer(settings, COLUMNS, Document(settings.command, dry_run=settings.dry_run)).write(_rows(translated))
    before, _ = save(settings, imported)
    tell(settings, f"context {name} is made of {file}")
    if name not in before.contexts:
        undo_of_new(settings, name)
    if "bootstrap" not in fields:
        how = command("contexts set", name, "bootstrap=HOST:PORT")
        note(settings, f"it does not say where the brokers are: kctl {how}")
    return Exit.DONE


def _absolute(field: str, value: Any) -> Any:
    """The context is used in other directories than this."""
    return os.path.abspath(value) if field in _FILES and value and "-----BEGIN " not in value else value


def _rows(translated: Translated) -> list[Row]:
    used = [
        {"setting": translated.sources[field], "field": field, "value": harmless(field, value)}
        for field, value in translated.fields.items()
    ]
    kept = [
        {"setting": name, "field": None, "value": harmless_setting(name, value)}
        for name, value in translated.unknown.items()
    ]
    return [*used, *kept]
