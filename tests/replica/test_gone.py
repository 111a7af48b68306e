"""Replicas that went with a log directory: when they are made again, and lead."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kafkad.errors import ErrorCode
from kafkad.model import NO_LEADER
from kafkad.names import TopicPartition
from kafkad.wire.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from tests.full_disk import no_room
from tests.one_broker import OneBroker
from tests.replica.requests import ID, NEW, OTHER_ID, delete, election

A0 = TopicPartition("a", 0)
REFUSED, TAKEN = ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE


@pytest.fixture
def gone(broker: OneBroker) -> OneBroker:
    broker.replicas.lost_tails.gone[A0] = ID
    return broker


def told(
    broker: OneBroker,
    leader: int,
    isr: Sequence[int] = (1, 2),
    *,
    epoch: int = 1,
    topic_id: bytes = ID,
    is_new: bool = False,
    recovering: bool = False,
) -> int:
    """The controller says who leads `a`, which 1 and 2 have; the answer."""
    request = election(0, topic_id=topic_id, leader=leader, leader_epoch=epoch, isr=isr, is_new=is_new)
    [state] = request.topic_states[0].partition_states
    state.replicas, state.leader_recovery_state = [1, 2], int(recovering)
    answer = broker.run(broker.replicas.leader_and_isr(request))
    return answer.topics[0].partition_errors[0].error_code


@pytest.mark.parametrize("isr", [(1, 2), (1,)])
def test_it_is_not_made_to_lead_nor_to_wait_for_a_leader(gone: OneBroker, isr: Sequence[int]) -> None:
    """Kafka's controller tells a broker that is back what was, and elects then: to refuse that would spoil it."""
    for epoch in (1, 2):
        assert told(gone, NO_LEADER, isr, epoch=2 * epoch) == TAKEN
        assert told(gone, 1, isr, epoch=2 * epoch + 1) == REFUSED
    assert gone.replicas.find(*A0) is None
    assert gone.replicas.logs.get(A0) is None, "the next start finds it gone, too"


def test_it_follows_and_leads_once_a_leader_has_taken_it_into_the_isr(gone: OneBroker) -> None:
    assert told(gone, 2, (1, 2)) == TAKEN
    assert told(gone, 1, (1, 2), epoch=2) == REFUSED, "nobody has said that it has caught up"
    assert told(gone, 2, (2,), epoch=3) == TAKEN
    assert told(gone, 1, (1, 2), epoch=4) == TAKEN


def test_one_that_is_not_in_sync_lacks_nothing_that_the_isr_counts_on(gone: OneBroker) -> None:
    assert told(gone, NO_LEADER, (2,)) == TAKEN
    assert told(gone, 1, (1,), epoch=2, recovering=True) == TAKEN


def test_it_leads_empty_where_it_may_lack_records_and_no_other_is_there(gone: OneBroker) -> None:
    assert told(gone, 1, (1,), recovering=True) == TAKEN


@pytest.mark.parametrize(("topic_id", "is_new"), [(OTHER_ID, False), (ID, True)])
def test_a_new_partition_is_not_gone(gone: OneBroker, topic_id: bytes, is_new: bool) -> None:
    assert told(gone, 1, topic_id=topic_id, is_new=is_new) == TAKEN


def test_it_stays_gone_when_it_cannot_be_made_to_lead(gone: OneBroker) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(gone.replicas.logs.files, "mkdir", no_room)
        assert told(gone, 1, (1,), recovering=True) == REFUSED
    assert told(gone, 1, (1,), epoch=2) == REFUSED
    assert told(gone, 1, (1,), epoch=3, recovering=True) == TAKEN


def test_it_stays_gone_when_it_is_stopped_until_it_is_deleted(gone: OneBroker) -> None:
    """A controller stops replicas that it takes for offline."""
    stop = StopReplicaTopicState(topic_name="a", partition_states=[StopReplicaPartitionState(partition_index=0)])
    gone.run(gone.replicas.stop_replica(StopReplicaRequest(controller_epoch=NEW, topic_states=[stop])))
    assert told(gone, 1) == REFUSED
    delete(gone, 0)
    assert told(gone, 1, epoch=2) == TAKEN
