"""`kctl version`."""

from __future__ import annotations

import click

from kafkad import __version__
from kctl.command.verb import KctlCommand, pass_settings
from kctl.settings import Settings
from kctl.texts.output import Column, Document, Writer

COLUMNS = (
    Column("kctl", "The version of kctl, which is that of the kafkad it came with."),
    Column("kafka", "The Kafka whose protocol and files it knows."),
    Column("python", "The Python it runs on.", wide=True),
)
KAFKA = "3.9"


@click.command("version", cls=KctlCommand, columns=COLUMNS)
@pass_settings
def version(settings: Settings) -> None:
    """Print the version of kctl.

    Example: kctl version -o json
    """
    import platform

    row = {"kctl": __version__, "kafka": KAFKA, "python": platform.python_version()}
    Writer(settings, COLUMNS, Document("version")).write([row])
