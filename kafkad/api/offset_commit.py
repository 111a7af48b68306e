"""OffsetCommit, 0 to 10: how far a group has read. Version 0 goes to the metadata store, as Kafka 0.8 keeps offsets."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from functools import partial
from typing import NamedTuple

from kafkad.api.answering import LARGE_FRAME
from kafkad.api.context import Context, Request
from kafkad.api.offset_commit_repeat import RepeatedCommits, may_repeat
from kafkad.api.permissions import by_present_rights
from kafkad.api.routes import OFFSET_COMMIT
from kafkad.cluster.metadata import TopicMetadata
from kafkad.errors import ErrorCode, KafkaError
from kafkad.group.committing import Codes, Committer, OffsetToCommit, PreparedCommit
from kafkad.group.offsets import Position
from kafkad.security.authorizer import Operation, ResourceType
from kafkad.turns import Pieces, Turns, at_once
from kafkad.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_BY_ID = 10
_AT_ONCE = 100

Answers = list[OffsetCommitResponsePartition]
Response = OffsetCommitResponse | Coroutine[None, None, OffsetCommitResponse]


class SortedOut(NamedTuple):
    response: OffsetCommitResponse
    asked: list[OffsetToCommit]
    """What to ask the group for; other partitions already have their answer."""
    answers: Answers
    """Their places in the response."""
    topics: list[TopicMetadata]
    """Those of which something is asked, as they were found."""


Prepared = tuple[SortedOut, PreparedCommit | Codes | None]
"""The codes where nothing is left to be asked."""


def handle(context: Context, request: Request, message: OffsetCommitRequest) -> Response | Pieces[Response]:
    """HOT. Without a coroutine when nothing has to be waited for."""
    if len(request.frame) > LARGE_FRAME:
        return _in_pieces(context, request, message)
    return _commit(context, request, message, at_once(_sorted_out(context, request, message)))


def _in_pieces(context: Context, request: Request, message: OffsetCommitRequest) -> Pieces[Response]:
    prepare = partial(_prepared, context, request, message)
    may_still = partial(_may_still, request, message.group_id)
    found, prepared = yield from by_present_rights(request, prepare, may_still, partial(_are_still_there, context))
    return _commit(context, request, message, found, prepared)


def _may_still(request: Request, group: str, prepared: Prepared) -> bool:
    request.check(Operation.READ, ResourceType.GROUP, group)
    found, _ = prepared
    topics = {one.topic for one in found.asked}
    return all(request.allowed(Operation.READ, ResourceType.TOPIC, name) for name in topics)


def _are_still_there(context: Context, prepared: Prepared) -> bool:
    """What a group committed to a topic that is deleted goes at once: it must not come back."""
    known = context.replicas.metadata.topics
    found, _ = prepared
    return all(known.get(topic.name) is topic for topic in found.topics)


def _prepared(context: Context, request: Request, message: OffsetCommitRequest) -> Pieces[Prepared]:
    found = yield from _sorted_out(context, request, message)
    if not found.asked or request.version == 0:
        return found, None
    return found, (yield from context.offsets.prepare(_committer(message), found.asked, message.retention_time_ms))


def _commit(
    context: Context,
    request: Request,
    message: OffsetCommitRequest,
    found: SortedOut,
    prepared: PreparedCommit | Codes | None = None,
) -> Response:
    version = request.header.api_version
    response, asked, answers, _ = found
    if not asked:
        return response
    if version == 0:
        return _to_store(context, request, message.group_id, found)
    if prepared is None:
        codes = context.offsets.commit(_committer(message), asked, message.retention_time_ms)
    elif isinstance(prepared, PreparedCommit):
        codes = context.offsets.commit_prepared(_committer(message), prepared)
    else:
        codes = prepared
    if not isinstance(codes, list):
        return _later(codes, response, answers)
    _answered(response, answers, codes)
    if not any(codes) and may_repeat(version, message):
        _remember(context, request, message, response)
    return response


def _committer(message: OffsetCommitRequest) -> Committer:
    return Committer(
        message.group_id, message.member_id, message.group_instance_id, message.generation_id_or_member_epoch
    )


def refused(request: Request, message: OffsetCommitRequest, error: KafkaError) -> OffsetCommitResponse:
    """There is no place for it but at each partition."""
    topics = [
        OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=error.code)
                for one in topic.partitions
            ],
        )
        for topic in message.topics
    ]
    return OffsetCommitResponse(topics=topics)


def _remember(context: Context, request: Request, message: OffsetCommitRequest, response: OffsetCommitResponse) -> None:
    peer, version = request.peer, request.header.api_version
    repeated = peer.prepared.get(OFFSET_COMMIT)
    if not isinstance(repeated, RepeatedCommits) or repeated.version != version:
        repeated = RepeatedCommits(context, version)
    topic = repeated.remember(request.frame, request.header, message, response)
    if topic:
        peer.prepare(OFFSET_COMMIT, repeated, topic)


def _sorted_out(context: Context, request: Request, message: OffsetCommitRequest) -> Pieces[SortedOut]:
    """Of a partition that is named twice the last offset counts, and it is answered once; so is a topic. One without
    partitions is not answered."""
    by_id = request.header.api_version >= _BY_ID
    metadata = context.replicas.metadata
    topics: dict[str | bytes, OffsetCommitResponseTopic] = {}
    asked: dict[Position, OffsetToCommit] = {}
    answers: Answers = []
    found: list[TopicMetadata] = []
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    restricted = request.restricted
    for topic in filter(lambda each: each.partitions, message.topics):
        name = metadata.name_of(topic.topic_id) if by_id else topic.name
        known = metadata.topics.get(name) if name is not None else None
        partitions = _topic_of(topics, topic, by_id).partitions
        hidden = restricted and name is not None and not request.allowed(Operation.READ, ResourceType.TOPIC, name)
        if known is not None and not hidden:
            found.append(known)
        for number, one in enumerate(topic.partitions):
            if not number % _AT_ONCE:
                yield
            answer = OffsetCommitResponsePartition(partition_index=one.partition_index)
            if hidden:
                answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif known is None:
                answer.error_code = unknown
            elif one.partition_index not in known.partitions:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                position = known.name, one.partition_index
                before, asked[position] = asked.get(position), _asked(position, one)
                if before is not None:
                    continue
                answers.append(answer)
            partitions.append(answer)
    return SortedOut(OffsetCommitResponse(topics=list(topics.values())), list(asked.values()), answers, found)


def _asked(position: Position, one: OffsetCommitRequestPartition) -> OffsetToCommit:
    return OffsetToCommit(
        *position, one.committed_offset, one.committed_leader_epoch, one.committed_metadata, one.commit_timestamp
    )


def _topic_of(
    topics: dict[str | bytes, OffsetCommitResponseTopic], topic: OffsetCommitRequestTopic, by_id: bool
) -> OffsetCommitResponseTopic:
    key = topic.topic_id if by_id else topic.name
    answered = topics.get(key)
    if answered is None:
        answered = topics[key] = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
    return answered


def _answered(response: OffsetCommitResponse, answers: Answers, codes: Codes) -> OffsetCommitResponse:
    for answer, code in zip(answers, codes, strict=True):
        answer.error_code = code
    return response


async def _later(codes: Awaitable[Codes], response: OffsetCommitResponse, answers: Answers) -> OffsetCommitResponse:
    return _answered(response, answers, await codes)


async def _to_store(context: Context, request: Request, group: str, found: SortedOut) -> OffsetCommitResponse:
    """One after the other. Others are served in between: the rights are asked for again before each."""
    turns = Turns()
    codes: Codes = []
    for one in found.asked:
        await turns.give_way()
        codes.append(_refusal(request, group, one.topic) or await context.stored_offsets.commit(group, one))
    return _answered(found.response, found.answers, codes)


def _refusal(request: Request, group: str, topic: str) -> ErrorCode:
    """NONE for who may commit."""
    if not request.allows(Operation.READ, ResourceType.GROUP, group):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not request.allows(Operation.READ, ResourceType.TOPIC, topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.NONE
