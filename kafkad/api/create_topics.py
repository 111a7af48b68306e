"""CreateTopics, 0 to 7: judged and carried out by the controller, one result per topic."""

from __future__ import annotations

from collections.abc import Sequence

from kafkad.api.context import Context, Request
from kafkad.api.permissions import may_create_topic
from kafkad.api.throttling import MutationQuota
from kafkad.config.describe import describe_topic
from kafkad.controller.topics import Admit, Collision, NewTopic, TopicResult
from kafkad.errors import ErrorCode, KafkaError
from kafkad.security.authorizer import Operation, ResourceType
from kafkad.turns import Turns
from kafkad.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

_FIRST_WITH_CONFIGS = 5
_FIRST_WITH_QUOTAS = 6


async def handle(context: Context, request: Request, message: CreateTopicsRequest) -> CreateTopicsResponse:
    turns = Turns()
    asked: list[CreatableTopic] = []
    refused: dict[str, None] = {}
    for topic in message.topics:
        await turns.give_way()
        if may_create_topic(request, topic.name):
            asked.append(topic)
        else:
            refused[topic.name] = None
    response = await _create_each(context, request, message, asked)
    response.topics += map(_forbidden, refused)
    return response


async def _create_each(
    context: Context, request: Request, message: CreateTopicsRequest, asked: Sequence[CreatableTopic]
) -> CreateTopicsResponse:
    turns = Turns()
    wanted: list[NewTopic] = []
    overrides: dict[str, dict[str, str]] = {}
    for topic in asked:
        await turns.give_way()
        wanted.append(_new_topic(topic))
        overrides[topic.name] = {c.name: c.value or "" for c in topic.configs}

    quota = MutationQuota(request.throttle, strict=request.version >= _FIRST_WITH_QUOTAS)

    def admit(topic: str, partitions: int) -> None:
        """The right may have been taken away while the request waited for the controller."""
        if not may_create_topic(request, topic):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
        quota.admit(partitions)

    results = await _create(context, message, wanted, admit)
    with_configs = request.version >= _FIRST_WITH_CONFIGS
    response = CreateTopicsResponse()
    quota.say(response)
    described: dict[frozenset[tuple[str, str]], list[CreatableTopicConfigs]] = {}
    for result in results:
        await turns.give_way()
        if result.error is not None:
            response.topics.append(_failed(result.name, _told(request, result.error)))
        elif not request.allows(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, result.name):
            response.topics.append(_without_settings(result))
        else:
            response.topics.append(_created(result))
            if with_configs:
                key = frozenset(overrides[result.name].items())
                if key not in described:  # thousands of topics have the same settings
                    described[key] = _described(context, overrides[result.name])
                response.topics[-1].configs = described[key]
    return response


async def _create(
    context: Context, message: CreateTopicsRequest, topics: list[NewTopic], admit: Admit
) -> Sequence[TopicResult]:
    try:
        return await context.controller.create_topics(
            topics, timeout_ms=message.timeout_ms, validate_only=message.validate_only, admit=admit
        )
    except KafkaError as error:
        return [TopicResult(name=topic.name, error=error) for topic in topics]


def _new_topic(topic: CreatableTopic) -> NewTopic:
    assignment = {assigned.partition_index: tuple(assigned.broker_ids) for assigned in topic.assignments}
    return NewTopic(
        name=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignment=assignment,
        configs={config.name: config.value for config in topic.configs},
        repeats_a_partition=len(assignment) < len(topic.assignments),
    )


def _told(request: Request, error: KafkaError) -> KafkaError:
    """What the sender may know of it."""
    if isinstance(error, Collision) and request.allows(Operation.DESCRIBE, ResourceType.TOPIC, error.other):
        return error.naming_it
    return error


def _failed(name: str, error: KafkaError) -> CreatableTopicResult:
    result = CreatableTopicResult(name=name, error_code=error.code, error_message=error.message)
    if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        result.topic_config_error_code = error.code
    return result


def _forbidden(name: str) -> CreatableTopicResult:
    return _failed(name, KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed."))


def _without_settings(result: TopicResult) -> CreatableTopicResult:
    """Created by somebody who may not know with which settings."""
    return CreatableTopicResult(
        name=result.name,
        topic_id=result.topic_id,
        error_message=None,
        topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    )


def _created(result: TopicResult) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=result.name,
        topic_id=result.topic_id,
        error_message=None,
        num_partitions=result.partitions,
        replication_factor=result.replication_factor,
    )


def _described(context: Context, overrides: dict[str, str]) -> list[CreatableTopicConfigs]:
    return [
        CreatableTopicConfigs(
            name=row.name,
            value=row.value,
            read_only=row.read_only,
            config_source=row.source,
            is_sensitive=row.sensitive,
        )
        for row in describe_topic(context.config, overrides)
    ]
