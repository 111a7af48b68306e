"""Brokers that die, come back, shut down and lose disks; controllers that are replaced."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections.abc import Awaitable, Callable, Iterable, Sequence

import pytest

from kafkad.controller.active import Answers, ControllerMoved
from kafkad.controller.channel import LocalChannel
from kafkad.controller.controller import Controller
from kafkad.controller.elect_leaders import ElectionKind
from kafkad.controller.reachability import Reachability
from kafkad.controller.registration import register
from kafkad.controller.settings import Patience
from kafkad.controller.state import DeletedTopics, PartitionEntry, TopicEntry
from kafkad.controller.term import Term
from kafkad.controller.topics import NewTopic
from kafkad.errors import ErrorCode, KafkaError
from kafkad.meta.store import BadVersion, ConnectionLoss, Refused, Stat, Watch
from kafkad.meta.znodes import (
    BROKER_IDS,
    TOPICS,
    Broker,
    ControllerEpoch,
    IsrChange,
    LogDirEvent,
    PreferredElections,
    Reassignments,
    Topic,
)
from kafkad.meta.znodes import Controller as ControllerNode
from kafkad.model import BrokerInfo, Endpoint, PartitionAssignment, PartitionState, WantedIsr
from kafkad.names import NO_TOPIC_ID, TopicPartition
from kafkad.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from kafkad.wire.messages.stop_replica import StopReplicaRequest
from kafkad.wire.messages.update_metadata import UpdateMetadataRequest

from .cluster import A0, A1, Cluster, FailingOnce, registration, with_brokers


@with_brokers(1, 2)
async def test_one_controller_and_everybody_knows_it(cluster: Cluster) -> None:
    one, two = cluster.members[1], cluster.members[2]
    assert one.controller.active
    assert not two.controller.active
    assert one.controller.controller_id == two.controller.controller_id == 1
    assert (await cluster.client.get(ControllerEpoch.PATH))[0] == b"1"
    with pytest.raises(KafkaError) as refusal:
        await two.controller.create_topics([NewTopic(name="a")], timeout_ms=1000)
    assert refusal.value.code == ErrorCode.NOT_CONTROLLER


@with_brokers(1)
async def test_a_broker_that_starts_is_elected_and_replaced_at_once(cluster: Cluster) -> None:
    """It starts all the same, and stands again when there is no controller: seed 9013."""
    begin, begun = Term.begin, 0

    async def replaced_once(term: Term) -> Answers:
        nonlocal begun
        begun += 1
        if begun == 1:
            raise ControllerMoved
        return await begin(term)

    await cluster.kill(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Term, "begin", replaced_once)
        await cluster.start(2)
    assert (begun, cluster.members[2].controller.active) == (2, True)


@with_brokers()
async def test_a_broker_that_starts_while_the_store_goes_out_of_reach(cluster: Cluster) -> None:
    """It starts all the same, and stands again when the store is back, with a session or without."""
    begin = Term.begin

    async def connection_lost(term: Term) -> Answers:
        raise ConnectionLoss("metadata", "lost")

    async def session_ends(term: Term) -> Answers:
        await cluster.members[2].session.expire()
        return await begin(term)

    for broker, what in ((1, connection_lost), (2, session_ends)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Term, "begin", what)
            member = await cluster.start(broker)
        assert not member.controller.active
        if what is session_ends:
            await member.session.renew()
            await register(member.session, registration(broker))
            await member.controller.session_renewed()
        member.controller._look_again()
        await cluster.settle()
        assert member.controller.active
        await cluster.kill(broker)


@with_brokers(1, 2, 3)
async def test_a_leader_dies(cluster: Cluster) -> None:
    await cluster.create("a", (2, 3), (3, 2))
    await cluster.kill(2)
    led, followed = await cluster.state("a", 0), await cluster.state("a", 1)
    assert (led.leader, led.leader_epoch, led.isr) == (3, 1, (3,))
    assert (followed.leader, followed.leader_epoch, followed.isr) == (3, 1, (3,))
    assert cluster[3].replicas[A0].leader == 3
    assert cluster[3].replicas[A1].leader_epoch == 1
    assert cluster[1].metadata[A0].leader == 3
    assert cluster[1].metadata[A0].offline_replicas == [2]
    assert cluster[1].live == {1, 3}


@with_brokers(1, 2, 3)
async def test_a_broker_that_came_back_between_two_controllers_is_not_in_sync(cluster: Cluster) -> None:
    """The new controller never saw it dead, but it has registered since the ISR was written: its log may be shorter."""
    await cluster.create("a", (2, 3), (3, 2))
    await cluster.create("b", (2,))
    await back_between_controllers(cluster, 2)
    led, followed, alone = await cluster.state("a", 0), await cluster.state("a", 1), await cluster.state("b")
    assert (led.leader, led.leader_epoch, led.isr) == (3, 1, (3,))
    assert (followed.leader, followed.leader_epoch, followed.isr) == (3, 1, (3,))
    assert (alone.leader, alone.isr) == (2, (2,)), "nobody else can have more"
    assert cluster[2].replicas[A0].leader == cluster[2].replicas[A1].leader == 3
    assert cluster[2].replicas[A0].isr == [3]


@with_brokers(1, 2, 3)
async def test_an_isr_of_which_all_came_back_between_two_controllers_stays(cluster: Cluster) -> None:
    """And is written anew, so that the next controller knows who comes back after that."""
    await cluster.create("a", (2, 3))
    await back_between_controllers(cluster, 2, 3)
    state = await cluster.state("a")
    assert (state.leader, state.isr) == (2, (2, 3))
    assert cluster[3].replicas[A0].leader_epoch == state.leader_epoch == 1


@with_brokers(1, 2, 3)
async def test_members_that_came_back_stay_in_the_isr_if_who_did_not_is_dead(cluster: Cluster) -> None:
    """All died, and one is registered still: its log may have lost more than theirs, and nobody else could lead."""
    await cluster.create("a", (3, 2))
    ghost = cluster.members.pop(3)
    await ghost.controller.stop()
    cluster.ghosts.add(3)
    await back_between_controllers(cluster, 2)
    assert (await cluster.state("a")).isr == (3, 2)
    await ghost.session.expire()
    await cluster.settle()
    state = await cluster.state("a")
    assert (state.leader, state.isr) == (2, (2,))


async def back_between_controllers(cluster: Cluster, *brokers: int) -> None:
    """Sessions end and begin in one turn, in which no controller has heard of anything."""
    before = [cluster.members.pop(broker) for broker in (1, *brokers)]
    for member in before:
        await member.session.expire()
    again = [asyncio.ensure_future(cluster.start(broker)) for broker in brokers]
    await asyncio.gather(*again)
    for member in before:
        await member.controller.stop()


@with_brokers(1, 2)
async def test_the_only_replica_dies_and_comes_back(cluster: Cluster) -> None:
    await cluster.create("a", (2,))
    await cluster.kill(2)
    lost = await cluster.state("a")
    assert (lost.leader, lost.isr, lost.leader_epoch) == (-1, (2,), 1)
    assert cluster[1].metadata[A0].leader == -1
    await cluster.start(2)
    back = await cluster.state("a")
    assert (back.leader, back.isr, back.leader_epoch) == (2, (2,), 2)
    assert cluster[2].replicas[A0].leader_epoch == 2
    assert not cluster[2].replicas[A0].is_new


@with_brokers(1, 2, 3)
async def test_an_unclean_election_is_only_for_topics_that_want_it(cluster: Cluster) -> None:
    cluster.unclean.add("b")
    for topic in ("a", "b"):
        await cluster.create(topic, (2, 3))
    await cluster.kill(3)
    await cluster.kill(2)
    await cluster.start(3)
    assert (await cluster.state("a")).leader == -1
    unclean = await cluster.state("b")
    assert (unclean.leader, unclean.isr, unclean.recovering) == (3, (3,), True)
    assert cluster.controller.unclean_elections == 1
    assert cluster[3].replicas[TopicPartition("b", 0)].leader_recovery_state == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/brokers/topics/a", b'{"partitions":{"0":[]}}'),
        ("/brokers/topics/a", b'{"partitions":{"0":["1",2]}}'),
        (
            "/brokers/topics/a/partitions/0/state",
            b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":"0","isr":[1,2]}',
        ),
        (PreferredElections.PATH, b'{"version":1,"partitions":[{"topic":["a"],"partition":0}]}'),
        ("/brokers/ids/7", b'{"host":"h","port":9092,"timestamp":"1","version":1,"jmx_port":-1}'),
        ("/brokers/ids/7", b'{"endpoints":["FOO://h:1"],"timestamp":"1","version":5}'),
    ],
)
def test_a_node_with_a_value_of_another_type_holds_nobody_up(
    path: str, text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    @with_brokers(1, 2)
    async def test(cluster: Cluster) -> None:
        await cluster.create("a", (1, 2))
        await cluster.create("b", (1, 2))
        if await cluster.client.exists(path):
            await cluster.client.set(path, text)
        else:
            await cluster.client.create(path, text)
        await cluster.settle()
        await cluster.kill(1)
        assert (await cluster.state("b")).leader == 2
        await cluster.controller.elect_leaders(ElectionKind.PREFERRED, None, timeout_ms=1000)
        await cluster.start(1)
        assert TopicPartition("b", 0) in cluster[1].replicas

    test()
    assert f"{path} in the metadata store cannot be read" in caplog.text
    assert "internal error" not in caplog.text


@with_brokers(1, 2, 3)
async def test_a_topic_that_is_allowed_an_unclean_election_has_it_at_once(cluster: Cluster) -> None:
    for topic in ("a", "b"):
        await cluster.create(topic, (2, 3))
    await cluster.kill(3)
    await cluster.kill(2)
    await cluster.start(3)
    assert (await cluster.state("a")).leader == -1
    cluster.unclean.add("a")
    cluster.controller.configs_changed("none")
    cluster.controller.configs_changed("a")
    await cluster.settle()
    state = await cluster.state("a")
    assert (state.leader, state.isr, state.recovering) == (3, (3,), True)
    assert cluster[1].metadata[A0].leader == cluster[3].replicas[A0].leader == 3
    assert (await cluster.state("b")).leader == -1
    cluster.unclean.add("b")
    cluster.controller.configs_changed(None)
    await cluster.settle()
    assert (await cluster.state("b")).leader == 3


@with_brokers(1, 2, 3)
async def test_the_settings_of_a_topic_are_read_before_its_election(cluster: Cluster) -> None:
    """The controller has no replica of it, and so did not hear of the settings that it was created with."""
    controller = cluster.controller
    term = controller._term
    assert term is not None
    read: list[str] = []

    async def load(topics: Iterable[str]) -> None:
        read.extend(topics)
        cluster.unclean.update(topics)

    parts = term.active.parts
    term.active.parts = parts._replace(settings=parts.settings._replace(load_configs=load))
    await cluster.create("a", (2, 3))
    await cluster.kill(3)
    assert read == []
    await cluster.start(3)
    await cluster.kill(2)
    assert read == ["a"]
    assert (await cluster.state("a")).leader == 3


@with_brokers(1, 2, 3, 4)
async def test_fewest_leaders_first(cluster: Cluster) -> None:
    cluster.fewest_leaders = True
    await cluster.create("a", *[(2, 3, 4)] * 6)
    await cluster.create("b", *[(4, 3)] * 2)
    await cluster.kill(2)
    leaders = [(await cluster.state("a", partition)).leader for partition in range(6)]
    assert leaders == [3, 3, 3, 4, 3, 4]
    member = cluster.members[3]
    assert await cluster.controller.controlled_shutdown(3, member.epoch) == []
    assert {(await cluster.state("a", partition)).leader for partition in range(6)} == {4}


@with_brokers(1, 2, 3, 4)
async def test_fewest_leaders_before_a_shutdown(cluster: Cluster) -> None:
    cluster.fewest_leaders = True
    await cluster.create("a", *[(2, 3, 4)] * 4)
    await cluster.create("b", *[(3, 4)] * 2)
    await cluster.controller.controlled_shutdown(2, cluster.members[2].epoch)
    leaders = [(await cluster.state("a", partition)).leader for partition in range(4)]
    assert leaders == [4, 4, 3, 4]


@with_brokers(1, 2)
async def test_a_fast_restart_is_noticed(cluster: Cluster) -> None:
    await cluster.create("a", (2, 1))
    member = cluster.members[2]
    await member.session.expire()
    await member.session.renew()
    epoch = await register(member.session, registration(2))
    assert isinstance(epoch, int)
    assert epoch > member.epoch
    member.fake.replicas.clear()
    await cluster.settle()
    state = await cluster.state("a")
    assert (state.leader, state.isr) == (1, (1,))
    assert member.fake.replicas[A0].leader == 1
    last = [r for r in member.fake.requests if isinstance(r, LeaderAndIsrRequest)][-1]
    assert last.broker_epoch == epoch


async def lose_session(cluster: Cluster, broker: int) -> None:
    await cluster.members[broker].session.expire()
    await cluster.settle()


async def register_again(cluster: Cluster, broker: int) -> None:
    member = cluster.members[broker]
    await member.session.renew()
    assert isinstance(await register(member.session, registration(broker)), int)
    await member.controller.session_renewed()
    await cluster.settle()


async def lose_touch(cluster: Cluster, broker: int) -> None:
    """What the controller does when a broker does not answer."""
    await cluster.controller._operate(lambda term: term.brokers.died([broker]))
    await cluster.settle()


async def answer_again(cluster: Cluster, broker: int) -> None:
    info = BrokerInfo(id=broker, endpoints=(), epoch=cluster.members[broker].epoch)
    await cluster.controller._operate(lambda term: term.brokers.came([info]))
    await cluster.settle()


@with_brokers(1, 2, 3)
async def test_a_broker_that_was_given_up_may_return_though_nobody_could_be_elected(cluster: Cluster) -> None:
    await cluster.create("a", (2, 3))
    term = cluster.controller._term
    assert term is not None
    returned: list[int] = []
    reachability = Reachability(term.active, term.brokers, Patience(60_000, 7_500), returned.append)
    cluster[2].reachable.clear()

    async def refused(partitions: Iterable[TopicPartition]) -> None:
        raise Refused("/brokers/topics/a", "for a test")

    term.brokers.repair = refused  # type: ignore[method-assign]
    with pytest.raises(Refused):
        await reachability._give_up([2])
    del term.brokers.repair  # type: ignore[method-assign]
    await reachability.check()
    cluster[2].reachable.set()
    await cluster.settle()
    assert returned == [2]
    assert await reachability.returned(2)
    assert cluster.controller._term is term
    assert sorted(term.state.brokers) == [1, 2, 3]


@pytest.mark.parametrize(
    ("leave", "come_back"), [(lose_session, register_again), (lose_touch, answer_again)], ids=["session", "network"]
)
def test_a_broker_that_was_away_learns_what_was_deleted(
    leave: Callable[[Cluster, int], Awaitable[None]], come_back: Callable[[Cluster, int], Awaitable[None]]
) -> None:
    @with_brokers(1, 2, 3)
    async def run(cluster: Cluster) -> None:
        for name in ("a", "b", "c"):
            await cluster.create(name, (1,), (2,))
        assert {tp.topic for tp in cluster[3].metadata} == {"a", "b", "c"}
        await leave(cluster, 3)
        await cluster.controller.delete_topics(["a", "b"], timeout_ms=1000)
        assert await cluster.client.children(TOPICS) == ["c"]
        again = await cluster.create("b", (1,), (2,))
        told = len(cluster[3].requests)
        await come_back(cluster, 3)
        assert {tp.topic for tp in cluster[3].metadata} == {"b", "c"}
        assert cluster[3].topic_ids["b"] == again
        updates = [r for r in cluster[3].requests[told:] if isinstance(r, UpdateMetadataRequest) and r.topic_states]
        leaders = {t.topic_name: {p.leader for p in t.partition_states} for t in updates[0].topic_states}
        assert leaders == {"a": {-2}, "b": {1, 2}, "c": {1, 2}}, (
            "all that there is and is not, in the first that has any"
        )

    run()


def test_the_topics_deleted_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkad.controller.state._REMEMBERED_PARTITIONS", 5)
    deleted = DeletedTopics()
    for name, partitions, remembered in (
        ("a", 2, "a"),
        ("b", 2, "ab"),
        ("b", 3, "ab"),
        ("c", 1, "bc"),
        ("d", 1, "bcd"),
        ("e", 6, ""),
        ("f", 5, "f"),
    ):
        topic = TopicEntry(name, NO_TOPIC_ID)
        topic.partitions = {number: PartitionEntry(PartitionAssignment(replicas=(1,))) for number in range(partitions)}
        deleted.add(topic)
        assert [topic.name for topic in deleted] == list(remembered)
    for _ in range(2):
        deleted.discard("f")
        assert not list(deleted)


@with_brokers(1, 2, 3)
async def test_the_controller_dies(cluster: Cluster) -> None:
    await cluster.create("a", (1, 2, 3), (2, 3, 1))
    await cluster.kill(1)
    assert sum(m.controller.active for m in cluster.members.values()) == 1
    assert (await cluster.client.get(ControllerEpoch.PATH))[0] == b"2"
    state = await cluster.state("a", 0)
    assert (state.leader, state.isr, state.leader_epoch, state.controller_epoch) == (2, (2, 3), 1, 2)
    assert cluster[3].metadata[A0].leader == 2
    assert cluster[3].replicas[A1].isr == [2, 3]
    await cluster.create("b", (2, 3))


@with_brokers(1, 2)
async def test_a_controller_that_was_replaced_can_change_nothing(cluster: Cluster) -> None:
    old = cluster.members[1]
    await cluster.client.delete("/controller")
    await cluster.client.set(ControllerEpoch.PATH, b"7")
    with pytest.raises(KafkaError) as refusal:
        await old.controller.create_topics([NewTopic(name="a")], timeout_ms=1000)
    assert refusal.value.code == ErrorCode.NOT_CONTROLLER
    assert await cluster.client.children("/brokers/topics") == []
    await cluster.settle()
    assert sum(m.controller.active for m in cluster.members.values()) == 1
    assert (await cluster.client.get(ControllerEpoch.PATH))[0] == b"8"


@with_brokers(1, 2)
async def test_a_controller_that_has_not_heard_yet_that_it_was_replaced_can_change_nothing(cluster: Cluster) -> None:
    """The epoch is checked with each write. Nothing that it watches has told it."""
    old = cluster.members[1]
    await cluster.client.set(ControllerEpoch.PATH, b"7")
    assert old.controller.active
    with pytest.raises(KafkaError) as refusal:
        await old.controller.create_topics([NewTopic(name="a")], timeout_ms=1000)
    assert refusal.value.code == ErrorCode.NOT_CONTROLLER
    assert await cluster.client.children("/brokers/topics") == []


@with_brokers(1, 2)
async def test_a_lost_session_ends_the_term_at_once(cluster: Cluster) -> None:
    one = cluster.members[1]
    await one.session.expire()
    assert not one.controller.active
    await cluster.settle()
    assert cluster.members[2].controller.active
    await one.session.renew()
    await one.controller.session_renewed()
    await cluster.settle()
    assert one.controller.controller_id == 2


@pytest.mark.parametrize(("broker", "asks_for"), [(1, BROKER_IDS), (2, ControllerNode.path())])
def test_the_end_of_a_session_amid_the_work_of_a_controller_is_no_error(
    broker: int, asks_for: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As of a broker that was stopped for longer, and has been replaced: there is nothing to do."""

    @with_brokers(1, 2, 3)
    async def test(cluster: Cluster) -> None:
        session = cluster.members[broker].session
        asked = []

        def expiring(ask: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
            async def expire(path: str, *args: object) -> object:
                if path == asks_for and not asked:
                    asked.append(path)
                    await session.expire()
                return await ask(path, *args)

            return expire

        session.get, session.children = expiring(session.get), expiring(session.children)
        await (cluster.kill(3) if broker == 1 else cluster.client.delete(asks_for))
        await cluster.settle()
        assert asked == [asks_for]
        assert not cluster.members[broker].controller.active
        await register_again(cluster, broker)
        assert cluster.members[broker].controller.controller_id == cluster.controller.controller_id

    test()
    assert caplog.messages == []


@with_brokers(1)
async def test_a_term_that_begins_before_the_one_before_has_ended_hears_of_new_topics(cluster: Cluster) -> None:
    member = cluster.members[1]
    registered = asyncio.Event()

    async def busy() -> None:
        await registered.wait()

    member.controller._queue.put_nowait(busy)
    await member.session.delete(ControllerNode.path())  # heard of before the session is lost, looked after later
    await lose_session(cluster, 1)
    await member.session.renew()
    await register(member.session, registration(1))
    registered.set()
    await cluster.settle()
    assert member.controller.active
    topic = Topic(b"a" * 16, {0: PartitionAssignment(replicas=(1,))})
    await cluster.client.create(Topic.path("a"), topic.encode())
    await cluster.settle()
    assert A0 in cluster[1].replicas


@with_brokers(1)
async def test_somebody_wrote_a_state_in_between(cluster: Cluster) -> None:
    """An old broker may write an ISR itself: the controller reads it again and decides on that."""
    await cluster.start(2)
    await cluster.create("a", (2, 1))
    path = "/brokers/topics/a/partitions/0/state"
    text = b'{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":5,"isr":[2,1]}'
    await cluster.client.set(path, text)
    with pytest.raises(BadVersion):
        await cluster.client.set(path, text, version=0)
    await cluster.kill(2)
    state = await cluster.state("a")
    assert (state.leader, state.leader_epoch, state.isr) == (1, 6, (1,))


@with_brokers(1, 2)
async def test_a_broker_that_moves_to_another_listener_while_it_runs(cluster: Cluster) -> None:
    for port in (9093, 9094):
        endpoint = Endpoint(listener="PLAINTEXT", host="elsewhere", port=port)
        moved = Broker(broker=BrokerInfo(id=2, endpoints=(endpoint,)), timestamp_ms=1)
        await cluster.client.set(Broker.path(2), moved.encode())
        await cluster.settle()
        told = [request for request in cluster[1].requests if isinstance(request, UpdateMetadataRequest)][-1]
        assert [(b.id, b.endpoints[0].port) for b in told.live_brokers] == [(1, 9092), (2, port)]
        assert told.topic_states == []


@with_brokers(1, 2)
async def test_order_of_requests_to_a_broker_that_starts(cluster: Cluster) -> None:
    await cluster.create("a", (1, 2))
    await cluster.kill(2)
    await cluster.start(2)
    kinds = [type(request) for request in cluster[2].requests]
    assert kinds[0] is UpdateMetadataRequest
    assert kinds.index(UpdateMetadataRequest) < kinds.index(LeaderAndIsrRequest)
    assert cluster[2].metadata.keys() == {A0}
    assert cluster[2].replicas[A0].leader == 1


@with_brokers(1)
async def test_requests_are_sent_until_they_are_answered(cluster: Cluster) -> None:
    fake = cluster[1]
    member = cluster.members[1]
    member.controller._connect = lambda info: FailingOnce(LocalChannel(fake))
    await member.session.expire()
    await member.session.renew()
    await register(member.session, registration(1))
    await member.controller.session_renewed()
    await cluster.settle()
    await cluster.create("a", (1,))
    assert fake.replicas[A0].leader == 1


async def note(cluster: Cluster, broker: int) -> None:
    """Replicas of this broker are lost, or serve again."""
    await cluster.client.create(LogDirEvent.PREFIX, LogDirEvent.encode(broker), sequential=True)
    await cluster.settle()


@with_brokers(1, 2, 3)
async def test_a_log_directory_fails_and_is_repaired_by_a_restart(cluster: Cluster) -> None:
    await cluster.create("a", (2, 3), (2, 3))
    cluster[2].failed.add(A0)
    await note(cluster, 2)
    moved, kept = await cluster.state("a", 0), await cluster.state("a", 1)
    assert (moved.leader, moved.isr) == (3, (3,))
    assert (kept.leader, kept.isr) == (2, (2, 3))
    assert cluster[1].metadata[A0].offline_replicas == [2]
    assert await cluster.client.children(LogDirEvent.PARENT) == []
    await cluster.kill(2)
    await cluster.start(2)
    assert cluster[1].metadata[A0].offline_replicas == []


@with_brokers(1, 2, 3)
async def test_a_replica_that_serves_again_hears_what_was_written_before_it_answered(cluster: Cluster) -> None:
    """As on a disk that has room again. In the epoch that it was told of its leader would not let it fetch."""
    await cluster.create("a", (2, 3, 1))
    cluster[2].failed.add(A0)
    await note(cluster, 2)
    assert (await cluster.state("a")).isr == (3, 1)
    cluster[2].failed.clear()
    cluster[2].reachable.clear()
    await note(cluster, 2)
    await cluster.kill(3)
    cluster[2].reachable.set()
    await cluster.settle()
    state = await cluster.state("a")
    assert (state.leader, state.isr) == (1, (1,))
    assert cluster[2].replicas[A0].leader_epoch == state.leader_epoch
    assert cluster[1].metadata[A0].offline_replicas == [3]


@with_brokers(1, 2, 3)
async def test_a_replica_serves_again_although_the_answer_that_said_so_was_lost(cluster: Cluster) -> None:
    await cluster.create("a", (2, 3))
    cluster[2].failed.add(A0)
    await note(cluster, 2)
    cluster[2].failed.clear()
    carry_out = cluster[2].leader_and_isr

    async def unanswered(request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        cluster[2].leader_and_isr = carry_out  # type: ignore[method-assign]
        await carry_out(request)
        raise ConnectionResetError

    cluster[2].leader_and_isr = unanswered  # type: ignore[method-assign]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kafkad.controller.channel.RETRY_MS", 0)
        await note(cluster, 2)
    assert cluster[2].replicas[A0].leader == 3
    assert cluster[1].metadata[A0].offline_replicas == []


@with_brokers(1, 2, 3)
async def test_controlled_shutdown(cluster: Cluster) -> None:
    await cluster.create("a", (2, 3), (3, 2))
    await cluster.create("alone", (2,))
    member = cluster.members[2]
    controller = cluster.controller
    with pytest.raises(KafkaError) as refusal:
        await controller.controlled_shutdown(2, member.epoch - 1)
    assert refusal.value.code == ErrorCode.STALE_BROKER_EPOCH
    assert await controller.controlled_shutdown(2, member.epoch) == []
    await cluster.settle()
    for partition in (0, 1):
        state = await cluster.state("a", partition)
        assert (state.leader, state.isr) == (3, (3,))
    assert member.fake.replicas[A0].leader == 3
    assert A1 not in member.fake.replicas
    stop = next(r for r in member.fake.requests if isinstance(r, StopReplicaRequest))
    assert not stop.topic_states[0].partition_states[0].delete_partition
    assert (await cluster.state("alone")).leader == 2
    (result,) = await controller.create_topics([NewTopic(name="b", assignment={0: (2,)})], timeout_ms=1000)
    assert result.error is None
    await cluster.kill(2)
    await cluster.start(2)
    assert cluster[2].replicas[A0].leader == 3
    assert (await cluster.state("b")).leader == 2


@with_brokers(1)
async def test_a_term_that_has_ended_is_kept_by_nothing(cluster: Cluster) -> None:
    def watchers() -> int:
        return sum(len(calls) for of_path in cluster.store._watches.values() for calls in of_path.values())

    await cluster.create("a", (1,), (1,))
    controller, session = cluster.controller, cluster.members[1].session
    for _ in range(3):
        ended, before = weakref.ref(controller._term), watchers()
        await session.delete(ControllerNode.path())
        await cluster.settle()
        assert controller.active
        gc.collect()
        assert ended() is None
        assert watchers() == before
    await cluster.client.set(
        Topic.path("a"), Topic(bytes(16), {p: PartitionAssignment(replicas=(1,)) for p in range(3)}).encode()
    )
    await cluster.settle()
    assert TopicPartition("a", 2) in cluster[1].replicas, "the last term hears of it"


@with_brokers(1, 2)
async def test_a_term_that_has_ended_keeps_no_partitions_whatever_keeps_it(cluster: Cluster) -> None:
    """As a cycle of its parts does that is in no collection of garbage any more."""
    await cluster.create("a", (1,), (1,))
    await cluster.create("gone", (1,), (1,))
    await cluster.controller.delete_topics(["gone"], timeout_ms=1000)
    term = cluster.controller._term
    assert term is not None
    known = [entry for _, entry in term.state.partitions()]
    known += [entry for topic in term.state.deleted for entry in topic.partitions.values()]
    assert len(known) == 4
    known.append(PartitionEntry(PartitionAssignment(replicas=(1,))))  # which nothing else has
    await cluster.members[1].session.delete(ControllerNode.path())
    await cluster.settle()
    assert cluster.controller._term is not term
    assert len({sys.getrefcount(entry) for entry in known}) == 1
    assert not any(vars(term.state.deleted).values())
    assert (term._watched, term.reassignments._asked_by_node, term.deletions._settled) == ({}, {}, {})


@with_brokers(1)
async def test_operations_that_wait_when_the_broker_stops_are_refused(cluster: Cluster) -> None:
    cluster[1].reachable.clear()
    controller: Controller = cluster.controller
    waiting = [asyncio.create_task(controller.delete_topics(["x"], timeout_ms=1000)) for _ in range(3)]
    creation = asyncio.create_task(controller.create_topics([NewTopic(name="a")], timeout_ms=1))
    await asyncio.sleep(0)
    await controller.stop()
    outcomes = await asyncio.gather(*waiting, creation, return_exceptions=True)
    for outcome in outcomes:
        assert not isinstance(outcome, KafkaError) or outcome.code == ErrorCode.NOT_CONTROLLER


@with_brokers(1, 2)
async def test_an_election_asked_for_by_an_old_tool(cluster: Cluster) -> None:
    await cluster.create("a", (2, 1))
    await cluster.kill(2)
    await cluster.start(2)
    assert (await cluster.state("a")).leader == 1
    await cluster.client.set(
        "/brokers/topics/a/partitions/0/state",
        b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":1,"isr":[1,2]}',
    )
    await cluster.client.create(IsrChange.PREFIX, IsrChange.encode([A0]), sequential=True)
    await cluster.settle()
    assert cluster[1].metadata[A0].isr == [1, 2]
    await cluster.client.create(PreferredElections.PATH, PreferredElections.encode([A0]))
    await cluster.settle()
    assert (await cluster.state("a")).leader == 2
    assert await cluster.client.exists(PreferredElections.PATH) is None


@with_brokers(1, 2)
async def test_what_cannot_be_read_concerns_only_what_it_describes(cluster: Cluster) -> None:
    await cluster.create("a", (2, 1))
    await cluster.create("b", (2, 1))
    await cluster.client.set("/brokers/topics/a/partitions/0/state", b"{}")
    await cluster.client.create("/brokers/topics/c", b'{"version":3,"partitions":[]}')
    await cluster.client.create("/brokers/ids/3", b"nobody", ephemeral=True)
    await cluster.client.create("/brokers/ids/three", b"", ephemeral=True)
    for prefix in (LogDirEvent.PREFIX, IsrChange.PREFIX):
        await cluster.client.create(prefix, b"[]", sequential=True)
    await cluster.client.create(PreferredElections.PATH, b"?")
    await cluster.client.create(Reassignments.PATH, b"?")
    await cluster.client.delete("/controller")
    await cluster.settle()
    assert (await cluster.client.get(ControllerEpoch.PATH))[0] == b"2"
    assert cluster.controller.active
    assert (await cluster.state("b")).leader == 2
    (await cluster.start(4)).fake.replicas.clear()
    await cluster.create("d", (4, 2))
    assert cluster[2].live == {1, 2, 4}
    for path in (LogDirEvent.PARENT, IsrChange.PARENT):
        assert await cluster.client.children(path) == []
    for path in (PreferredElections.PATH, Reassignments.PATH):
        assert await cluster.client.exists(path) is None
    await cluster.client.set("/brokers/topics/c", Topic(b"c" * 16, {0: PartitionAssignment(replicas=(2,))}).encode())
    await cluster.settle()
    assert cluster[2].replicas[TopicPartition("c", 0)].leader == 2


@with_brokers(1, 2)
async def test_a_note_that_comes_while_a_controller_begins_is_heard(cluster: Cluster) -> None:
    """A disk that fails between the removal of old notes and the watch for new ones would never be heard of."""
    await cluster.create("a", (2, 1))
    reading = cluster.members[1].session.get_many
    cluster[2].failed.add(A0)

    async def noted(paths: Sequence[str], watch: Watch | None = None) -> list[tuple[bytes, Stat] | None]:
        if paths == ["/brokers/ids/1", "/brokers/ids/2"]:
            await cluster.client.create(LogDirEvent.PREFIX, LogDirEvent.encode(2), sequential=True)
        return await reading(paths, watch)

    cluster.members[1].session.get_many = noted  # type: ignore[method-assign]
    cluster.members[2].controller._stopped = True
    await cluster.client.delete("/controller")
    await cluster.settle()
    assert (await cluster.state("a")).leader == 1
    assert await cluster.client.children(LogDirEvent.PARENT) == []


@with_brokers(1)
async def test_a_term_that_could_not_begin_is_begun_again(cluster: Cluster) -> None:
    member = cluster.members[1]
    reading = member.session.get_many

    async def broken(paths: Sequence[str], watch: Watch | None = None) -> list[tuple[bytes, Stat] | None]:
        raise ConnectionLoss("metadata", "lost")

    member.session.get_many = broken  # type: ignore[method-assign]
    await cluster.client.delete("/controller")
    await cluster.settle()
    assert not member.controller.active
    member.session.get_many = reading  # type: ignore[method-assign]
    member.controller._look_again()
    await cluster.settle()
    assert member.controller.active
    await cluster.create("a", (1,))


@with_brokers(1)
async def test_a_leader_whose_topic_has_not_been_read_yet_waits_for_its_answer(cluster: Cluster) -> None:
    """Kafka's leaders do not ask again where a topic is unknown: they wait for a LeaderAndIsr, which need not come."""
    topic_id = await cluster.create("a", (1,))
    begin, may_begin = Term.begin, asyncio.Event()

    async def begin_later(term: Term) -> Answers:
        await may_begin.wait()
        return await begin(term)

    member = cluster.members[1]
    isr = WantedIsr(members={1: member.epoch}, leader_epoch=0, partition_epoch=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Term, "begin", begin_later)
        await cluster.client.delete("/controller")
        await cluster.settle()
        wanted = {(topic_id, 0): isr, (b"?" * 16, 0): isr}
        answer = asyncio.create_task(member.controller.alter_isr_by_id(1, member.epoch, wanted))
        await cluster.settle()
        assert not answer.done()
        may_begin.set()
        known, unknown = (await answer).values()
    assert isinstance(known, PartitionState)
    assert isinstance(unknown, KafkaError)
    assert unknown.code == ErrorCode.UNKNOWN_TOPIC_ID


@with_brokers(1)
async def test_operations_after_the_broker_has_stopped_are_refused(cluster: Cluster) -> None:
    controller = cluster.controller
    await controller.stop()
    with pytest.raises(KafkaError) as refused:
        await controller.create_topics([NewTopic(name="a")], timeout_ms=1)
    assert refused.value.code == ErrorCode.NOT_CONTROLLER


@with_brokers(1, 2)
async def test_a_deletion_that_a_broker_does_not_confirm_is_answered_when_the_controller_stops(
    cluster: Cluster,
) -> None:
    await cluster.create("a", (2,))
    cluster[2].reachable.clear()
    deletion = asyncio.create_task(cluster.controller.delete_topics(["a"], timeout_ms=100_000_000))
    await cluster.settle()
    assert not deletion.done()
    await cluster.controller.stop()
    [result] = await deletion
    assert result.error is not None
    assert result.error.code == ErrorCode.REQUEST_TIMED_OUT
