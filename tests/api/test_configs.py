"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping

import pytest

from kafkad.api import describe_configs
from kafkad.config import Config as Settings
from kafkad.config import Source
from kafkad.config.describe import ConfigRow, describe_topic
from kafkad.errors import ErrorCode, KafkaError
from kafkad.meta.store import ConnectionLoss, Create, Set
from kafkad.meta.znodes import Config, ConfigChange
from kafkad.wire.messages import alter_configs as whole
from kafkad.wire.messages import incremental_alter_configs as single
from kafkad.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafkad.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from kafkad.wire.messages.list_config_resources import ListConfigResourcesRequest
from kafkad.wire.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tests.one_broker import OneBroker

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
INVALID_CONFIG, INVALID_REQUEST = ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
REPLICAS = "follower.replication.throttled.replicas"


@pytest.fixture
def with_topic(broker: OneBroker) -> OneBroker:
    broker.create("t", configs={"retention.ms": "7200000"})
    return broker


@pytest.fixture
def levels() -> Iterator[None]:
    """Levels as they were, whatever a test sets."""
    names = ["kafkad", "kafkad.cluster.configs"]
    before = {name: logging.getLogger(name).level for name in names}
    logging.getLogger("kafkad").setLevel(logging.INFO)
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def describe(
    broker: OneBroker, kind: int, name: str, *keys: str, version: int = 4, synonyms: bool = False, docs: bool = False
) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    request = DescribeConfigsRequest(
        resources=[resource],
        include_synonyms=synonyms and version >= 1,
        include_documentation=docs and version >= 3,
    )
    [result] = broker.ask(request, version).results
    assert isinstance(result, DescribeConfigsResult)
    return result


def setting(broker: OneBroker, kind: int, name: str, key: str, version: int = 4) -> DescribeConfigsResourceResult:
    [found] = describe(broker, kind, name, key, version=version, synonyms=True, docs=True).configs
    return found


@pytest.mark.parametrize("version", range(5))
def test_a_topic_is_described(with_topic: OneBroker, version: int) -> None:
    own = setting(with_topic, TOPIC, "t", "retention.ms", version)
    common = setting(with_topic, TOPIC, "t", "segment.bytes", version)
    assert (own.value, common.value) == ("7200000", "1073741824")
    assert not (own.read_only or own.is_sensitive)
    if version == 0:
        assert (own.is_default, common.is_default) == (False, True)
    else:
        assert (own.config_source, common.config_source) == (1, 5)
        assert [(s.name, s.value, s.source) for s in common.synonyms] == [("log.segment.bytes", "1073741824", 5)]
        assert (own.synonyms[0].name, own.synonyms[0].source) == ("retention.ms", 1)
    if version >= 3:
        assert (own.config_type, common.config_type) == (5, 3)
        assert own.documentation


def test_no_keys_and_an_empty_list_mean_all(with_topic: OneBroker) -> None:
    everything = describe(with_topic, TOPIC, "t")
    assert len(everything.configs) > 30
    assert everything.configs[0].documentation is None
    empty = DescribeConfigsResource(resource_type=TOPIC, resource_name="t", configuration_keys=[])
    [result] = with_topic.ask(DescribeConfigsRequest(resources=[empty]), 4).results
    assert len(result.configs) == len(everything.configs)


@pytest.mark.parametrize("kind", [TOPIC, BROKER])
def test_a_resource_that_is_named_twice_is_answered_once_for_all_that_it_is_named_with(
    with_topic: OneBroker, kind: int
) -> None:
    name = "t" if kind == TOPIC else "1"
    first, second = [config.name for config in describe(with_topic, kind, name).configs[:2]]

    def found(*asked: list[str] | None) -> list[list[str]]:
        resources = [
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys) for keys in asked
        ]
        results = with_topic.ask(DescribeConfigsRequest(resources=resources), 4).results
        return [[config.name for config in result.configs] for result in results]

    assert found([second], [first], [second]) == [[first, second]]
    everything = found(None)
    assert found([first], None, [second]) == found([], [first]) == everything


def test_topics_that_override_the_same_are_described_once(
    with_topic: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_topic.create("u", configs={"retention.ms": "7200000"})
    with_topic.create("v", configs={"retention.ms": "1"})
    described = []

    def counted(settings: Settings, overrides: Mapping[str, str]) -> Iterator[ConfigRow]:
        described.append(overrides["retention.ms"])
        return describe_topic(settings, overrides)

    monkeypatch.setattr(describe_configs, "describe_topic", counted)
    keys = ["retention.ms"]
    asked = [
        DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=keys) for name in "tuv"
    ]
    asked.append(DescribeConfigsResource(resource_type=TOPIC, resource_name="w", configuration_keys=keys))
    results = with_topic.ask(DescribeConfigsRequest(resources=asked), 4).results
    assert [[config.value for config in result.configs] for result in results] == [["7200000"]] * 2 + [["1"], []]
    assert [result.error_code for result in results] == [0, 0, 0, UNKNOWN]
    assert described == ["7200000", "1"]


def test_keys_that_are_no_settings_are_left_out(with_topic: OneBroker) -> None:
    result = describe(with_topic, TOPIC, "t", "bogus", "retention.ms")
    assert (result.error_code, [config.name for config in result.configs]) == (0, ["retention.ms"])


def test_a_broker_is_described(broker: OneBroker) -> None:
    found = setting(broker, BROKER, "1", "log.segment.bytes")
    assert (found.value, found.config_source, found.read_only) == ("1073741824", 5, False)
    assert setting(broker, BROKER, "1", "broker.id").config_source == 4
    assert setting(broker, BROKER, "1", "broker.id").read_only
    assert setting(broker, BROKER, "1", "ssl.keystore.password").is_sensitive
    assert describe(broker, BROKER, "").configs == []


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "missing", UNKNOWN),
        (TOPIC, "b ad", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "9", INVALID_REQUEST),
        (BROKER, "x", INVALID_REQUEST),
        (LOGGER, "", INVALID_REQUEST),
        (LOGGER, "9", INVALID_REQUEST),
        (METRICS, "x", INVALID_REQUEST),
        (GROUP, "x", INVALID_REQUEST),
        (0, "x", INVALID_REQUEST),
    ],
)
def test_what_has_no_settings_here(broker: OneBroker, kind: int, name: str, code: ErrorCode) -> None:
    result = describe(broker, kind, name)
    assert (result.error_code, result.configs) == (code, [])
    assert result.error_message is not None


def replace(broker: OneBroker, kind: int, name: str, *entries: tuple[str, str | None], validate: bool = False) -> int:
    configs = [whole.AlterableConfig(name=key, value=value) for key, value in entries]
    request = whole.AlterConfigsRequest(
        resources=[whole.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)],
        validate_only=validate,
    )
    codes = set()
    for version in range(3):
        [response] = broker.ask(request, version).responses
        assert (response.resource_type, response.resource_name) == (kind, name)
        assert (response.error_code == 0) == (response.error_message is None)
        codes.add(response.error_code)
    [code] = codes
    return int(code)


def test_the_settings_of_a_topic_are_replaced(with_topic: OneBroker) -> None:
    assert replace(with_topic, TOPIC, "t", ("segment.bytes", "1048576")) == 0
    assert setting(with_topic, TOPIC, "t", "segment.bytes").value == "1048576"
    assert setting(with_topic, TOPIC, "t", "retention.ms").config_source == 5
    assert with_topic.replicas.leader("t", 0).log.config.segment_bytes == 1_048_576


def test_settings_that_are_only_judged(with_topic: OneBroker) -> None:
    assert replace(with_topic, TOPIC, "t", ("segment.bytes", "1048576"), validate=True) == 0
    assert setting(with_topic, TOPIC, "t", "segment.bytes").config_source == 5


@pytest.mark.parametrize(
    ("kind", "name", "entries", "code"),
    [
        (TOPIC, "t", [("retention.ms", "x")], INVALID_CONFIG),
        (TOPIC, "t", [("bogus", "1")], INVALID_CONFIG),
        (TOPIC, "t", [("retention.ms", None)], INVALID_REQUEST),
        (TOPIC, "t", [("retention.ms", "1"), ("retention.ms", "2")], INVALID_REQUEST),
        (TOPIC, "missing", [], UNKNOWN),
        (BROKER, "1", [("broker.id", "5")], INVALID_REQUEST),
        (BROKER, "1", [("log.segment.bytes", "x")], INVALID_REQUEST),
        (BROKER, "9", [("log.segment.bytes", "1048576")], INVALID_REQUEST),
        (BROKER, "x", [], INVALID_REQUEST),
        (LOGGER, "1", [("root", "INFO")], INVALID_REQUEST),
        (METRICS, "x", [], INVALID_REQUEST),
        (0, "x", [], INVALID_REQUEST),
    ],
)
def test_settings_that_cannot_be_replaced(
    with_topic: OneBroker, kind: int, name: str, entries: list[tuple[str, str | None]], code: ErrorCode
) -> None:
    assert replace(with_topic, kind, name, *entries) == code
    assert setting(with_topic, TOPIC, "t", "retention.ms").value == "7200000"


def test_a_broker_goes_by_its_new_settings_at_once(with_topic: OneBroker) -> None:
    assert replace(with_topic, BROKER, "", ("log.segment.bytes", "2097152")) == 0
    assert setting(with_topic, BROKER, "1", "log.segment.bytes").config_source == 3
    assert with_topic.replicas.leader("t", 0).log.config.segment_bytes == 2_097_152
    assert replace(with_topic, BROKER, "1", ("log.segment.bytes", "4194304")) == 0
    found = setting(with_topic, BROKER, "1", "log.segment.bytes")
    assert [(synonym.value, synonym.source) for synonym in found.synonyms] == [
        ("4194304", 2),
        ("2097152", 3),
        ("1073741824", 5),
    ]
    assert [config.name for config in describe(with_topic, BROKER, "").configs] == ["log.segment.bytes"]
    assert with_topic.replicas.leader("t", 0).log.config.segment_bytes == 4_194_304


def change(
    broker: OneBroker, kind: int, name: str, *entries: tuple[str, int, str | None], validate: bool = False
) -> int:
    configs = [
        single.AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in entries
    ]
    request = single.IncrementalAlterConfigsRequest(
        resources=[single.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)],
        validate_only=validate,
    )
    [response] = broker.ask(request, 1).responses
    assert (response.error_code == 0) == (response.error_message is None)
    code: int = response.error_code
    return code


def test_single_settings_of_a_topic_change(with_topic: OneBroker) -> None:
    assert change(with_topic, TOPIC, "t", ("segment.bytes", SET, "1048576"), ("retention.ms", DELETE, None)) == 0
    assert setting(with_topic, TOPIC, "t", "segment.bytes").value == "1048576"
    assert setting(with_topic, TOPIC, "t", "retention.ms").config_source == 5
    assert change(with_topic, TOPIC, "t", ("cleanup.policy", APPEND, "compact")) == 0
    assert setting(with_topic, TOPIC, "t", "cleanup.policy").value == "delete,compact"
    assert change(with_topic, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete")) == 0
    assert setting(with_topic, TOPIC, "t", "cleanup.policy").value == "compact"


def test_a_list_does_not_outgrow_what_an_answer_can_say(with_topic: OneBroker) -> None:
    name, pieces = REPLICAS, [",".join(f"{n}:1" for n in range(k, k + 3_000)) for k in (0, 3_000, 6_000)]
    codes = [change(with_topic, TOPIC, "t", (name, APPEND, piece)) for piece in pieces]
    assert codes == [0, INVALID_CONFIG, INVALID_CONFIG]
    assert setting(with_topic, TOPIC, "t", name).value == pieces[0]


def test_what_no_answer_can_say_leaves_only_its_topic_without_one(with_topic: OneBroker) -> None:
    """Kafka's brokers let a list grow beyond that."""
    with_topic.create("u")
    too_long = ",".join(f"{n}:1" for n in range(6_000))
    entity = Config.entity_path(Config.TOPICS, "t")
    write = Set(Config.path(entity), Config.encode({"retention.ms": "7", REPLICAS: too_long}))
    note = Create(ConfigChange.PREFIX, ConfigChange.encode(entity), sequential=True)
    with_topic.run(with_topic.store.multi([write, note]))
    with_topic.settle()
    assert describe(with_topic, TOPIC, "t").error_code == INVALID_CONFIG
    assert "clients take at most 32767" in describe(with_topic, TOPIC, "t").error_message
    assert setting(with_topic, TOPIC, "t", "retention.ms").value == "7"
    assert describe(with_topic, TOPIC, "u").error_code == 0
    assert change(with_topic, TOPIC, "t", (REPLICAS, DELETE, None)) == 0
    assert describe(with_topic, TOPIC, "t").error_code == 0


def test_single_settings_that_are_only_judged(with_topic: OneBroker) -> None:
    assert change(with_topic, TOPIC, "t", ("retention.ms", DELETE, None), validate=True) == 0
    assert setting(with_topic, TOPIC, "t", "retention.ms").value == "7200000"


@pytest.mark.parametrize(
    ("kind", "name", "entries", "code"),
    [
        (TOPIC, "t", [("retention.ms", SET, "x")], INVALID_CONFIG),
        (TOPIC, "t", [("retention.ms", SET, None)], INVALID_REQUEST),
        (TOPIC, "t", [("retention.ms", APPEND, "1")], INVALID_CONFIG),
        (TOPIC, "t", [("retention.ms", 7, "1")], INVALID_REQUEST),
        (TOPIC, "t", [("retention.ms", SET, "1"), ("retention.ms", SET, "2")], INVALID_REQUEST),
        (TOPIC, "t", [("bogus", SET, "1")], INVALID_CONFIG),
        (TOPIC, "missing", [], UNKNOWN),
        (BROKER, "1", [("broker.id", SET, "7")], INVALID_REQUEST),
        (BROKER, "9", [("log.segment.bytes", DELETE, None)], INVALID_REQUEST),
        (METRICS, "x", [("metrics", SET, "a")], INVALID_REQUEST),
        (0, "x", [], INVALID_REQUEST),
    ],
)
def test_single_settings_that_cannot_change(
    with_topic: OneBroker, kind: int, name: str, entries: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    assert change(with_topic, kind, name, *entries) == code
    assert setting(with_topic, TOPIC, "t", "retention.ms").value == "7200000"


def test_a_topic_may_not_contradict_its_broker(with_topic: OneBroker) -> None:
    assert change(with_topic, BROKER, "", ("log.cleaner.min.compaction.lag.ms", SET, "10000")) == 0
    assert change(with_topic, TOPIC, "t", ("max.compaction.lag.ms", SET, "5000")) == INVALID_CONFIG
    new = CreatableTopic(name="new", num_partitions=1, replication_factor=1)
    new.configs = [CreatableTopicConfig(name="max.compaction.lag.ms", value="5000")]
    [answer] = with_topic.ask(CreateTopicsRequest(topics=[new], timeout_ms=5000), 7).topics
    assert answer.error_code == INVALID_CONFIG
    assert change(with_topic, TOPIC, "t", ("max.compaction.lag.ms", SET, "10000")) == 0


def test_a_resource_is_altered_once_in_a_request(with_topic: OneBroker) -> None:
    twice = [single.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[]) for _ in range(2)]
    responses = with_topic.ask(single.IncrementalAlterConfigsRequest(resources=twice), 0).responses
    assert [response.error_code for response in responses] == [INVALID_REQUEST] * 2


@pytest.mark.usefixtures("levels")
def test_loggers_change_their_levels(broker: OneBroker) -> None:
    name = "kafkad.cluster.configs"
    root = setting(broker, LOGGER, "1", "root")
    assert (root.value, root.config_source, root.read_only) == ("INFO", 6, False)
    assert change(broker, LOGGER, "1", (name, SET, "DEBUG")) == 0
    assert setting(broker, LOGGER, "1", name).value == "DEBUG"
    assert change(broker, LOGGER, "1", (name, SET, "ERROR"), validate=True) == 0
    assert setting(broker, LOGGER, "1", name).value == "DEBUG"
    assert change(broker, LOGGER, "1", (name, DELETE, None), ("root", SET, "WARN")) == 0
    assert setting(broker, LOGGER, "1", name).value == "WARN"


@pytest.mark.usefixtures("levels")
@pytest.mark.parametrize(
    ("name", "entry", "code"),
    [
        ("1", ("root", DELETE, None), INVALID_REQUEST),
        ("1", ("root", SET, "BOGUS"), INVALID_CONFIG),
        ("1", ("root", SET, None), INVALID_REQUEST),
        ("1", ("root", APPEND, "DEBUG"), INVALID_REQUEST),
        ("1", ("no.such.logger", SET, "INFO"), INVALID_CONFIG),
        ("9", ("root", SET, "INFO"), INVALID_REQUEST),
        ("", ("root", SET, "INFO"), INVALID_REQUEST),
    ],
)
def test_levels_that_cannot_be(
    broker: OneBroker, name: str, entry: tuple[str, int, str | None], code: ErrorCode
) -> None:
    assert change(broker, LOGGER, name, ("kafkad.cluster.configs", SET, "ERROR"), entry) == code
    assert setting(broker, LOGGER, "1", "kafkad.cluster.configs").value == "INFO", "all of them or none"


def test_what_has_settings_is_listed(with_topic: OneBroker) -> None:
    def listed(version: int, *types: int) -> set[tuple[int, str]]:
        response = with_topic.ask(ListConfigResourcesRequest(resource_types=list(types)), version)
        return {(resource.resource_type, resource.resource_name) for resource in response.config_resources}

    assert listed(1) == {(TOPIC, "t"), (BROKER, "1"), (LOGGER, "1")}
    assert listed(1, TOPIC, METRICS) == {(TOPIC, "t")}
    assert listed(0) == set()
    with pytest.raises(KafkaError) as refusal:
        listed(1, 3)
    assert refusal.value.code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("kind", "name", "remedy"),
    [
        (GROUP, "g", "those of the broker named group.* hold for all groups"),
        (METRICS, "m", "its own are at http.listener"),
        (99, "x", "ask for those of topics (2)"),
    ],
)
def test_settings_that_this_broker_does_not_keep(broker: OneBroker, kind: int, name: str, remedy: str) -> None:
    result = describe(broker, kind, name)
    assert result.error_code == INVALID_REQUEST
    assert remedy in (result.error_message or "")


@pytest.mark.parametrize(
    ("kind", "name", "problem"),
    [
        (LOGGER, "", "Broker id must not be empty: this is broker 1"),
        (LOGGER, "x", "Broker id must be an integer, but it is: x"),
        (BROKER, "x", "Broker id must be an integer, but it is: x"),
        (BROKER, "1\N{ARABIC-INDIC DIGIT ONE}", "Broker id must be an integer, but it is: 1\N{ARABIC-INDIC DIGIT ONE}"),
        pytest.param(BROKER, "1" * 5_000, "Broker id must be an integer, but it is: 111", id="many digits"),
        (BROKER, "-1", "Unexpected broker id, expected 1, but received -1"),
        (BROKER, "7", "ask broker 7 itself"),
    ],
)
def test_what_is_wrong_with_the_name_of_a_broker(broker: OneBroker, kind: int, name: str, problem: str) -> None:
    altered = single.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[])
    [refused] = broker.ask(single.IncrementalAlterConfigsRequest(resources=[altered]), 1).responses
    for result in (describe(broker, kind, name), refused):
        assert result.error_code == INVALID_REQUEST
        assert problem in (result.error_message or "")


def test_the_name_of_a_broker_is_its_id_however_it_is_written(broker: OneBroker) -> None:
    assert change(broker, BROKER, "01", ("log.cleaner.threads", 0, "2")) == 0
    for name in ("1", "+1", "01"):
        assert describe(broker, LOGGER, name).error_code == 0
        [setting] = describe(broker, BROKER, name, "log.cleaner.threads").configs
        assert setting.value == "2"


@pytest.fixture(params=["refuses", "does not answer"])
def away(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[OneBroker], None]:
    """Takes the store of a broker away."""

    async def get_many(paths: object) -> None:
        if request.param == "refuses":
            raise ConnectionLoss("/config")
        await asyncio.Event().wait()

    return lambda broker: monkeypatch.setattr(broker.store, "get_many", get_many)


@pytest.fixture
def with_topic_elsewhere(broker: OneBroker) -> OneBroker:
    """Made, with a setting of its own, while this broker was running; only broker 2 holds it."""
    state = UpdateMetadataPartitionState(partition_index=0, leader=2, leader_epoch=0, isr=[2], replicas=[2])
    topic = UpdateMetadataTopicState(topic_name="far", topic_id=b"f" * 16, partition_states=[state])
    broker.replicas.metadata.apply(UpdateMetadataRequest(controller_id=2, topic_states=[topic]))
    broker.run(broker.store.create(Config.path("topics/far"), Config.encode({"min.insync.replicas": "2"})))
    return broker


def test_settings_of_a_topic_that_only_others_hold(with_topic_elsewhere: OneBroker) -> None:
    found = setting(with_topic_elsewhere, TOPIC, "far", "min.insync.replicas")
    assert (found.value, found.config_source) == ("2", Source.DYNAMIC_TOPIC_CONFIG)


def test_settings_of_a_topic_elsewhere_are_not_made_up_while_the_store_is_away(
    with_topic_elsewhere: OneBroker, away: Callable[[OneBroker], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkad.api.describe_configs._PATIENCE_MS", 0)
    away(with_topic_elsewhere)
    asked = [
        DescribeConfigsResource(resource_type=kind, resource_name=name)
        for kind, name in ((TOPIC, "far"), (BROKER, "1"))
    ]
    [answer] = with_topic_elsewhere.ask_together((DescribeConfigsRequest(resources=asked), 4))
    far, broker = answer.results
    assert (far.error_code, far.configs) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
    assert "metadata store" in far.error_message
    assert broker.error_code == ErrorCode.NONE
    assert broker.configs


def test_many_topics_are_listed_in_pieces(broker: OneBroker) -> None:
    for number in range(5):
        broker.create(f"t{number}")
    assert broker.stops(ListConfigResourcesRequest(resource_types=[2]), 1) >= 5


@pytest.mark.parametrize(("kind", "name"), [(BROKER, "1"), (TOPIC, "t")])
def test_many_settings_are_described_in_pieces(with_topic: OneBroker, kind: int, name: str) -> None:
    asked = DescribeConfigsResource(resource_type=kind, resource_name=name)
    assert with_topic.stops(DescribeConfigsRequest(resources=[asked]), 4) >= 30
