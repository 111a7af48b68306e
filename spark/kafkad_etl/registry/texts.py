"""The text that rows of a registered schema are read with."""

from __future__ import annotations

from kafkad_etl.registry import avro
from kafkad_etl.registry.client import Registered


def whole(found: Registered) -> str:
    """The schema's text. An Avro schema has those that it refers to in it."""
    return avro.whole(found.text, found.references) if found.kind == "AVRO" else found.text
