"""Reads partitions and lets through what is wanted, in chunks as they come from the brokers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from heapq import heappush, heappushpop
from typing import NamedTuple, TypeVar

from kafkad.names import TopicPartition
from kafkad.wire.records import Record
from kctl.errors import KctlError
from kctl.reach.session import Session
from kctl.records.bounds import FOR_EVER, Extent, Span
from kctl.records.fetched import DamagedBatch, Fetched
from kctl.records.filters import Wanted
from kctl.records.located import Located
from kctl.records.reading import Reader
from kctl.texts.output import note
from kctl.texts.progress import ProgressLine, bar
from kctl.texts.spelling import command, quote

T = TypeVar("T")
_POLL_SECONDS = 0.5
_FEW_RECORDS_BYTES = 1 << 20


class Chunk(NamedTuple):
    topic: str
    partition: int
    records: list[Record]
    values: list[bytes | None] | None = None
    """The values of the records, instead of the records."""


class Search:
    """`searched` and `matched` count; `failed` says which partitions could not be read, and why; `errors` are these and
    the damaged batches that were skipped."""

    def __init__(
        self,
        session: Session,
        wanted: Wanted | None,
        *,
        committed: bool = False,
        count: int | None = None,
        asked_to_stop: Callable[[], bool] = lambda: False,
        values_only: bool = False,
        follow: bool = False,
        group: str | None = None,
    ) -> None:
        """With `values_only`, chunks have no records: their values are all that is `wanted`. With `follow`, partitions
        that cannot be read for a while are not given up. Damaged batches are skipped; to a member of `group`, its
        partition ends at one, and so does the last chunk of that."""
        self.searched = 0
        self.matched = 0
        self.failed: dict[TopicPartition, KctlError] = {}
        self._session = session
        self._wanted = wanted
        self._committed = committed
        self._count = count
        self._asked_to_stop = asked_to_stop
        self._values_only = values_only
        self._follow = follow
        self._group = group
        self._damaged: dict[tuple[TopicPartition, int], DamagedBatch] = {}
        self._progress = ProgressLine(session.settings)
        self._total = 0
        self._done = 0

    def forward(
        self, spans: Mapping[TopicPartition, Span], added: Callable[[], Mapping[TopicPartition, Span]] = dict
    ) -> Generator[Chunk]:
        """Reads each span from start to end, or until enough has matched. `added` gives further spans to read."""
        self._total = sum(span.end - span.start for span in spans.values() if span.start < span.end < FOR_EVER)
        reader = self.reader(spans, few=self._count is not None)
        try:
            while not (reader.done or self._asked_to_stop()):
                for fetched in reader.poll(_POLL_SECONDS):
                    yield self.chunk(reader, fetched)
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
                        records = self._records(reader, fetched)
                        self.matched += len(records)
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
        tell = self.tell if self._follow else None
        if few:
            return Reader(
                self._session, spans, committed=self._committed, partition_bytes=_FEW_RECORDS_BYTES, tell=tell
            )
        return Reader(self._session, spans, committed=self._committed, tell=tell)

    def done_with(self, reader: Reader) -> None:
        reader.close()
        self._progress.clear()
        self.failed |= reader.failed | reader.lost
        for text in reader.skipped:
            note(self._session.settings, text)

    @property
    def errors(self) -> list[KctlError]:
        return [*self.failed.values(), *self._damaged.values()]

    def chunk(self, reader: Reader, fetched: Fetched) -> Chunk:
        """What is wanted of what `reader` has fetched."""
        if self._values_only:
            values = self._counted(self._read(reader, fetched, fetched.values()))
            return Chunk(*fetched.where, [], values)
        return Chunk(*fetched.where, self._counted(self._records(reader, fetched)))

    def _counted(self, found: list[T]) -> list[T]:
        """The first of them, as many as are still wanted."""
        self.matched += len(found)
        if self._count is not None and self.matched > self._count:
            del found[len(found) - (self.matched - self._count) :]
            self.matched = self._count
        if found:
            self._progress.clear()  # they may go to the same terminal
        return found

    @property
    def enough(self) -> bool:
        return self._count is not None and self.matched >= self._count

    def _records(self, reader: Reader, fetched: Fetched) -> list[Record]:
        topic, partition = fetched.where
        wanted = self._wanted
        records = self._read(reader, fetched, [fetched.records()])
        if wanted is not None:
            records = [record for record in records if wanted(Located(topic, partition, record))]
        return records

    def _read(self, reader: Reader, fetched: Fetched, parts: Iterable[Iterable[T]]) -> list[T]:
        """The records, up to a damaged batch; `fetched.next` is then where its partition goes on, or has ended."""
        read: list[T] = []
        try:
            for part in parts:
                read.extend(part)
        except DamagedBatch as error:
            self._met(error, reader, fetched)
        self.searched += len(read)
        self._done += fetched.next - fetched.start
        return read

    def _met(self, error: DamagedBatch, reader: Reader, fetched: Fetched) -> None:
        if error.end == error.start:  # the next Fetch begins with it, and tells where it ends
            fetched.next = error.start
            reader.go_on(error.where, Span(error.start, fetched.end))
            return
        if self._group is None:
            fetched.next = error.end
            self._damaged[error.where, error.start] = error
            reader.go_on(error.where, Span(error.end, fetched.end))
        else:
            fetched.next = max(fetched.start, error.start)
            topic, partition = error.where
            to = f"--topic {quote(f'{topic}:{partition}')} --to {error.end}"
            reset = command("groups reset-offsets", self._group, options=to)
            past = error.with_hint(f"kctl {reset} moves the group past it")
            self.failed[error.where] = past
            reader.give_up(error.where, past)
        if self._follow:
            self.tell(error.what)

    def tell(self, text: str) -> None:
        self._progress.clear()
        note(self._session.settings, text)

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
