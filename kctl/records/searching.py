"""Reads partitions and lets through what is wanted, in chunks as they come from the brokers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from heapq import heappush, heappushpop
from typing import NamedTuple

from kafkad.names import TopicPartition
from kafkad.wire.records import Record
from kctl.errors import KctlError
from kctl.output import note
from kctl.progress import ProgressLine, bar
from kctl.records.bounds import FOR_EVER, Extent, Span
from kctl.records.fetched import Fetched
from kctl.records.filters import Wanted
from kctl.records.located import Located
from kctl.records.reading import Reader
from kctl.session import Session

_POLL_SECONDS = 0.5
_FEW_RECORDS_BYTES = 1 << 20


class Chunk(NamedTuple):
    topic: str
    partition: int
    records: list[Record]


class Search:
    """`searched` and `matched` count; `failed` says which partitions could not be read, and why."""

    def __init__(
        self,
        session: Session,
        wanted: Wanted | None,
        *,
        committed: bool = False,
        count: int | None = None,
        asked_to_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.searched = 0
        self.matched = 0
        self.failed: dict[TopicPartition, KctlError] = {}
        self._session = session
        self._wanted = wanted
        self._committed = committed
        self._count = count
        self._asked_to_stop = asked_to_stop
        self._progress = ProgressLine(session.settings)
        self._total = 0
        self._done = 0

    def forward(
        self, spans: Mapping[TopicPartition, Span], added: Callable[[], Mapping[TopicPartition, Span]] = dict
    ) -> Generator[Chunk]:
        """From the start of each span to its end, or until enough has matched. `added` says what is to be read too."""
        self._total = sum(span.end - span.start for span in spans.values() if span.start < span.end < FOR_EVER)
        reader = self.reader(spans, few=self._count is not None)
        try:
            while not (reader.done or self._asked_to_stop()):
                for fetched in reader.poll(_POLL_SECONDS):
                    yield self.chunk(fetched)
                    if self.enough:
                        return
                reader.add(added())
                self.show()
        finally:
            self.done_with(reader)

    def last(self, number: int, extents: Mapping[TopicPartition, Extent]) -> Generator[Chunk]:
        """The latest so many of all partitions, in the order of their times.

        Each partition is read backwards in growing pieces until it has given so many, or has no more.
        """
        latest: list[tuple[int, int, Located]] = []
        pieces = {where: Span(max(end - number, start), end) for where, (start, end) in extents.items() if start < end}
        found = dict.fromkeys(pieces, 0)
        while pieces:
            before = {where: 0 for where in pieces}
            reader = self.reader(pieces, few=True)
            try:
                while not reader.done:
                    for fetched in reader.poll(_POLL_SECONDS):
                        records = self._records(fetched)
                        before[fetched.where] += len(records)
                        _keep(latest, fetched.where, records, number)
                    self.show()
            finally:
                self.done_with(reader)
            for where, count in before.items():
                found[where] += count
            pieces = {
                where: Span(max(span.start - 2 * (span.end - span.start), extents[where].start), span.start)
                for where, span in pieces.items()
                if found[where] < number and span.start > extents[where].start and where not in self.failed
            }
        for _, _, (topic, partition, record) in sorted(latest):
            yield Chunk(topic, partition, [record])

    def reader(self, spans: Mapping[TopicPartition, Span], *, few: bool) -> Reader:
        if few:
            return Reader(self._session, spans, committed=self._committed, partition_bytes=_FEW_RECORDS_BYTES)
        return Reader(self._session, spans, committed=self._committed)

    def done_with(self, reader: Reader) -> None:
        reader.close()
        self._progress.clear()
        self.failed |= reader.failed
        for text in reader.skipped:
            note(self._session.settings, text)

    def chunk(self, fetched: Fetched) -> Chunk:
        records = self._records(fetched)
        if self._count is not None and self.matched > self._count:
            del records[len(records) - (self.matched - self._count) :]
            self.matched = self._count
        if records:
            self._progress.clear()  # they may go to the same terminal
        return Chunk(*fetched.where, records)

    @property
    def enough(self) -> bool:
        return self._count is not None and self.matched >= self._count

    def _records(self, fetched: Fetched) -> list[Record]:
        topic, partition = fetched.where
        wanted = self._wanted
        records: list[Record] = []
        try:
            records.extend(fetched.records())  # as far as it is whole, when it is not
        except KctlError as error:
            self.failed[fetched.where] = error
        self.searched += len(records)
        self._done += fetched.next - fetched.start
        if wanted is not None:
            records = [record for record in records if wanted(Located(topic, partition, record))]
        self.matched += len(records)
        return records

    def show(self) -> None:
        self._progress.show(self._line)

    def _line(self) -> str:
        return f"{bar(self._done / self._total)}  {self.told()}" if self._total else self.told()

    def told(self) -> str:
        if self._wanted is None:
            return f"{self.searched:,} records read"
        return f"searched {self.searched:,}, matched {self.matched:,}"


def _keep(latest: list[tuple[int, int, Located]], where: TopicPartition, records: list[Record], number: int) -> None:
    """A heap with the oldest of the latest in front; of the same time, the later in its partition is the later."""
    for record in records:
        item = (record.timestamp, record.offset, Located(*where, record))
        if len(latest) < number:
            heappush(latest, item)
        else:
            heappushpop(latest, item)
