"""OffsetDelete, 0: forget what a group committed to topics that it does not read any more."""

from __future__ import annotations

from kafkad.api.context import Context, Request
from kafkad.errors import ErrorCode
from kafkad.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


async def handle(context: Context, request: Request, message: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Asks the group even when there is nothing to delete: whether it exists is an answer too."""
    topics = context.replicas.metadata.topics
    response = OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(partition_index=asked.partition_index) for asked in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )
    answers = []
    for topic in response.topics:
        for answer in topic.partitions:
            if topic.name in topics and answer.partition_index in topics[topic.name].partitions:
                answers.append(((topic.name, answer.partition_index), answer))
            else:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    codes = await context.offsets.delete(message.group_id, [position for position, _ in answers])
    for (_, answer), code in zip(answers, codes, strict=True):
        answer.error_code = code
    return response
