"""Choice of a record's partition: by its key as Java's clients do, without one, or by a callable."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate, cycle
from typing import TYPE_CHECKING

from kctl.errors import Exit, KctlError
from kctl.records.user_code import load_callable

if TYPE_CHECKING:
    from random import Random

Choose = Callable[[bytes | None, bytes | None], int]
"""The partition of a record with this key and this value."""

PARTITIONERS = ("sticky", "round-robin")

_SEED = 0x9747B28C
_FACTOR = 0x5BD1E995
_32_BITS = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF


def murmur2(data: bytes) -> int:
    """MurmurHash2 of 32 bits, unsigned, with the seed that Kafka's producers use."""
    length = len(data)
    words = length // 4
    value = _SEED ^ length
    for word in struct.unpack_from(f"<{words}I", data):
        word = word * _FACTOR & _32_BITS
        value = (value * _FACTOR & _32_BITS) ^ ((word ^ word >> 24) * _FACTOR & _32_BITS)
    if rest := data[words * 4 :]:
        value = (value ^ int.from_bytes(rest, "little")) * _FACTOR & _32_BITS
    value = (value ^ value >> 13) * _FACTOR & _32_BITS
    return value ^ value >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    """The partition in which Java's default partitioner puts records with this key."""
    return (murmur2(key) & _POSITIVE) % partitions


def partitions_of_key(key: bytes, partitions: int) -> set[int]:
    """The partitions in which the default partitioners put this key: Java's, and librdkafka's by its CRC-32."""
    from zlib import crc32

    return {partition_of_key(key, partitions), crc32(key) % partitions}


def partitioner(how: str, partitions: int, usable: Sequence[int], batch_size: int, chance: Random) -> Choose:
    """`how` is one of PARTITIONERS, which differ for records without a key, or the `module:callable` that decides.

    `usable` are the partitions that have a leader: records that may go anywhere go there.
    """
    if ":" in how:
        return _custom(how, partitions)
    anywhere = list(usable) or list(range(partitions))
    if how != "round-robin":
        return Sticky(partitions, anywhere, batch_size, chance)
    turn = cycle(anywhere)

    def choose(key: bytes | None, value: bytes | None) -> int:
        return next(turn) if key is None else partition_of_key(key, partitions)

    return choose


class Sticky:
    """Without a key the same partition until it got a batch's worth of bytes, then another one, so that batches
    fill."""

    def __init__(self, partitions: int, usable: list[int], batch_size: int, chance: Random) -> None:
        self._partitions = partitions
        self._usable = usable
        self._batch_size = batch_size
        self._chance = chance
        self._current, self._left = chance.choice(usable), batch_size

    def __call__(self, key: bytes | None, value: bytes | None) -> int:
        if key is not None:
            return partition_of_key(key, self._partitions)
        return self.of_next((value or b"",))[0]

    def of_next(self, values: Sequence[bytes]) -> tuple[int, int]:
        """The partition of the first of these values, which have no keys, and how many of them stay with it."""
        if self._left <= 0:
            others = [partition for partition in self._usable if partition != self._current]
            self._current, self._left = self._chance.choice(others or self._usable), self._batch_size
        ends = list(accumulate(map(len, values)))
        count = min(bisect_left(ends, self._left) + 1, len(ends))
        self._left -= ends[count - 1]
        return self._current, count


def _custom(name: str, partitions: int) -> Choose:
    decide = load_callable(name)

    def choose(key: bytes | None, value: bytes | None) -> int:
        chosen = decide(key, value, partitions)
        if not isinstance(chosen, int) or not 0 <= chosen < partitions:
            what = f"partitioner {name} returned {chosen!r}, but the topic has partitions 0 to {partitions - 1}"
            raise KctlError(what, exit_code=Exit.USAGE)
        return chosen

    return choose
