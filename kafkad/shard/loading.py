"""Loads a machine from its partition's log, a few milliseconds of the event loop at a time.

Of the records of one key only the last is decoded and applied, in the order of these last ones: the same as applying
the log after compaction. A batch of a transaction, and the marker that ends one, stay in their place.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from kafkad.garbage import no_collections
from kafkad.log.log import Log
from kafkad.log.mending import verify_batch
from kafkad.log.scan import SkippedStretch, find, scan
from kafkad.shard.gather import Latest, gather
from kafkad.shard.shard import Machine
from kafkad.turns import Turns
from kafkad.wire.control import read_control
from kafkad.wire.primitives import MalformedError
from kafkad.wire.records import (
    ATTRIBUTES,
    BASE_OFFSET,
    CODEC_MASK,
    CONTROL,
    HEADER_SIZE,
    LENGTH,
    MAGIC,
    PREFIX_SIZE,
    PRODUCER_ID,
    RECORD_COUNT,
    TRANSACTIONAL,
    Header,
    Record,
    RecordsError,
    iter_records,
    records_body,
)

log = logging.getLogger(__name__)

_MOST_KEYS = 100_000
"""The most last records that are held undecoded; more would take more memory than they save time."""
_RECORDS_AT_ONCE = 256
"""Between looks at the clock."""
_MOST_REPORTS = 10


class Abandoned(Exception):
    """The partition that was being loaded is no longer led here."""


class Loader:
    """One load of one partition."""

    def __init__(self, source: Log, machine: Machine[Any], wanted: Callable[[], bool]) -> None:
        """`wanted` is asked after every pause."""
        self.records = 0
        self.damaged = 0
        self._log = source
        self._machine = machine
        self._wanted = wanted
        self._turns: Turns
        self._latest: Latest = {}
        self._corrupt: dict[tuple[bytes, bytes | None], str] = {}
        self._missed: SkippedStretch | None = None
        """A damaged place behind what was read last, of which the machine has not been told."""
        self._pause_at = 0

    async def run(self) -> None:
        """Raises Abandoned, and StorageError when the disk fails."""
        self._turns = Turns()
        with no_collections(lambda: self.records > _MOST_KEYS):
            await self._run()

    async def _run(self) -> None:
        for data, at, header in scan(self._log, self._skip):
            if self._missed is not None:
                await self._tell_of_missed(self._missed)
            try:
                if header[ATTRIBUTES] & (TRANSACTIONAL | CONTROL):
                    await self._apply_latest()
                    self._apply_transactional(header, iter_records(memoryview(data), at, header))
                elif header[ATTRIBUTES] & CODEC_MASK or header[MAGIC] < 2 or header[RECORD_COUNT] > _RECORDS_AT_ONCE:
                    await self._collect(data, at, header)
                else:
                    end = at + PREFIX_SIZE + header[LENGTH]
                    self._gather(data, at + HEADER_SIZE, end, header[RECORD_COUNT], header, last=True)
            except RecordsError as error:
                self._skip(find(self._log, header[BASE_OFFSET], str(error)))
            if self.records >= self._pause_at:
                await self._pause()
        await self._apply_latest()
        if self._missed is not None:
            await self._tell_of_missed(self._missed)
        await self._report_corrupt()
        if self.damaged > _MOST_REPORTS:
            log.error("%d more damaged places in %s were skipped", self.damaged - _MOST_REPORTS, self._log.directory)

    async def _collect(self, data: bytes, at: int, header: Header) -> None:
        """A batch that takes longer than most."""
        if header[MAGIC] < 2:
            for record in iter_records(memoryview(data), at, header):
                self._latest.pop(record.key or b"", None)
                self._latest[record.key or b""] = record.value
            return
        cursor, end, left = at + HEADER_SIZE, at + PREFIX_SIZE + header[LENGTH], header[RECORD_COUNT]
        if header[ATTRIBUTES] & CODEC_MASK:
            data = records_body(memoryview(data), at, header)
            cursor, end = 0, len(data)
        while left > _RECORDS_AT_ONCE:
            cursor = self._gather(data, cursor, end, _RECORDS_AT_ONCE, header)
            left -= _RECORDS_AT_ONCE
            await self._pause()
        self._gather(data, cursor, end, left, header, last=True)

    def _gather(self, data: bytes, cursor: int, end: int, count: int, header: Header, *, last: bool = False) -> int:
        """HOT. Take in so many records, perhaps the last of their batch; where they end."""
        cursor, without_key = gather(data, cursor, end, count, self._latest)
        self.records += count
        if without_key:
            self._report(find(self._log, header[BASE_OFFSET], f"{without_key} records without a key"))
        if last and cursor != end:
            raise RecordsError(f"{end - cursor} bytes after the last record", cursor)
        return cursor

    async def _apply_latest(self) -> None:
        latest, self._latest = self._latest, {}
        for number, (key, value) in enumerate(latest.items()):
            self._apply(key, value, -1)
            if not number % _RECORDS_AT_ONCE:
                await self._pause()

    def _apply_transactional(self, header: Header, records: Iterable[Record]) -> None:
        producer_id = header[PRODUCER_ID]
        for record in records:
            self.records += 1
            if not header[ATTRIBUTES] & CONTROL:
                self._apply(record.key or b"", record.value, producer_id)
            elif (marker := read_control(record)) is not None:
                self._machine.end_transaction(producer_id, marker.commit)

    def _apply(self, key: bytes, value: bytes | None, producer_id: int) -> None:
        """HOT."""
        try:
            record = self._machine.decode(key, value)
        except MalformedError as error:
            self._corrupt[key, value] = str(error)
        else:
            if record is not None:
                self._machine.apply(record, producer_id)

    def _skip(self, damage: SkippedStretch) -> None:
        """Whatever keys it had. The log is told of what it can refuse to readers, and perhaps have mended."""
        self._report(damage)
        self._missed = self._missed or damage
        if damage.fails_checksum and self.damaged <= _MOST_REPORTS:
            verify_batch(self._log, damage.offset)

    async def _tell_of_missed(self, damage: SkippedStretch) -> None:
        """Between what was before it and what is behind."""
        await self._apply_latest()
        for _ in self._machine.missed(str(damage)):
            await self._pause()
        self._missed = None

    async def _report_corrupt(self) -> None:
        """Find out where these records stand: to remember it of every record would cost more than to look again."""
        if not self._corrupt:
            return
        offsets: dict[tuple[bytes | None, bytes | None], int] = {}
        for data, at, header in scan(self._log, lambda damage: None):
            with suppress(RecordsError):
                for record in iter_records(memoryview(data), at, header):
                    if (record.key, record.value) in self._corrupt:
                        offsets[record.key, record.value] = record.offset
            await self._pause()
        for (key, value), offset in offsets.items():
            self._report(find(self._log, offset, self._corrupt[key or b"", value]))

    async def _pause(self) -> None:
        await self._turns.give_way()
        self._pause_at = self.records + _RECORDS_AT_ONCE
        if not self._wanted():
            raise Abandoned
        if len(self._latest) >= _MOST_KEYS:
            await self._apply_latest()

    def _report(self, damage: SkippedStretch) -> None:
        self.damaged += 1
        if self.damaged <= _MOST_REPORTS:
            log.error("skipped while loading %s: %s", self._log.topic_partition, damage)
