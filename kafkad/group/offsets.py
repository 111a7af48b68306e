"""The committed offsets of one shard, and the pending ones of open transactions.

Rules:
- Order in the log decides. A transaction's offset counts from where it stands in the log, not from its marker: what was
  committed to the same partition behind it, by whomever, stays.
- A forgotten offset is forgotten with what open transactions had for it.
- Nobody sees a pending offset but who asks whether there is one (`require_stable`, KIP-447).

There can be millions, so each is kept as one short bytes object, which the garbage collector need not look at.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from itertools import chain
from sys import intern
from typing import NamedTuple

from kafkad.group.records import NO_TIMESTAMP, OffsetCommitted, OffsetForgotten

_FIXED = struct.Struct(">qiqq")
_OFFSET = struct.Struct(">q")
"""The fixed fields at its start."""

Position = tuple[str, int]
"""Topic and partition."""


class Committed(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int


class _Pending(NamedTuple):
    """An offset of an open transaction."""

    order: int
    value: bytes


@dataclass(slots=True)
class _Place:
    """What open transactions have at one position."""

    of_producers: dict[int, _Pending] = field(default_factory=dict)
    """By the id of the producer."""
    settled: int = 0
    """What is up to this order will not count any more: something behind it does already."""


class Offsets:
    """Everything is by group: name → topic and partition → offset."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[Position, bytes]] = {}
        self._pending: dict[str, dict[Position, _Place]] = {}
        self._of_producer: dict[int, dict[str, dict[Position, None]]] = {}
        """Where each producer has something pending."""
        self._count = 0
        self._order = 0

    def __len__(self) -> int:
        """The number of committed offsets."""
        return self._count

    def __contains__(self, group: str) -> bool:
        """True if the group has an offset, committed or pending."""
        return group in self._committed or group in self._pending

    def groups(self) -> set[str]:
        return self._committed.keys() | self._pending.keys()

    def committed(self, group: str, topic: str, partition: int) -> Committed | None:
        of_group = self._committed.get(group)
        if of_group is None:
            return None
        value = of_group.get((topic, partition))
        return None if value is None else _unpack(value)

    def of_group(self, group: str) -> Iterator[tuple[Position, Committed]]:
        """All committed offsets, in the order in which their partitions were first committed: those of the moment in
        which the first is taken, however long it takes to go through them."""
        for position, value in list(self._committed.get(group, {}).items()):
            yield position, _unpack(value)

    def offsets(self, group: str) -> list[tuple[Position, int]]:
        """All committed offsets without what was committed with them."""
        return [(position, _OFFSET.unpack_from(value)[0]) for position, value in self._committed.get(group, {}).items()]

    def pending(self, group: str) -> set[Position]:
        """The positions that open transactions will commit."""
        return set(self._pending.get(group, ()))

    def is_pending(self, group: str, position: Position) -> bool:
        return position in self._pending.get(group, ())

    def is_pending_since(self, group: str, position: Position, since: range) -> bool:
        """True if an open transaction will commit an offset there that was sent at one of these times."""
        place = self._pending.get(group, {}).get(position)
        return place is not None and any(
            order > place.settled and _unpack(value).commit_timestamp in since
            for order, value in place.of_producers.values()
        )

    def positions(self, group: str) -> set[Position]:
        """The positions of all that is committed or pending: what has to be deleted with the group."""
        return self.pending(group).union(self._committed.get(group, ()))

    def there(self, group: str, positions: Iterable[Position]) -> set[Position]:
        """Those of the positions at which something is committed or pending."""
        committed, pending = self._committed.get(group, ()), self._pending.get(group, ())
        return {position for position in positions if position in committed or position in pending}

    def has_only(self, group: str, positions: Set[Position]) -> bool:
        """True if nothing is committed or pending anywhere else: it looks at no more than one other."""
        there = chain(self._committed.get(group, ()), self._pending.get(group, ()))
        return all(position in positions for position in there)

    def apply(self, record: OffsetCommitted | OffsetForgotten, producer_id: int = -1) -> None:
        """`producer_id` of a transaction: the offset waits for `end_transaction`."""
        group, position = record.group, (record.topic, record.partition)
        if isinstance(record, OffsetForgotten):
            self._forget(group, position)
        elif producer_id < 0:
            self.put(group, position, pack(*record[3:]))
        else:
            self._order += 1
            position = (intern(record.topic), record.partition)
            pending = self._pending.setdefault(group, {})
            place = pending.get(position)
            if place is None:
                place = pending[position] = _Place()
            place.of_producers[producer_id] = _Pending(self._order, pack(*record[3:]))
            self._of_producer.setdefault(producer_id, {}).setdefault(group, {})[position] = None

    def put(self, group: str, position: Position, value: bytes) -> None:
        """HOT. `value`, made by `pack`, holds from now on, whatever is pending."""
        of_group = self._committed.get(group)
        if of_group is None:
            of_group = self._committed[intern(group)] = {}
        if position not in of_group:
            self._count += 1
            position = (intern(position[0]), position[1])
        of_group[position] = value
        if group in self._pending:
            self._settle(group, (position,))

    def put_all(self, group: str, values: Mapping[Position, bytes]) -> None:
        """The same for many, each as `kept` makes it."""
        self._put_all(group, values)
        if group in self._pending:
            self._settle(group, values)

    def _settle(self, group: str, positions: Iterable[Position]) -> None:
        """Something counts there that is behind all that is pending."""
        pending = self._pending[group]
        for position in positions:
            place = pending.get(position)
            if place is not None:
                place.settled = self._order

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Ends this producer's transaction: its pending offsets take effect, or are dropped."""
        for group, positions in self._of_producer.pop(producer_id, {}).items():
            pending = self._pending[group]
            values: dict[Position, bytes] = {}
            for position in positions:
                place = pending[position]
                order, value = place.of_producers.pop(producer_id)
                if committed and order > place.settled:
                    values[position] = value
                    place.settled = order
                if not place.of_producers:
                    del pending[position]
            if not pending:
                del self._pending[group]
            if values:
                self._put_all(group, values)

    def _put_all(self, group: str, values: Mapping[Position, bytes]) -> None:
        of_group = self._committed.get(group)
        if of_group is None:
            of_group = self._committed[intern(group)] = {}
        before = len(of_group)
        of_group.update(values)
        self._count += len(of_group) - before

    def _forget(self, group: str, position: Position) -> None:
        of_group = self._committed.get(group)
        if of_group is not None and of_group.pop(position, None) is not None:
            self._count -= 1
            if not of_group:
                del self._committed[group]
        pending = self._pending.get(group, {})
        place = pending.pop(position, None)
        if place is not None:
            for producer_id in place.of_producers:
                self._no_longer_pending(producer_id, group, position)
        if group in self._pending and not pending:
            del self._pending[group]

    def _no_longer_pending(self, producer_id: int, group: str, position: Position) -> None:
        groups = self._of_producer[producer_id]
        del groups[group][position]
        if not groups[group]:
            del groups[group]
        if not groups:
            del self._of_producer[producer_id]


def kept(record: OffsetCommitted) -> tuple[Position, bytes]:
    """A record as `Offsets` keeps it."""
    return (intern(record.topic), record.partition), pack(*record[3:])


def pack(
    offset: int, leader_epoch: int, metadata: str, commit_timestamp: int, expire_timestamp: int = NO_TIMESTAMP
) -> bytes:
    fixed = _FIXED.pack(offset, leader_epoch, commit_timestamp, expire_timestamp)
    return fixed + metadata.encode() if metadata else fixed


def _unpack(value: bytes) -> Committed:
    offset, leader_epoch, commit_timestamp, expire_timestamp = _FIXED.unpack_from(value)
    metadata = "" if len(value) == _FIXED.size else str(value[_FIXED.size :], "utf-8")
    return Committed(offset, leader_epoch, metadata, commit_timestamp, expire_timestamp)
