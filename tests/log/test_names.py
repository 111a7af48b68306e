"""Names of partition directories."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkad.log.names import Kind, PartitionName, current_name, deleted_name, future_name, parse_name
from kafkad.names import TopicPartition

TOPICS = st.from_regex(r"\A[a-zA-Z0-9._-]{1,249}\Z")
PARTITIONS = st.integers(0, 2**31 - 1)


@given(TOPICS, PARTITIONS)
def test_every_name_is_read_as_it_was_meant(topic: str, partition: int) -> None:
    topic_partition = TopicPartition(topic, partition)
    deleted = parse_name(deleted_name(topic_partition))
    assert deleted is not None
    assert deleted.kind is Kind.DELETED
    assert topic.startswith(deleted.topic_partition.topic)
    assert deleted.topic_partition.partition == partition
    assert len(deleted_name(topic_partition)) <= 255
    assert parse_name(future_name(topic_partition)) == PartitionName(topic_partition, Kind.FUTURE)
    assert parse_name(current_name(topic_partition)) == PartitionName(topic_partition, Kind.CURRENT)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("t-0.0123456789abcdef0123456789abcdef-delete", Kind.DELETED),
        ("a.b-c-12.0123456789abcdef0123456789abcdef-stray", Kind.STRAY),
        ("__consumer_offsets-49", Kind.CURRENT),
    ],
)
def test_kafkas_names(name: str, kind: Kind) -> None:
    parsed = parse_name(name)
    assert parsed is not None
    assert parsed.kind is kind


@pytest.mark.parametrize(
    "name", ["lost+found", "-0", "t-", "t-x", "t-²", "t", "", "remote-log-index-cache", "t-1-stray"]
)
def test_what_is_no_partitions(name: str) -> None:
    assert parse_name(name) is None


@given(st.text(max_size=300))
def test_no_name_is_too_strange(name: str) -> None:
    parse_name(name)
