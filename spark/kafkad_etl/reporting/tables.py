"""Prints rows of a preview or a console sink on standard output."""

from __future__ import annotations

import sys

from kafkad_etl.messages import Rows
from kctl.settings import Settings
from kctl.texts.output import Column, Document, Writer, print_lines


def print_table(rows: Rows) -> None:
    """Prints values as Spark shows them, and null as -."""
    columns = [Column(name, "", header=name) for name in rows.columns]
    writer = Writer(Settings(), columns, Document("etl"))
    print_lines(writer.table(dict(zip(rows.columns, row, strict=True)) for row in rows.rows))
    sys.stdout.flush()
