"""Which offset is the last of each key: a hash table of fixed size, and what it says about records.

A dict of a million keys takes 120 to 150 MB, more while it grows. Here an entry takes 24 bytes of one array, as in
Kafka: two 64-bit hashes of the key and its offset. The hashes are Python's own (SipHash) of the key and of the key with
a suffix, under a secret that is new in every process: nobody can make two keys that collide, as anybody can with MD5.
"""

from __future__ import annotations

import os
from array import array

from kafkad.wire.records import RecordsError, read_varint

DROP, KEEP, TOMBSTONE, UNKNOWN_TOMBSTONE = range(4)
"""What becomes of a record: goes, stays, stays until its delete horizon, stays because the map ends before it."""

ENTRY_SIZE = 24
_WORDS = 3
_SALT_SIZE = 8
_SCAN = 3 << 16


class KeyMap:
    """Offsets of [first, latest]; `put` adds those of one batch after the other."""

    __slots__ = ("_mask", "_salt", "_table", "capacity", "first", "latest", "size")

    def __init__(self, buffer_bytes: int, load_factor: float, first: int, upto: int) -> None:
        """No larger than twice the records there can be, and than the buffer; a power of two, which is quicker."""
        slots = 1 << (max(min(buffer_bytes // ENTRY_SIZE, 2 * (upto - first)), 2).bit_length() - 1)
        self.capacity = max(1, min(int(slots * load_factor), slots - 1))
        self.size = 0
        self.first = first
        self.latest = first - 1
        self._mask = slots - 1
        self._salt = os.urandom(_SALT_SIZE)
        self._table = array("q", bytes(ENTRY_SIZE)) * slots

    @property
    def utilization(self) -> float:
        return self.size / (self._mask + 1)

    def put(self, data: bytes, cursor: int, end: int, base_offset: int, count: int) -> bool:  # noqa: C901
        """Take the keys of the `count` records in data[cursor:end], the body of a batch.

        False when there is no room for one of them: `latest` is then the last offset taken. Hot: everything in line.
        """
        table, mask, salt, first, latest = self._table, self._mask, self._salt, self.first, self.latest
        for _ in range(count):
            if (low := data[cursor]) < 128:
                stop = cursor + 1 + (low >> 1)
                cursor += 2
            elif (high := data[cursor + 1]) < 128:
                stop = cursor + 2 + ((low & 127 | high << 7) >> 1)
                cursor += 3
            else:
                length, cursor = read_varint(data, cursor)
                stop = cursor + length
                cursor += 1
            while data[cursor] > 127:
                cursor += 1
            if (low := data[cursor + 1]) < 128:
                offset = base_offset + (low >> 1)
                cursor += 2
            else:
                delta, cursor = read_varint(data, cursor + 1)
                offset = base_offset + delta
            if (low := data[cursor]) == 1:
                cursor = stop
                continue
            if low < 128:
                cursor += 1
                key_end = cursor + (low >> 1)
            else:
                length, cursor = read_varint(data, cursor)
                key_end = cursor + length
            if not cursor <= key_end < stop <= end:
                raise RecordsError(f"the record at offset {offset} does not fit into its batch", cursor)
            if offset >= first:
                key = data[cursor:key_end]
                found = hash(key) or 1
                at = (found & mask) * _WORDS
                while (there := table[at]) and (there != found or table[at + 1] != hash(key + salt)):
                    at += _WORDS
                    if at > mask * _WORDS:
                        at = 0
                if not there:
                    if self.size == self.capacity:
                        self.latest = latest
                        return False
                    self.size += 1
                    table[at] = found
                    table[at + 1] = hash(key + salt)
                table[at + 2] = offset << 1 | (data[key_end] == 1)
                latest = offset
            cursor = stop
        if cursor != end:
            raise RecordsError(f"{count} records leave {end - cursor} bytes of their batch", cursor)
        return True

    def put_one(self, key: bytes, offset: int, tombstone: bool) -> bool:
        """The same for a single record."""
        at = self._entry(key)
        table = self._table
        if not table[at]:
            if self.size == self.capacity:
                return False
            self.size += 1
            table[at] = hash(key) or 1
            table[at + 1] = hash(key + self._salt)
        table[at + 2] = offset << 1 | tombstone
        self.latest = offset
        return True

    def find(self, key: bytes) -> int:
        """The last offset of the key; -1 when it is not there."""
        at = self._entry(key)
        return self._table[at + 2] >> 1 if self._table[at] else -1

    def _entry(self, key: bytes) -> int:
        """Where the entry of the key is, or is to be."""
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
        for start in range(0, len(table), _SCAN):  # by parts: a copy of all would not fit into the buffer
            hashes = table[start : start + _SCAN : _WORDS]
            entries = table[start + 2 : start + _SCAN : _WORDS]
            for entry, used in zip(entries, hashes, strict=True):
                if low <= entry < high and used:
                    verdicts[(entry - low) >> 1] = KEEP + (entry & 1)
        return verdicts
