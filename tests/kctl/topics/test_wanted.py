from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkad.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from kctl.errors import Exit, KctlError
from kctl.topics.create import check_brokers
from kctl.topics.wanted import (
    Wanted,
    check_name,
    differences,
    fixed_placement,
    from_document,
    parse_configs,
    parse_placement,
)
from tests.kctl.conftest import session_of


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "__consumer_offsets"])
def test_names(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "empty"),
        (".", "directory"),
        ("..", "directory"),
        ("x" * 250, "250 characters"),
        ("a b", "' '"),
        ("ä", "'ä'"),
    ],
)
def test_names_that_no_topic_has(name: str, why: str) -> None:
    with pytest.raises(KctlError) as caught:
        check_name(name)
    assert (caught.value.exit_code, why in caught.value.what) == (Exit.USAGE, True)


@pytest.mark.parametrize("text", ["0=1,2;1=2,3", "1=2,3; 0=1,2;", "1:2,2:3"])
def test_placement(text: str) -> None:
    assert parse_placement(text) == [[1, 2], [2, 3]]


@pytest.mark.parametrize("text", ["0=1,2;2=2,3", "0=1,1", "0=1;1=1,2", "0=a", "x=1", "0=1;0=2", "1:x", "0="])
def test_placement_that_is_none(text: str) -> None:
    with pytest.raises(KctlError) as caught:
        parse_placement(text)
    assert caught.value.exit_code == Exit.USAGE


def test_fixed_start_is_a_plain_formula() -> None:
    assert fixed_placement([3, 1, 2], 4, 2) == [[1, 2], [2, 3], [3, 1], [1, 2]]


@given(st.sets(st.integers(0, 9), min_size=1), st.integers(1, 30), st.data())
def test_fixed_placement_is_balanced(brokers: set[int], partitions: int, data: st.DataObject) -> None:
    replication = data.draw(st.integers(1, len(brokers)))
    placement = fixed_placement(brokers, partitions, replication)
    assert all(len(set(row)) == replication for row in placement)
    leaders = [row[0] for row in placement]
    counts = [leaders.count(broker) for broker in brokers]
    assert max(counts) - min(counts) <= 1


def test_too_few_brokers() -> None:
    session = session_of(1, 2, 3)
    with pytest.raises(KctlError, match=r'^topic "a": replication 9 needs 9 brokers, 3 are alive') as caught:
        check_brokers(Wanted("a", 1, 9), session)
    assert (caught.value.exit_code, caught.value.code) == (Exit.FAILED, "INVALID_REPLICATION_FACTOR")
    check_brokers(Wanted("a"), session)
    check_brokers(Wanted("a", placement=[[3, 1], [1, 2]]), session)


@pytest.mark.parametrize(
    ("broker", "state", "exit_code"),
    [
        (4, "is down", Exit.UNREACHABLE),
        (5, "does not exist, or is down and holds nothing that may be seen", Exit.NOT_FOUND),
    ],
)
def test_no_topic_goes_to_a_broker_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, broker: int, state: str, exit_code: Exit
) -> None:
    session = session_of(1, 2)
    held = [MetadataResponsePartition(replica_nodes=[1, 4])]
    monkeypatch.setattr(session, "metadata", lambda: [MetadataResponseTopic(name="b", partitions=held)])
    with pytest.raises(KctlError) as caught:
        check_brokers(Wanted("a", placement=[[1, broker]]), session)
    assert caught.value.what == f'topic "a": broker {broker} {state}'
    assert (caught.value.exit_code, caught.value.code) == (exit_code, "INVALID_REPLICA_ASSIGNMENT")
    assert caught.value.hints == ("existing brokers: 1, 2",)


def test_configs_of_options() -> None:
    assert parse_configs(["retention.ms=1d", "cleanup.policy=compact"]) == {
        "retention.ms": "86400000",
        "cleanup.policy": "compact",
    }
    with pytest.raises(KctlError):
        parse_configs(["cleanup.policy+=compact"])


@pytest.mark.parametrize(
    "document",
    [
        [{"name": "a", "partitions": 2, "configs": {"retention.ms": "1d"}}],
        {"topics": [{"name": "a", "partitions": 2, "configs": {"retention.ms": 86400000}}]},
        {"a": {"partitions": 2, "configs": {"retention.ms": "1d"}}},
    ],
)
def test_files(document: object) -> None:
    assert from_document(document, "f") == [Wanted("a", 2, None, {"retention.ms": "86400000"})]


def test_values_of_files() -> None:
    configs = {"preallocate": True, "cleanup.policy": ["delete", "compact"], "segment.bytes": "1MiB"}
    (topic,) = from_document([{"name": "a", "configs": configs, "replicas": {0: [1], 1: [2]}}], "f")
    assert topic.configs == {"preallocate": "true", "cleanup.policy": "delete,compact", "segment.bytes": "1048576"}
    assert topic.placement == [[1], [2]]


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        "text",
        [{"partitions": 1}],
        [{"name": "a", "partition": 1}],
        [{"name": "a", "partitions": "six"}],
        [{"name": "a", "partitions": True}],
        [{"name": "a", "configs": ["x"]}],
        [{"name": "a", "replicas": [[1, 1]]}],
        [{"name": "a", "replicas": {1: [1]}}],
        [{"name": "a", "replicas": 3}],
    ],
)
def test_files_that_are_wrong(document: object) -> None:
    with pytest.raises(KctlError) as caught:
        from_document(document, "topics.yaml")
    assert caught.value.exit_code == Exit.USAGE
    assert "topics.yaml" in caught.value.what or "twice" in caught.value.what


def test_what_differs() -> None:
    there = [[1, 2], [2, 3]]
    assert differences(Wanted("a", 2, 2, {"x": "1"}), there, {"x": "1"}) == []
    assert differences(Wanted("a"), there, {}) == []
    assert differences(Wanted("a", 3, 1, {"retention.ms": "86400000"}), there, {"retention.ms": "604800000"}) == [
        "it has 2 partitions, not 3",
        "its replication is 2, not 1",
        "its retention.ms is 604800000 (7d), not 86400000 (1d)",
    ]
    assert differences(Wanted("a", placement=[[1, 2], [3, 2]]), there, {}) == ["its replicas are on other brokers"]
