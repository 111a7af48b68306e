"""Brokers that are open to everybody get TLS, logins and rights, one restart after the other, while clients go on."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AclOperation, AdminClient

from tests.broker import KafkadProcess
from tests.cluster import secured
from tests.cluster.alone import Alone
from tests.cluster.conftest import NewCluster
from tests.cluster.history import Load, new_load
from tests.cluster.processes import Cluster
from tests.cluster.secured import BROKER, Stores, grant, revoke, set_passwords
from tests.oracle.zookeeper import missing

APP, LEAVER, STRANGER = "app", "leaver", "stranger"
SECONDS = 30
_numbers = count()
NO_RIGHT = KafkaError.TOPIC_AUTHORIZATION_FAILED
USES = (AclOperation.READ, AclOperation.WRITE)


def refusal(client: dict[str, str], topic: str, partition: int = 0) -> int | None:
    """Of one record, whose value is no other's; None if it was taken."""
    answers: list[KafkaError | None] = []
    producer = Producer({**client, "acks": "all", "linger.ms": 0, "log_level": 0, "delivery.timeout.ms": 20_000})
    producer.produce(
        topic, str(next(_numbers)), partition=partition, on_delivery=lambda error, _: answers.append(error)
    )
    assert producer.flush(SECONDS) == 0
    [error] = answers
    return None if error is None else error.code()


@pytest.mark.slow
def test_one_broker(tmp_path: Path) -> None:
    stores = Stores(tmp_path)
    with Alone(tmp_path / "broker") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        set_passwords(admin, BROKER, APP, STRANGER)
        load = new_load(broker, [1], min_insync_replicas="1")
        with load:
            stores.add_listener(broker)
            broker.restart()
            load.until_all_go_on()
            load.move(stores.client(broker.brokers, APP))
            load.until_all_go_on()
            load.until_all_go_on()
            secured.use_between_brokers(broker)
            secured.remove_open_listeners(broker)
            secured.ask_for_rights(broker)
            broker.stop()
            broker.start(wait=False)
            load.until_all_go_on()
            grant(AdminClient(stores.client(broker.brokers, BROKER)), APP, load.topic, *USES)
            secured.close_what_no_acl_is_about(broker)
            broker.stop()
            broker.start(wait=False)
            load.until_all_go_on()
        load.check()
        assert refusal(stores.client(broker.brokers, STRANGER), load.topic) == NO_RIGHT


@pytest.mark.long
@pytest.mark.java
@pytest.mark.timeout(3600)
@pytest.mark.skipif(missing("3.8") is not None, reason=missing("3.8") or "")
def test_three_brokers(new_cluster: NewCluster, tmp_path: Path) -> None:
    cluster = new_cluster()
    stores = Stores(tmp_path / "stores")
    set_passwords(AdminClient({"bootstrap.servers": cluster.bootstrap}), BROKER, APP, LEAVER, STRANGER)
    load = new_load(cluster)
    gaps: list[float] = []

    def restart(*changes: Callable[[KafkadProcess], None]) -> None:
        """All brokers, one after the other, with other settings."""
        for broker in cluster.ids:
            for change in changes:
                change(cluster.brokers[broker])
            begun = time.monotonic()
            cluster.stop(broker)
            cluster.start(broker, wait=False)
            load.whole()
            load.until_all_go_on()
            gaps.append(round(load.gap(begun), 2))
            assert load.anomalies == []

    with load:
        restart(stores.add_listener)
        load.move(stores.client(cluster.brokers, APP))
        restart(secured.use_between_brokers)
        restart(secured.remove_open_listeners, secured.ask_for_rights)
        admin = AdminClient(stores.client(cluster.brokers, BROKER))
        for user in (APP, LEAVER):
            grant(admin, user, load.topic, *USES)
        restart(secured.close_what_no_acl_is_about)
        assert [error for error in load.told if error.code() == KafkaError._AUTHENTICATION] == []
        revoke_and_look(cluster, stores, admin, load)
    load.check()
    print(f"{cluster.kind}: {len(gaps)} restarts, longest time of each without an acknowledgement {gaps} s")


def revoke_and_look(cluster: Cluster, stores: Stores, admin: AdminClient, load: Load) -> None:
    """At every broker, soon after one of them was told; a stranger never had any rights."""
    stranger, leaver = (stores.client(cluster.brokers, user) for user in (STRANGER, LEAVER))
    for partition in load.partitions:
        assert refusal(stranger, load.topic, partition) == NO_RIGHT
        assert refusal(leaver, load.topic, partition) is None
    assert revoke(admin, LEAVER) == len(USES) + 1, "one of the group"
    acknowledged = time.monotonic()
    for partition in load.partitions:
        while refusal(leaver, load.topic, partition) is None:
            assert time.monotonic() < acknowledged + 5, "a broker has not heard of it"
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0}).list_topics(timeout=2)
