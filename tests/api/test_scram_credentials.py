"""DescribeUserScramCredentials and AlterUserScramCredentials: as Kafka answered, but where we do better."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kafkad.errors import ErrorCode, KafkaError
from kafkad.model import Entity
from kafkad.security.scram import ScramCredential
from kafkad.wire.apis import request_class, response_class
from kafkad.wire.frames import read_request_header, read_response_header
from kafkad.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, OpData, RequestEntryData
from kafkad.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kafkad.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from kafkad.wire.primitives import MAX_STRING
from kafkad.wire.schema import decode, encode
from tests.one_broker import OneBroker

GOLDEN = Path(__file__).parents[1] / "golden" / "security" / "validation.jsonl"
BETTER = {"empty salted password", "salted password of 5 bytes"}
"""Kafka stores the second, and answers the first with an unexpected error."""
SALTED = b"p" * 32


def outline(message: Any) -> Any:
    if isinstance(message, list):
        return sorted((outline(each) for each in message), key=repr)
    if hasattr(message, "__schema__"):
        return {field: outline(getattr(message, field)) for field in message.__slots__}
    return message


def as_sent(case: dict[str, Any]) -> Any:
    request = memoryview(bytes.fromhex(case["request"]))
    message = decode(request_class(case["key"]), case["version"], request[read_request_header(request)[1] :])
    for change in message.upsertions if case["key"] == 51 else ():
        if change.mechanism == 2 and len(change.salted_password) == 32:
            change.salted_password = change.salted_password * 2  # too short for Kafka's client, not for Kafka
    return message


def test_the_requests_that_kafka_was_asked(broker: OneBroker) -> None:
    """In their order: what one wrote, the next ones read."""
    cases = [case for case in map(json.loads, GOLDEN.read_text().splitlines()) if case["key"] in (50, 51)]
    assert len(cases) == 20
    for case in cases:
        found = broker.ask(as_sent(case), case["version"])
        if case["what"] in BETTER:
            assert [result.error_code for result in found.results] == [ErrorCode.UNACCEPTABLE_CREDENTIAL]
            assert not broker.configs.entities.of(Entity(user="v2"))["SCRAM-SHA-256"].startswith("salt=c2FsdHNhbHQ=")
            continue
        answer = memoryview(bytes.fromhex(case["response"]))
        _, at = read_response_header(case["key"], case["version"], bytes(answer))
        assert outline(found) == outline(decode(response_class(case["key"]), 0, answer[at:])), case["what"]


def upsert(name: str, mechanism: int = 1) -> ScramCredentialUpsertion:
    salted = SALTED * mechanism
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=4096, salt=b"salt", salted_password=salted
    )


def test_what_is_stored_is_what_logs_in_and_quotas_stay(broker: OneBroker) -> None:
    quota = RequestEntryData(
        entity=[EntityData(entity_type="user", entity_name="a/b")], ops=[OpData(key="producer_byte_rate", value=5)]
    )
    broker.ask(AlterClientQuotasRequest(entries=[quota]), 1)
    broker.ask(AlterUserScramCredentialsRequest(upsertions=[upsert("a/b"), upsert("a/b", 2)]), 0)
    found = broker.configs.entities.of(Entity(user="a/b"))
    assert found["SCRAM-SHA-256"] == ScramCredential.of("sha256", SALTED, b"salt", 4096).text
    assert found["producer_byte_rate"] == "5"
    deletions = [ScramCredentialDeletion(name="a/b", mechanism=mechanism) for mechanism in (1, 2)]
    broker.ask(AlterUserScramCredentialsRequest(deletions=deletions), 0)
    assert broker.configs.entities.of(Entity(user="a/b")) == {"producer_byte_rate": "5"}


def test_a_name_that_the_store_has_no_node_for_is_refused_and_the_others_are_set(broker: OneBroker) -> None:
    answer = broker.ask(AlterUserScramCredentialsRequest(upsertions=[upsert("."), upsert("u")]), 0)
    assert [(result.user, result.error_code) for result in answer.results] == [(".", 42), ("u", 0)]


def test_one_bad_change_leaves_all_of_its_user_as_it_was(broker: OneBroker) -> None:
    missing = ScramCredentialDeletion(name="u", mechanism=2)
    answer = broker.ask(AlterUserScramCredentialsRequest(deletions=[missing], upsertions=[upsert("u")]), 0)
    assert [result.error_code for result in answer.results] == [ErrorCode.RESOURCE_NOT_FOUND]
    assert broker.configs.entities.of(Entity(user="u")) == {}


def test_a_damaged_credential_is_told_without_what_it_holds(broker: OneBroker) -> None:
    broker.run(
        broker.context.entity_alterer.change(Entity(user="u"), lambda before: {"SCRAM-SHA-256": "salt=c2VjcmV0"})
    )
    broker.run(broker.configs.catch_up())
    [result] = broker.ask(DescribeUserScramCredentialsRequest(users=None), 0).results
    assert (result.user, result.error_code) == ("u", ErrorCode.UNKNOWN_SERVER_ERROR)
    assert "c2VjcmV0" not in result.error_message


def test_who_may_not_is_told_of_each_user() -> None:
    from kafkad.api.alter_user_scram_credentials import refused

    message = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name="a", mechanism=1)], upsertions=[upsert("b"), upsert("a", 2)]
    )
    answer = refused(None, message, KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no"))  # type: ignore[arg-type]
    assert [(each.user, each.error_code, each.error_message) for each in answer.results] == [
        ("a", 31, None),
        ("b", 31, None),
    ]


def test_an_answer_can_hold_what_is_wrong_with_a_user_of_any_name(broker: OneBroker) -> None:
    absent, twice = UserName(name="a" * MAX_STRING), UserName(name="t" * MAX_STRING)
    answer = broker.ask(DescribeUserScramCredentialsRequest(users=[absent, twice, twice]), 0)
    assert [result.error_code for result in answer.results] == [
        ErrorCode.RESOURCE_NOT_FOUND,
        ErrorCode.DUPLICATE_RESOURCE,
    ]
    assert encode(answer, 0)


def test_many_users_are_described_in_pieces(broker: OneBroker) -> None:
    broker.ask(AlterUserScramCredentialsRequest(upsertions=[upsert(f"u{number}") for number in range(20)]), 0)
    for asked in (None, [UserName(name=f"u{number}") for number in range(20)]):
        assert broker.stops(DescribeUserScramCredentialsRequest(users=asked), 0) >= 20
