"""Options that several perf commands have."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from kctl.command.cluster_names import topic_names
from kctl.texts.parsing import LARGEST_INT16, LARGEST_INT32

F = TypeVar("F", bound=Callable[..., object])

partitions = click.option(
    "--partitions",
    type=click.IntRange(1, LARGEST_INT32),
    metavar="N",
    default=1,
    show_default=True,
    help="For the new topic.",
)
replication = click.option(
    "--replication",
    type=click.IntRange(1, LARGEST_INT16),
    metavar="N",
    default=1,
    show_default=True,
    help="For the new topic.",
)


def what_to_send(function: F) -> F:
    """Adds options for the topic, the number of records and the duration."""
    for option in (
        click.option("--duration", metavar="TIME", help="How long to send.  [default: 10s]"),
        click.option("-n", "--records", type=click.IntRange(min=1), metavar="N", help="Number of records to send."),
        click.option(
            "--topic",
            metavar="NAME",
            shell_complete=topic_names,
            help="Use this topic, and leave the records in it.",
        ),
    ):
        function = option(function)
    return function
