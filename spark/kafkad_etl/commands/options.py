"""Options shared by several verbs."""

from __future__ import annotations

from collections.abc import Sequence

import click


def _pairs(_: click.Context, __: click.Parameter, words: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise click.BadParameter(f'"{word}" is not NAME=VALUE, as in --var day=2026-11-01')
        pairs[name] = value
    return pairs


variables = click.option(
    "--var",
    "variables",
    metavar="NAME=VALUE",
    multiple=True,
    callback=_pairs,
    help="Set a variable of the job file.",
)
sets = click.option(
    "--set", "sets", metavar="KEY=VALUE", multiple=True, help="Set a key of the job file: sink.path=/data."
)
mode = click.option("--mode", type=click.Choice(("batch", "available-now", "continuous")), help="Override run.mode.")
master = click.option("--master", metavar="URL", default="", help="Override spark.master: local[2], yarn, spark://….")
java_home = click.option("--java-home", metavar="DIR", default="", help="Home of the Java to run Spark with.")
