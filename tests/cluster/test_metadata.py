"""A broker's knowledge of topics, and how long results that were worked out from it are valid."""

from __future__ import annotations

import pytest

from kafkad.cluster import metadata
from kafkad.cluster.metadata import MetadataCache
from kafkad.errors import ErrorCode, KafkaError
from kafkad.model import ALL_TOPICS, LEADER_DURING_DELETE
from kafkad.names import NO_TOPIC_ID
from kafkad.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from kafkad.wire.schema import encode


def update(
    topic: str, *, leader: int = 1, index: int = 0, ident: bytes = b"", brokers: int = 1
) -> UpdateMetadataRequest:
    state = UpdateMetadataPartitionState(partition_index=index, leader=leader, leader_epoch=3, isr=[1], replicas=[1])
    topic_id = (ident or topic.encode()).ljust(16, b"\1")
    return UpdateMetadataRequest(
        topic_states=[UpdateMetadataTopicState(topic_name=topic, topic_id=topic_id, partition_states=[state])],
        live_brokers=[UpdateMetadataBroker(id=broker) for broker in range(brokers)],
    )


def test_what_was_worked_out_of_a_topic_goes_when_that_topic_changes() -> None:
    cache = MetadataCache()
    cache.apply(update("a"))
    cache.apply(update("b"))
    for listener in ("inside", "outside"):
        cache.derived(listener).update(a=1, b=2)
    cache.apply(update("a", leader=2))
    assert [cache.derived(listener) for listener in ("inside", "outside")] == [{"b": 2}, {"b": 2}]
    cache.apply(update("b", leader=LEADER_DURING_DELETE))
    assert cache.derived("inside") == {}
    cache.derived("inside")["c"] = 3
    cache.apply(update("a", brokers=2))
    assert cache.derived("inside") == {}, "who can be reached has changed"


def test_who_wants_to_know_is_told_of_topics_that_go() -> None:
    cache = MetadataCache()
    gone: list[str] = []
    cache.on_topic_gone.append(gone.append)
    for request in (update("a"), update("a", leader=2), update("a", brokers=2), update("a", index=1)):
        assert cache.apply(request) == []
    assert gone == []
    cache.apply(update("a", ident=b"another"))
    assert gone == ["a"], "made anew under the same name"
    deleted = update("a", leader=LEADER_DURING_DELETE, ident=b"another")
    assert [cache.apply(deleted), cache.apply(deleted)] == [["a"], []]
    assert gone == ["a", "a"]
    assert cache.id_of("a") is None


def test_which_topic_was_deleted_last_is_known_of_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "_MOST_DELETED", 2)
    cache = MetadataCache()
    for name in ("a", "a", "b", "c"):
        cache.apply(update(name, leader=LEADER_DURING_DELETE))
    ids = [cache.last_id_of(name) for name in "abc"]
    assert ids == [NO_TOPIC_ID, b"b".ljust(16, b"\1"), b"c".ljust(16, b"\1")]
    cache.apply(update("c", ident=b"another"))
    assert cache.last_id_of("c") == b"another".ljust(16, b"\1")


def test_an_update_that_names_all_topics_ends_the_others() -> None:
    """They were deleted while this broker was away, and the next controller never knew of them."""
    cache = MetadataCache()
    for name in ("a", "b", "c"):
        cache.apply(update(name))
    cache.derived("inside").update(a=1, b=2)
    told: list[str] = []
    cache.on_topic_gone.append(told.append)
    of_all = update("b")
    of_all.type = ALL_TOPICS
    assert sorted(cache.apply(of_all)) == sorted(told) == ["a", "c"]
    assert (list(cache.topics), cache.derived("inside")) == (["b"], {})
    assert (cache.id_of("a"), cache.name_of(b"a".ljust(16, b"\1"))) == (None, None)
    nothing = UpdateMetadataRequest(type=ALL_TOPICS)
    assert (cache.apply(nothing), cache.topics) == (["b"], {})


def test_who_does_not_know_of_such_updates_is_sent_the_rest() -> None:
    of_all = update("a")
    of_all.type = ALL_TOPICS
    assert encode(of_all, 7) == encode(update("a"), 7)
    assert encode(of_all, 8) != encode(update("a"), 8)


def test_that_there_is_no_topic_is_news_as_well() -> None:
    cache = MetadataCache()
    cache.expects_topics = True
    cache.apply(UpdateMetadataRequest())
    assert not cache.is_here.is_set()
    cache.apply(UpdateMetadataRequest(type=ALL_TOPICS))
    assert cache.is_here.is_set()


def test_no_topic_is_denied_before_metadata_is_here() -> None:
    """A consumer without committed offsets gives up at the first word of an unknown topic (librdkafka)."""
    cache = MetadataCache()
    cache.expects_topics = True
    introduction = UpdateMetadataRequest(topic_states=[], live_brokers=[UpdateMetadataBroker(id=1)])
    cache.apply(introduction)
    with pytest.raises(KafkaError) as early:
        cache.partition("b", 0)
    assert (early.value.code, cache.unknown(ErrorCode.UNKNOWN_TOPIC_ID).code) == (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )
    cache.apply(update("a"))
    for topic, index in (("b", 0), ("a", 1)):
        with pytest.raises(KafkaError) as late:
            cache.partition(topic, index)
        assert late.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert cache.unknown(ErrorCode.UNKNOWN_TOPIC_ID).code == ErrorCode.UNKNOWN_TOPIC_ID
