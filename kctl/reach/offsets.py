"""ListOffsets: where partitions begin, end, and stand at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kafkad.names import TopicPartition
from kctl.errors import KctlError

if TYPE_CHECKING:
    from kafkad.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
    from kctl.reach.session import Session

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


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

    return session.ask_leaders(times, build, _read)


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
