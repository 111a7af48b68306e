"""`kctl etl schema`."""

from __future__ import annotations

import click

from kafkad_etl.commands.base import EtlCommand


@click.command("schema", cls=EtlCommand)
def schema() -> None:
    """Print the JSON Schema of job files, for editors.

    With it, editors that support YAML complete keys and show their documentation.

    Example: kctl etl schema > job.schema.json
    """
    import json

    import msgspec

    from kafkad_etl.job import Job

    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "kctl etl job"}
    click.echo(json.dumps(dialect | msgspec.json.schema(Job), indent=2))
