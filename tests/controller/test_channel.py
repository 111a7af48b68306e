"""What a broker is asked at once."""

from __future__ import annotations

from kafkad.controller.topics import NewTopic
from kafkad.wire.messages.leader_and_isr import LeaderAndIsrRequest

from .cluster import Cluster, with_brokers


@with_brokers(1, 2)
async def test_a_broker_hears_of_many_new_replicas_in_parts_but_of_its_first_ones_at_once(cluster: Cluster) -> None:
    for name in ("first", "second"):
        many = NewTopic(name=name, partitions=2_500, replication_factor=2)
        [result] = await cluster.controller.create_topics([many], timeout_ms=5_000)
        assert result.error is None
        await cluster.settle()
    for broker in (1, 2):
        sizes = [
            sum(len(topic.partition_states) for topic in request.topic_states)
            for request in cluster[broker].requests
            if isinstance(request, LeaderAndIsrRequest)
        ]
        assert sizes == [2_500, 1_000, 1_000, 500]
        assert len(cluster[broker].replicas) == len(cluster[broker].metadata) == 5_000
