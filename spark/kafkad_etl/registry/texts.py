"""The text that rows of a registered schema are read with."""

from __future__ import annotations

from kafkad_etl.registry import avro, protobuf
from kafkad_etl.registry.client import Registered

KINDS = {"avro": "AVRO", "protobuf": "PROTOBUF", "json": "JSON"}
"""The registry's name for each format."""


def whole(found: Registered) -> str:
    """The schema's text. An Avro schema has those that it refers to in it; one of Protobuf is compiled with them, too.
    Raises Unsupported if that cannot be done, or protobuf.NoProtoc."""
    if found.kind == "AVRO":
        return avro.whole(found.text, found.references)
    if found.kind == "PROTOBUF":
        return protobuf.compiled(found.text, references=found.references).files
    return found.text
