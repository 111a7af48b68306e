"""A kafkad and a Kafka 3.9 in one cluster, which log in at each other over TLS, and change rights in one ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.broker import KafkadProcess
from tests.clients.asker import Asker
from tests.cluster import secured
from tests.cluster.history import new_load
from tests.cluster.processes import Cluster
from tests.cluster.secured import BROKER, Stores, grant, set_passwords
from tests.cluster.test_securing import APP, LEAVER, NO_RIGHT, USES, refusal
from tests.oracle.zookeeper import missing

pytestmark = [
    pytest.mark.long,
    pytest.mark.java,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(missing("3.8") is not None, reason=missing("3.8") or ""),
]

KAFKAD, KAFKA = 1, 2
TOPIC, LITERAL, PREFIXED = 2, 3, 4
WRITE, ALLOW = 4, 3


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def cluster(stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The kafkad is there first, and the controller, to which each is known: the passwords are set there."""

    def prepare(broker: KafkadProcess) -> None:
        stores.add_listener(broker)
        secured.use_between_brokers(broker)
        secured.ask_for_rights(broker)
        secured.close_what_no_acl_is_about(broker)
        broker.settings["super.users"] += ";User:ANONYMOUS"

    directory = tmp_path_factory.mktemp("mixed")
    settings = {"offsets.topic.replication.factor": "2"}
    with Cluster(directory, 2, settings, kinds={KAFKA: "kafka"}, prepare=prepare) as cluster:
        ports = [broker.port for broker in cluster.brokers.values()]
        first = AdminClient({"bootstrap.servers": cluster.brokers[KAFKAD].bootstrap})
        set_passwords(first, BROKER, APP, LEAVER)
        cluster.until(lambda: all(known_brokers(port) == 2 for port in ports), "both let the other in")
        yield cluster


def known_brokers(port: int) -> int:
    asker = Asker(port)
    try:
        return len(asker.ask("Metadata", 4, {"topics": []}).brokers)
    finally:
        asker.client.close()


def acl(topic: str, pattern: int) -> dict[str, Any]:
    return {
        "resource_type": TOPIC,
        "resource_name": topic,
        "resource_pattern_type": pattern,
        "principal": f"User:{LEAVER}",
        "host": "*",
        "operation": WRITE,
        "permission_type": ALLOW,
    }


def exactly(wanted: dict[str, Any]) -> dict[str, Any]:
    """The filter that only this one matches."""
    return {
        "resource_type_filter": wanted["resource_type"],
        "resource_name_filter": wanted["resource_name"],
        "pattern_type_filter": wanted["resource_pattern_type"],
        "principal_filter": wanted["principal"],
        "host_filter": wanted["host"],
        "operation": wanted["operation"],
        "permission_type": wanted["permission_type"],
    }


@pytest.mark.parametrize(("asked", "other"), [(KAFKAD, KAFKA), (KAFKA, KAFKAD)])
def test_each_sees_what_the_other_has_changed(cluster: Cluster, stores: Stores, asked: int, other: int) -> None:
    """Described, and in force for a partition that the other leads, while an honest client goes on."""
    users = stores.client(cluster.brokers, APP)
    load = new_load(cluster, [KAFKAD, KAFKA], [KAFKA, KAFKAD], client=users)
    grant(AdminClient({"bootstrap.servers": cluster.bootstrap}), APP, load.topic, *USES)
    leaver = stores.client(cluster.brokers, LEAVER)
    one, two = Asker(cluster.brokers[asked].port), Asker(cluster.brokers[other].port)

    def there_and_back(made: dict[str, Any]) -> None:
        [result] = one.ask("CreateAcls", 3, {"creations": [made]}).results
        assert result.error_code == 0, result
        cluster.until(lambda: described(two, exactly(made)) == 1, "the other has it")
        cluster.until(lambda: refusal(leaver, load.topic, other - 1) is None, "the other lets him in")
        [removed] = two.ask("DeleteAcls", 3, {"filters": [exactly(made)]}).filter_results
        assert len(removed.matching_acls) == 1, removed
        cluster.until(lambda: described(one, exactly(made)) == 0, "who has made it knows")
        cluster.until(lambda: refusal(leaver, load.topic, asked - 1) == NO_RIGHT, "he is out there too")

    of_app = {**exactly(acl(load.topic, LITERAL)), "principal_filter": f"User:{APP}"}
    try:
        cluster.until(
            lambda: described(one, of_app) == described(two, of_app) == 1, "both know the honest one's rights"
        )
        with load:
            assert refusal(leaver, load.topic, other - 1) == NO_RIGHT
            for pattern, name in ((LITERAL, load.topic), (PREFIXED, load.topic[:-1])):
                there_and_back(acl(name, pattern))
        load.check()
    finally:
        one.client.close()
        two.client.close()


def described(asker: Asker, wanted: dict[str, Any]) -> int:
    answer = asker.ask("DescribeAcls", 3, wanted)
    assert answer.error_code == 0, answer
    return sum(len(resource.acls) for resource in answer.resources)
