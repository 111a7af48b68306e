"""The base class of `kctl etl` commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import click

from kafkad_etl.errors import EtlError, exit_of
from kctl.command.verb import KctlCommand
from kctl.errors import KctlError
from kctl.settings import Settings


@contextmanager
def for_people(settings: Settings) -> Iterator[TextIO]:
    """Standard error, or nowhere with --quiet."""
    if not settings.quiet:
        yield sys.stderr
        return
    with open(os.devnull, "w") as nowhere:
        yield nowhere


class EtlCommand(KctlCommand):
    """A command that always exits with one of the codes in `kafkad_etl.errors`."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except EtlError:
            raise
        except KctlError as error:
            error.exit_code = exit_of(error)
            raise
