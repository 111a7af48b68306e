"""Answers of a broker to what the controller has said otherwise since."""

from __future__ import annotations

from kafkad.errors import ErrorCode
from kafkad.model import NO_LEADER
from kafkad.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)

from .cluster import Cluster, with_brokers


async def refuse(cluster: Cluster, number: int) -> int:
    """The leader after broker 2, which leads the partition, has refused that request of those that it got."""
    topic_id = await cluster.create("a", (2, 3))
    await cluster.kill(3)
    requests = [each for each in cluster[2].requests if isinstance(each, LeaderAndIsrRequest) and each.topic_states]
    assert requests[0].topic_states[0].partition_states[0].leader_epoch < (await cluster.state("a")).leader_epoch
    failed = LeaderAndIsrPartitionError(partition_index=0, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    answer = LeaderAndIsrResponse(topics=[LeaderAndIsrTopicError(topic_id=topic_id, partition_errors=[failed])])
    await cluster.controller._operate(lambda term: term.brokers.leader_and_isr_answered(2, requests[number], answer))
    await cluster.settle()
    return (await cluster.state("a")).leader


@with_brokers(1, 2, 3)
async def test_a_broker_that_refuses_to_lead_leads_no_more(cluster: Cluster) -> None:
    assert await refuse(cluster, -1) == NO_LEADER


@with_brokers(1, 2, 3)
async def test_what_a_broker_refused_before_it_was_made_the_leader_says_nothing(cluster: Cluster) -> None:
    assert await refuse(cluster, 0) == 2
