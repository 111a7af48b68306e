"""DescribeClientQuotas and AlterClientQuotas: as Kafka answered them, but where we mean to do better."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafkad.cluster.entities import Overrides
from kafkad.errors import ErrorCode
from kafkad.model import DEFAULT, Entity
from kafkad.wire.apis import request_class, response_class
from kafkad.wire.frames import read_request_header, read_response_header
from kafkad.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    OpData,
    RequestEntryData,
)
from kafkad.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from kafkad.wire.schema import decode
from tests.one_broker import OneBroker

GOLDEN = Path(__file__).parents[1] / "golden" / "security" / "validation.jsonl"
BETTER = {"zero", "nan", "scram key", "match type 3", "match type 0 null"}
"""Kafka takes byte rates of 0 and then does not throttle, and answers the others with an unexpected error."""
INVALID = ErrorCode.INVALID_REQUEST


def recorded() -> list[dict[str, Any]]:
    cases = map(json.loads, GOLDEN.read_text().splitlines())
    return [case for case in cases if case["key"] in (48, 49)]


def outline(message: Any) -> Any:
    """Kafka's order is that of its hash maps, and in one text it prints the name as ZooKeeper has it."""
    if isinstance(message, list):
        return sorted((outline(each) for each in message), key=repr)
    if hasattr(message, "__schema__"):
        return {field: outline(getattr(message, field)) for field in message.__slots__}
    return message.replace("%20", " ") if isinstance(message, str) else message


def test_the_requests_that_kafka_was_asked(broker: OneBroker) -> None:
    """In their order: what one wrote, the next ones read."""
    cases = recorded()
    assert len(cases) == 47
    q1_has_no_rate = {"key": "producer_byte_rate", "value": 0.0}
    for case in cases:
        key, version = case["key"], case["version"]
        request, answer = (memoryview(bytes.fromhex(case[side])) for side in ("request", "response"))
        _, at = read_request_header(request)
        found = outline(broker.ask(decode(request_class(key), version, request[at:]), version))
        _, at = read_response_header(key, version, bytes(answer))
        expected = outline(decode(response_class(key), version, answer[at:]))
        if case["what"] in BETTER:
            codes = [found["error_code"]] if key == 48 else [entry["error_code"] for entry in found["entries"]]
            assert codes == [INVALID], case["what"]
            continue
        for entry in (expected["entries"] or ()) if key == 48 else ():
            entry["values"] = [value for value in entry["values"] if value != q1_has_no_rate]
        assert found == expected, case["what"]


def alter(broker: OneBroker, parts: dict[str, str | None], *ops: OpData, validate_only: bool = False) -> int:
    entity = [EntityData(entity_type=type_, entity_name=name) for type_, name in parts.items()]
    entry = RequestEntryData(entity=entity, ops=list(ops))
    answer = broker.ask(AlterClientQuotasRequest(entries=[entry], validate_only=validate_only), 1)
    code: int = answer.entries[0].error_code
    return code


def test_a_quota_is_in_force_when_its_request_is_answered(broker: OneBroker) -> None:
    assert alter(broker, {"user": "a b"}, OpData(key="producer_byte_rate", value=1e7)) == 0
    assert broker.configs.entities.of(Entity(user="a b")) == {"producer_byte_rate": "10000000"}
    assert alter(broker, {"user": "a b"}, OpData(key="producer_byte_rate", remove=True)) == 0
    assert broker.configs.entities.of(Entity(user="a b")) == {}


def test_only_validated_means_not_written(broker: OneBroker) -> None:
    assert alter(broker, {"user": "u"}, OpData(key="request_percentage", value=5), validate_only=True) == 0
    assert alter(broker, {"user": "u"}, OpData(key="nonsense", value=5), validate_only=True) == INVALID
    assert not broker.configs.entities.all


def test_what_is_no_quota_is_not_there_to_be_removed(broker: OneBroker) -> None:
    for parts, key in (({"user": "u"}, "nonsense"), ({"user": "u"}, "connection_creation_rate"), ({"ip": None}, "x")):
        named: dict[str, str | None] = {**parts}
        assert alter(broker, named, OpData(key=key, remove=True)) == 0
        assert alter(broker, named, OpData(key=key, remove=True), OpData(key=key, value=5)) == INVALID
    assert not broker.configs.entities.all


@pytest.mark.parametrize("name", [".", "..", "x" * 30_000])
def test_names_that_the_store_has_no_node_for_are_refused(broker: OneBroker, name: str) -> None:
    for parts in ({"user": name}, {"client-id": name}, {"user": "u", "client-id": name}):
        named: dict[str, str | None] = {**parts}
        assert alter(broker, named, OpData(key="request_percentage", value=5)) == INVALID
    assert not broker.configs.entities.all


@pytest.mark.parametrize("address", ["fe80::1", "::1", "10.1.2.3"])
def test_addresses_of_both_kinds(broker: OneBroker, address: str) -> None:
    """Kafka cannot resolve the colons of IPv6, since it has quoted them before."""
    assert alter(broker, {"ip": address}, OpData(key="connection_creation_rate", value=5)) == 0
    assert broker.configs.entities.of(Entity(ip=address)) == {"connection_creation_rate": "5"}


@pytest.mark.parametrize("value", [-1.0, float("inf"), float("nan")])
def test_percentages_and_rates_of_changes_are_finite(broker: OneBroker, value: float) -> None:
    for key in ("request_percentage", "controller_mutation_rate"):
        assert alter(broker, {"user": None}, OpData(key=key, value=value)) == INVALID
        assert alter(broker, {"user": None}, OpData(key=key, value=0.5)) == 0
    assert broker.configs.entities.of(Entity(user=DEFAULT))["request_percentage"] == "0.5"


@pytest.mark.parametrize(("key", "most"), [("producer_byte_rate", 2**63 - 1), ("connection_creation_rate", 2**31 - 1)])
def test_the_largest_whole_number_is_taken(broker: OneBroker, key: str, most: int) -> None:
    """Kafka's tool is given 2^63 - 1 and sends 2^63, the nearest that a request can have."""
    entity = Entity(ip="10.1.2.3") if key.startswith("connection") else Entity(user="u")
    parts: dict[str, str | None] = {"ip": "10.1.2.3"} if entity.ip else {"user": "u"}
    assert alter(broker, parts, OpData(key=key, value=float(most))) == 0
    assert broker.configs.entities.of(entity) == {key: str(most)}
    assert alter(broker, parts, OpData(key=key, value=2.0 * most)) == INVALID


def test_credentials_are_neither_described_nor_lost(broker: OneBroker) -> None:
    alice = Entity(user="alice")
    broker.run(broker.context.entity_alterer.change(alice, lambda before: {"SCRAM-SHA-256": "salt=…"}))
    assert alter(broker, {"user": "alice"}, OpData(key="producer_byte_rate", value=5)) == 0
    wanted = ComponentData(entity_type="user", match_type=0, match="alice")
    answer = broker.ask(DescribeClientQuotasRequest(components=[wanted]), 1)
    assert [(value.key, value.value) for entry in answer.entries for value in entry.values] == [
        ("producer_byte_rate", 5)
    ]
    for key in ("producer_byte_rate", "SCRAM-SHA-256"):
        assert alter(broker, {"user": "alice"}, OpData(key=key, remove=True)) == 0
    assert broker.configs.entities.of(alice) == {"SCRAM-SHA-256": "salt=…"}
    assert broker.ask(DescribeClientQuotasRequest(), 1).entries == []


def test_credentials_of_users_change_no_quota_in_force(broker: OneBroker) -> None:
    """Whoever adds thousands of users would have thousands of quotas looked at, and all prepared answers dropped."""
    quotas, dispatcher = broker.parts.quotas, broker.parts.dispatcher

    def give(user: str, *mechanisms: str) -> None:
        def changed(before: Overrides) -> Overrides:
            return {key: value for key, value in before.items() if key.endswith("rate")} | dict.fromkeys(
                mechanisms, "x"
            )

        broker.run(broker.context.entity_alterer.change(Entity(user=user), changed))
        broker.run(broker.context.configs.catch_up_if_possible())

    give("alice", "SCRAM-SHA-256")
    assert quotas.clients is None
    assert alter(broker, {"user": "bob"}, OpData(key="producer_byte_rate", value=5)) == 0
    in_force = dispatcher.throttling
    assert in_force is not None
    give("alice", "SCRAM-SHA-512")
    give("alice")
    assert dispatcher.throttling is in_force
    give("bob", "SCRAM-SHA-256")
    assert alter(broker, {"user": "bob"}, OpData(key="producer_byte_rate", remove=True)) == 0
    assert dispatcher.throttling is None


def test_many_quotas_are_described_in_pieces(broker: OneBroker) -> None:
    for number in range(50):
        assert alter(broker, {"user": f"u{number}"}, OpData(key="producer_byte_rate", value=1e6)) == 0
    assert broker.stops(DescribeClientQuotasRequest(components=[], strict=False), 1) >= 50
