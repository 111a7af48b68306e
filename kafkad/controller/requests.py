"""Batches the controller's LeaderAndIsr, UpdateMetadata and StopReplica requests, so that each broker gets few.

A broker hears of its replicas by LeaderAndIsr, of what it may answer to clients by UpdateMetadata, of replicas it loses
by StopReplica; in this order, so that it knows a replica before anybody is sent to it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from kafkad.controller.channel import BrokerQueue, OnResponse, Request, Response
from kafkad.controller.state import ClusterState, PartitionEntry, TopicEntry
from kafkad.model import ALL_TOPICS, LEADER_DURING_DELETE, NO_EPOCH, BrokerInfo, Endpoint, PartitionState
from kafkad.names import TopicId, TopicPartition
from kafkad.turns import Turns
from kafkad.wire.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from kafkad.wire.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from kafkad.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

EPOCH_DURING_DELETE = -2
"""The leader epoch in a StopReplica that deletes with its topic: brokers do not compare it with theirs."""

_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


_REPLICAS_AT_ONCE = 1_000
"""The most replicas in one LeaderAndIsr: a broker that creates thousands of logs is to answer now and then, and to
serve others in between."""


class Sender(NamedTuple):
    """The sender of a batch, and its queues to brokers. `listener` is the one that brokers use among themselves."""

    broker: int
    epoch: int
    listener: str | None
    queues: Mapping[int, BrokerQueue]
    on_response: Callable[[int, Request, Response], None]


class RequestBatch:
    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._replicas: dict[int, dict[TopicPartition, bool]] = defaultdict(dict)
        self._metadata: dict[int, dict[TopicPartition, None]] = defaultdict(dict)
        self._all_metadata: set[int] = set()
        self._stops: dict[int, dict[TopicPartition, tuple[int, bool]]] = defaultdict(dict)
        self._replica_states: dict[tuple[TopicPartition, bool], LeaderAndIsrPartitionState] = {}
        self._partition_states: dict[TopicPartition, UpdateMetadataPartitionState] = {}
        """Built once, for all brokers that are to learn of the partition."""

    def leader_and_isr(
        self, brokers: Iterable[int], tp: TopicPartition, *, is_new: bool = False, tell_all: bool = True
    ) -> None:
        for broker in brokers:
            if broker in self._state.brokers:
                news = self._replicas[broker]
                news[tp] = is_new or news.get(tp, False)
        if tell_all:
            self.metadata([tp])

    def metadata(self, partitions: Iterable[TopicPartition], brokers: Iterable[int] | None = None) -> None:
        """All brokers unless named. Without partitions, they hear of the brokers only."""
        partitions = list(partitions)
        for broker in self._state.brokers if brokers is None else brokers:
            self._metadata[broker].update(dict.fromkeys(partitions))

    def all_metadata(self, brokers: Collection[int]) -> None:
        """These brokers hear of every partition, and that no other topic is there: they may have been away when one was
        deleted. That is not said while the store has a topic that cannot be read. Kafka's brokers do not heed it, and
        hear of the topics that this controller deleted last."""
        self.metadata([tp for tp, _ in self._state.partitions()], brokers)
        self._all_metadata.update(brokers)

    def stop(self, broker: int, tp: TopicPartition, *, delete: bool) -> None:
        if broker in self._state.brokers:
            self._stops[broker][tp] = (self._stop_epoch(tp), delete)

    def _stop_epoch(self, tp: TopicPartition) -> int:
        if self._state.going(tp.topic):
            return EPOCH_DURING_DELETE
        state = self._state.entry(tp).state
        return NO_EPOCH if state is None else state.leader_epoch

    async def send(self, sender: Sender) -> list[tuple[int, asyncio.Future[None]]]:
        """For each request the broker, and a future that is done when it has answered.

        In turns with everybody else: the requests of thousands of partitions take 0.1 s. The controller works on one
        event after the other, so that nothing changes the cluster's state meanwhile, and nothing else is sent."""
        turns = Turns()
        await self._make_states(turns)
        answers: list[tuple[int, asyncio.Future[None]]] = []
        for broker, request in self._requests(sender):
            answers += self._put(sender, broker, request)
            await turns.give_way()
        return answers

    async def _make_states(self, turns: Turns) -> None:
        """Those that the requests put together."""
        for replicas in self._replicas.values():
            for tp, is_new in replicas.items():
                await turns.give_way()
                self._replica_state(tp, is_new)
        for partitions in self._metadata.values():
            for tp in partitions:
                await turns.give_way()
                self._partition_state(tp)

    def _requests(self, sender: Sender) -> Iterator[tuple[int, Request]]:
        """Made one by one, with the broker that each is for."""
        for broker, replicas in self._replicas.items():
            for part in _parts(replicas, sender.queues.get(broker)):
                yield broker, self._leader_and_isr(sender, broker, part)
        live = self._live_brokers()
        deleted = [self._deleted_topic(topic) for topic in self._state.deleted] if self._all_metadata else []
        for broker, partitions in self._metadata.items():
            request = self._update_metadata(sender, self._state.brokers[broker], partitions, live)
            if broker in self._all_metadata:
                request.topic_states += deleted
                if not self._state.unreadable:
                    request.type = ALL_TOPICS
            yield broker, request
        for broker, stops in self._stops.items():
            yield broker, self._stop_replica(sender, broker, stops)

    def brokers_only(self, sender: Sender, to: BrokerInfo) -> UpdateMetadataRequest:
        return self._update_metadata(sender, to, [], self._live_brokers())

    def _put(self, sender: Sender, broker: int, request: Request) -> list[tuple[int, asyncio.Future[None]]]:
        queue = sender.queues.get(broker)
        if queue is None:
            return []
        on_response: OnResponse | None = None
        if not isinstance(request, UpdateMetadataRequest):

            def on_response(response: Response) -> None:
                sender.on_response(broker, request, response)

        return [(broker, queue.put(request, on_response))]

    def _leader_and_isr(
        self, sender: Sender, broker: int, replicas: Mapping[TopicPartition, bool]
    ) -> LeaderAndIsrRequest:
        topics: dict[str, LeaderAndIsrTopicState] = {}
        leaders = set()
        for tp, is_new in replicas.items():
            made = self._replica_state(tp, is_new)
            if made is None:
                continue
            leaders.add(made.leader)
            topic = topics.get(tp.topic)
            if topic is None:
                topic = LeaderAndIsrTopicState(topic_name=tp.topic, topic_id=self._topic_id(tp.topic))
                topics[tp.topic] = topic
            topic.partition_states.append(made)
        return LeaderAndIsrRequest(
            controller_id=sender.broker,
            controller_epoch=sender.epoch,
            broker_epoch=self._state.brokers[broker].epoch,
            topic_states=list(topics.values()),
            live_leaders=self._live_leaders(leaders, sender.listener),
        )

    def _replica_state(self, tp: TopicPartition, is_new: bool) -> LeaderAndIsrPartitionState | None:
        """None if the partition has no state yet."""
        made = self._replica_states.get((tp, is_new))
        if made is None:
            entry = self._state.entry(tp)
            if entry.state is not None:
                made = self._replica_states[tp, is_new] = self._new_replica_state(tp, entry, entry.state, is_new)
        return made

    def _new_replica_state(
        self, tp: TopicPartition, entry: PartitionEntry, state: PartitionState, is_new: bool
    ) -> LeaderAndIsrPartitionState:
        assignment = entry.assignment
        return LeaderAndIsrPartitionState(
            partition_index=tp.partition,
            controller_epoch=state.controller_epoch,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            partition_epoch=state.partition_epoch,
            replicas=list(assignment.replicas),
            adding_replicas=list(assignment.adding),
            removing_replicas=list(assignment.removing),
            is_new=is_new,
            leader_recovery_state=int(state.recovering),
            asked=self._state.refused.asked(state.leader, tp),
        )

    def _topic_id(self, topic: str) -> TopicId:
        return self._state.topics[topic].topic_id

    def _live_leaders(self, leaders: Collection[int], listener: str | None) -> list[LeaderAndIsrLiveLeader]:
        brokers = [self._state.brokers[leader] for leader in sorted(leaders) if leader in self._state.brokers]
        found = [(broker.id, _endpoint(broker, listener)) for broker in brokers]
        return [LeaderAndIsrLiveLeader(broker_id=b, host_name=e.host, port=e.port) for b, e in found if e]

    def _update_metadata(
        self, sender: Sender, to: BrokerInfo, partitions: Iterable[TopicPartition], live: list[UpdateMetadataBroker]
    ) -> UpdateMetadataRequest:
        topics: dict[str, UpdateMetadataTopicState] = {}
        for tp in partitions:
            made = self._partition_state(tp)
            if made is None:
                continue
            topic = topics.get(tp.topic)
            if topic is None:
                topic = UpdateMetadataTopicState(topic_name=tp.topic, topic_id=self._topic_id(tp.topic))
                topics[tp.topic] = topic
            topic.partition_states.append(made)
        return UpdateMetadataRequest(
            controller_id=sender.broker,
            controller_epoch=sender.epoch,
            broker_epoch=to.epoch,
            topic_states=list(topics.values()),
            live_brokers=live,
        )

    def _deleted_topic(self, topic: TopicEntry) -> UpdateMetadataTopicState:
        gone = UpdateMetadataTopicState(topic_name=topic.name)  # Java's brokers would keep an id that is new to them
        for number, entry in topic.partitions.items():
            if entry.state is not None:
                last = replace(entry.state, leader=LEADER_DURING_DELETE)
                gone.partition_states.append(self._new_partition_state(TopicPartition(topic.name, number), entry, last))
        return gone

    def _partition_state(self, tp: TopicPartition) -> UpdateMetadataPartitionState | None:
        """None if the partition has no state yet."""
        made = self._partition_states.get(tp)
        if made is None:
            entry = self._state.entry(tp)
            if entry.state is not None:
                made = self._partition_states[tp] = self._new_partition_state(tp, entry, entry.state)
        return made

    def _new_partition_state(
        self, tp: TopicPartition, entry: PartitionEntry, state: PartitionState
    ) -> UpdateMetadataPartitionState:
        replicas = entry.assignment.replicas
        return UpdateMetadataPartitionState(
            partition_index=tp.partition,
            controller_epoch=state.controller_epoch,
            leader=LEADER_DURING_DELETE if self._state.going(tp.topic) else state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            zk_version=state.partition_epoch,
            replicas=list(replicas),
            offline_replicas=[r for r in replicas if not self._state.online(r, tp)],
        )

    def _live_brokers(self) -> list[UpdateMetadataBroker]:
        return [
            UpdateMetadataBroker(
                id=broker.id,
                rack=broker.rack,
                endpoints=[
                    UpdateMetadataEndpoint(
                        port=e.port, host=e.host, listener=e.listener, security_protocol=_PROTOCOLS[e.protocol]
                    )
                    for e in broker.endpoints
                ],
            )
            for broker in self._state.brokers.values()
        ]

    def _stop_replica(
        self, sender: Sender, broker: int, stops: Mapping[TopicPartition, tuple[int, bool]]
    ) -> StopReplicaRequest:
        topics: dict[str, StopReplicaTopicState] = {}
        for tp, (leader_epoch, delete) in stops.items():
            topic = topics.setdefault(tp.topic, StopReplicaTopicState(topic_name=tp.topic))
            topic.partition_states.append(
                StopReplicaPartitionState(
                    partition_index=tp.partition, leader_epoch=leader_epoch, delete_partition=delete
                )
            )
        return StopReplicaRequest(
            controller_id=sender.broker,
            controller_epoch=sender.epoch,
            broker_epoch=self._state.brokers[broker].epoch,
            topic_states=list(topics.values()),
        )


def _parts(
    replicas: Mapping[TopicPartition, bool], queue: BrokerQueue | None
) -> Iterator[Mapping[TopicPartition, bool]]:
    size = _REPLICAS_AT_ONCE if queue is None else queue.replicas_at_once(_REPLICAS_AT_ONCE)
    named = iter(replicas.items())
    while part := dict(islice(named, size)):
        yield part


def _endpoint(broker: BrokerInfo, listener: str | None) -> Endpoint | None:
    if listener is None:
        return broker.endpoints[0] if broker.endpoints else None
    return broker.endpoint(listener)
