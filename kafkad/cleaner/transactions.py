"""Transactions met while a log is read in order: finds batches of aborted ones, and markers no longer needed.

A marker goes when no batch of its transaction is left: `read_committed` readers and the index need it until then.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from kafkad.log.txnindex import AbortedTransaction
from kafkad.wire.control import ControlRecord
from kafkad.wire.records import BASE_OFFSET, LAST_OFFSET_DELTA, PRODUCER_ID, Header


class Transactions:
    """The transactions that are open or aborted while a log is read; it must be given every batch in order."""

    def __init__(self) -> None:
        self._kept: list[AbortedTransaction] = []
        self._to_come: list[tuple[int, AbortedTransaction]] = []
        self._aborted: dict[int, AbortedTransaction] = {}
        self._met: set[int] = set()
        """Producers of whose open transaction a batch was met."""

    def expect(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Take in the transaction index of the next segment; doing so twice is harmless."""
        for transaction in aborted:
            heappush(self._to_come, (transaction.first_offset, transaction))

    def is_aborted(self, header: Header) -> bool:
        """True if the transaction of this batch of data was aborted."""
        self._begin(header)
        self._met.add(header[PRODUCER_ID])
        return header[PRODUCER_ID] in self._aborted

    def is_spent(self, header: Header, marker: ControlRecord | None) -> bool:
        """True if a control batch has nothing left to say; `marker` is what it holds, None if it was emptied before."""
        self._begin(header)
        if marker is None:
            return True
        producer_id = header[PRODUCER_ID]
        met = producer_id in self._met
        self._met.discard(producer_id)
        if not marker.commit:
            transaction = self._aborted.pop(producer_id, None)
            if transaction is not None and met:
                self._kept.append(transaction)
        return not met

    def take_kept(self) -> list[AbortedTransaction]:
        """The aborted transactions that ended since the last call and of which something was met."""
        kept, self._kept = self._kept, []
        return kept

    def _begin(self, header: Header) -> None:
        last = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
        while self._to_come and self._to_come[0][0] <= last:
            transaction = heappop(self._to_come)[1]
            self._aborted.setdefault(transaction.producer_id, transaction)
