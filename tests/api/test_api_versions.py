from __future__ import annotations

import pytest

from kafkad.api.api_versions import unsupported
from kafkad.api.routes import BY_KEY, ROUTES
from kafkad.errors import ErrorCode, KafkaError
from kafkad.meta.znodes import Features
from kafkad.wire.apis import APIS
from kafkad.wire.messages.api_versions import ApiVersionsRequest, FinalizedFeatureKey
from tests.one_broker import OneBroker

SOFTWARE = ApiVersionsRequest(client_software_name="apache-kafka-java", client_software_version="3.9.2")


@pytest.mark.parametrize("version", range(5))
def test_every_route_is_told(broker: OneBroker, version: int) -> None:
    response = broker.ask(SOFTWARE if version >= 3 else ApiVersionsRequest(), version)
    assert response.error_code == 0
    told = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    assert told == {route.key: route.advertised for route in ROUTES}
    assert told[0] == (0, 13), "librdkafka compresses only when Produce begins at 0"


def test_routes_are_named_as_kafka_names_them() -> None:
    assert {route.key: route.name for route in ROUTES} == {route.key: APIS[route.key].name for route in ROUTES}
    assert len(BY_KEY) == len(ROUTES)


def test_the_client_is_remembered(broker: OneBroker) -> None:
    broker.ask(SOFTWARE, 4)
    assert broker.connection.peer.software == ("apache-kafka-java", "3.9.2")


def test_of_a_long_name_the_beginning_is_remembered(broker: OneBroker) -> None:
    long = ApiVersionsRequest(client_software_name="n" * 32_000, client_software_version="1" * 32_000)
    assert broker.ask(long, 4).error_code == 0
    assert broker.connection.peer.software == ("n" * 255, "1" * 255)


@pytest.mark.parametrize(
    ("name", "version"), [("", ""), ("a b", "1"), ("a", "-1"), ("a", "1!"), (".a", "1"), ("a\ufffd", "1")]
)
def test_a_client_that_names_itself_badly_is_refused(broker: OneBroker, name: str, version: str) -> None:
    with pytest.raises(KafkaError) as refusal:
        broker.ask(ApiVersionsRequest(client_software_name=name, client_software_version=version), 3)
    assert refusal.value.code == ErrorCode.INVALID_REQUEST


def test_finalized_features_are_those_of_the_store(broker: OneBroker) -> None:
    before = broker.ask(SOFTWARE, 3)
    transactions = FinalizedFeatureKey(name="transaction.version", max_version_level=2, min_version_level=2)
    assert (before.finalized_features_epoch, before.finalized_features) == (1, [transactions])
    broker.run(broker.store.set(Features.path(), Features({"group.version": 1}).encode()))
    broker.settle()
    after = broker.ask(SOFTWARE, 3)
    assert after.finalized_features_epoch == 2
    assert after.finalized_features == [
        FinalizedFeatureKey(name="group.version", max_version_level=1, min_version_level=1),
        transactions,
    ]


def test_an_unknown_version_is_answered_with_the_known_ones() -> None:
    response = unsupported(BY_KEY[18])
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(api.api_key, api.min_version, api.max_version) for api in response.api_keys] == [(18, 0, 4)]
