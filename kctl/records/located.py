"""A record and where it is."""

from __future__ import annotations

from typing import NamedTuple

from kafkad.wire.records import Record


class Located(NamedTuple):
    topic: str
    partition: int
    record: Record
