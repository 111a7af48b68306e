"""What a cluster may lose, and what it must not: single survivors, logs with damaged ends, weak acknowledgements."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.cluster.history import Load, create, new_load
from tests.cluster.processes import CHECKPOINT_MS, Cluster
from tests.oracle.zookeeper import missing

pytestmark = [
    pytest.mark.slow,
    pytest.mark.java,
    pytest.mark.timeout(900),
    pytest.mark.skipif(missing("3.8") is not None, reason=missing("3.8") or ""),
]


@pytest.mark.long
def test_acks_1_loses_what_no_follower_had(cluster: Cluster) -> None:
    """Kafka's documented loss. None of it could be read before, and all replicas agree afterwards."""
    load, leader = new_load(cluster, acks="1"), other_than_controller(cluster)
    with load:
        load.run(1)
        cluster.cut(leader)
        load.run(2)
        cluster.kill(leader)
        cluster.until(lambda: cluster.leader(load.topic, leader - 1) != leader, "another leads")
        cluster.heal(leader)
        cluster.start(leader)
        load.until_all_go_on()
    found = load.found()
    print(f"{cluster.kind}: {len(found.lost)} records with acks=1 are lost")
    assert {partition_of(line) for line in found.lost} == {leader - 1}
    assert not any(found._replace(lost=[])), str(found._replace(lost=[]))


@pytest.mark.long
@pytest.mark.parametrize("unclean", ["false", "true"])
def test_the_only_replica_in_sync_is_killed(cluster: Cluster, unclean: str) -> None:
    """Its partition waits for it, unless unclean leaders are allowed: then what it alone had is lost. The store
    says that the leader may lack records until another replica is in sync with it."""
    controller = cluster.until_controller()
    leader, follower = cluster.peers(controller)
    load = new_load(
        cluster,
        [leader, follower],
        idempotent=unclean == "false",
        min_insync_replicas="1",
        unclean_leader_election_enable=unclean,
    )
    with load:
        load.run(1)
        shared = set(load.acknowledged[0])
        cluster.stop(follower)
        load.until_all_go_on()
        load.run(1)
        assert cluster.state(load.topic)["isr"] == [leader]
        cluster.kill(leader)
        cluster.until_gone(leader)
        cluster.start(follower)
        if unclean == "true":
            cluster.until(lambda: cluster.leader(load.topic) == follower, "a replica that was not in sync leads")
            assert recovering(cluster, load.topic)
            load.until_all_go_on()
        else:
            cluster.until(lambda: follower in cluster.live(), "the follower is back")
            load.run(1)
            state = cluster.state(load.topic)
            assert (state["leader"], state["isr"]) == (-1, [leader])
        cluster.start(leader)
        load.until_all_go_on()
    found = load.found()
    assert not recovering(cluster, load.topic)
    if unclean == "true":
        print(f"{cluster.kind}: {len(found.lost)} records are lost to an unclean leader")
        assert found.lost and not {value_of(line) for line in found.lost} & shared
        assert found.different == []
    else:
        assert cluster.leader(load.topic) == leader
        assert not any(found), str(found)


def recovering(cluster: Cluster, topic: str) -> bool:
    """As the metadata store has it since the last unclean election."""
    return bool(cluster.state(topic).get("leader_recovery_state", 0))


def test_two_of_three_are_killed(cluster: Cluster, load: Load) -> None:
    """The last one acknowledges nothing with acks=all, and what it takes with acks=1 cannot be read until another is
    in sync again."""
    topic = f"{load.topic}-probed"
    create(cluster, topic, [1, 2, 3])
    controller = cluster.until_controller()
    for broker in cluster.peers(controller):
        cluster.kill(broker)
    cluster.until(lambda: cluster.state(topic)["isr"] == [controller], "one is left")
    with pytest.raises(KafkaException) as refused:
        produced(cluster, topic, acks="all")
    assert refused.value.args[0].code() == KafkaError.NOT_ENOUGH_REPLICAS
    offset = produced(cluster, topic, acks="1")
    assert end_of(cluster, topic) in (None, offset)
    one, other = cluster.peers(controller)
    cluster.start(one)
    load.until_all_go_on()
    cluster.until(lambda: end_of(cluster, topic) == offset + 1, "what acks=1 acknowledged can be read")
    cluster.start(other)
    load.whole()


@pytest.mark.long
@pytest.mark.parametrize("damage", ["torn", "flipped"])
def test_the_ends_of_logs_are_damaged_after_a_kill(cluster: Cluster, load: Load, damage: str) -> None:
    """Those of a partition that the broker led, and of two that it followed."""
    broker = other_than_controller(cluster)
    load.run(1)
    cluster.kill(broker)
    for partition in load.partitions:
        spoil(load.segments(broker, partition)[-1], damage, before_end=100)
    cluster.start(broker)
    load.whole()


def start_first(cluster: Cluster, broker: int, load: Load) -> None:
    """And the others when the cluster has that one back."""
    cluster.start(broker)
    cluster.until(lambda: broker in cluster.live(), "the first one is back")
    load.run(1)
    for peer in cluster.peers(broker):
        cluster.start(peer, wait=False)
    load.until_all_go_on()


@pytest.mark.parametrize("damage", ["torn", pytest.param("flipped", marks=pytest.mark.long)])
def test_all_are_killed_and_the_first_leader_has_lost_the_end_of_its_log(cluster: Cluster, damage: str) -> None:
    """It is started first. With Kafka it leads and the others follow it in what it has forgotten."""
    load, broker = new_load(cluster, idempotent=cluster.kind == "kafkad"), other_than_controller(cluster)
    with load:
        load.run(3 * CHECKPOINT_MS / 1000)
        for each in cluster.ids:
            cluster.kill(each)
        segment = load.segments(broker, broker - 1)[-1]
        spoil(segment, damage, before_end=segment.stat().st_size // 2)
        start_first(cluster, broker, load)
    found = load.found()
    if cluster.kind == "kafka":
        assert {partition_of(line) for line in found.lost} == {broker - 1}
        assert found.different == []
    else:
        assert not any(found), str(found)


def test_a_broker_is_replaced_by_an_empty_one_and_started_first(cluster: Cluster) -> None:
    """After all have gone down. With Kafka it leads, and the others follow it in having nothing."""
    load, broker = new_load(cluster, idempotent=cluster.kind == "kafkad"), other_than_controller(cluster)
    with load:
        load.run(1)
        for each in cluster.ids:
            cluster.kill(each)
        replace_disks(cluster, broker)
        start_first(cluster, broker, load)
    found = load.found()
    if cluster.kind == "kafka":
        assert found.lost
        assert found.different == []
    else:
        assert not any(found), str(found)


def replace_disks(cluster: Cluster, broker: int) -> None:
    for place in cluster.brokers[broker].log_dirs:
        properties = (place / "meta.properties").read_text()
        shutil.rmtree(place)
        place.mkdir()
        (place / "meta.properties").write_text(properties)


def spoil(segment: Path, damage: str, before_end: int) -> None:
    with segment.open("r+b") as file:
        size = segment.stat().st_size
        assert size > before_end
        if damage == "torn":
            file.truncate(size - before_end)
        else:
            file.seek(size - before_end)
            (byte,) = file.read(1)
            file.seek(size - before_end)
            file.write(bytes([byte ^ 0x10]))


def other_than_controller(cluster: Cluster) -> int:
    return cluster.peers(cluster.until_controller())[0]


def value_of(line: str) -> str:
    return line.split()[0]


def partition_of(line: str) -> int:
    return int(line.split(":")[0])


def produced(cluster: Cluster, topic: str, acks: str) -> int:
    """The offset of a record that is sent once."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": acks, "retries": 0, "log_level": 0})
    answers: list[tuple[KafkaError | None, Message]] = []
    producer.produce(topic, b"probe", partition=0, on_delivery=lambda *answer: answers.append(answer))
    assert producer.flush(30) == 0
    [(error, message)] = answers
    if error is not None:
        raise KafkaException(error)
    offset: int = message.offset()
    return offset


def end_of(cluster: Cluster, topic: str) -> int | None:
    """Where a new reader would begin; None while the broker does not know."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused", "log_level": 0})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), 3)[1])
    except KafkaException:
        return None
    finally:
        consumer.close()
