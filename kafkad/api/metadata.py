"""Metadata, 0 to 13: brokers, topics, leaders; and topics that are created on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Any

from kafkad.api.context import Context, Request
from kafkad.api.operations import NOT_ASKED_FOR, authorized_operations, on_cluster
from kafkad.api.permissions import may_create_topic
from kafkad.api.reachable_brokers import ReachableBrokers
from kafkad.cluster.metadata import MetadataCache, TopicMetadata
from kafkad.controller.internal_topics import internal_topic
from kafkad.controller.topics import NewTopic, TopicResult, check_name
from kafkad.errors import ErrorCode, KafkaError
from kafkad.names import INTERNAL_TOPICS, NO_TOPIC_ID
from kafkad.security.authorizer import Operation, ResourceType
from kafkad.turns import Pieces, at_once, each
from kafkad.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

_FIRST_WITH_TOPIC_IDS = 12
_FIRST_WITH_AUTO_CREATION = 4
_CREATION_TIMEOUT_MS = 5_000
_PATIENCE_MS = 10_000
"""The longest wait for the controller's first word after a start; then the answer is what there is, as Kafka's."""
_CREATION_ERRORS = frozenset({ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_REPLICATION_FACTOR})

_FEW_TOPICS, _FEW_PARTITIONS = 8, 64

_MOST_CREATED = 2_000
"""Topics that one request creates. Clients ask again for the others, which are not available yet."""

Answer = MetadataResponse | Coroutine[Any, Any, Pieces[MetadataResponse]]


def handle(
    context: Context, request: Request, message: MetadataRequest
) -> Answer | Pieces[Answer] | Coroutine[Any, Any, Pieces[Answer]]:
    """In pieces, unless a few small topics are asked for, as by most: that does not wait for what is large."""
    if not context.replicas.metadata.is_here.is_set():
        return _when_metadata_is_here(context, request, message)
    answer = _answer(context, request, message)
    return at_once(answer) if _is_small(context.replicas.metadata, message.topics) else answer


def _is_small(metadata: MetadataCache, topics: list[MetadataRequestTopic] | None) -> bool:
    if not topics or len(topics) > _FEW_TOPICS:
        return False
    names = (topic.name if topic.topic_id == NO_TOPIC_ID else metadata.name_of(topic.topic_id) for topic in topics)
    found = (metadata.topics.get(name or "") for name in names)
    return sum(len(topic.partitions) for topic in found if topic is not None) <= _FEW_PARTITIONS


async def _when_metadata_is_here(context: Context, request: Request, message: MetadataRequest) -> Pieces[Answer]:
    is_here = context.replicas.metadata.is_here
    waiting = asyncio.create_task(is_here.wait())

    def give_up() -> None:
        waiting.cancel()

    late = context.timers.at(context.clock.monotonic_ms() + _PATIENCE_MS, give_up)
    try:
        await asyncio.wait([waiting])
    finally:
        late.cancel()
        waiting.cancel()
    return _answer(context, request, message)


def _answer(context: Context, request: Request, message: MetadataRequest) -> Pieces[Answer]:
    topics = message.topics
    if topics is None or (not topics and request.version == 0):
        found = list(context.replicas.metadata.topics.values())
        if request.restricted:
            seen = yield from each(partial(_sees, request), found)
            found = [topic for topic, may in zip(found, seen, strict=True) if may]
        return (yield from _Answer(context, request, message).whole(found, []))
    if _is_malformed(topics, request.version):
        return MetadataResponse(topics=(yield from each(_malformed, topics)))
    yield
    answer = _Answer(context, request, message)
    if request.version >= _FIRST_WITH_TOPIC_IDS and any(topic.topic_id != NO_TOPIC_ID for topic in topics):
        return (yield from _by_id(context, answer, topics))
    names = list(dict.fromkeys(topic.name or "" for topic in topics))
    yield
    if request.restricted:
        seen = yield from each(partial(request.allowed, Operation.DESCRIBE, ResourceType.TOPIC), names)
        unseen = [name for name, may in zip(names, seen, strict=True) if not may]
        yield
        answer.hide((yield from each(_hidden, unseen)))
        names = [name for name, may in zip(names, seen, strict=True) if may]
        yield
    missing = [name for name in names if name not in context.replicas.metadata.topics]
    yield
    if missing and _creates(context, request, message):
        creatable, unknown = yield from _creatable(answer, missing)
        if creatable:
            return _create(context, answer, names, creatable, unknown)
    else:
        unknown = yield from each(_unknown, missing)
    return (yield from answer.whole(_known(context, names), unknown))


def _is_malformed(topics: list[MetadataRequestTopic], version: int) -> bool:
    """Versions 10 and 11 have ids that clients may not use (KAFKA-13276); later a topic has a name or an id."""
    if version < _FIRST_WITH_TOPIC_IDS:
        return any(topic.name is None or topic.topic_id != NO_TOPIC_ID for topic in topics)
    return any(topic.name is None and topic.topic_id == NO_TOPIC_ID for topic in topics)


def _malformed(topic: MetadataRequestTopic) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id)


def _by_id(context: Context, answer: _Answer, topics: list[MetadataRequestTopic]) -> Pieces[MetadataResponse]:
    """Once there is an id in a request, names in it count for nothing, as in Kafka."""
    metadata = context.replicas.metadata
    request = answer.request
    known, missing = [], []
    for topic_id in dict.fromkeys(topic.topic_id for topic in topics if topic.topic_id != NO_TOPIC_ID):
        yield
        name = metadata.name_of(topic_id)
        if name is None:
            missing.append(MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id))
        elif request.restricted and not request.allowed(Operation.DESCRIBE, ResourceType.TOPIC, name):
            refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            answer.hide([MetadataResponseTopic(error_code=refused, name=None, topic_id=topic_id)])
        else:
            known += _known(context, [name])
    return (yield from answer.whole(known, missing))


def _known(context: Context, names: Iterable[str]) -> list[TopicMetadata]:
    topics = context.replicas.metadata.topics
    return [topics[name] for name in names if name in topics]


def _unknown(name: str) -> MetadataResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_name(name)
    except KafkaError as error:
        code = error.code
    return MetadataResponseTopic(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS)


def _sees(request: Request, topic: TopicMetadata) -> bool:
    return request.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)


def _hidden(name: str) -> MetadataResponseTopic:
    """The same for a topic that does not exist."""
    return MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)


def _creates(context: Context, request: Request, message: MetadataRequest) -> bool:
    asked = request.version < _FIRST_WITH_AUTO_CREATION or message.allow_auto_topic_creation
    return asked and context.config.bool("auto.create.topics.enable")


def _creatable(answer: _Answer, missing: list[str]) -> Pieces[tuple[list[str], list[MetadataResponseTopic]]]:
    """Those of the topics that are to be created, and what is said of the others."""
    creatable: list[str] = []
    others: list[MetadataResponseTopic] = []
    for name in missing:
        yield
        if not may_create_topic(answer.request, name):
            answer.hide([_hidden(name)])
            continue
        unknown = _unknown(name)
        if unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            if len(creatable) < _MOST_CREATED:
                creatable.append(name)
                continue
            unknown.error_code = ErrorCode.LEADER_NOT_AVAILABLE
        others.append(unknown)
    return creatable, others


async def _create(
    context: Context, answer: _Answer, names: list[str], creatable: list[str], others: list[MetadataResponseTopic]
) -> Pieces[MetadataResponse]:
    """Unlike Kafka, which answers at once, this waits for the controller: the client need not ask again."""
    brokers = len(context.replicas.metadata.brokers)
    wanted = [
        internal_topic(name, context.config, brokers) if name in INTERNAL_TOPICS else NewTopic(name=name)
        for name in creatable
    ]

    def admit(topic: str, partitions: int) -> None:
        """The right may have been taken away while the request waited for the controller."""
        if not may_create_topic(answer.request, topic):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    try:
        results = await context.controller_link.create_topics(wanted, timeout_ms=_CREATION_TIMEOUT_MS, admit=admit)
    except KafkaError as error:
        results = [TopicResult(name=topic.name, error=error) for topic in wanted]
    context.audit.created_on_demand(answer.request, [result.name for result in results if result.error is None])
    there = context.replicas.metadata.topics
    failed = [_not_created(result) for result in results if result.name not in there]
    return answer.whole(_known(context, names), failed + others)


def _not_created(result: TopicResult) -> MetadataResponseTopic:
    """Errors that pass by themselves become LEADER_NOT_AVAILABLE, which clients expect for a new topic."""
    code = ErrorCode.LEADER_NOT_AVAILABLE
    if result.error is not None and result.error.code in _CREATION_ERRORS:
        code = result.error.code
    return MetadataResponseTopic(error_code=code, name=result.name, is_internal=result.name in INTERNAL_TOPICS)


class _Answer:
    """The context shared by the topics of one response: its version and its listener."""

    __slots__ = (
        "_context",
        "_hidden",
        "_made",
        "_reachable",
        "_wants_cluster_operations",
        "_wants_topic_operations",
        "request",
    )

    def __init__(self, context: Context, request: Request, message: MetadataRequest) -> None:
        self._context = context
        self.request = request
        self._reachable = ReachableBrokers(context.replicas.metadata, request.listener)
        self._made: dict[str, MetadataResponseTopic]
        which = "live" if request.version == 0 else "all"
        self._made = context.replicas.metadata.derived(f"metadata of {request.listener}, {which} replicas")
        self._hidden: list[MetadataResponseTopic] = []
        self._wants_topic_operations = message.include_topic_authorized_operations
        self._wants_cluster_operations = message.include_cluster_authorized_operations

    def hide(self, refused: Iterable[MetadataResponseTopic]) -> None:
        """What the sender may not see, or not create."""
        self._hidden += refused

    def whole(self, found: list[TopicMetadata], failed: list[MetadataResponseTopic]) -> Pieces[MetadataResponse]:
        for topic in failed:
            yield
            if topic.name is not None:
                topic.topic_authorized_operations = self._operations(topic.name)
        topics = yield from each(self._topic, found)
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
                for broker, endpoint in self._reachable.brokers
            ],
            cluster_id=self._context.cluster_id,
            controller_id=self._context.replicas.metadata.controller_id,
            topics=failed + topics + self._hidden,
            cluster_authorized_operations=on_cluster(self.request) if self._wants_cluster_operations else NOT_ASKED_FOR,
        )

    def _operations(self, name: str) -> int:
        if not self._wants_topic_operations:
            return NOT_ASKED_FOR
        return authorized_operations(self.request, ResourceType.TOPIC, name)

    def _topic(self, topic: TopicMetadata) -> MetadataResponseTopic:
        """Kept from one answer to the next: with ten thousand partitions this is most of the work, and hundreds of
        answers under way together would be millions of objects.

        An answer in pieces may come to a topic after it was deleted, and another was made under its name.
        """
        made = self._made.get(topic.name)
        if made is None:
            partitions = self._live_partitions(topic) if self.request.version == 0 else self._all_partitions(topic)
            made = self._described(topic, partitions, NOT_ASKED_FOR)
            if self._context.replicas.metadata.topics.get(topic.name) is topic:
                self._made[topic.name] = made
        if not self._wants_topic_operations:
            return made
        return self._described(topic, made.partitions, self._operations(topic.name))

    def _described(
        self, topic: TopicMetadata, partitions: list[MetadataResponsePartition], operations: int
    ) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=partitions,
            topic_authorized_operations=operations,
        )

    def _all_partitions(self, topic: TopicMetadata) -> list[MetadataResponsePartition]:
        leader_of = self._reachable.leader
        partitions = []
        for state in topic.partitions.values():
            leader, code = leader_of(state)
            partitions.append(
                MetadataResponsePartition(
                    error_code=code,
                    partition_index=state.partition_index,
                    leader_id=leader,
                    leader_epoch=state.leader_epoch,
                    replica_nodes=state.replicas,
                    isr_nodes=state.isr,
                    offline_replicas=state.offline_replicas,
                )
            )
        return partitions

    def _live_partitions(self, topic: TopicMetadata) -> list[MetadataResponsePartition]:
        """Version 0 does not know of brokers that are down: it must not be told of them."""
        partitions = []
        for state in topic.partitions.values():
            leader, code = self._reachable.leader(state)
            replicas = [replica for replica in state.replicas if replica in self._reachable.ids]
            isr = [replica for replica in state.isr if replica in self._reachable.ids]
            if not code and (len(replicas) < len(state.replicas) or len(isr) < len(state.isr)):
                code = ErrorCode.REPLICA_NOT_AVAILABLE
            partitions.append(
                MetadataResponsePartition(
                    error_code=code,
                    partition_index=state.partition_index,
                    leader_id=leader,
                    replica_nodes=replicas,
                    isr_nodes=isr,
                )
            )
        return partitions
