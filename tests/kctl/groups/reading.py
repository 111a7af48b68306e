"""Topics with records in them, and groups that read them, at whatever stage a test needs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from tests.clients.asker import STAMP_MS, Asker, batch
from tests.clients.members import Member, assignment, eventually, group_of, wait_for_coordinator

NOT_YET = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE}


def make_topic(port: int, topic: str, *counts: int, stamp: int = STAMP_MS) -> None:
    """A partition with so many records for each count, a millisecond apart, in batches of at most ten."""
    asker = Asker(port)
    with contextlib.closing(asker.client):
        configs = [{"name": "retention.ms", "value": "-1"}]
        new = {"name": topic, "num_partitions": len(counts), "replication_factor": 1, "assignments": []}
        answer = asker.ask("CreateTopics", 4, {"topics": [new | {"configs": configs}], "timeout_ms": 30000})
        assert answer.topics[0].error_code == ErrorCode.NONE, answer
        for partition, count in enumerate(counts):
            for done in range(0, count, 10):
                _append(asker, TopicPartition(topic, partition), batch(min(10, count - done), stamp + done))


def _append(asker: Asker, where: TopicPartition, records: bytes) -> None:
    data = {"name": where.topic, "partition_data": [{"index": where.partition, "records": records}]}

    def code() -> int:
        sent = asker.ask("Produce", 7, {"acks": -1, "timeout_ms": 30000, "topic_data": [data]})
        return int(sent.responses[0].partition_responses[0].error_code)

    eventually(code, ErrorCode.NONE, instead=NOT_YET)


def commit(port: int, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """By nobody, which a group without members allows."""
    asker = Asker(port)
    with contextlib.closing(asker.client):
        wait_for_coordinator(asker, group)
        _commit(asker, offsets, group_id=group, generation_id_or_member_epoch=-1, member_id="")


def commit_as(member: Member, offsets: Mapping[TopicPartition, int]) -> None:
    _commit(member.asker, offsets, **member.identity(), generation_id_or_member_epoch=member.generation)


def _commit(asker: Asker, offsets: Mapping[TopicPartition, int], **identity: object) -> None:
    topics: dict[str, list[dict[str, object]]] = {}
    for (topic, partition), offset in offsets.items():
        one = {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}
        topics.setdefault(topic, []).append(one)
    listed = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
    answer = asker.ask("OffsetCommit", 8, {**identity, "topics": listed})
    codes = {partition.error_code for topic in answer.topics for partition in topic.partitions}
    assert codes == {ErrorCode.NONE}, answer


@contextlib.contextmanager
def reading(
    port: int, group: str, topic: str, shares: Mapping[str, list[int]], leaving: bool = True, **joining: object
) -> Iterator[list[Member]]:
    """A stable group: each client has its partitions of the topic. They leave when the block ends."""
    asker = Asker(port)
    with contextlib.closing(asker.client):
        wait_for_coordinator(asker, group)
    with group_of(port, group, *shares, topic=topic, **joining) as members:
        assigned = {member.id: assignment(topic, share) for member, share in zip(members, shares.values(), strict=True)}
        for member in members:
            member.sync(assigned if member is members[0] else {})
        yield members
        for member in members if leaving else ():
            member.leave()
