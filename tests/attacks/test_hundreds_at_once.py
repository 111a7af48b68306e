"""Hundreds of connections that each ask once, in the same moment, for an answer that is large or hard to find."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from kafkad.wire.apis import request_class
from kafkad.wire.frames import RequestHeader, encode_request
from tests.attacks.attacked import Attacked
from tests.attacks.attacks import at_once
from tests.attacks.conftest import judge
from tests.clients.asker import KEYS, Asker, Plain, batch, from_plain

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

TOPIC, PARTITIONS = "large", 1_000
GROUP, MANY = "group", 500
ALL = list(range(PARTITIONS))
EACH: list[Plain] = [{"partition_index": index, "partition": index, "index": index, "timestamp": -1} for index in ALL]
OFFSETS: list[Plain] = [
    {"partition_index": index, "committed_offset": 1, "committed_metadata": "m" * 50} for index in ALL
]
FETCHES: list[Plain] = [{"partition": index, "fetch_offset": 0, "partition_max_bytes": 1000} for index in ALL]
PRODUCED: list[Plain] = [{"index": index, "records": batch(1)} for index in ALL]
NEW: list[Plain] = [{"name": f"new{i}", "num_partitions": 100, "replication_factor": 1} for i in range(20)]
CHANGED: list[Plain] = [
    {"resource_type": 2, "resource_name": f"small{i}", "configs": [{"name": "retention.ms", "value": "1000"}]}
    for i in range(MANY)
]
ACL: Plain = {
    "resource_type": 2,
    "resource_name": "none",
    "resource_pattern_type": 3,
    "principal": "User:u",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
FILTER: Plain = {"resource_type_filter": 2, "pattern_type_filter": 3, "operation": 1, "permission_type": 1}
BROKER: Plain = {"resource_type": 4, "resource_name": "1"}

ASKED: list[tuple[str, int, Plain]] = [
    ("DescribeTopicPartitions", 0, {"topics": [{"name": TOPIC}], "response_partition_limit": 2_000, "cursor": None}),
    ("DescribeLogDirs", 1, {"topics": None}),
    ("DescribeLogDirs", 4, {"topics": [{"topic": TOPIC, "partitions": ALL}]}),
    ("DescribeConfigs", 4, {"resources": [BROKER], "include_documentation": True, "include_synonyms": True}),
    ("DescribeProducers", 0, {"topics": [{"name": TOPIC, "partition_indexes": ALL}]}),
    ("ListOffsets", 1, {"replica_id": -1, "topics": [{"name": TOPIC, "partitions": EACH}]}),
    ("OffsetForLeaderEpoch", 3, {"replica_id": -1, "topics": [{"topic": TOPIC, "partitions": EACH}]}),
    ("OffsetFetch", 2, {"group_id": GROUP, "topics": None}),
    ("OffsetFetch", 7, {"group_id": GROUP, "topics": [{"name": TOPIC, "partition_indexes": ALL}]}),
    ("OffsetFetch", 8, {"groups": [{"group_id": GROUP, "topics": None}]}),
    ("OffsetCommit", 5, {"group_id": GROUP, "topics": [{"name": TOPIC, "partitions": OFFSETS}]}),
    ("Fetch", 4, {"max_bytes": 1_000_000, "topics": [{"topic": TOPIC, "partitions": FETCHES}]}),
    ("ListGroups", 4, {}),
    ("DescribeGroups", 5, {"groups": [f"{GROUP}{i}" for i in range(MANY)]}),
    ("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": [f"{GROUP}{i}" for i in range(MANY)]}),
    ("DescribeAcls", 2, {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}),
    ("DescribeUserScramCredentials", 0, {"users": None}),
    ("DescribeClientQuotas", 1, {"components": [], "strict": False}),
    ("ListTransactions", 0, {}),
    ("DescribeTransactions", 0, {"transactional_ids": [f"t{i}" for i in range(MANY)]}),
    ("DescribeCluster", 1, {}),
    ("ListPartitionReassignments", 0, {"timeout_ms": 1000, "topics": None}),
    ("CreateTopics", 5, {"topics": NEW, "timeout_ms": 1000, "validate_only": True}),
    ("CreatePartitions", 3, {"topics": [{"name": TOPIC, "count": 2_000}], "timeout_ms": 1000, "validate_only": True}),
    ("IncrementalAlterConfigs", 1, {"resources": CHANGED, "validate_only": True}),
    ("AlterConfigs", 2, {"resources": CHANGED, "validate_only": True}),
    ("AlterClientQuotas", 1, {"entries": [], "validate_only": True}),
    ("CreateAcls", 3, {"creations": 100 * [ACL]}),
    ("DeleteAcls", 3, {"filters": [FILTER]}),
    ("DeleteRecords", 2, {"topics": [{"name": TOPIC, "partitions": EACH}], "timeout_ms": 1000}),
    ("DeleteGroups", 2, {"groups_names": [f"none{i}" for i in range(MANY)]}),
    ("DeleteTopics", 5, {"topic_names": [f"none{i}" for i in range(MANY)], "timeout_ms": 1000}),
    ("ElectLeaders", 2, {"election_type": 0, "topic_partitions": None, "timeout_ms": 1000}),
    ("AlterPartitionReassignments", 0, {"topics": [{"name": TOPIC, "partitions": EACH}], "timeout_ms": 1000}),
    ("AddPartitionsToTxn", 3, {"v3_and_below_topics": [{"name": TOPIC, "partitions": ALL}]}),
    ("TxnOffsetCommit", 3, {"group_id": GROUP, "topics": [{"name": TOPIC, "partitions": OFFSETS}]}),
    ("InitProducerId", 4, {"transactional_id": None, "transaction_timeout_ms": 1000}),
    ("Produce", 7, {"acks": 1, "timeout_ms": 1000, "topic_data": [{"name": TOPIC, "partition_data": PRODUCED}]}),
    ("ApiVersions", 3, {"client_software_name": "a", "client_software_version": "1"}),
]


@pytest.fixture(scope="module", params=["with", "without"])
def attacked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    """One broker for all that have the rights, and one for all that do not."""
    settings = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "offsets.topic.num.partitions": "3",
    }
    if request.param == "with":
        settings["super.users"] = "User:ANONYMOUS"
    with Attacked(tmp_path_factory.mktemp("attacked"), settings) as attacked:
        fill(attacked.port)
        if request.param == "without":
            deny(attacked.port)
        yield attacked


@pytest.mark.parametrize("api, version, question", ASKED, ids=[f"{api}-{version}" for api, version, _ in ASKED])
def test_hundreds_ask_in_the_same_moment(attacked: Attacked, api: str, version: int, question: Plain) -> None:
    header = RequestHeader(KEYS[api], version, 1, "attacker")
    frame = encode_request(header, from_plain(request_class(KEYS[api]), question, version))
    attack = partial(at_once, request=frame, connections=200, rounds=2)
    judge(attacked, f"200 at once, each with one {api} {version}", attack)
    assert "Traceback" not in attacked.kafkad.log


def deny(port: int) -> None:
    """Everything, but for the topic of the honest client; the right to deny comes last."""
    literal, prefixed = 3, 4
    denied = [(2, name, prefixed) for name in (TOPIC, "small", "new", "none")]
    denied += [(3, "*", literal), (5, "*", literal), (4, "kafka-cluster", literal)]
    acls = [
        ACL
        | {"resource_type": kind, "resource_name": name, "resource_pattern_type": pattern}
        | {"principal": "User:ANONYMOUS", "operation": 2, "permission_type": 2}
        for kind, name, pattern in denied
    ]
    asker = Asker(port)
    created = asker.ask("CreateAcls", 2, {"creations": acls})
    assert not any(result.error_code for result in created.results), created
    asker.client.close()


def fill(port: int) -> None:
    """Something to find for each of them."""
    asker = Asker(port)

    def ask(api: str, version: int, question: Plain) -> Any:
        return asker.ask(api, version, question)

    new = [{"name": TOPIC, "num_partitions": PARTITIONS, "replication_factor": 1}]
    new += [{"name": f"small{i}", "num_partitions": 1, "replication_factor": 1} for i in range(MANY)]
    created = ask("CreateTopics", 4, {"topics": new, "timeout_ms": 60_000})
    assert not any(topic.error_code for topic in created.topics), created
    ask("FindCoordinator", 2, {"key": GROUP, "key_type": 0})
    for group in [GROUP, *(f"{GROUP}{i}" for i in range(MANY))]:
        offsets = OFFSETS if group == GROUP else OFFSETS[:1]
        topics = [{"name": TOPIC, "partitions": offsets}]
        while any(
            partition.error_code
            for topic in ask("OffsetCommit", 5, {"group_id": group, "topics": topics}).topics
            for partition in topic.partitions
        ):
            pass
    acls = [ACL | {"resource_name": f"small{i}", "principal": f"User:u{i}"} for i in range(MANY)]
    assert not any(result.error_code for result in ask("CreateAcls", 2, {"creations": acls}).results)
    quotas = [
        {
            "entity": [{"entity_type": "user", "entity_name": f"u{i}"}],
            "ops": [{"key": "producer_byte_rate", "value": 1e6}],
        }
        for i in range(MANY)
    ]
    assert not any(e.error_code for e in ask("AlterClientQuotas", 1, {"entries": quotas}).entries)
    asker.client.close()
