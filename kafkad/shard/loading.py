"""Loading: what a partition's log says, applied to a machine, a few milliseconds of the event loop at a time.

Of the records of one key only the last is decoded and applied, in the order of these last ones: the same as applying
the log after compaction. A batch of a transaction, and the marker that ends one, stay in their place.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from kafkad.log.batches import ATTRIBUTES, PRODUCER_ID, Header
from kafkad.log.log import Log
from kafkad.log.scan import Damage, find, scan
from kafkad.shard.shard import Machine
from kafkad.turns import Turns
from kafkad.wire.control import read_control
from kafkad.wire.primitives import MalformedError
from kafkad.wire.records import CONTROL, TRANSACTIONAL, Record, RecordsError, iter_records

log = logging.getLogger(__name__)

_MOST_KEYS = 100_000
"""How many last records are held undecoded; more would take more memory than they save time."""
_RECORDS_PER_LOOK = 64
"""Between looks at the clock."""
_MOST_REPORTS = 10


class Abandoned(Exception):
    """What was being loaded is no longer led here."""


class Loader:
    """One load of one partition."""

    def __init__(self, source: Log, machine: Machine[Any], wanted: Callable[[], bool]) -> None:
        """`wanted` is asked after every pause."""
        self.records = 0
        self.damaged = 0
        self._log = source
        self._machine = machine
        self._wanted = wanted
        self._turns = Turns()
        self._latest: dict[bytes, Record] = {}

    async def run(self) -> None:
        """Raises Abandoned, and StorageError when the disk fails."""
        latest = self._latest
        for view, at, header in scan(self._log, self._report):
            try:
                if header[ATTRIBUTES] & (TRANSACTIONAL | CONTROL):
                    await self._apply_latest()
                    self._apply_transactional(header, iter_records(view, at, header))
                else:
                    await self._collect(iter_records(view, at, header))
            except RecordsError as error:
                self._report(find(self._log, header[0], str(error)))
            if len(latest) >= _MOST_KEYS:
                await self._apply_latest()
        await self._apply_latest()
        if self.damaged > _MOST_REPORTS:
            log.error("%d more damaged places in %s", self.damaged - _MOST_REPORTS, self._log.directory)

    async def _collect(self, records: Iterable[Record]) -> None:
        """HOT."""
        latest = self._latest
        for record in records:
            key = record.key
            if key is None:
                self._report(find(self._log, record.offset, "a record without a key"))
                continue
            latest.pop(key, None)
            latest[key] = record
            self.records += 1
            if not self.records % _RECORDS_PER_LOOK:
                await self._pause()

    async def _apply_latest(self) -> None:
        latest = self._latest
        machine = self._machine
        for number, record in enumerate(latest.values()):
            self._apply(machine, record, -1)
            if not number % _RECORDS_PER_LOOK:
                await self._pause()
        latest.clear()

    def _apply_transactional(self, header: Header, records: Iterable[Record]) -> None:
        producer_id = header[PRODUCER_ID]
        for record in records:
            self.records += 1
            if not header[ATTRIBUTES] & CONTROL:
                self._apply(self._machine, record, producer_id)
            elif (marker := read_control(record)) is not None:
                self._machine.end_transaction(producer_id, marker.commit)

    def _apply(self, machine: Machine[Any], record: Record, producer_id: int) -> None:
        try:
            decoded = machine.decode(record.key or b"", record.value)
        except MalformedError as error:
            self._report(find(self._log, record.offset, str(error)))
        else:
            if decoded is not None:
                machine.apply(decoded, producer_id)

    async def _pause(self) -> None:
        await self._turns.give_way()
        if not self._wanted():
            raise Abandoned

    def _report(self, damage: Damage) -> None:
        self.damaged += 1
        if self.damaged <= _MOST_REPORTS:
            log.error("skipped while loading %s: %s", self._log.topic_partition, damage)
