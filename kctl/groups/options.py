"""The option that several verbs of groups have."""

from __future__ import annotations

import click

from kctl.command.cluster_names import topic_names

scopes_option = click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:0,1]",
    shell_complete=topic_names,
    help="This topic, or some of its partitions.",
)
