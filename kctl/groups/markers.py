"""The markers of transactions at the end of partitions: control batches, which take offsets and hold no records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from kafkad.names import TopicPartition
from kctl.errors import KctlError

if TYPE_CHECKING:
    from kafkad.wire.messages.fetch import FetchRequest
    from kctl.reach.session import Session

MOST = 100
"""Longer spans are not looked at: there is one marker for each transaction, so most of what is there are records."""
BYTES = 80 * MOST
"""A marker has 78 bytes."""


class Span(NamedTuple):
    """Offsets of a partition, from `begin` up to, not including, `end`."""

    where: TopicPartition
    begin: int
    end: int


def only_markers(session: Session, spans: Iterable[Span]) -> set[Span]:
    """The spans that hold markers and nothing else. One small Fetch to each leader; to look at several spans of one
    partition takes as many, sent at once."""
    asked: list[tuple[int, list[Span]]] = []
    short = sorted({span for span in spans if 0 < span.end - span.begin <= MOST})
    leaders = session.leaders([span.where for span in short])
    requests: dict[tuple[int, int], list[Span]] = {}
    seen: dict[TopicPartition, int] = {}
    for span in short:
        leader = leaders[span.where]
        if not isinstance(leader, KctlError):
            seen[span.where] = nth = seen.get(span.where, -1) + 1
            requests.setdefault((leader, nth), []).append(span)
    asked = [(leader, parts) for (leader, _), parts in requests.items()]
    found: set[Span] = set()
    for (_, parts), answer in zip(asked, session.call_many([(to, _request(p)) for to, p in asked]), strict=True):
        if isinstance(answer, KctlError) or answer.error_code:
            continue
        data = {
            TopicPartition(topic.topic, partition.partition_index): partition.records
            for topic in answer.responses
            for partition in topic.partitions
            if not partition.error_code
        }
        found.update(span for span in parts if has_only_markers(data.get(span.where) or b"", span.begin, span.end))
    return found


def _request(spans: Iterable[Span]) -> FetchRequest:
    from kafkad.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

    topics: dict[str, list[FetchPartition]] = {}
    count = 0
    for (topic, partition), begin, _ in spans:
        count += 1
        part = FetchPartition(partition=partition, fetch_offset=begin, partition_max_bytes=BYTES)
        topics.setdefault(topic, []).append(part)
    named = [FetchTopic(topic=name, partitions=parts) for name, parts in topics.items()]
    return FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=count * BYTES, topics=named)


def has_only_markers(data: bytes | memoryview, begin: int, end: int) -> bool:
    """True if these batches, the last of which may be cut off, show that there is nothing to read. Pure."""
    from kafkad.wire.records import RecordsError, iter_batches

    at = begin
    try:
        for _, header in iter_batches(memoryview(data)):
            if at >= end or header.base_offset >= end:
                break
            if not header.is_control and header.record_count:
                return False
            at = header.last_offset + 1
    except RecordsError:  # of a batch that is cut off nothing is known
        pass
    return at >= end
