"""Options that several verbs of groups have."""

from __future__ import annotations

import click

from kctl.command.cluster_names import topic_names
from kctl.command.paths import directories

scopes_option = click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:0,1]",
    shell_complete=topic_names,
    help="This topic, or some of its partitions.",
)
undo_dir_option = click.option(
    "--undo-dir",
    shell_complete=directories,
    default=".",
    metavar="DIR",
    help="Directory for the undo file.  [default: the current one]",
)
