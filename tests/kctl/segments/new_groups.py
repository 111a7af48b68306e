"""A log of the records that KIP-848 groups write, one of each kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kafkad.wire.log_records import consumer_groups as records
from kafkad.wire.records import Record, build_batch
from kafkad.wire.schema import encode

TOPIC_ID = bytes(range(16))


def write_log(directory: Path) -> Path:
    target = records.TopicPartition(topic_id=TOPIC_ID, partitions=[0, 1])
    owned = records.TopicPartitions(topic_id=TOPIC_ID, partitions=[0])
    racks = records.PartitionMetadata(partition=0, racks=["a"])
    group, member = {"group_id": "g"}, {"group_id": "g", "member_id": "m"}
    pairs: list[tuple[int, Any, Any]] = [
        (3, records.ConsumerGroupMetadataKey(**group), records.ConsumerGroupMetadataValue(epoch=2)),
        (
            4,
            records.ConsumerGroupPartitionMetadataKey(**group),
            records.ConsumerGroupPartitionMetadataValue(
                topics=[
                    records.TopicMetadata(
                        topic_id=TOPIC_ID, topic_name="t", num_partitions=2, partition_metadata=[racks]
                    )
                ]
            ),
        ),
        (
            5,
            records.ConsumerGroupMemberMetadataKey(**member),
            records.ConsumerGroupMemberMetadataValue(
                instance_id=None,
                rack_id="r",
                client_id="c",
                client_host="/10.0.0.7",
                subscribed_topic_names=["t"],
                subscribed_topic_regex=None,
                server_assignor="uniform",
            ),
        ),
        (
            6,
            records.ConsumerGroupTargetAssignmentMetadataKey(**group),
            records.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=2),
        ),
        (
            7,
            records.ConsumerGroupTargetAssignmentMemberKey(**member),
            records.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=[target]),
        ),
        (
            8,
            records.ConsumerGroupCurrentMemberAssignmentKey(**member),
            records.ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=2,
                previous_member_epoch=1,
                state=0,
                assigned_partitions=[owned],
                partitions_pending_revocation=[],
            ),
        ),
        (8, records.ConsumerGroupCurrentMemberAssignmentKey(**member), None),
    ]
    batch = build_batch([_record(number, *pair) for number, pair in enumerate(pairs)], leader_epoch=0)
    directory.mkdir()
    path = directory / f"{0:020d}.log"
    path.write_bytes(batch)
    return path


def _record(number: int, kind: int, key: Any, value: Any) -> Record:
    stored = None if value is None else b"\0\0" + encode(value, 0)
    return Record(number, 1_795_241_879_000 + number, kind.to_bytes(2, "big") + encode(key, kind), stored)
