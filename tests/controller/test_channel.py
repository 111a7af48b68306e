"""What a broker is asked at once, and how long it may take to answer."""

from __future__ import annotations

import asyncio

from kafkad.controller.channel import MS_PER_PARTITION, BrokerQueue, LocalChannel
from kafkad.controller.topics import NewTopic
from kafkad.wire.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from tests.fakes import FakeClock

from .cluster import Cluster, FakeBroker, with_brokers


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


def test_a_broker_with_much_to_do_is_not_silent() -> None:
    clock = FakeClock()

    async def never(ms: float) -> None:
        await asyncio.Event().wait()

    async def test() -> None:
        broker = FakeBroker(1)
        broker.reachable.clear()
        queue = BrokerQueue(1, LocalChannel(broker), never, clock.monotonic_ms)
        states = [LeaderAndIsrPartitionState(partition_index=index) for index in range(5_000)]
        queue.put(LeaderAndIsrRequest(topic_states=[LeaderAndIsrTopicState(topic_name="a", partition_states=states)]))
        clock.advance(5_000 * MS_PER_PARTITION)
        assert queue.silent_ms == 0
        clock.advance(300)
        assert queue.silent_ms == 300
        await queue.close()

    asyncio.run(test())
