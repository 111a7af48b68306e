"""Metadata of the cluster: brokers, topics, leaders. Fed only by the controller's UpdateMetadata."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from kafkad.errors import ErrorCode, KafkaError
from kafkad.model import ALL_TOPICS, LEADER_DURING_DELETE, NO_EPOCH, NO_LEADER, BrokerInfo, Endpoint
from kafkad.names import NO_TOPIC_ID, TopicId, TopicPartition, is_another_topic
from kafkad.wire.leaders import CurrentLeader, NodeEndpoint
from kafkad.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

_MOST_DELETED = 10_000


@dataclass(slots=True)
class TopicMetadata:
    name: str
    id: TopicId
    partitions: dict[int, UpdateMetadataPartitionState] = field(default_factory=dict)


class MetadataCache:
    def __init__(self) -> None:
        self.on_topic_gone: list[Callable[[str], None]] = []
        """Called with topics that are deleted, and with those recreated under the same name."""
        self.on_topic_new: list[Callable[[str], None]] = []
        """Called with topics that this broker is told of for the first time, and with those recreated."""
        self.on_brokers_changed: list[Callable[[], None]] = []
        """Called when brokers have come or gone, or have other addresses."""
        self.brokers: dict[int, BrokerInfo] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self.controller_id = -1
        self.expects_topics = False
        """True if the cluster has topics: an UpdateMetadata without any then only introduces the brokers."""
        self.is_here = asyncio.Event()
        """Set when the controller has told this broker what there is: before, answers would deny topics."""
        self._derived: dict[str, dict[str, Any]] = {}
        self._names: dict[TopicId, str] = {}
        self._deleted: dict[str, TopicId] = {}
        """The last topics that were deleted: brokers are told of that before they are to delete their replicas."""

    def apply(self, request: UpdateMetadataRequest) -> list[str]:
        """Take over the controller's news; returns the topics that vanished."""
        self.controller_id = request.controller_id
        brokers = {broker.id: _broker(broker) for broker in request.live_brokers}
        others = brokers != self.brokers
        if others:
            self._derived.clear()
        self.brokers = brokers
        gone = self._take(request.topic_states)
        names_all = request.type == ALL_TOPICS
        if names_all:
            for name in self.topics.keys() - {topic.topic_name for topic in request.topic_states}:
                self._remove(self.topics[name], gone)
        if request.topic_states or names_all or not self.expects_topics:
            self.is_here.set()
        if others:
            for told in self.on_brokers_changed:
                told()
        return gone

    def _take(self, topics: Iterable[UpdateMetadataTopicState]) -> list[str]:
        gone: list[str] = []
        for topic in topics:
            for derived in self._derived.values():
                derived.pop(topic.topic_name, None)
            for state in topic.partition_states:
                if state.leader == LEADER_DURING_DELETE:
                    self._note_deleted(topic.topic_name, topic.topic_id)
                    self._forget(topic.topic_name, state.partition_index, gone)
                else:
                    self._topic(topic.topic_name, topic.topic_id).partitions[state.partition_index] = state
        return gone

    def derived(self, what: str) -> dict[str, Any]:
        """A reader's own results about topics, by their names; each goes when its topic changes, all when brokers
        come and go."""
        return self._derived.setdefault(what, {})

    def _topic(self, name: str, topic_id: TopicId) -> TopicMetadata:
        known = self.topics.get(name)
        if known is None or known.id != topic_id:
            if known is not None:
                self._names.pop(known.id, None)
                if is_another_topic(known.id, topic_id):
                    self._tell(name)
            known = self.topics[name] = TopicMetadata(name, topic_id)
            if topic_id != NO_TOPIC_ID:
                self._names[topic_id] = name
            for told in self.on_topic_new:
                told(name)
        return known

    def _forget(self, name: str, partition: int, gone: list[str]) -> None:
        topic = self.topics.get(name)
        if topic is None:
            return
        topic.partitions.pop(partition, None)
        if not topic.partitions:
            self._remove(topic, gone)

    def _note_deleted(self, name: str, topic_id: TopicId) -> None:
        if topic_id == NO_TOPIC_ID:
            return
        if name not in self._deleted and len(self._deleted) >= _MOST_DELETED:
            del self._deleted[next(iter(self._deleted))]
        self._deleted[name] = topic_id

    def _remove(self, topic: TopicMetadata, gone: list[str]) -> None:
        del self.topics[topic.name]
        self._names.pop(topic.id, None)
        for derived in self._derived.values():
            derived.pop(topic.name, None)
        gone.append(topic.name)
        self._tell(topic.name)

    def id_of(self, name: str) -> TopicId | None:
        topic = self.topics.get(name)
        return None if topic is None else topic.id

    def last_id_of(self, name: str) -> TopicId:
        """Also of a topic that is being deleted; NO_TOPIC_ID if it is not known."""
        return self.id_of(name) or self._deleted.get(name, NO_TOPIC_ID)

    def _tell(self, gone: str) -> None:
        for told in self.on_topic_gone:
            told(gone)

    def name_of(self, topic_id: TopicId) -> str | None:
        return self._names.get(topic_id)

    def topic(self, name: str) -> TopicMetadata:
        topic = self.topics.get(name)
        if topic is None:
            raise self.unknown()
        return topic

    def partition(self, name: str, index: int) -> UpdateMetadataPartitionState:
        state = self.topic(name).partitions.get(index)
        if state is None:
            raise self.unknown()
        return state

    def state_of(self, tp: TopicPartition) -> UpdateMetadataPartitionState | None:
        """None while it is not known here."""
        topic = self.topics.get(tp.topic)
        return None if topic is None else topic.partitions.get(tp.partition)

    def unknown(
        self,
        code: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        text: str = "This server does not host this topic-partition.",
    ) -> KafkaError:
        """The error for what is not found here. Until metadata is here that says nothing: some clients believe that a
        topic is gone at the first word of it, while all ask for the leader again when this broker is none."""
        if self.is_here.is_set():
            return KafkaError(code, text)
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "The controller has not told this broker of any topic yet.")

    def is_led_by(self, tp: TopicPartition, broker: int) -> bool:
        state = self.state_of(tp)
        return state is not None and state.leader == broker

    def has_replica(self, tp: TopicPartition, broker: int, topic_id: TopicId) -> bool:
        """True if `broker` is assigned a replica of the partition of the topic that has this id."""
        topic = self.topics.get(tp.topic)
        state = topic.partitions.get(tp.partition) if topic and topic_id in (topic.id, NO_TOPIC_ID) else None
        return state is not None and broker in state.replicas

    def live(self, brokers: Iterable[int]) -> list[int]:
        return [broker for broker in brokers if broker in self.brokers]

    def current_leader(self, name: str, index: int) -> CurrentLeader:
        topic = self.topics.get(name)
        state = topic.partitions.get(index) if topic else None
        return CurrentLeader(state.leader, state.leader_epoch) if state else CurrentLeader(NO_LEADER, NO_EPOCH)

    def endpoints(self, brokers: Iterable[int], listener: str) -> list[NodeEndpoint]:
        """The addresses of those that live, for who came in at this listener."""
        found = []
        for number in brokers:
            broker = self.brokers.get(number)
            endpoint = None if broker is None else broker.endpoint(listener)
            if broker is not None and endpoint is not None:
                found.append(NodeEndpoint(number, endpoint.host, endpoint.port, broker.rack))
        return found

    def leader_epoch(self, name: str, index: int) -> int:
        topic = self.topics.get(name)
        state = topic.partitions.get(index) if topic else None
        return state.leader_epoch if state else NO_EPOCH


_PROTOCOLS = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}


def _broker(broker: UpdateMetadataBroker) -> BrokerInfo:
    endpoints = tuple(
        Endpoint(
            listener=e.listener, host=e.host, port=e.port, protocol=_PROTOCOLS.get(e.security_protocol, "PLAINTEXT")
        )
        for e in broker.endpoints
    )
    return BrokerInfo(id=broker.id, endpoints=endpoints, rack=broker.rack)
