"""FindCoordinator, as Kafka 3.9.2 answered the same questions, but for what waits for the topic to be made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkad.errors import ErrorCode
from kafkad.meta.znodes import Config
from kafkad.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kafkad.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.one_broker import OneBroker

GROUPS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    """Makes its topics with few partitions, which takes an eighth of the time."""
    started = OneBroker(tmp_path, "offsets.topic.num.partitions=3")
    yield started
    started.stop()


def ask(broker: OneBroker, version: int, *keys: str, kind: int = 0) -> list[tuple[str, int, str, int, int, str | None]]:
    """(key, node, host, port, code, message) for each."""
    if version >= 4:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=list(keys))
    else:
        request = FindCoordinatorRequest(key=keys[0], key_type=kind)
    answer = broker.ask(request, version)
    assert isinstance(answer, FindCoordinatorResponse)
    if version >= 4:
        return [(c.key, c.node_id, c.host, c.port, c.error_code, c.error_message) for c in answer.coordinators]
    return [(keys[0], answer.node_id, answer.host, answer.port, answer.error_code, answer.error_message)]


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("group", ["", "g", "gruppe é"])
def test_the_first_to_ask_makes_the_topic_and_is_told_who_leads(broker: OneBroker, version: int, group: str) -> None:
    message = "" if version >= 4 or not version else "NONE"
    assert ask(broker, version, group)[0][:5] == (group, 1, "inside", 9092, 0)
    assert version == 0 or ask(broker, version, group)[0][5] == message
    assert len(broker.replicas.metadata.topics[GROUPS].partitions) == 3


def test_the_topic_has_fifty_partitions_unless_the_settings_say_otherwise(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path)
    ask(broker, 4, "g")
    assert len(broker.replicas.metadata.topics[GROUPS].partitions) == 50
    broker.stop()


def test_the_topic_is_kafkas(broker: OneBroker) -> None:
    ask(broker, 0, "g")
    stored, _ = broker.run(broker.store.get(Config.path(Config.entity_path(Config.TOPICS, GROUPS))))
    assert stored == (
        b'{"version":1,"config":{"compression.type":"producer","cleanup.policy":"compact","segment.bytes":"104857600"}}'
    )


def test_many_groups_are_answered_in_their_order(broker: OneBroker) -> None:
    found = ask(broker, 4, "g", "", "g", "h")
    assert [answer[0] for answer in found] == ["g", "", "g", "h"]
    assert {answer[1:] for answer in found} == {(1, "inside", 9092, 0, "")}
    assert ask(broker, 4) == []


def test_a_client_is_told_the_address_of_its_listener(broker: OneBroker) -> None:
    broker.connection.peer.listener = "OUTSIDE"
    assert ask(broker, 4, "g")[0][2:4] == ("outside", 19092)
    broker.connection.peer.listener = "ANOTHER"
    assert ask(broker, 4, "g")[0][1:5] == (-1, "", -1, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def test_a_group_that_nobody_coordinates_now_does_not_keep_others_waiting(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, "offsets.topic.num.partitions=2")
    ask(broker, 4, "a")
    state = broker.replicas.metadata.topics[GROUPS].partitions
    coordination = broker.context.group_coordination
    lost = next(key for key in "bcd" if coordination.partition_for(key) != coordination.partition_for("a"))
    del state[coordination.partition_for(lost)]
    assert [(found[0], found[1], found[4]) for found in ask(broker, 4, lost, "a")] == [
        (lost, -1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ("a", 1, ErrorCode.NONE),
    ]
    broker.stop()


@pytest.mark.parametrize("version", range(1, 7))
def test_transactions_have_a_coordinator_of_their_own(tmp_path: Path, version: int) -> None:
    broker = OneBroker(tmp_path, "transaction.state.log.num.partitions=1")
    for key in ("t", ""):
        [(_, node, host, port, code, _)] = ask(broker, version, key, kind=1)
        assert (node, host, port, code) == (1, "inside", 9092, ErrorCode.NONE)
    assert list(broker.replicas.metadata.topics) == [TRANSACTIONS]
    broker.stop()


@pytest.mark.parametrize(
    ("version", "kind", "code", "has_message"),
    [
        (1, 2, ErrorCode.INVALID_REQUEST, True),
        (3, 9, ErrorCode.INVALID_REQUEST, True),
        (4, 2, ErrorCode.INVALID_REQUEST, False),
        (4, 9, ErrorCode.INVALID_REQUEST, True),
        (5, 2, ErrorCode.INVALID_REQUEST, False),
        (6, 2, ErrorCode.COORDINATOR_NOT_AVAILABLE, False),
        (6, -1, ErrorCode.INVALID_REQUEST, True),
    ],
)
def test_other_kinds_of_keys_are_refused(
    broker: OneBroker, version: int, kind: int, code: ErrorCode, has_message: bool
) -> None:
    [(_, node, host, port, found, message)] = ask(broker, version, "k", kind=kind)
    assert (node, host, port, found) == (-1, "", -1, code)
    assert bool(message) == has_message
    assert GROUPS not in broker.replicas.metadata.topics


@pytest.mark.parametrize(("version", "words"), [(0, ""), (3, "The coordinator is not available."), (4, ""), (6, "")])
def test_more_replicas_than_there_are_brokers_are_refused_when_somebody_asked_for_them(
    tmp_path: Path, version: int, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The reason is in the log."""
    broker = OneBroker(tmp_path, "offsets.topic.replication.factor=3")
    for _ in range(2):
        [(_, *answer)] = ask(broker, version, "g")
        assert answer == [-1, "", -1, ErrorCode.COORDINATOR_NOT_AVAILABLE, words]
    broker.stop()
    assert [record.message for record in caplog.records if "cannot create" in record.message] == [
        "cannot create __consumer_offsets: Replication factor: 3 larger than available brokers: 1."
    ]


def test_the_settings_of_the_topic_are_obeyed(tmp_path: Path) -> None:
    settings = ("offsets.topic.num.partitions=3", "offsets.topic.segment.bytes=1000000")
    broker = OneBroker(tmp_path, *settings)
    ask(broker, 0, "g")
    assert len(broker.replicas.metadata.topics[GROUPS].partitions) == 3
    config = broker.replicas.leader(GROUPS, 0).log.config
    assert (config.segment_bytes, config.compacted) == (1_000_000, True)
    broker.stop()


@pytest.mark.parametrize(("topic", "partitions"), [(GROUPS, 4), (TRANSACTIONS, 2)])
def test_who_asks_for_an_internal_topic_by_name_gets_the_same(tmp_path: Path, topic: str, partitions: int) -> None:
    settings = ("offsets.topic.num.partitions=4", "transaction.state.log.num.partitions=2")
    broker = OneBroker(tmp_path, *settings)
    [found] = broker.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 9).topics
    assert (found.error_code, found.is_internal, len(found.partitions)) == (0, True, partitions)
    config = broker.replicas.leader(topic, 0).log.config
    assert config.compacted
    assert (config.min_insync_replicas, config.compression_type) == (
        (2, "uncompressed") if topic == TRANSACTIONS else (1, "producer")
    )
    broker.stop()


def test_many_keys_are_looked_at_in_pieces(broker: OneBroker) -> None:
    keys = [f"g{number}" for number in range(100)]
    assert broker.stops(FindCoordinatorRequest(key_type=0, coordinator_keys=keys), 4) >= 5
