"""Times of single records, by one small Fetch each: of the record that a group reads next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kafkad.names import TopicPartition
from kctl.errors import KctlError

if TYPE_CHECKING:
    from kafkad.wire.messages.fetch import FetchRequest
    from kctl.reach.session import Session


Place = tuple[TopicPartition, int]
"""A partition and an offset in it."""


def fetch_request(where: TopicPartition, offset: int, max_bytes: int) -> FetchRequest:
    """Of one partition; at least one batch comes, however large, if there is one."""
    from kafkad.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

    partition = FetchPartition(partition=where.partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    topic = FetchTopic(topic=where.topic, partitions=[partition])
    return FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=max_bytes, topics=[topic])


def times_of(session: Session, places: Iterable[Place]) -> dict[Place, int]:
    """The time of the first record at or after each offset; offsets without one that can be read are left out."""
    asked = list(dict.fromkeys(places))
    leaders = session.leaders(where for where, _ in asked)
    wanted = [(at, leader) for at in asked if not isinstance(leader := leaders[at[0]], KctlError)]
    answers = session.call_many([(leader, fetch_request(*at, 1)) for at, leader in wanted])
    times = {}
    for (at, _), answer in zip(wanted, answers, strict=True):
        if isinstance(answer, KctlError) or answer.error_code:
            continue
        (topic,) = answer.responses
        (partition,) = topic.partitions
        if not partition.error_code and (time := _first_time(partition.records or b"", at[1])) is not None:
            times[at] = time
    return times


def _first_time(data: bytes | memoryview, offset: int) -> int | None:
    from kafkad.wire.records import RecordsError, iter_batches, iter_records

    view = memoryview(data)
    try:
        for at, header in iter_batches(view):
            for record in iter_records(view, at, header):
                if record.offset >= offset:
                    return record.timestamp
    except RecordsError:
        return None
    return None
