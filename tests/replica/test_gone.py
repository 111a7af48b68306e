"""Replicas that went with a log directory: when they are made again, and lead."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kafkad.errors import ErrorCode, KafkaError
from kafkad.model import NO_LEADER
from kafkad.names import TopicPartition
from kafkad.wire.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from kafkad.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tests.full_disk import no_room
from tests.log.conftest import append, batch
from tests.one_broker import OneBroker
from tests.replica.requests import ID, NEW, OTHER_ID, delete, election, give

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


def hear_of(broker: OneBroker, leader: int, isr: Sequence[int]) -> None:
    """All brokers are told of `a`; 2 is there."""
    there = [UpdateMetadataBroker(id=2, endpoints=[UpdateMetadataEndpoint(port=1, host="h", listener="PLAINTEXT")])]
    state = UpdateMetadataPartitionState(leader=leader, leader_epoch=1, isr=list(isr), replicas=[1, 2])
    topic = UpdateMetadataTopicState(topic_name="a", topic_id=ID, partition_states=[state])
    request = UpdateMetadataRequest(controller_epoch=NEW, topic_states=[topic], live_brokers=there)
    broker.run(broker.replicas.update_metadata(request))


@pytest.mark.parametrize("isr", [(1, 2), (1,)])
def test_it_is_not_made_to_lead_nor_to_wait_for_a_leader(gone: OneBroker, isr: Sequence[int]) -> None:
    """Kafka's controller tells a broker that is back what was, and elects then: to refuse that would spoil it."""
    for epoch in (1, 2):
        assert told(gone, NO_LEADER, isr, epoch=2 * epoch) == TAKEN
        assert told(gone, 1, isr, epoch=2 * epoch + 1) == REFUSED
    assert gone.replicas.find(*A0) is None
    assert gone.replicas.logs.get(A0) is None, "the next start finds it gone, too"


def test_it_follows_and_leads_once_a_leader_has_taken_it_into_the_isr(gone: OneBroker) -> None:
    assert told(gone, 2, (2,)) == TAKEN
    assert gone.replicas.find(*A0) is not None
    assert told(gone, 1, (1, 2), epoch=2) == TAKEN


def test_it_is_not_made_while_it_is_in_the_isr_of_a_leader(gone: OneBroker) -> None:
    """With a part of the log it could lead after all members have gone down."""
    asked: list[bool] = []
    gone.replicas.ask_for_leader_and_isr = lambda: asked.append(True)
    assert told(gone, 2, (2, 1)) == REFUSED
    assert gone.replicas.logs.get(A0) is None
    hear_of(gone, leader=2, isr=(2, 1))
    assert asked == [], "the controller would say the same again"
    hear_of(gone, leader=2, isr=(2,))
    hear_of(gone, leader=2, isr=(2,))
    assert asked == [True]
    assert told(gone, 2, (2,), epoch=2) == TAKEN
    assert gone.replicas.logs.get(A0) is not None


@pytest.mark.parametrize("isr", [(2,), (1, 2)])
def test_one_that_waits_for_a_leader_stays_gone(gone: OneBroker, isr: Sequence[int]) -> None:
    """By an unclean election another one leads that is there, also one that was not in sync."""
    hear_of(gone, leader=NO_LEADER, isr=isr)
    assert told(gone, NO_LEADER, isr) == TAKEN
    assert told(gone, 1, (1,), epoch=2, recovering=True) == REFUSED
    assert gone.replicas.logs.get(A0) is None


def test_an_unclean_election_does_not_say_that_it_has_caught_up(gone: OneBroker) -> None:
    hear_of(gone, leader=2, isr=(2,))
    assert told(gone, 2, (2,)) == TAKEN
    assert told(gone, 1, (1,), epoch=2, recovering=True) == REFUSED
    assert told(gone, 2, (2,), epoch=3) == TAKEN
    assert told(gone, 1, (1, 2), epoch=4) == TAKEN


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


@pytest.mark.parametrize("is_new", [False, True])
def test_producers_go_on_in_what_begins_empty_and_not_in_what_is_new(broker: OneBroker, is_new: bool) -> None:
    assert told(broker, 1, (1,), is_new=is_new) == TAKEN
    log = broker.replicas.leader(*A0).log
    in_the_middle = batch(producer_id=9, producer_epoch=0, base_sequence=5)
    if is_new:
        with pytest.raises(KafkaError, match="out of order"):
            append(log, in_the_middle)
    else:
        append(log, in_the_middle)


@pytest.mark.parametrize("leader", [1, 2])
def test_producers_go_on_behind_an_unclean_election_with_whatever_replica(broker: OneBroker, leader: int) -> None:
    """What was lost of the leader before may have named them."""
    assert told(broker, 2, (2, 1), is_new=True) == TAKEN
    assert told(broker, leader, (leader,), epoch=2, recovering=True) == TAKEN
    assert told(broker, 1, (1, 2), epoch=3) == TAKEN
    append(broker.replicas.leader(*A0).log, batch(producer_id=9, producer_epoch=0, base_sequence=5))


def test_producers_go_on_where_the_last_replica_has_lost_its_tail(broker: OneBroker) -> None:
    assert give(broker, ID, 0) == [TAKEN]
    broker.replicas.lost_tails.note(A0, 0, 5)
    broker.run(broker.replicas.leader_and_isr(election(0, topic_id=ID, leader_epoch=2)))
    append(broker.replicas.leader(*A0).log, batch(producer_id=9, producer_epoch=0, base_sequence=5))
