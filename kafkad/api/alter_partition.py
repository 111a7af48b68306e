"""AlterPartition, 2 and 3: the leader of partitions asks the controller for other in-sync replicas (KIP-497)."""

from __future__ import annotations

from kafkad.api.context import Context, Request
from kafkad.errors import KafkaError
from kafkad.model import NO_EPOCH, PartitionState, WantedIsr
from kafkad.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    RequestPartitionData,
    ResponsePartitionData,
    ResponseTopicData,
)


async def handle(context: Context, request: Request, message: AlterPartitionRequest) -> AlterPartitionResponse:
    wanted = {
        (topic.topic_id, partition.partition_index): _wanted(partition)
        for topic in message.topics
        for partition in topic.partitions
    }
    outcomes = await context.controller.alter_isr_by_id(message.broker_id, message.broker_epoch, wanted)
    return AlterPartitionResponse(
        topics=[
            ResponseTopicData(
                topic_id=topic.topic_id,
                partitions=[
                    _outcome(each.partition_index, outcomes[topic.topic_id, each.partition_index])
                    for each in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


def _wanted(partition: RequestPartitionData) -> WantedIsr:
    members = {member.broker_id: member.broker_epoch for member in partition.new_isr_with_epochs}
    return WantedIsr(
        members=members or dict.fromkeys(partition.new_isr, NO_EPOCH),
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        recovering=bool(partition.leader_recovery_state),
    )


def _outcome(index: int, outcome: PartitionState | KafkaError) -> ResponsePartitionData:
    if isinstance(outcome, KafkaError):
        return ResponsePartitionData(partition_index=index, error_code=outcome.code)
    return ResponsePartitionData(
        partition_index=index,
        leader_id=outcome.leader,
        leader_epoch=outcome.leader_epoch,
        isr=list(outcome.isr),
        leader_recovery_state=int(outcome.recovering),
        partition_epoch=outcome.partition_epoch,
    )
