"""Groups of other protocols: the members of share groups (KIP-932) and of streams groups (KIP-1071), and the positions
of share groups, which commit nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kctl.errors import KctlError
from kctl.groups.group import EMPTY, SHARE, Group, Member
from kctl.groups.group_lag import GroupLag
from kctl.groups.partition_lag import PartitionLag

if TYPE_CHECKING:
    from kafkad.wire.messages.describe_share_group_offsets import (
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsResponse,
    )
    from kafkad.wire.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
    from kafkad.wire.messages.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
    from kctl.reach.session import Session

_STREAMS = "streams"


def with_other_protocols(
    session: Session, group_lags: Mapping[str, GroupLag]
) -> tuple[dict[str, GroupLag], list[KctlError]]:
    """The same, and of these groups their members, with the topics that they subscribe to, and the partitions of share
    groups. Which member reads which partition is not said: several share one, or have tasks."""
    shares, streams = (
        {name: look.group for name, look in group_lags.items() if look.group.type == kind} for kind in (SHARE, _STREAMS)
    )
    members = {
        **session.ask_coordinators(_active(shares), _share_request, _share),
        **session.ask_coordinators(_active(streams), _streams_request, _streams),
    }
    seen = [name for name in shares if not isinstance(members.get(name), KctlError)]
    positions = session.ask_coordinators(seen, _positions_request, _positions)
    found = dict(group_lags)
    for name, own in members.items():
        if not isinstance(own, KctlError):
            found[name] = found[name]._replace(group=found[name].group._replace(members=own))
    for name, lags in positions.items():
        if not isinstance(lags, KctlError):
            found[name] = found[name]._replace(lags=lags)
    return found, [told for told in (*members.values(), *positions.values()) if isinstance(told, KctlError)]


def _active(groups: Mapping[str, Group]) -> list[str]:
    return [name for name, group in groups.items() if group.state != EMPTY]


def _code(code: int) -> int:
    """A group that has ended since it was listed has no members and no positions."""
    return 0 if code == ErrorCode.GROUP_ID_NOT_FOUND else code


def _share_request(names: list[str]) -> ShareGroupDescribeRequest:
    from kafkad.wire.messages.share_group_describe import ShareGroupDescribeRequest

    return ShareGroupDescribeRequest(group_ids=names)


def _share(response: ShareGroupDescribeResponse) -> Iterator[tuple[str, int, tuple[Member, ...]]]:
    for group in response.groups:
        members = tuple(
            Member(told.member_id, None, told.client_id, told.client_host, tuple(told.subscribed_topic_names))
            for told in group.members
        )
        yield group.group_id, _code(group.error_code), members


def _streams_request(names: list[str]) -> StreamsGroupDescribeRequest:
    from kafkad.wire.messages.streams_group_describe import StreamsGroupDescribeRequest

    return StreamsGroupDescribeRequest(group_ids=names)


def _streams(response: StreamsGroupDescribeResponse) -> Iterator[tuple[str, int, tuple[Member, ...]]]:
    for group in response.groups:
        parts = (group.topology and group.topology.subtopologies) or []
        topics = [topic for part in parts for topic in part.source_topics]
        topics += [topic.name for part in parts for topic in part.repartition_source_topics]
        members = tuple(
            Member(told.member_id, told.instance_id, told.client_id, told.client_host, tuple(topics))
            for told in group.members
        )
        yield group.group_id, _code(group.error_code), members


def _positions_request(names: list[str]) -> DescribeShareGroupOffsetsRequest:
    from kafkad.wire.messages.describe_share_group_offsets import (
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsRequestGroup,
    )

    return DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None) for name in names]
    )


def _positions(response: DescribeShareGroupOffsetsResponse) -> Iterator[tuple[str, int, list[PartitionLag]]]:
    for group in response.groups:
        lags = [
            PartitionLag(
                TopicPartition(topic.topic_name, told.partition_index),
                told.start_offset,
                None,
                told.lag if told.lag >= 0 else None,
            )
            for topic in group.topics
            for told in topic.partitions
        ]
        yield group.group_id, _code(group.error_code), lags
