"""A hash table of fixed size with the last offset of each key, and the verdicts on records that follow from it.

A dict of a million keys takes 120 to 150 MB, more while it grows. Here an entry takes 24 bytes of one array, as in
Kafka: two 64-bit hashes of the key and its offset. The hashes are Python's own (SipHash) of the key and of the key with
a suffix, under a secret that is new in every process: nobody can make two keys that collide, as anybody can with MD5.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence

DROP, KEEP, TOMBSTONE, UNKNOWN_TOMBSTONE = range(4)
"""Verdicts on a record: dropped, kept, kept until its delete horizon, kept because the map ends before it."""

ENTRY_SIZE = 24
_WORDS = 3
_SALT_SIZE = 8
_SCAN = 3 << 16


class KeyMap:
    """The last offset of each key, over the offsets [first, latest], which are added in order."""

    __slots__ = ("_mask", "_salt", "_table", "capacity", "first", "latest", "size")

    def __init__(self, buffer_bytes: int, load_factor: float, first: int, upto: int) -> None:
        """A power of two, which is quicker: as large as the records need, as far as the buffer goes."""
        slots = 2
        while _room(slots, load_factor) < upto - first and 2 * slots * ENTRY_SIZE <= buffer_bytes:
            slots *= 2
        self.capacity = max(1, _room(slots, load_factor))
        self.size = 0
        self.first = first
        self.latest = first - 1
        self._mask = slots - 1
        self._salt = os.urandom(_SALT_SIZE)
        self._table = array("q", (0, 0, -1)) * slots

    @property
    def utilization(self) -> float:
        return self.size / (self._mask + 1)

    def put(self, keys: Sequence[bytes | None], entries: Sequence[int]) -> bool:
        """Take records in, as `read_keys` gives them; one without a key says nothing.

        False when there is no room for one of them: `latest` is then the last offset taken. Hot.
        """
        table, mask, salt, size = self._table, self._mask, self._salt, self.size
        first = self.first << 1
        last = self.latest << 1
        full = True
        for key, entry in zip(keys, entries, strict=True):
            if key is None or entry < first:
                continue
            found = hash(key) or 1
            at = (found & mask) * _WORDS
            while (there := table[at]) and (there != found or table[at + 1] != hash(key + salt)):
                at += _WORDS
                if at > mask * _WORDS:
                    at = 0
            if not there:
                if size == self.capacity:
                    break
                size += 1
                table[at] = found
                table[at + 1] = hash(key + salt)
            table[at + 2] = last = entry
        else:
            full = False
        self.size = size
        self.latest = last >> 1
        return not full

    def find(self, key: bytes) -> int:
        """The last offset of the key; -1 when it is not there."""
        at = self._entry(key)
        return self._table[at + 2] >> 1 if self._table[at] else -1

    def _entry(self, key: bytes) -> int:
        """The place of the key's entry, present or to be made."""
        table, mask = self._table, self._mask
        found = hash(key) or 1
        at = (found & mask) * _WORDS
        while (there := table[at]) and (there != found or table[at + 1] != hash(key + self._salt)):
            at += _WORDS
            if at > mask * _WORDS:
                at = 0
        return at

    def verdicts(self, first: int, count: int) -> bytearray:
        """For each offset of [first, first + count): DROP, KEEP or TOMBSTONE. Goes through the whole table."""
        verdicts = bytearray(count)
        table = self._table
        low, high = first << 1, first + count << 1
        for start in range(2, len(table), _SCAN):  # by parts: a copy of all would not fit into the buffer
            for entry in table[start : start + _SCAN : _WORDS]:
                if low <= entry < high:
                    verdicts[(entry - low) >> 1] = KEEP + (entry & 1)
        return verdicts


def _room(slots: int, load_factor: float) -> int:
    """One slot at least stays free, at which a search for what is not there ends."""
    return int(min(slots * load_factor, slots - 1))
