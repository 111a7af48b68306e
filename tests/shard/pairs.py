"""A coordinator that keeps pairs: as small as one can be, and with all that the runtime asks of it."""

from __future__ import annotations

from typing import NamedTuple

from kafkad.shard import Shard
from kafkad.turns import Pieces
from kafkad.wire.primitives import MalformedError


class Pair(NamedTuple):
    key: str
    value: str | None


class Pairs:
    """Keys that begin with ? are of a kind it does not know, those with ! are corrupt."""

    def __init__(self, shard: Shard[Pairs] | None = None) -> None:
        self.shard = shard
        self.pairs: dict[str, str] = {}
        self.pending: dict[int, list[Pair]] = {}
        self.applied: list[Pair] = []
        self.missing: list[tuple[str, dict[str, str]]] = []
        """Damaged places, and the pairs that were known there."""
        self.state = "new"

    def encode(self, record: Pair) -> tuple[bytes, bytes | None]:
        return record.key.encode(), None if record.value is None else record.value.encode()

    def least_size(self, record: Pair) -> int:
        return len(record.key) + len(record.value or "")

    def decode(self, key: bytes, value: bytes | None) -> Pair | None:
        if key.startswith(b"!"):
            raise MalformedError("not a pair")
        if key.startswith(b"?"):
            return None
        return Pair(key.decode(), None if value is None else value.decode())

    def apply(self, record: Pair, producer_id: int = -1) -> None:
        self.applied.append(record)
        if producer_id >= 0:
            self.pending.setdefault(producer_id, []).append(record)
        elif record.value is None:
            self.pairs.pop(record.key, None)
        else:
            self.pairs[record.key] = record.value

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        records = self.pending.pop(producer_id, [])
        if committed:
            for record in records:
                self.apply(record)

    def missed(self, where: str) -> Pieces[None]:
        self.missing.append((where, dict(self.pairs)))
        yield

    def loaded(self) -> None:
        self.state = "loaded"

    def unloaded(self) -> None:
        self.state = "unloaded"
