"""Groups that the consumer protocols do not describe: who is in them, and what they read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kafkad.wire.messages import describe_share_group_offsets as positions
from kafkad.wire.messages import share_group_describe as share
from kafkad.wire.messages import streams_group_describe as streams
from kctl.errors import KctlError, failure
from kctl.groups.group import Group
from kctl.groups.group_lag import GroupLag
from kctl.groups.other_protocols import with_other_protocols
from kctl.reach.session import Session


class Coordinators:
    """A session whose coordinators have these answers, and nothing to say to what nobody should ask."""

    def __init__(self, answers: dict[type, object]) -> None:
        self._answers = answers

    def ask_coordinators(
        self,
        names: Iterable[str],
        build: Callable[[list[str]], object],
        read: Callable[[Any], Iterator[tuple[str, int, Any]]],
    ) -> dict[str, Any]:
        if not (asked := list(names)):
            return {}
        told = {name: (code, value) for name, code, value in read(self._answers[type(build(asked))])}
        return {name: failure(told[name][0], name) if told[name][0] else told[name][1] for name in asked}


def look(*groups: Group, **answers: object) -> tuple[dict[str, GroupLag], list[KctlError]]:
    session = Coordinators(
        {
            share.ShareGroupDescribeRequest: answers.get("share"),
            streams.StreamsGroupDescribeRequest: answers.get("streams"),
            positions.DescribeShareGroupOffsetsRequest: answers.get("positions"),
        }
    )
    return with_other_protocols(cast(Session, session), {g.name: GroupLag(g, {}, []) for g in groups})


def share_groups(*groups: share.DescribedGroup) -> share.ShareGroupDescribeResponse:
    return share.ShareGroupDescribeResponse(groups=list(groups))


def standing(group: str, **topics: list[int]) -> positions.DescribeShareGroupOffsetsResponseGroup:
    """`topics`: the lag in each partition; -1 is not known."""
    return positions.DescribeShareGroupOffsetsResponseGroup(
        group_id=group,
        topics=[
            positions.DescribeShareGroupOffsetsResponseTopic(
                topic_name=topic,
                partitions=[
                    positions.DescribeShareGroupOffsetsResponsePartition(partition_index=at, start_offset=7, lag=lag)
                    for at, lag in enumerate(lags)
                ],
            )
            for topic, lags in topics.items()
        ],
    )


def test_a_share_group_reads_what_its_members_subscribe_to_and_where_it_stands() -> None:
    member = share.Member(member_id="m", client_id="c", client_host="/h", subscribed_topic_names=["wanted"])
    found, errors = look(
        Group("active", "Stable", "share"),
        Group("resting", "Empty", "share"),
        Group("classic", "Stable"),
        share=share_groups(share.DescribedGroup(group_id="active", members=[member])),
        positions=positions.DescribeShareGroupOffsetsResponse(
            groups=[standing("active"), standing("resting", kept=[3, -1])]
        ),
    )
    assert errors == []
    assert {name: (len(one.group.members), one.topics) for name, one in found.items()} == {
        "active": (1, {"wanted"}),
        "resting": (0, {"kept"}),
        "classic": (0, set()),
    }
    assert {lag.where: (lag.committed, lag.lag) for lag in found["resting"].lags} == {
        TopicPartition("kept", 0): (7, 3),
        TopicPartition("kept", 1): (7, None),
    }


def test_a_streams_group_reads_the_sources_of_its_topology() -> None:
    part = streams.Subtopology(
        source_topics=["source"], repartition_source_topics=[streams.TopicInfo(name="app-repartition")]
    )
    told = streams.DescribedGroup(
        group_id="app", topology=streams.Topology(subtopologies=[part]), members=[streams.Member(member_id="m")]
    )
    found, errors = look(Group("app", "Stable", "streams"), streams=streams.StreamsGroupDescribeResponse(groups=[told]))
    assert (len(found["app"].group.members), found["app"].topics, errors) == (1, {"source", "app-repartition"}, [])


def test_a_group_that_may_not_be_seen_is_told_once_and_one_that_has_ended_not_at_all() -> None:
    refused = share.DescribedGroup(group_id="secret", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    ended = share.DescribedGroup(group_id="ended", error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    no_positions = positions.DescribeShareGroupOffsetsResponseGroup(
        group_id="ended", error_code=ErrorCode.GROUP_ID_NOT_FOUND
    )
    found, errors = look(
        Group("secret", "Stable", "share"),
        Group("ended", "Stable", "share"),
        share=share_groups(refused, ended),
        positions=positions.DescribeShareGroupOffsetsResponse(groups=[no_positions]),
    )
    assert [error.code for error in errors] == ["GROUP_AUTHORIZATION_FAILED"]
    assert {name: one.topics for name, one in found.items()} == {"secret": set(), "ended": set()}
