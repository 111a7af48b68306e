"""Requests of controllers about partitions of topic `a`, and what a broker makes of them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kafkad.errors import ErrorCode
from kafkad.names import NO_TOPIC_ID
from kafkad.wire.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from kafkad.wire.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from tests.full_disk import no_room
from tests.one_broker import OneBroker

OLD, NEW = 7, 8
ID, OTHER_ID = bytes(15) + b"a", bytes(15) + b"b"


def election(
    *partitions: int,
    topic_id: bytes = NO_TOPIC_ID,
    leader: int = 1,
    leader_epoch: int = 1,
    isr: Sequence[int] = (1,),
    is_new: bool = False,
) -> LeaderAndIsrRequest:
    """Of a leader for partitions of topic `a`, which all of the ISR have."""
    states = [
        LeaderAndIsrPartitionState(
            partition_index=index,
            leader=leader,
            leader_epoch=leader_epoch,
            isr=list(isr),
            replicas=list(isr),
            is_new=is_new,
        )
        for index in partitions
    ]
    topic = LeaderAndIsrTopicState(topic_name="a", topic_id=topic_id, partition_states=states)
    return LeaderAndIsrRequest(controller_epoch=NEW, topic_states=[topic])


def deletion(*partitions: int) -> StopReplicaRequest:
    states = [
        StopReplicaPartitionState(partition_index=index, leader_epoch=-2, delete_partition=True) for index in partitions
    ]
    topic = StopReplicaTopicState(topic_name="a", partition_states=states)
    return StopReplicaRequest(controller_epoch=NEW, topic_states=[topic])


def give(broker: OneBroker, topic_id: bytes, *partitions: int, isr: Sequence[int] = (1,)) -> list[int]:
    """New partitions of topic `a`; the codes that the controller gets for them."""
    request = election(*partitions, topic_id=topic_id, isr=isr, is_new=True)
    answer = broker.run(broker.replicas.leader_and_isr(request))
    return [each.error_code for each in answer.topics[0].partition_errors]


def delete(broker: OneBroker, *partitions: int) -> set[int]:
    """Partitions of topic `a`; the codes that the controller gets for them."""
    answer = broker.run(broker.replicas.stop_replica(deletion(*partitions)))
    return {error.error_code for error in answer.partition_errors}


def give_without_room(broker: OneBroker, topic_id: bytes, *partitions: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(broker.replicas.logs.files, "mkdir", no_room)
        assert set(give(broker, topic_id, *partitions)) == {ErrorCode.KAFKA_STORAGE_ERROR}


def made(broker: OneBroker) -> list[int]:
    """The partitions that are here after another try, of which the controller is told."""
    told: list[bool] = []
    broker.replicas.ask_for_leader_and_isr = lambda: told.append(True)

    async def try_again() -> None:
        for _ in broker.replicas.make_what_was_refused():
            pass

    broker.run(try_again())
    assert told
    return sorted(broker.replicas.of_topic("a"))
