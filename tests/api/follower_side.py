"""A follower that fetches over a connection of its own from a broker that leads."""

from __future__ import annotations

from itertools import count
from typing import Any

from kafkad.replica.partition import Partition
from kafkad.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from kafkad.wire.records import Record
from tests.api.frames import Frames
from tests.one_broker import OneBroker

FOLLOWER = 2
_topics = count()


class Side:
    """A follower of a topic of its own with two partitions; a `general` one never takes the quick way."""

    def __init__(self, broker: OneBroker, version: int, general: bool) -> None:
        self.broker = broker
        self.version = version
        self.general = general
        self.topic = f"t{next(_topics)}"
        broker.create(self.topic, partitions=2)
        for index in (0, 1):
            broker.lead(self.topic, index, leader=1, isr=[1, FOLLOWER])
        self.frames = Frames(broker)
        self.session = (0, 0)
        self.offsets = [0, 0]
        self.waits = False

    def partition(self, index: int) -> Partition:
        return self.broker.replicas.get(self.topic, index)

    def fetch(self, *indexes: int, offset: int | None = None, forget: bool = False, **fields: int) -> None:
        """`forget`: partition 0 leaves the session."""
        partitions = []
        for index in indexes:
            log, at = self.partition(index).log, self.offsets[index] if offset is None else offset
            partitions.append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=self.partition(index).leader_epoch,
                    fetch_offset=at,
                    last_fetched_epoch=-1 if log.last_epoch is None or not at else log.last_epoch,
                    log_start_offset=0,
                    partition_max_bytes=400,
                )
            )
        topic_id = self.broker.replicas.metadata.topics[self.topic].id
        waits = {"max_wait_ms": 60_000, "min_bytes": 1, "replica_id": FOLLOWER, **fields}
        replica = waits.pop("replica_id")
        request = FetchRequest(
            session_id=self.session[0],
            session_epoch=self.session[1],
            topics=[FetchTopic(topic_id=topic_id, partitions=partitions)] if partitions else [],
            forgotten_topics_data=[ForgottenTopic(topic_id=topic_id, partitions=[0])] if forget else [],
            **waits,
        )
        if self.version < 15:
            request.replica_id = replica
        else:
            request.replica_state = ReplicaState(replica_id=replica)
        if self.general:
            self.frames.connection.peer.forget()
        reply = self.frames.begin(request, self.version)
        self.waits = reply is None
        if reply is not None:
            self.frames.connection.replies.append(reply)

    def expire(self) -> None:
        for session in self.frames.fetch.sessions._sessions.values():
            if session.wait is not None:
                session.wait._expire()

    def answers(self) -> list[Any]:
        """What was answered since, without what tells the two topics apart."""
        self.broker.settle()
        replies, self.frames.connection.replies = self.frames.connection.replies, []
        found = []
        for reply in replies:
            assert reply is not None
            self.waits = False
            message = self.frames.decode(reply, 1, self.version)
            self.session = message.session_id, self.session[1] + 1
            partitions = [partition for topic in message.responses for partition in topic.partitions]
            for partition in partitions:
                log = self.partition(partition.partition_index).log
                if partition.records:
                    self.offsets[partition.partition_index] = min(
                        self.offsets[partition.partition_index] + 3, log.end_offset
                    )
            found.append((message.error_code, message.throttle_time_ms, [repr(each) for each in partitions]))
        return found

    def state(self) -> list[Any]:
        """What the leader knows by now, and what it has counted."""
        partitions = [self.partition(index) for index in (0, 1)]
        return [
            (
                each.high_watermark,
                each.probe.total_fetch,
                each.probe.bytes_out,
                [
                    (known.end_offset, known.leader_end)
                    for known in (each.leading.followers.values() if each.leading else ())
                ],
            )
            for each in partitions
        ]


def append(side: Side, index: int, size: int) -> None:
    side.broker.append(side.topic, index, *(Record(i, 1_700_000_000_000, None, bytes(size)) for i in range(3)))
