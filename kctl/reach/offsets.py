"""ListOffsets: where partitions begin, end, and stand at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kctl.errors import KctlError, failure

if TYPE_CHECKING:
    from kafkad.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
    from kctl.reach.session import Session

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
_KNOWS_MAX_TIMESTAMP = 7
"""The version of ListOffsets from which brokers know it (Kafka 3.0): earlier ones take it for a time before 1970."""


class OffsetAt(NamedTuple):
    """`offset` is -1 where no record is as late as the time asked for."""

    offset: int
    timestamp: int
    leader_epoch: int


def offsets_at(
    session: Session, times: Mapping[TopicPartition, int], *, committed: bool = False
) -> dict[TopicPartition, OffsetAt | KctlError]:
    """The first offset at or after each time (ms, or one of the three above); `committed`: before open transactions."""

    def build(partitions: list[TopicPartition]) -> ListOffsetsRequest:
        return _request(((where, times[where]) for where in partitions), committed)

    unable = _unable(session, [where for where, time in times.items() if time == MAX_TIMESTAMP])
    answers = session.ask_leaders([where for where in times if where not in unable], build, _read)
    return {where: unable[where] if where in unable else answers[where] for where in times}


def _unable(session: Session, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, KctlError]:
    """Those whose leaders do not know which record is the newest."""
    if not partitions:
        return {}
    leaders = session.leaders(partitions)
    brokers = {leader for leader in leaders.values() if not isinstance(leader, KctlError)}
    what = "which record of a partition is the newest only brokers of Kafka 3.0 and later can tell, not broker"
    old = {
        broker: failure(ErrorCode.UNSUPPORTED_VERSION, f"{what} {broker}")
        for broker in brokers
        if _version(session, broker) < _KNOWS_MAX_TIMESTAMP
    }
    return {where: old[leader] for where, leader in leaders.items() if leader in old}


def _version(session: Session, broker: int) -> int:
    from kafkad.wire.messages.list_offsets import ListOffsetsRequest

    try:
        return session.version_of(ListOffsetsRequest, broker) or 0
    except KctlError:  # it is down: whoever asks it will say so
        return _KNOWS_MAX_TIMESTAMP


def _request(times: Iterable[tuple[TopicPartition, int]], committed: bool) -> ListOffsetsRequest:
    from kafkad.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

    topics: dict[str, list[ListOffsetsPartition]] = {}
    for (topic, partition), time in times:
        topics.setdefault(topic, []).append(ListOffsetsPartition(partition_index=partition, timestamp=time))
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(committed),
        topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
    )


def _read(response: ListOffsetsResponse) -> Iterator[tuple[TopicPartition, int, OffsetAt]]:
    for topic in response.topics:
        name = topic.name
        for found in topic.partitions:
            where = TopicPartition(name, found.partition_index)
            yield where, found.error_code, OffsetAt(found.offset, found.timestamp, found.leader_epoch)
