"""read_committed: finds the records of aborted transactions among fetched ones, to leave them out."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop

from kafkad.wire.control import read_control
from kafkad.wire.records import BatchHeader, Record


class Aborted:
    """The aborted transactions in one fetch of one partition, asked batch by batch in the order of the log.

    The broker names the aborted transactions that touch what it sent, by producer and first offset; each ends at its
    producer's next marker.
    """

    def __init__(self, transactions: Sequence[tuple[int, int]]) -> None:
        self._coming = [(first_offset, producer_id) for producer_id, first_offset in transactions]
        heapify(self._coming)
        self._open: set[int] = set()

    def hides(self, header: BatchHeader) -> bool:
        while self._coming and self._coming[0][0] <= header.last_offset:
            self._open.add(heappop(self._coming)[1])
        return header.is_transactional and header.producer_id in self._open

    def marker(self, header: BatchHeader, record: Record) -> None:
        said = read_control(record)
        if said is not None and not said.commit:
            self._open.discard(header.producer_id)
