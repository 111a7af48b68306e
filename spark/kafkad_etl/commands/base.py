"""What the commands of `kctl etl` have in common."""

from __future__ import annotations

from typing import Any

import click

from kafkad_etl.errors import EtlError, exit_of
from kctl.command import KctlCommand
from kctl.errors import KctlError


class EtlCommand(KctlCommand):
    """Ends with the exit codes of `kafkad_etl.errors`, whatever went wrong."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except EtlError:
            raise
        except KctlError as error:
            error.exit_code = exit_of(error)
            raise
