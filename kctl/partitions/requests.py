"""Requests that start, list and cancel reassignments, elect leaders, and choose log directories."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kctl.errors import KctlError, failure
from kctl.reach.session import Session
from kctl.texts.output import note

if TYPE_CHECKING:
    from kafkad.wire.messages.elect_leaders import ElectLeadersResponse

PREFERRED, UNCLEAN = 0, 1
Failures = dict[TopicPartition, KctlError]


class Active(NamedTuple):
    """A move under way; `replicas` has those that arrive and those that leave."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.replicas if broker not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.replicas if broker not in self.adding)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        topics[topic].append(partition)
    return topics


def active_moves(
    session: Session, partitions: Mapping[str, Iterable[int]] | None = None
) -> dict[TopicPartition, Active]:
    """All moves under way, or those of these partitions, no matter who started them."""
    from kafkad.wire.messages.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsTopics,
    )

    topics = None
    if partitions is not None:
        topics = [
            ListPartitionReassignmentsTopics(name=topic, partition_indexes=list(numbers))
            for topic, numbers in partitions.items()
        ]
        if not topics:
            return {}
    request = ListPartitionReassignmentsRequest(timeout_ms=session.broker_timeout_ms, topics=topics)
    response = session.ask_controller(request, lambda answer: [answer.error_code])
    if response.error_code and response.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise failure(response.error_code, "the list of moves is refused", response.error_message, changes=False)
    return {
        TopicPartition(topic.name, each.partition_index): Active(
            tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
        )
        for topic in response.topics
        for each in topic.partitions
    }


def moves_as_far_as_known(
    session: Session, partitions: Mapping[str, Iterable[int]] | None = None
) -> dict[TopicPartition, Active]:
    """Like `active_moves`; where they cannot be asked for, prints a note and returns none."""
    try:
        return active_moves(session, partitions)
    except KctlError as error:
        note(session.settings, f"moves under way are not known: {error.with_code}")
        return {}


def begin_moves(session: Session, replicas: Mapping[TopicPartition, tuple[int, ...] | None]) -> Failures:
    """Starts moves, or with None cancels them; what the controller refused."""
    from kafkad.wire.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        ReassignablePartition,
        ReassignableTopic,
    )

    topics = [
        ReassignableTopic(
            name=topic,
            partitions=[
                ReassignablePartition(partition_index=number, replicas=_list(replicas[TopicPartition(topic, number)]))
                for number in numbers
            ],
        )
        for topic, numbers in by_topic(replicas).items()
    ]
    request = AlterPartitionReassignmentsRequest(timeout_ms=session.broker_timeout_ms, topics=topics)
    response = session.ask_controller(request, lambda answer: [answer.error_code])
    if response.error_code:
        raise failure(response.error_code, "the reassignment", response.error_message)
    return {
        where: failure(each.error_code, f"partition {where}", each.error_message)
        for topic in response.responses
        for each in topic.partitions
        if each.error_code
        for where in [TopicPartition(topic.name, each.partition_index)]
    }


def elect_leaders(session: Session, partitions: Iterable[TopicPartition], kind: int = PREFERRED) -> Failures:
    """Runs elections; returns the failures. A partition that already has the right leader is none of them."""
    from kafkad.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

    asked = [TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in by_topic(partitions).items()]
    if not asked:
        return {}
    request = ElectLeadersRequest(election_type=kind, topic_partitions=asked, timeout_ms=session.broker_timeout_ms)
    response = session.ask_controller(request, _election_codes)
    if response.error_code:
        raise failure(response.error_code, "the election")
    return {
        where: failure(each.error_code, f"partition {where}", each.error_message)
        for topic in response.replica_election_results
        for each in topic.partition_result
        if each.error_code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
        for where in [TopicPartition(topic.topic, each.partition_id)]
    }


def _election_codes(answer: ElectLeadersResponse) -> Iterator[int]:
    """Version 0 has a code for each partition only."""
    yield answer.error_code
    for topic in answer.replica_election_results:
        for each in topic.partition_result:
            yield each.error_code


class Directory(NamedTuple):
    """A replica's log directory: of which partition, on which broker."""

    partition: TopicPartition
    broker: int


def choose_directories(session: Session, paths: Mapping[Directory, str]) -> dict[Directory, KctlError]:
    """Has replicas move to other log directories of their brokers; what was refused.

    A replica that is not there yet is created in the one that was chosen: REPLICA_NOT_AVAILABLE is no failure.
    """
    from kafkad.wire.messages.alter_replica_log_dirs import (
        AlterReplicaLogDir,
        AlterReplicaLogDirsRequest,
        AlterReplicaLogDirTopic,
    )

    at_broker: dict[int, dict[str, list[TopicPartition]]] = defaultdict(lambda: defaultdict(list))
    for replica, path in paths.items():
        at_broker[replica.broker][path].append(replica.partition)
    requests = {
        broker: AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path=path,
                    topics=[AlterReplicaLogDirTopic(name=t, partitions=n) for t, n in by_topic(partitions).items()],
                )
                for path, partitions in directories.items()
            ]
        )
        for broker, directories in at_broker.items()
    }
    failures: dict[Directory, KctlError] = {}
    for broker, response in session.call_each(requests).items():
        if isinstance(response, KctlError):
            failures |= {replica: response for replica in paths if replica.broker == broker}
            continue
        for topic in response.results:
            for each in topic.partitions:
                replica = Directory(TopicPartition(topic.topic_name, each.partition_index), broker)
                if each.error_code not in (ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE):
                    what = f"replica of {replica.partition} on broker {broker} to {paths[replica]}"
                    failures[replica] = failure(each.error_code, what)
    return failures


def _list(replicas: tuple[int, ...] | None) -> list[int] | None:
    return None if replicas is None else list(replicas)
