"""Elections on request, ISR changes and reassignments, with three brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from kafkad.controller.elect_leaders import ElectionKind
from kafkad.controller.settings import Balance
from kafkad.controller.topics import MorePartitions
from kafkad.errors import ErrorCode, KafkaError
from kafkad.meta.embedded import EmbeddedSession
from kafkad.meta.store import ConnectionLoss, Operation, Refused, Result, Set, subtree
from kafkad.meta.znodes import IsrChange, LogDirEvent, Partition, Reassignments, Topic
from kafkad.model import NO_LEADER, PartitionAssignment, PartitionState, WantedIsr
from kafkad.names import TopicPartition
from kafkad.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse

from .cluster import A0, A1, Cluster, with_brokers

NONE = TopicPartition("none", 0)


def codes(outcomes: dict[TopicPartition, KafkaError | None]) -> dict[TopicPartition, int]:
    return {tp: 0 if error is None else error.code for tp, error in outcomes.items()}


async def assignment(cluster: Cluster, topic: str = "a", partition: int = 0) -> PartitionAssignment:
    return Topic.decode((await cluster.client.get(Topic.path(topic)))[0]).partitions[partition]


async def set_isr(cluster: Cluster, *members: int, tp: TopicPartition = A0) -> PartitionState | KafkaError:
    """As the leader would ask for it now."""
    state = await cluster.state(*tp)
    leader = cluster.members[state.leader]
    wanted = WantedIsr(
        members=dict.fromkeys(members, -1), leader_epoch=state.leader_epoch, partition_epoch=state.partition_epoch
    )
    outcome = (await cluster.controller.alter_isr(leader.id, leader.epoch, {tp: wanted}))[tp]
    await cluster.settle()
    return outcome


# Elections.


@with_brokers(1, 2, 3)
async def test_preferred_election(cluster: Cluster) -> None:
    await cluster.create("a", (2, 3), (3, 2))
    await cluster.kill(2)
    await cluster.start(2)
    elect = cluster.controller.elect_leaders
    unready = await elect(ElectionKind.PREFERRED, [A0, A1, NONE], timeout_ms=1000)
    assert codes(unready) == {
        A0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        A1: ErrorCode.ELECTION_NOT_NEEDED,
        NONE: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    await set_isr(cluster, 3, 2)
    assert codes(await elect(ElectionKind.PREFERRED, None, timeout_ms=1000)) == {A0: 0}
    state = await cluster.state("a")
    assert (state.leader, state.isr) == (2, (3, 2))
    assert cluster[1].metadata[A0].leader == 2
    assert await elect(ElectionKind.PREFERRED, None, timeout_ms=1000) == {}


@with_brokers(1, 2, 3)
async def test_unclean_election(cluster: Cluster) -> None:
    await cluster.create("a", (2, 3))
    await cluster.create("b", (2,))
    await cluster.kill(3)
    elect = cluster.controller.elect_leaders
    assert codes(await elect(ElectionKind.UNCLEAN, [A0], timeout_ms=1000)) == {A0: ErrorCode.ELECTION_NOT_NEEDED}
    await cluster.kill(2)
    await cluster.start(3)
    b0 = TopicPartition("b", 0)
    outcomes = await elect(ElectionKind.UNCLEAN, [A0, b0], timeout_ms=1000)
    assert codes(outcomes) == {A0: 0, b0: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
    state = await cluster.state("a")
    assert (state.leader, state.isr, state.recovering) == (3, (3,), True)


async def refuse(cluster: Cluster, broker: int) -> None:
    """As for a log that has lost its end, which it may lead with if it is asked to, or for a failed directory."""
    cluster[broker].failed.add(A0)
    await cluster.client.create(LogDirEvent.PREFIX, LogDirEvent.encode(broker), sequential=True)
    await cluster.settle()


async def the_last_in_sync_refuses(cluster: Cluster) -> None:
    """It is 2, and 3, which has fallen behind, is there again."""
    await cluster.create("a", (3, 2))
    await cluster.kill(3)
    await refuse(cluster, 2)
    await cluster.start(3)


@pytest.mark.parametrize("by_request", [True, False])
def test_an_unclean_election_asks_the_last_one_in_sync_first(by_request: bool) -> None:
    @with_brokers(1, 2, 3)
    async def run(cluster: Cluster) -> None:
        await the_last_in_sync_refuses(cluster)
        assert (await cluster.state("a")).leader == NO_LEADER
        cluster[2].failed.clear()
        await allow_any(cluster, by_request)
        state = await cluster.state("a")
        assert (state.leader, state.isr, state.recovering) == (2, (2,), True)
        assert cluster[2].replicas[A0].leader == cluster[3].replicas[A0].leader == 2
        assert cluster.controller.unclean_elections == 1
        cluster.unclean.clear()
        await refuse(cluster, 2)
        assert (await cluster.state("a")).leader == NO_LEADER, "it was allowed for that once"

    run()


@pytest.mark.parametrize("by_request", [True, False])
def test_an_unclean_election_passes_over_the_last_one_in_sync_if_it_cannot_lead(by_request: bool) -> None:
    @with_brokers(1, 2, 3)
    async def run(cluster: Cluster) -> None:
        await the_last_in_sync_refuses(cluster)
        await allow_any(cluster, by_request)
        state = await cluster.state("a")
        assert (state.leader, state.isr, state.recovering) == (3, (3,), True)
        assert cluster[3].replicas[A0].leader == 3

    run()


@with_brokers(1, 2, 3)
async def test_an_unclean_election_is_over_when_the_leader_says_that_it_knows_already(cluster: Cluster) -> None:
    """Its first answer was lost, and the request was sent again."""
    await the_last_in_sync_refuses(cluster)
    cluster[2].failed.clear()
    with pytest.MonkeyPatch.context() as patched:
        take = cluster[2].leader_and_isr

        async def take_twice(request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
            await take(request)
            return await take(request)

        patched.setattr(cluster[2], "leader_and_isr", take_twice)
        await allow_any(cluster, by_request=True)
    assert (await cluster.state("a")).leader == 2
    await refuse(cluster, 2)
    assert (await cluster.state("a")).leader == NO_LEADER


@with_brokers(1, 2, 3)
async def test_a_replica_that_has_refused_is_one_like_others_once_it_was_in_sync_again(cluster: Cluster) -> None:
    await cluster.create("a", (1, 2, 3))
    await refuse(cluster, 1)
    cluster[1].failed.clear()
    await cluster.client.create(LogDirEvent.PREFIX, LogDirEvent.encode(1), sequential=True)
    await cluster.settle()
    for isr in ((2, 3, 1), (2,)):
        await set_isr(cluster, *isr)
    await cluster.kill(2)
    await allow_any(cluster, by_request=True)
    assert (await cluster.state("a")).leader == 1


async def allow_any(cluster: Cluster, by_request: bool) -> None:
    if by_request:
        assert codes(await cluster.controller.elect_leaders(ElectionKind.UNCLEAN, [A0], timeout_ms=1000)) == {A0: 0}
    else:
        cluster.unclean.add("a")
        cluster.controller.configs_changed("a")
    await cluster.settle()


@with_brokers(1, 2)
async def test_the_last_one_in_sync_is_asked_to_lead_without_what_it_lacks_once(cluster: Cluster) -> None:
    await cluster.create("a", (2,))
    await refuse(cluster, 2)
    elect = cluster.controller.elect_leaders
    for expected in (ErrorCode.NONE, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE):
        assert codes(await elect(ElectionKind.UNCLEAN, [A0], timeout_ms=1000)) == {A0: expected}
        await cluster.settle()
        assert (await cluster.state("a")).leader == NO_LEADER
    await cluster.kill(2)
    await cluster.start(2)
    assert (await cluster.state("a")).leader == 2


@with_brokers(1)
async def test_leaders_are_moved_home_again_later_when_the_store_refused_it_once(cluster: Cluster) -> None:
    term = cluster.controller._term
    assert term is not None
    tries = 0

    async def refused(percentage: int) -> None:
        nonlocal tries
        tries += 1
        raise ConnectionLoss("metadata", "no room")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(term.elections), "balance", lambda elections, percentage: refused(percentage))
        patched.setattr("kafkad.controller.term.FIRST_BALANCE_MS", 1)
        patched.setattr("kafkad.controller.controller.ELECTION_RETRY_MS", 1)
        controller = cluster.controller
        controller._settings = controller._settings._replace(balance=Balance(percentage=10, interval_ms=1))
        await cluster.client.delete("/controller")
        async with asyncio.timeout(10):
            while tries < 3:
                await asyncio.sleep(0.001)


@with_brokers(1, 2)
async def test_leaders_are_moved_home_where_too_many_are_away(cluster: Cluster) -> None:
    await cluster.create("a", (2, 1), (2, 1))
    await cluster.create("b", (1, 2))
    await cluster.kill(2)
    await cluster.start(2)
    term = cluster.controller._term
    assert term is not None
    await term.elections.balance(10)
    assert (await cluster.state("a", 1)).leader == 1
    await set_isr(cluster, 1, 2, tp=A1)
    await term.elections.balance(100)
    assert (await cluster.state("a", 1)).leader == 1
    await term.elections.balance(99)
    assert (await cluster.state("a", 1)).leader == 2
    assert (await cluster.state("a", 0)).leader == 1


@with_brokers(1, 2)
async def test_a_replica_that_refuses_to_lead_is_asked_less_and_less_often(cluster: Cluster) -> None:
    """As one does that has lost the end of its log, or is damaged, until it has been mended."""
    await cluster.create("a", (2, 1))
    await cluster.kill(2)
    await cluster.start(2)
    await set_isr(cluster, 1, 2)
    term = cluster.controller._term
    assert term is not None
    asked = []
    for number in range(12):
        before = (await cluster.state("a")).leader_epoch
        cluster[2].failed.add(A0)
        await term.elections.balance(0)
        await cluster.settle()
        assert (await cluster.state("a")).leader == 1
        if (await cluster.state("a")).leader_epoch > before:
            asked.append(number)
        cluster[2].failed.clear()
        await cluster.client.create(LogDirEvent.PREFIX, LogDirEvent.encode(2), sequential=True)
        await cluster.settle()
        await set_isr(cluster, 1, 2)
    assert asked == [0, 2, 5, 10]
    for _ in range(20):
        await term.elections.balance(0)
        await cluster.settle()
    assert (await cluster.state("a")).leader == 2


# ISR.


@with_brokers(1, 2, 3)
async def test_a_leader_shrinks_and_expands(cluster: Cluster) -> None:
    await cluster.create("a", (2, 3))
    replicas = cluster[3].replicas[A0]
    shrunk = await set_isr(cluster, 2)
    assert isinstance(shrunk, PartitionState)
    assert (shrunk.isr, shrunk.leader_epoch, shrunk.partition_epoch) == ((2,), 0, 1)
    assert cluster[1].metadata[A0].isr == [2]
    assert cluster[3].replicas[A0] is replicas
    assert await set_isr(cluster, 2) == shrunk
    expanded = await set_isr(cluster, 2, 3)
    assert isinstance(expanded, PartitionState)
    assert expanded == await cluster.state("a")


@with_brokers(1, 2, 3)
async def test_isr_refusals(cluster: Cluster) -> None:
    await cluster.create("a", (2, 3))
    await set_isr(cluster, 2)
    two = cluster.members[2]
    alter = cluster.controller.alter_isr
    with pytest.raises(KafkaError) as refusal:
        await alter(2, two.epoch - 1, {})
    assert refusal.value.code == ErrorCode.STALE_BROKER_EPOCH
    three = cluster.members[3].epoch
    told = len(cluster[1].requests)
    for expected, members, leader_epoch, partition_epoch in (
        (ErrorCode.NOT_CONTROLLER, {2: -1, 3: -1}, 1, 1),
        (ErrorCode.NOT_CONTROLLER, {2: -1, 3: -1}, 0, 2),
        (ErrorCode.FENCED_LEADER_EPOCH, {2: -1, 3: -1}, -1, 1),
        (ErrorCode.INVALID_UPDATE_VERSION, {2: -1, 3: -1}, 0, 0),
        (ErrorCode.INELIGIBLE_REPLICA, {2: -1, 3: three - 1}, 0, 1),
        (ErrorCode.INELIGIBLE_REPLICA, {2: -1, 1: -1}, 0, 1),
        (ErrorCode.INELIGIBLE_REPLICA, {2: -1, 9: -1}, 0, 1),
        (ErrorCode.INVALID_REQUEST, {3: -1}, 0, 1),
    ):
        wanted = WantedIsr(members=members, leader_epoch=leader_epoch, partition_epoch=partition_epoch)
        outcome = (await alter(2, two.epoch, {A0: wanted}))[A0]
        assert isinstance(outcome, KafkaError)
        assert outcome.code == expected
    wanted = WantedIsr(members={2: -1, 3: -1}, leader_epoch=0, partition_epoch=1)
    not_leading = (await alter(3, three, {A0: wanted}))[A0]
    assert isinstance(not_leading, KafkaError)
    assert not_leading.code == ErrorCode.INVALID_REQUEST
    wanted = WantedIsr(members={2: -1}, leader_epoch=0, partition_epoch=0)
    unknown = (await alter(2, two.epoch, {NONE: wanted}))[NONE]
    assert isinstance(unknown, KafkaError)
    assert unknown.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await cluster.settle()
    assert len(cluster[1].requests) == told, "of a refusal there is nothing to tell"
    # What is so already is a success, whatever the partition epoch: the answer to the first request was lost.
    assert isinstance((await alter(2, two.epoch, {A0: wanted}))[A0], PartitionState)


@with_brokers(1, 2, 3)
async def test_a_replica_whose_disk_has_failed_is_not_in_sync(cluster: Cluster) -> None:
    await cluster.create("a", (2, 3))
    cluster[3].failed.add(A0)
    await cluster.client.create(LogDirEvent.PREFIX, LogDirEvent.encode(3), sequential=True)
    await cluster.settle()
    assert (await cluster.state("a")).isr == (2,)
    outcome = await set_isr(cluster, 2, 3)
    assert isinstance(outcome, KafkaError)
    assert outcome.code == ErrorCode.INELIGIBLE_REPLICA


@with_brokers(1, 2)
async def test_an_isr_whose_write_was_not_answered_is_written_once(cluster: Cluster) -> None:
    """The write succeeded, its answer was lost, and the controller's memory has the state of before."""
    await cluster.create("a", (2, 1))
    state = await cluster.state("a")
    written = replace(state, isr=(2,))
    await cluster.client.set(Partition.path(*A0), Partition.encode(written), state.partition_epoch)
    wanted = WantedIsr(members={2: -1}, leader_epoch=0, partition_epoch=0)
    outcome = (await cluster.controller.alter_isr(2, cluster.members[2].epoch, {A0: wanted}))[A0]
    assert outcome == replace(written, partition_epoch=1)


# Reassignment.


@with_brokers(1, 2, 3)
async def test_a_partition_moves(cluster: Cluster) -> None:
    await cluster.create("a", (1, 2))
    controller = cluster.controller
    assert codes(await controller.alter_partition_reassignments({A0: (3, 2)})) == {A0: 0}
    await cluster.settle()
    under_way = PartitionAssignment(replicas=(3, 2, 1), adding=(3,), removing=(1,))
    assert await assignment(cluster) == under_way
    assert await controller.list_partition_reassignments(None) == {A0: under_way}
    assert await controller.list_partition_reassignments([A1]) == {}
    assert cluster[3].replicas[A0].is_new
    assert cluster[1].replicas[A0].adding_replicas == [3]
    (busy,) = await controller.create_partitions([MorePartitions(name="a", count=2)], timeout_ms=1000)
    assert busy.error is not None
    assert busy.error.code == ErrorCode.REASSIGNMENT_IN_PROGRESS
    await set_isr(cluster, 1, 2, 3)
    assert await assignment(cluster) == PartitionAssignment(replicas=(3, 2))
    state = await cluster.state("a")
    assert (state.leader, state.isr, state.leader_epoch) == (3, (2, 3), 3)
    assert A0 not in cluster[1].replicas
    assert cluster[2].replicas[A0].leader == 3
    assert cluster[1].metadata[A0].replicas == [3, 2]
    assert await controller.list_partition_reassignments(None) == {}


@pytest.mark.parametrize("path", [Partition.path(*A0), Topic.path("a")], ids=["state", "assignment"])
def test_a_move_that_the_store_refuses_waits_and_deletes_nothing(path: str) -> None:
    @with_brokers(1, 2, 3)
    async def run(cluster: Cluster) -> None:
        await cluster.create("a", (2,))
        await cluster.create("b", (2,))
        b0 = TopicPartition("b", 0)
        await cluster.controller.alter_partition_reassignments({A0: (3,), b0: (3,)})
        session = cluster.members[1].session
        working = session.multi

        async def refusing(operations: Sequence[Operation]) -> list[Result]:
            if any(o.path == path and b'"isr":[2,3]' not in o.data for o in operations if isinstance(o, Set)):
                raise Refused(path, "ZooKeeper refused the request: NoAuthError")
            return await working(operations)

        session.multi = refusing  # type: ignore[method-assign]
        for tp in (A0, b0):
            assert isinstance(await set_isr(cluster, 2, 3, tp=tp), PartitionState)
        await cluster.settle()
        assert cluster.controller.active
        assert await assignment(cluster, "b") == PartitionAssignment(replicas=(3,))
        assert await assignment(cluster) == PartitionAssignment(replicas=(3, 2), adding=(3,), removing=(2,))
        if path == Partition.path(*A0):
            assert A0 in cluster[2].replicas
        outcome = await cluster.controller.alter_partition_reassignments({A0: (3,)})
        assert codes(outcome) == {A0: ErrorCode.KAFKA_STORAGE_ERROR}
        session.multi = working  # type: ignore[method-assign]
        outcome = await cluster.controller.alter_partition_reassignments({A0: (3,)})
        await cluster.settle()
        assert codes(outcome) == {A0: ErrorCode.NONE}
        assert await assignment(cluster) == PartitionAssignment(replicas=(3,))
        assert A0 not in cluster[2].replicas

    run()


@with_brokers(1, 2, 3)
async def test_a_move_is_called_off(cluster: Cluster) -> None:
    await cluster.create("a", (1, 2))
    controller = cluster.controller
    await controller.alter_partition_reassignments({A0: (3, 2)})
    assert codes(await controller.alter_partition_reassignments({A0: None})) == {A0: 0}
    await cluster.settle()
    assert await assignment(cluster) == PartitionAssignment(replicas=(2, 1))
    assert A0 not in cluster[3].replicas
    assert await controller.list_partition_reassignments(None) == {}
    again = await controller.alter_partition_reassignments({A0: None})
    assert codes(again) == {A0: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}


@with_brokers(1, 2, 3)
async def test_nothing_is_waited_for_where_no_replica_comes_or_goes(cluster: Cluster) -> None:
    """Though one of them is away."""
    await cluster.create("a", (1, 2))
    await cluster.kill(2)
    controller = cluster.controller
    await controller.alter_partition_reassignments({A0: (3, 1)})
    assert codes(await controller.alter_partition_reassignments({A0: None})) == {A0: 0}
    assert await controller.list_partition_reassignments(None) == {}
    assert codes(await controller.alter_partition_reassignments({A0: (2, 1)})) == {A0: 0}
    await cluster.settle()
    assert await controller.list_partition_reassignments(None) == {}
    assert await assignment(cluster) == PartitionAssignment(replicas=(2, 1))
    state = await cluster.state("a")
    assert (state.leader, state.isr) == (1, (1,))
    assert cluster[1].replicas[A0].replicas == [2, 1]
    assert A0 not in cluster[3].replicas
    (more,) = await controller.create_partitions([MorePartitions(name="a", count=2)], timeout_ms=1000)
    assert more.error is None
    (deleted,) = await controller.delete_topics(["a"], timeout_ms=1000)
    assert deleted.error is None
    assert A0 not in cluster[1].metadata


@with_brokers(1, 2, 3)
async def test_a_new_target_replaces_the_old_one(cluster: Cluster) -> None:
    await cluster.create("a", (1,))
    controller = cluster.controller
    await controller.alter_partition_reassignments({A0: (2,)})
    await controller.alter_partition_reassignments({A0: (3,)})
    await cluster.settle()
    assert await assignment(cluster) == PartitionAssignment(replicas=(3, 1), adding=(3,), removing=(1,))
    assert A0 not in cluster[2].replicas


@with_brokers(1, 2, 3)
async def test_a_leader_that_took_itself_out_of_the_isr_does_not_go_on_for_a_move(cluster: Cluster) -> None:
    """It has lost records, and has written that to the store itself: the controller has not heard of it."""
    for name, target in (("a", (3, 2, 1)), ("b", (3, 2))):
        await cluster.create(name, (2, 1, 3))
        left = replace(await cluster.state(name), isr=(1, 3))
        await cluster.client.set(Partition.path(name, 0), Partition.encode(left))
        moved = await cluster.controller.alter_partition_reassignments({TopicPartition(name, 0): target})
        assert list(codes(moved).values()) == [0]
        await cluster.settle()
        state = await cluster.state(name)
        assert state.leader in state.isr


@with_brokers(1)
async def test_a_move_to_where_it_is(cluster: Cluster) -> None:
    await cluster.create("a", (1,))
    assert codes(await cluster.controller.alter_partition_reassignments({A0: (1,)})) == {A0: 0}
    state = await cluster.state("a")
    assert (state.leader, state.leader_epoch) == (1, 1)


@with_brokers(1, 2)
async def test_refused_moves(cluster: Cluster) -> None:
    await cluster.create("a", (1,))
    bad = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    for tp, target, expected in (
        (A0, (), bad),
        (A0, (1, 1), bad),
        (A0, (-1,), bad),
        (A0, (1, 9), bad),
        (A0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        (NONE, (1,), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (NONE, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ):
        assert codes(await cluster.controller.alter_partition_reassignments({tp: target})) == {tp: expected}


@with_brokers(1, 2, 3)
async def test_a_new_controller_goes_on_with_a_move(cluster: Cluster) -> None:
    await cluster.create("a", (2,))
    await cluster.controller.alter_partition_reassignments({A0: (3,)})
    await cluster.kill(1)
    assert list(await cluster.controller.list_partition_reassignments(None)) == [A0]
    await set_isr(cluster, 2, 3)
    assert await assignment(cluster) == PartitionAssignment(replicas=(3,))
    assert A0 not in cluster[2].replicas


async def dies_amid_a_change(cluster: Cluster) -> None:
    """The controller, broker 4, when it has written that broker 3 is no replica, with 3 still in the ISR."""
    left = Topic(await cluster.create("a", (3, 1, 2)), {0: PartitionAssignment(replicas=(1, 2))})
    await cluster.kill(1)
    await cluster.start(1)
    await set_isr(cluster, 3, 2, 1)
    await cluster.client.set(Topic.path("a"), left.encode())


@with_brokers(4, 1, 2, 3)
async def test_a_new_controller_drops_what_a_move_that_was_called_off_left_in_sync(cluster: Cluster) -> None:
    await dies_amid_a_change(cluster)
    await cluster.kill(4)
    state = await cluster.state("a")
    assert (state.leader, state.isr) == (1, (2, 1))
    assert A0 not in cluster[3].replicas
    assert cluster[1].replicas[A0].leader_epoch == cluster[2].replicas[A0].leader_epoch == state.leader_epoch
    assert isinstance(await set_isr(cluster, 1), PartitionState), "the leader can shrink the ISR"


@with_brokers(4, 1, 2, 3)
async def test_a_new_controller_drops_nobody_while_no_replica_in_sync_is_there(cluster: Cluster) -> None:
    await dies_amid_a_change(cluster)
    for broker in (1, 2, 4):
        await cluster.kill(broker)
    state = await cluster.state("a")
    assert (state.leader, state.isr) == (3, (3,))
    assert A0 in cluster[3].replicas


def refuse_states(session: EmbeddedSession, path: str) -> None:
    working = session.multi

    async def refusing(operations: Sequence[Operation]) -> list[Result]:
        if any(operation.path == path for operation in operations):
            raise Refused(path, "ZooKeeper refused the request: NoAuthError")
        return await working(operations)

    session.multi = refusing  # type: ignore[method-assign]


def test_what_the_store_lets_nobody_drop_stays_in_sync_until_a_broker_comes(caplog: pytest.LogCaptureFixture) -> None:
    @with_brokers(4, 1, 2, 3)
    async def run(cluster: Cluster) -> None:
        await dies_amid_a_change(cluster)
        for member in cluster.members.values():
            refuse_states(member.session, Partition.path(*A0))
        await cluster.kill(4)
        assert (await cluster.state("a")).isr == (3, 2, 1)
        for member in cluster.members.values():
            del member.session.multi
        await cluster.start(4)
        assert (await cluster.state("a")).isr == (2, 1)
        assert A0 not in cluster[3].replicas

    run()
    assert "brokers [3] stay in the ISR of a-0, though they are no replicas" in caplog.text
    assert "the reassignment of" not in caplog.text


@with_brokers(1, 2, 3)
async def test_a_topic_that_moves_is_deleted_afterwards(cluster: Cluster) -> None:
    await cluster.create("a", (2,))
    await cluster.controller.alter_partition_reassignments({A0: (3,)})
    (late,) = await cluster.controller.delete_topics(["a"], timeout_ms=1)
    assert late.error is not None
    assert late.error.code == ErrorCode.REQUEST_TIMED_OUT
    assert cluster[1].metadata[A0].leader == 2
    assert codes(await cluster.controller.alter_partition_reassignments({A0: (1,)})) == {
        A0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    await set_isr(cluster, 2, 3)
    assert await cluster.client.children("/brokers/topics") == []
    assert not any(cluster[broker].replicas for broker in (1, 2, 3))


@with_brokers(1, 2, 3)
async def test_a_topic_that_is_removed_by_hand_moves_no_more(cluster: Cluster) -> None:
    await cluster.create("a", (2,))
    await cluster.controller.alter_partition_reassignments({A0: (3,)})
    for path in await subtree(cluster.client, Topic.path("a")):
        await cluster.client.delete(path)
    await cluster.settle()
    assert await cluster.controller.list_partition_reassignments(None) == {}


async def asked_by_node(cluster: Cluster) -> dict[TopicPartition, tuple[int, ...]] | None:
    if await cluster.client.exists(Reassignments.PATH) is None:
        return None
    return Reassignments.decode((await cluster.client.get(Reassignments.PATH))[0])


@with_brokers(1, 2)
async def test_moves_that_an_old_tool_asks_for(cluster: Cluster) -> None:
    """Its --verify takes what is in the node for moves under way."""
    await cluster.create("a", (1,), (1,))
    await cluster.client.create(Reassignments.PATH, Reassignments.encode({A0: (2,), A1: (2,), NONE: (1,)}))
    await cluster.settle()
    assert (await assignment(cluster)).adding == (2,)
    assert await asked_by_node(cluster) == {A0: (2,), A1: (2,)}
    begun = (await cluster.state("a")).leader_epoch
    await set_isr(cluster, 1, 2)
    assert (await assignment(cluster)) == PartitionAssignment(replicas=(2,))
    assert await asked_by_node(cluster) == {A1: (2,)}
    assert (await cluster.state("a", 1)).leader_epoch == begun == 1
    await cluster.controller.alter_partition_reassignments({A1: None})
    assert await asked_by_node(cluster) is None


@pytest.mark.parametrize("bad", [(2, 2), (-1,), ()])
def test_replicas_that_cannot_be_keep_no_other_move_of_an_old_tool_back(bad: tuple[int, ...]) -> None:
    @with_brokers(1, 2)
    async def run(cluster: Cluster) -> None:
        await cluster.create("a", (1,), (1,))
        await cluster.client.create(Reassignments.PATH, Reassignments.encode({A0: bad, A1: (2,)}))
        await cluster.settle()
        assert await assignment(cluster) == PartitionAssignment(replicas=(1,))
        assert (await assignment(cluster, partition=1)).adding == (2,)
        assert await asked_by_node(cluster) == {A1: (2,)}

    run()


@with_brokers(1, 2, 3)
async def test_a_move_is_called_off_while_a_new_replica_leads(cluster: Cluster) -> None:
    """Its log is deleted: it has to be led, and followed, elsewhere from then on."""
    await cluster.create("a", (1, 2))
    controller = cluster.controller
    await controller.alter_partition_reassignments({A0: (3, 2)})
    await cluster.client.set(
        Partition.path(*A0), b'{"controller_epoch":1,"leader":3,"version":1,"leader_epoch":7,"isr":[3,1]}'
    )
    await cluster.client.create(IsrChange.PREFIX, IsrChange.encode([A0]), sequential=True)
    await cluster.settle()
    assert codes(await controller.alter_partition_reassignments({A0: None})) == {A0: 0}
    await cluster.settle()
    state = await cluster.state("a")
    assert (state.leader, state.isr) == (1, (1,))
    assert cluster[2].replicas[A0].leader == 1
    assert A0 not in cluster[3].replicas


@with_brokers(1, 2, 3)
async def test_a_move_is_not_called_off_while_only_new_replicas_are_in_sync(cluster: Cluster) -> None:
    """Kafka 3.9 deletes the only log with all records then."""
    await cluster.create("a", (2,))
    controller = cluster.controller
    await controller.alter_partition_reassignments({A0: (3, 1)})
    await set_isr(cluster, 2, 3)
    await cluster.kill(2)
    assert (await cluster.state("a")).isr == (3,)
    for target in (None, (1,)):
        outcome = await controller.alter_partition_reassignments({A0: target})
        assert codes(outcome) == {A0: ErrorCode.INVALID_REPLICA_ASSIGNMENT}
    assert A0 in cluster[3].replicas


@with_brokers(1, 2)
async def test_a_move_whose_new_replica_was_noted_by_an_old_broker_is_completed(cluster: Cluster) -> None:
    await cluster.create("a", (1,))
    await cluster.controller.alter_partition_reassignments({A0: (2,)})
    text = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":1,"isr":[1,2]}'
    await cluster.client.set(Partition.path(*A0), text)
    await cluster.client.create(IsrChange.PREFIX, IsrChange.encode([A0]), sequential=True)
    await cluster.settle()
    assert (await assignment(cluster)) == PartitionAssignment(replicas=(2,))


@with_brokers(1, 2)
async def test_what_old_brokers_have_noted_is_told_in_their_order(cluster: Cluster) -> None:
    """A run of the simulation is the same each time."""
    topics = [f"t{number}" for number in range(8)]
    for topic in topics:
        await cluster.create(topic, (1, 2))
    topics.reverse()
    cluster[2].metadata.clear()
    noted = [TopicPartition(topic, 0) for topic in topics]
    await cluster.client.create(IsrChange.PREFIX, IsrChange.encode(noted), sequential=True)
    await cluster.settle()
    assert list(cluster[2].metadata) == noted
