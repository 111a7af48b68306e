"""DeleteTopics, 0 to 6: by name or, from 6 on, by id."""

from __future__ import annotations

from kafkad.api.audit import DONE, LostTopic
from kafkad.api.context import Context, Request
from kafkad.api.throttling import MutationQuota
from kafkad.controller.controller import DeletedTopic
from kafkad.errors import ErrorCode, KafkaError
from kafkad.names import NO_TOPIC_ID
from kafkad.security.authorizer import Operation, ResourceType
from kafkad.turns import Turns
from kafkad.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

_FIRST_WITH_IDS = 6
_FIRST_WITH_QUOTAS = 5
_FIRST_WITH_ITS_OWN_REFUSAL = 3


async def handle(context: Context, request: Request, message: DeleteTopicsRequest) -> DeleteTopicsResponse:
    asked = message.topics
    if request.version < _FIRST_WITH_IDS:
        asked = [DeleteTopicState(name=name) for name in message.topic_names]
    if not context.config.bool("delete.topic.enable"):
        return _all_refused(asked, _disabled(request.version))
    if any(topic.name is not None and topic.topic_id != NO_TOPIC_ID for topic in asked):
        text = "nothing was deleted: a topic in the request has both a name and an id, and it may have only one of them"
        return _all_refused(asked, KafkaError(ErrorCode.INVALID_REQUEST, text))
    sound = [topic for topic in asked if _is_named(topic)]
    error = KafkaError(ErrorCode.INVALID_REQUEST, "a topic to delete has either a name or an id")
    response = _all_refused([topic for topic in asked if not _is_named(topic)], error)
    if request.restricted:
        sound, refusals = await _sorted_out(context, request, sound)
        response.responses += refusals

    lost: dict[str, LostTopic] = {}
    quota = MutationQuota(request.throttle, strict=request.version >= _FIRST_WITH_QUOTAS)

    def admit(topic: str, partitions: int) -> None:
        """The right may have been taken away while the request waited for the controller."""
        if not request.allowed(Operation.DELETE, ResourceType.TOPIC, topic):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        quota.admit(partitions)
        lost[topic] = _as_it_is(context, topic, partitions)

    try:
        deleted = await context.controller.delete_topics(
            [topic.topic_id if topic.name is None else topic.name for topic in sound],
            timeout_ms=message.timeout_ms,
            admit=admit,
        )
    except KafkaError as failure:
        response.responses += _all_refused(sound, failure).responses
        return response
    turns = Turns()
    for topic, result in zip(sound, deleted, strict=True):
        await turns.give_way()
        refusal = None
        if result.error is not None and result.error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            refusal = _refusal(context, request, topic)  # whether it may see the name
        response.responses.append(refusal or _result(result))
    quota.say(response)
    done = {result.name for result in response.responses if result.error_code in DONE}
    context.audit.topics_deleted(request, [topic for name, topic in lost.items() if name in done])
    return response


def _as_it_is(context: Context, topic: str, partitions: int) -> LostTopic:
    known = context.replicas.metadata.topics.get(topic)
    replicas = max((len(state.replicas) for state in known.partitions.values()), default=0) if known else 0
    return LostTopic(topic, partitions, replicas, context.configs.topic(topic))


def _is_named(topic: DeleteTopicState) -> bool:
    return topic.name is not None or topic.topic_id != NO_TOPIC_ID


async def _sorted_out(
    context: Context, request: Request, asked: list[DeleteTopicState]
) -> tuple[list[DeleteTopicState], list[DeletableTopicResult]]:
    """What may be deleted, and the refusals of the others."""
    turns = Turns()
    may: list[DeleteTopicState] = []
    refusals: list[DeletableTopicResult] = []
    for topic in asked:
        await turns.give_way()
        refusal = _refusal(context, request, topic)
        if refusal is None:
            may.append(topic)
        else:
            refusals.append(refusal)
    return may, refusals


def _refusal(context: Context, request: Request, topic: DeleteTopicState) -> DeletableTopicResult | None:
    """Of what the sender may not delete. A name that it may not see it is not told, either."""
    name = context.replicas.metadata.name_of(topic.topic_id) if topic.name is None else topic.name
    if name is None:
        return DeletableTopicResult(
            name=None, topic_id=topic.topic_id, error_code=ErrorCode.UNKNOWN_TOPIC_ID, error_message=None
        )
    may_see = topic.name is not None or request.allowed(Operation.DESCRIBE, ResourceType.TOPIC, name)
    if may_see and request.allowed(Operation.DELETE, ResourceType.TOPIC, name):
        return None
    return DeletableTopicResult(
        name=name if may_see else None,
        topic_id=topic.topic_id,
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        error_message=None,
    )


def _disabled(version: int) -> KafkaError:
    code = ErrorCode.INVALID_REQUEST
    if version >= _FIRST_WITH_ITS_OWN_REFUSAL:
        code = ErrorCode.TOPIC_DELETION_DISABLED
    return KafkaError(code, "this broker does not delete topics: delete.topic.enable is false")


def _all_refused(topics: list[DeleteTopicState], error: KafkaError) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(
                name=topic.name, topic_id=topic.topic_id, error_code=error.code, error_message=error.message
            )
            for topic in topics
        ]
    )


def _result(deleted: DeletedTopic) -> DeletableTopicResult:
    result = DeletableTopicResult(name=deleted.name, topic_id=deleted.topic_id)
    if deleted.error is not None:
        result.error_code, result.error_message = deleted.error.code, deleted.error.message
    return result
