"""Requests that are well-formed and make no sense: Hypothesis puts edges and odd words into every field."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from kafkad.wire.records import Record, build_batch, seal
from kafkad.wire.schema import Field, within
from tests.fuzz.damage import spoiled

TOPICS = ["codec-none", "codec-zstd", "compact", "tx", "idempotent", "murmur", "delrec", "empty", "appendtime", "large"]
"""Some of those in `golden/logs/main`."""
WORDS = [
    "..",
    ".",
    "a" * 249,
    "a" * 250,
    "a" * 5000,
    "a/b",
    "a/../../b",
    "",
    "\0",
    "é",
    "\U0001f41b",
    "{}",
    '"',
    "new.topic",
    "new_topic",
    "__consumer_offsets",
    "__cluster_metadata",
    "-1",
    "1",
    "2",
    "9" * 30,
    "retention.ms",
    "cleanup.policy",
    "compact",
    "compression.type",
    "gzip",
    "max.message.bytes",
    "segment.bytes",
    "log.retention.ms",
    "message.max.bytes",
    "kafkad.acks.fsync",
    "true",
    "listeners",
    "metadata.version",
    "kafkad.broker",
    "root",
    "INFO",
    "/",
]
EDGES = [-1, 0, 1, 2, 3, -2, -3, -4, 8, 16, 32, 33, 101, 127, -128, 10_001, 2**15 - 1, -(2**15)]
EDGES += [2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 1_700_000_000_000]
BITS = {"b": 7, "h": 15, "i": 31, "q": 63, "H": 16, "I": 32}
_AN_EPOCH_MS = 1_700_000_000_000


class Wild:
    """Strategies over `words` and `ids` beside the usual ones: those that mean something to a broker."""

    def __init__(self, words: Sequence[str] = (), ids: Sequence[bytes] = ()) -> None:
        self._text = st.sampled_from([*TOPICS, *WORDS, *words]) | st.text(max_size=5)
        self._ids = st.sampled_from([bytes(16), b"\xff" * 16, *ids]) | st.binary(min_size=16, max_size=16)

    def message(self, cls: Any, version: int) -> st.SearchStrategy[Any]:
        fields = [field for field in cls.__schema__.fields if within(version, field.versions)]
        return st.builds(cls, **{field.name: self._field(field, version) for field in fields})

    def _field(self, field: Field, version: int) -> st.SearchStrategy[Any]:
        found = self._some(field, version)
        return st.none() | found if within(version, field.nullable) else found

    def _some(self, field: Field, version: int) -> st.SearchStrategy[Any]:
        if field.kind == "struct":
            return self.message(field.item, version)
        if field.kind == "array":
            item = self.message if isinstance(field.item, type) else lambda item, of: self._some(item(), of)
            return st.lists(item(field.item, version), max_size=3)
        if field.kind in BITS:
            low = 0 if field.kind.isupper() else -(2 ** BITS[field.kind])
            high = 2 ** BITS[field.kind] - 1
            edges = [edge for edge in EDGES if low <= edge <= high]
            return st.sampled_from(edges) | st.integers(low, high) if len(field.kind) > 1 else st.sampled_from(edges)
        return {
            "?": st.booleans(),
            "d": st.floats(),
            "16s": self._ids,
            "string": self._text,
            "bytes": batches(),
            "records": batches(),
        }[field.kind]


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """A batch as a producer sends it; or one with lies in its header, under a checksum that fits; or any bytes."""
    records = [Record(n, _AN_EPOCH_MS + n, draw(_KEYS), b"value") for n in range(draw(st.integers(0, 4)))]
    options = {
        "codec": draw(st.integers(0, 4)),
        "producer_id": draw(st.sampled_from([-1, -1, 0, 1000, 2**63 - 1])),
        "producer_epoch": draw(st.sampled_from([-1, 0, 1, 2**15 - 1])),
        "base_sequence": draw(st.sampled_from([-1, 0, 1, 4, 2**31 - 1])),
        "transactional": draw(st.integers(0, 5)) == 0,
    }
    batch = build_batch(records or [Record(0, 0, None, None)], **options)
    how = draw(st.integers(0, 5))
    if how < 2:
        return bytes(batch)
    dice = random.Random(draw(st.integers(0, 2**32)))
    if how == 2:
        return spoiled(batch, dice)
    if how == 3:
        return sealed(spoiled(batch, dice, spare=61))
    if how == 4:
        return sealed(_with_wild_header(batch, draw))
    return draw(st.binary(max_size=80))


_KEYS = st.sampled_from([None, b"", b"key"])
_HEADER_FIELDS = {  # where each stands, and how it is packed
    0: "q",
    8: "i",
    12: "i",
    16: "b",
    21: "h",
    23: "i",
    27: "q",
    35: "q",
    43: "q",
    51: "h",
    53: "i",
    57: "i",
}


def _with_wild_header(batch: bytearray, draw: st.DrawFn) -> bytes:
    at = draw(st.sampled_from(sorted(_HEADER_FIELDS)))
    kind = _HEADER_FIELDS[at]
    limit = 2 ** BITS[kind]
    struct.pack_into(">" + kind, batch, at, draw(st.sampled_from([edge for edge in EDGES if -limit <= edge < limit])))
    return bytes(batch)


def sealed(batch: bytes) -> bytes:
    """With the length and the checksum that its bytes now have: lies further in are not found out by those."""
    if len(batch) < 61:
        return batch
    out = bytearray(batch)
    struct.pack_into(">i", out, 8, len(out) - 12)
    seal(memoryview(out), 0, len(out))
    return bytes(out)
