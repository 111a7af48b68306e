"""Topics that are moved, deleted, or large while brokers die, under load with real clients."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from tests.cluster.gaps import CLIENT_S, report
from tests.cluster.history import Load, create, new_load
from tests.cluster.processes import Cluster
from tests.oracle.zookeeper import missing

pytestmark = [
    pytest.mark.slow,
    pytest.mark.java,
    pytest.mark.timeout(900),
    pytest.mark.skipif(missing("3.8") is not None, reason=missing("3.8") or ""),
]

FILLED = 2_000_000
THROTTLED, RATE = 40_000_000, 2_000_000
BURST_S = 11
"""Kafka counts a rate over so many seconds, so that their bytes may come at once."""
THROTTLED_REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
THROTTLED_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
MANY = 1_000
MADE_S = 240
"""Kafka's brokers on a few busy cores."""


@pytest.mark.parametrize("victim", ["leader", "target", "controller"])
@pytest.mark.long
def test_a_partition_is_moved_and_a_broker_killed_meanwhile(cluster: Cluster, victim: str) -> None:
    controller = cluster.until_controller()
    leader, target = cluster.peers(controller)
    load = new_load(cluster, [leader, controller], min_insync_replicas="1")
    fill(cluster, load.topic)
    with load:
        for source in (leader, controller):
            cluster.links.slow(str(source), str(target), 0.2)
        reassign(cluster, load.topic, [target, controller])
        cluster.until(lambda: target in cluster.replicas(load.topic, 0), "the move has begun")
        broker = {"leader": leader, "target": target, "controller": controller}[victim]
        cluster.kill(broker)
        cluster.until_gone(broker)
        cluster.start(broker)
        cluster.heal_all()
        took = cluster.until(lambda: cluster.replicas(load.topic, 0) == [target, controller], "it was moved")
        print(f"{cluster.kind}: {victim} killed during a move, which ended {took:.2f} s after it was back")
        load.until_all_go_on()
    load.check()


@pytest.mark.long
def test_a_partition_is_moved_under_a_throttle(cluster: Cluster) -> None:
    """The copy takes the time that the throttle allows it, and producers do not notice."""
    leader, target = cluster.peers(cluster.until_controller())
    load = new_load(cluster, [leader, target], min_insync_replicas="1")
    [new] = set(cluster.ids) - {leader, target}
    fill(cluster, load.topic, THROTTLED)
    configure(cluster, ResourceType.TOPIC, load.topic, dict.fromkeys(THROTTLED_REPLICAS, "*"))
    for broker in cluster.ids:
        configure(cluster, ResourceType.BROKER, str(broker), dict.fromkeys(THROTTLED_RATES, str(RATE)))
    with load:
        load.run(1)
        begun = time.monotonic()
        reassign(cluster, load.topic, [new, target])
        took = cluster.until(lambda: cluster.replicas(load.topic, 0) == [new, target], "it was moved")
        report(cluster, f"{THROTTLED} bytes moved at {RATE}/s in {took:.1f} s", load, begun, at_most=CLIENT_S)
        assert cluster.leader(load.topic) == new
    for broker in cluster.ids:
        configure(cluster, ResourceType.BROKER, str(broker), dict.fromkeys(THROTTLED_RATES))
    load.check()
    assert took > (THROTTLED - BURST_S * RATE) / RATE, "the throttle was not kept"


@pytest.mark.long
def test_preferred_leaders_are_elected(cluster: Cluster, load: Load) -> None:
    """Those that lead already need none."""
    broker = cluster.peers(cluster.until_controller())[0]
    cluster.stop(broker)
    cluster.start(broker)
    load.whole()
    assert cluster.leader(load.topic, broker - 1) != broker
    before = [cluster.state(load.topic, partition) for partition in load.partitions]
    begun = time.monotonic()
    wanted = [{"topic": load.topic, "partition": partition} for partition in load.partitions]
    cluster.write_node("/admin/preferred_replica_election", {"version": 1, "partitions": wanted})
    took = cluster.until(lambda: cluster.leader(load.topic, broker - 1) == broker, "it leads again")
    report(cluster, f"preferred leader elected in {took:.2f} s", load, begun, at_most=CLIENT_S)
    changed = [p for p in load.partitions if cluster.state(load.topic, p) != before[p]]
    assert changed == [broker - 1]


def test_a_topic_is_deleted_while_a_broker_is_down(cluster: Cluster, load: Load) -> None:
    """It is deleted there as well when the broker is back, and can be made again then."""
    topic = f"{load.topic}-deleted"
    create(cluster, topic, [1, 2, 3])
    controller = cluster.until_controller()
    broker = cluster.peers(controller)[0]
    cluster.kill(broker)
    delete(cluster, topic)
    cluster.until(lambda: topic not in topics(cluster), "clients do not see it any more")
    with pytest.raises(KafkaException) as refused:
        create(cluster, topic, [1, 2, 3])
    assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    cluster.start(broker)
    cluster.until(lambda: cluster.is_deleted(topic), "it is gone")
    assert not any(replica(cluster, each, topic) for each in cluster.ids)
    create(cluster, topic, [1, 2, 3])


@pytest.mark.long
def test_a_topic_is_made_again_while_a_broker_is_down(cluster: Cluster, load: Load) -> None:
    """Its old log there belongs to another topic, and stays: a replica of the new one waits for its removal."""
    topic = f"{load.topic}-again"
    controller = cluster.until_controller()
    broker, other = cluster.peers(controller)
    create(cluster, topic, [broker, other])
    cluster.until(lambda: replica(cluster, broker, topic) is not None, "its replica is there")
    old = replica(cluster, broker, topic)
    assert old is not None
    cluster.until((old / "partition.metadata").exists, "its replica says whose it is")
    cluster.kill(broker)
    cluster.until(lambda: cluster.leader(topic) == other, "another leads")
    reassign(cluster, topic, [other, controller])
    cluster.until(lambda: cluster.replicas(topic, 0) == [other, controller], "its replica is given up")
    delete(cluster, topic)
    cluster.until(lambda: cluster.is_deleted(topic), "it is gone")
    create(cluster, topic, [other, controller])
    identity = (old / "partition.metadata").read_text()
    cluster.start(broker)
    reassign(cluster, topic, [broker, other])
    load.run(3)
    assert broker not in cluster.state(topic)["isr"]
    assert (old / "partition.metadata").read_text() == identity
    cluster.stop(broker)
    shutil.rmtree(old)
    cluster.start(broker)
    cluster.until(lambda: cluster.replicas(topic, 0) == [broker, other] and cluster.is_whole(topic, 1), "it has moved")


@pytest.mark.long
def test_a_thousand_partitions(new_cluster: Callable[..., Cluster]) -> None:
    """Nobody is taken for dead while he is busy with so much."""
    settings = {"zookeeper.session.timeout.ms": "20000", "replica.lag.time.max.ms": "60000"}
    cluster = new_cluster(settings=settings)
    load = new_load(cluster)
    with load:
        many_partitions(cluster, load)
    load.check()


def many_partitions(cluster: Cluster, load: Load) -> None:
    topic = f"{load.topic}-many"
    begun = time.monotonic()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    new = NewTopic(topic, MANY, 3)
    admin.create_topics([new], operation_timeout=MADE_S, request_timeout=MADE_S)[topic].result(2 * MADE_S)
    until_led(cluster, topic)
    print(f"{cluster.kind}: {MANY} partitions made in {time.monotonic() - begun:.1f} s")
    controller = cluster.until_controller()
    for broker in (cluster.peers(controller)[0], controller):
        begun = time.monotonic()
        cluster.kill(broker)
        cluster.until_gone(broker)
        ended = time.monotonic()
        until_led(cluster, topic, without=broker)
        load.until_all_go_on()
        print(
            f"broker {broker} killed, session over after {ended - begun:.1f} s; metadata right "
            f"{time.monotonic() - ended:.1f} s later; longest gap {load.gap(begun):.1f} s"
        )
        cluster.start(broker)
        print(f"in-sync sets whole {cluster.until(lambda: cluster.is_whole(topic, MANY), 'whole', 180):.1f} s later")
        load.whole()
    begun = time.monotonic()
    delete(cluster, topic)
    cluster.until(lambda: cluster.is_deleted(topic), "it is gone")
    print(f"deleted in {time.monotonic() - begun:.1f} s")


def configure(cluster: Cluster, kind: ResourceType, name: str, values: Mapping[str, str | None]) -> None:
    """None removes a setting."""
    entries = [
        ConfigEntry(
            name=name,
            value=value,
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for name, value in values.items()
    ]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    resource = ConfigResource(kind, name, incremental_configs=entries)
    [done] = admin.incremental_alter_configs([resource]).values()
    done.result(60)


def fill(cluster: Cluster, topic: str, length: int = FILLED) -> None:
    """So many bytes that copying them takes a while."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    size = 100_000
    for number in range(length // size):
        producer.produce(topic, f"filling-{number}".ljust(size), partition=0)
    assert producer.flush(30) == 0


def reassign(cluster: Cluster, topic: str, replicas: list[int]) -> None:
    moves = [{"topic": topic, "partition": 0, "replicas": replicas}]
    cluster.until(lambda: cluster.node("/admin/reassign_partitions") is None, "no other moves")
    cluster.write_node("/admin/reassign_partitions", {"version": 1, "partitions": moves})


def delete(cluster: Cluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.delete_topics([topic], operation_timeout=30)[topic].result(60)


def topics(cluster: Cluster) -> set[str]:
    return set(AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0}).list_topics(timeout=10).topics)


def until_led(cluster: Cluster, topic: str, without: int | None = None) -> None:
    """Until clients see a leader of each partition."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})

    def is_led() -> bool:
        try:
            found = admin.list_topics(topic, timeout=30).topics[topic].partitions
        except KafkaException:
            return False
        return len(found) == MANY and all(each.leader not in (-1, without) for each in found.values())

    cluster.until(is_led, "all are led", seconds=120)


def replica(cluster: Cluster, broker: int, topic: str) -> Path | None:
    places = [place / f"{topic}-0" for place in cluster.brokers[broker].log_dirs]
    return next((place for place in places if place.exists()), None)
