from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kafkad_etl.cluster.losses import Gap
from kafkad_etl.cluster.starts import Extent
from kafkad_etl.cluster.topics import (
    DELIVERY,
    READ,
    WRITE,
    Topic,
    absent,
    hidden,
    java_pattern,
    lost_sight,
    matching,
    partitions_of,
    sources,
    writable,
)
from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.job import Source
from kafkad_etl.planning.source import averages
from kctl.errors import Disconnected, KctlError
from kctl.reach.access import Access


class Answer(NamedTuple):
    """As Metadata returned for one topic."""

    name: str
    error_code: int = 0
    topic_authorized_operations: int = -0x80000000
    is_internal: bool = False
    topic_id: bytes = bytes(16)
    partitions: tuple[Any, ...] = ()


class Cluster:
    """A session on a cluster that returned so for every topic."""

    access = Access()

    def __init__(self, *, controller_id: int = 1, others: Sequence[Any] = (), **answer: Any) -> None:
        """`others`: what other brokers say, as clusters, or why they do not."""
        self._controller_id = controller_id
        self._answer = answer
        self._others = others

    def version_of(self, request: object) -> int:
        return 10

    def call(self, request: Any) -> Any:
        assert request.include_topic_authorized_operations
        return self._says(request)

    def call_each(self, requests: Any) -> Any:
        brokers = dict(enumerate([self, *self._others]))
        return {
            at: brokers[at] if isinstance(brokers[at], KctlError) else brokers[at]._says(request)
            for at, request in requests.items()
        }

    def _says(self, request: Any) -> Any:
        topics = [Answer(topic.name, **self._answer) for topic in request.topics]
        brokers = [SimpleNamespace(node_id=at) for at in range(1 + len(self._others))]
        return SimpleNamespace(topics=topics, controller_id=self._controller_id, brokers=brokers)


def test_a_right_that_the_broker_does_not_give_is_told_with_who_can() -> None:
    readable: Any = Cluster(topic_authorized_operations=1 << READ)
    assert list(sources(readable, Source(topics=("orders",)))) == ["orders"]
    with pytest.raises(EtlError) as refused:
        writable(readable, "orders", "sink.topic", None)
    assert refused.value.exit_code == EtlExit.CLUSTER
    assert refused.value.what == 'sink.topic: not authorised to write topic "orders"'
    assert "kctl acls add --allow User:ANONYMOUS --operation Write --topic orders" in refused.value.hints[0]
    only_writable: Any = Cluster(topic_authorized_operations=1 << WRITE)
    with pytest.raises(EtlError, match='not authorised to read topic "orders"'):
        sources(only_writable, Source(topics=("orders",)))


def test_a_topic_that_may_not_be_seen_is_told() -> None:
    hidden: Any = Cluster(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(EtlError, match='not authorised to see topic "orders"'):
        sources(hidden, Source(topics=("orders",)))
    for operations in ((WRITE,), DELIVERY):
        with pytest.raises(EtlError) as refused:
            writable(hidden, "orders", "sink.topic", None, operations)
        asked = [hint.partition("--operation ")[2] for hint in refused.value.hints]
        assert asked == [f"{name} --topic orders" for name in ("Write", "Read")[: len(operations)]]


def test_all_rights_that_are_missing_on_a_topic_are_told_at_once() -> None:
    seen: Any = Cluster(topic_authorized_operations=0)
    with pytest.raises(EtlError) as refused:
        writable(seen, "orders", "sink.topic", None, DELIVERY)
    assert refused.value.what == 'sink.topic: not authorised to write and to read topic "orders"'
    assert ["Write" in hint for hint in refused.value.hints] == [True, False]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, "deleted"),
        ({"error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED}, "hidden"),
        ({"topic_id": b"B" * 16}, "deleted"),
        ({"topic_id": b"A" * 16}, None),
        ({"error_code": ErrorCode.LEADER_NOT_AVAILABLE}, None),
        ({"error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "controller_id": -1}, None),
    ],
)
def test_why_a_topic_is_not_there_any_more(answer: dict[str, Any], why: str | None) -> None:
    cluster: Any = Cluster(**answer)
    assert absent(cluster, {"orders": (b"A" * 16).hex()}) == ({"orders": why} if why else {})


UNKNOWN: dict[str, Any] = {"error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
HIDDEN: dict[str, Any] = {"error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED}


@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        (UNKNOWN, Cluster(**UNKNOWN), "deleted"),
        (UNKNOWN, Cluster(), None),
        ({}, Cluster(**UNKNOWN), None),
        (UNKNOWN, Cluster(**HIDDEN), "hidden"),
        (HIDDEN, Cluster(**UNKNOWN), "hidden"),
        (HIDDEN, Cluster(), None),
        (UNKNOWN, Cluster(controller_id=-1, **UNKNOWN), None),
        (UNKNOWN, Disconnected("kafka-2:9092: connection refused"), "deleted"),
    ],
)
def test_a_topic_is_there_if_one_of_the_brokers_knows_it(one: dict[str, Any], other: Any, why: str | None) -> None:
    cluster: Any = Cluster(others=[other], **one)
    assert absent(cluster, {"orders": ""}) == ({"orders": why} if why else {})


def test_a_topic_of_a_checkpoint_that_may_not_be_seen_may_be_gone() -> None:
    cluster: Any = Cluster()
    error = lost_sight(cluster, ["orders", "refunds"])
    assert error.what == 'topics "orders", "refunds" cannot be seen any more: deleted, or not authorised'
    assert error.hints[0].endswith("--operation Read --topic orders")
    assert error.hints[-1].startswith("if it is gone, a run with that right says so; --accept-data-loss then")


def test_every_topic_that_may_not_be_seen_is_named() -> None:
    cluster: Any = Cluster()
    error = hidden(cluster, ["orders", "refunds"])
    assert error.what == 'not authorised to see topics "orders", "refunds"'
    assert [hint.split("--allow ")[1] for hint in error.hints] == [
        "User:ANONYMOUS --operation Read --topic orders",
        "User:ANONYMOUS --operation Read --topic refunds",
    ]


def test_a_broker_that_tells_no_rights_is_no_reason_to_refuse() -> None:
    assert Topic("t", (0,)).allows(READ) and Topic("t", (0,)).allows(WRITE)
    silent: Any = Cluster()
    assert writable(silent, "orders", "sink.topic", None) is not None


def test_a_pattern_is_of_whole_names() -> None:
    assert matching("orders-.*", ["my-orders-1", "orders-1", "orders-2"], "h:1") == ["orders-1", "orders-2"]
    assert java_pattern("a|b") == "^(?:a|b)$"
    with pytest.raises(EtlError) as refused:
        matching("order", ["orders"], "h:1")
    refused.value.locate(lambda key: f"orders.yaml:3 {key}")
    assert refused.value.what == 'orders.yaml:3 source.pattern: no topic on h:1 matches "order"'
    assert refused.value.hints == ('did you mean "orders"?',)


def test_a_partition_that_is_not_there_is_told_with_its_place() -> None:
    with pytest.raises(EtlError) as refused:
        partitions_of(Source(partitions={"orders": (0, 7)}), {"orders": Topic("orders", (0, 1))})
    refused.value.locate(lambda key: f"orders.yaml:3 {key}")
    assert refused.value.what == 'orders.yaml:3 source.partitions.orders: topic "orders" has no partition 7'


def test_records_are_as_large_as_their_logs_say() -> None:
    there = {
        TopicPartition("t", 0): Extent(0, 10),
        TopicPartition("t", 1): Extent(5, 15),
        TopicPartition("u", 0): Extent(0, 0),
    }
    assert averages({TopicPartition("t", 0): 500, TopicPartition("t", 1): 1500}, there) == {"t": 100.0}
    assert averages({}, there) == {}


def test_a_gap_names_its_records() -> None:
    where = TopicPartition("orders", 0)
    assert str(Gap(where, 100, 150)) == "orders-0: 50 records (100-149) deleted before they were read"
    assert str(Gap(where, 100, 101)) == "orders-0: 1 record (100) deleted before they were read"
