"""Users without any right, or with a few, ask everything in every version: nothing tells of what they may not see, and
nothing changes."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kafkad.api.routes import ROUTES, Route
from kafkad.meta import journal
from kafkad.meta.tree import Tree
from kafkad.wire.apis import request_class
from kafkad.wire.frames import RequestHeader, encode_request
from kafkad.wire.schema import Field, within
from tests.broker import KafkadProcess, RawClient
from tests.oracle.kafka import free_port
from tests.txn.raw import Raw

pytestmark = pytest.mark.slow

THERE, MISSING = "thing-that-is", "thing-is-none"
HIDDEN, MADE = "part_of-it", "part.of-it"
"""A topic may not have the one name while another has the other."""
TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_ID = struct.pack(">h", 29), struct.pack(">h", 100)
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_bob="pw" user_carol="pw";'
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl.plain.sasl.jaas.config": PLAIN,
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "secret",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
CHANGED_BY_CLIENTS = ("/config", "/kafka-acl", "/brokers/topics", "/delegation_token", "/admin", "/feature")
NUMBERS = {
    **dict.fromkeys(("replica_id", "session_epoch", "generation_id_or_member_epoch", "current_leader_epoch"), -1),
    **dict.fromkeys(("leader_epoch", "timestamp", "producer_id", "producer_epoch", "retention_time_ms"), -1),
    **dict.fromkeys(("partition", "partition_index", "index", "session_id", "max_wait_ms"), 0),
    **dict.fromkeys(("max_lifetime_ms", "expiry_time_period_ms", "renew_period_ms"), -1),
    **dict.fromkeys(("resource_pattern_type", "pattern_type_filter", "operation", "permission_type"), 3),
    **dict.fromkeys(("timeout_ms", "session_timeout_ms", "rebalance_timeout_ms", "transaction_timeout_ms"), 6_000),
    **dict.fromkeys(("max_bytes", "partition_max_bytes", "iterations"), 4_096),
}
TEXTS = {"protocol_type": "consumer", "host": "*", "host_filter": "*", "entity_type": "user", "member_id": ""}
TEXTS |= {"principal_type": "User", "owner_principal_type": "User", "key": "producer_byte_rate"}
OWN = {"CreateDelegationToken", "DescribeDelegationToken", "SaslHandshake", "SaslAuthenticate"}
"""About tokens everybody may ask for himself; the others are part of a login."""
RESOURCES = [{"resource_type": kind, "resource_type_filter": kind} for kind in (2, 3, 4, 5, 6, 7, 8)]
PRODUCERS = [{}, {"producer_id": 0, "producer_epoch": 0}]
VARIED = {
    **dict.fromkeys(("DescribeConfigs", "AlterConfigs", "IncrementalAlterConfigs"), RESOURCES),
    **dict.fromkeys(("DescribeAcls", "CreateAcls", "DeleteAcls"), RESOURCES),
    "FindCoordinator": [{"key_type": 0}, {"key_type": 1}],
    "CreateTopics": [{}, {"num_partitions": -1, "replication_factor": -1}],
    **dict.fromkeys(("Produce", "AddPartitionsToTxn", "AddOffsetsToTxn"), PRODUCERS),
    **dict.fromkeys(("EndTxn", "TxnOffsetCommit", "WriteTxnMarkers"), PRODUCERS),
}


class Maker:
    """Makes requests about one name, whatever it is the name of."""

    def __init__(
        self, version: int, name: str, topic_id: bytes, numbers: dict[str, int], *, of_all: bool = False
    ) -> None:
        """With `of_all`, lists that may be null are: all that there is."""
        self._version, self._name, self._topic_id = version, name, topic_id
        self._numbers = NUMBERS | numbers
        self._of_all = of_all

    def message(self, cls: type[Any]) -> Any:
        fields = [field for field in cls.__schema__.fields if within(self._version, field.versions)]
        return cls(**{field.name: self._value(field, field.name) for field in fields if field.tag is None})

    def _value(self, field: Field, name: str) -> Any:
        if name in ("group_instance_id", "cursor"):
            return None
        if field.kind == "struct":
            return self.message(field.item)
        if field.kind == "array":
            if self._of_all and within(self._version, field.nullable):
                return None
            one = self.message(field.item) if isinstance(field.item, type) else self._value(field.item(), name)
            return [one]
        if field.kind == "string":
            return TEXTS.get(name, f"User:{self._name}" if name.startswith("principal") else self._name)
        plain = {"bytes": b"", "records": b"", "16s": self._topic_id, "?": False}
        return plain[field.kind] if field.kind in plain else self._numbers.get(name, 1)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkadProcess]:
    broker = KafkadProcess(tmp_path_factory.mktemp("rights"), SETTINGS)
    broker.settings["listeners"] = f"PLAINTEXT://127.0.0.1:{broker.port},SASL://127.0.0.1:{free_port()}"
    with broker:
        yield broker


def furnish(port: int) -> bytes:
    """A topic, a group, a transactional id, a user, quotas and ACLs of that name; the topic's id."""
    with closing(Raw(port)) as raw:
        raw.create(THERE, 1)
        raw.coordinator([THERE], 1)
        producer = raw.new(THERE)
        raw.add(THERE, *producer, [(THERE, 0)])
        raw.produce_one(THERE, *producer, 0, (THERE, 0))
        raw.coordinator([THERE], 0)
        place = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": ""}
        group = {"group_id": THERE, "generation_id": -1, "member_id": ""}
        raw.ask("OffsetCommit", 7, {**group, "topics": [{"name": THERE, "partitions": [place]}]})
        password = {"mechanism": 1, "iterations": 4_096, "salt": b"salt", "salted_password": bytes(32)}
        user = {"deletions": [], "upsertions": [{"name": THERE, **password}]}
        assert not raw.ask("AlterUserScramCredentials", 0, user).results[0].error_code
        quota = {"key": "producer_byte_rate", "value": 1e9, "remove": False}
        entry = {"entity": [{"entity_type": "user", "entity_name": THERE}], "ops": [quota]}
        raw.ask("AlterClientQuotas", 1, {"entries": [entry], "validate_only": False})
        right = {"principal": f"User:{THERE}", "host": "*", "operation": 3, "permission_type": 3}
        named = {"resource_type": 2, "resource_name": THERE, "resource_pattern_type": 3}
        assert not raw.ask("CreateAcls", 3, {"creations": [{**named, **right}]}).results[0].error_code
        return raw.ids[THERE]


def furnish_part(port: int) -> None:
    """What carol may see some of: she may create topics, and describe groups and transactional ids, of names that begin
    as MADE. A group and a transaction have that name, with offsets and partitions of a topic that she may not see."""
    with closing(Raw(port)) as raw:
        raw.create(HIDDEN, 1)
        raw.coordinator([MADE], 1)
        raw.add(MADE, *raw.new(MADE), [(HIDDEN, 0)])
        raw.coordinator([MADE], 0)
        place = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": ""}
        group = {"group_id": MADE, "generation_id": -1, "member_id": ""}
        raw.ask("OffsetCommit", 7, {**group, "topics": [{"name": HIDDEN, "partitions": [place]}]})
        right = {"principal": "User:carol", "host": "*", "permission_type": 3}
        named = {"resource_name": MADE[:5], "resource_pattern_type": 4}
        kinds = [{"resource_type": kind, "operation": operation} for kind, operation in ((2, 5), (3, 8), (5, 8))]
        creations = [{**named, **right, **kind} for kind in kinds]
        assert not any(each.error_code for each in raw.ask("CreateAcls", 3, {"creations": creations}).results)


class Stranger:
    """Logged in, with a new connection after each that was closed."""

    def __init__(self, user: str, port: int) -> None:
        self._user = user
        self._port = port
        self._client: RawClient | None = None

    def ask(self, frame: bytes) -> bytes | None:
        """None where the connection is closed instead."""
        client = self._client or self._logged_in()
        self._client = client
        try:
            client.send(frame)
            return client.receive_frame()
        except ConnectionError:
            self.close()
            return None

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _logged_in(self) -> RawClient:
        client = RawClient(self._port)
        client.exchange(b"\0\x11\0\x01\0\0\0\x07\xff\xff\0\x05PLAIN")
        token = f"\0{self._user}\0pw".encode()
        answer = client.exchange(b"\0\x24\0\0\0\0\0\x08\xff\xff" + struct.pack(">i", len(token)) + token)
        assert answer[4:6] == b"\0\0"
        return client


def questions(route: Route) -> Iterator[tuple[int, dict[str, int]]]:
    for version in range(route.first, route.last + 1):
        for numbers in VARIED.get(route.name, [{}]):
            yield version, numbers


def kept(broker: KafkadProcess) -> tuple[dict[str, bytes], dict[Path, int]]:
    """All that the stopped broker has: nodes of the store, and sizes of logs."""
    broker.stop()
    [directory], tree = broker.log_dirs, Tree()
    [path] = directory.glob("*.journal")
    journal.read(str(path), tree.replay)
    nodes = {path: node.data for path, node in tree.walk() if path.startswith(CHANGED_BY_CLIENTS)}
    sizes = {file: file.stat().st_size for file in directory.rglob("*.log")}
    broker.start()
    return nodes, sizes


def test_what_is_there_looks_like_what_is_not_and_nothing_changes(broker: KafkadProcess) -> None:
    """Ids of topics are no secret, as in Kafka: of these it says whether they exist, and nothing else."""
    ids = {THERE: furnish(broker.port), MISSING: bytes(range(16))}
    before = kept(broker)
    differ, refused = [], 0
    with closing(Stranger("bob", sasl_port(broker))) as bob:
        for route in (route for route in ROUTES if route.name not in OWN):
            for version, numbers in questions(route):
                seen = []
                for name, topic_id in ids.items():
                    message = Maker(version, name, topic_id, numbers).message(request_class(route.key))
                    answer = bob.ask(encode_request(RequestHeader(route.key, version, 1, "bob"), message))
                    refused += answer is None
                    seen.append(answer and answer.replace(name.encode(), b"NAME").replace(topic_id, b"ID"))
                if seen[0] != seen[1] and not only_the_id_is_unknown(*seen):
                    differ.append((route.name, version, numbers, *seen))
    assert differ == []
    assert refused == 0
    assert kept(broker) == before


def sasl_port(broker: KafkadProcess) -> int:
    return int(broker.settings["listeners"].rpartition(":")[2])


def test_what_may_be_seen_does_not_tell_of_what_may_not(broker: KafkadProcess) -> None:
    furnish_part(broker.port)
    before = kept(broker)
    told, seen = [], Counter[str]()
    with closing(Stranger("carol", sasl_port(broker))) as carol:
        for route in (route for route in ROUTES if route.name not in OWN):
            for version, numbers in questions(route):
                for of_all in (False, True):
                    maker = Maker(version, MADE, bytes(range(16)), numbers, of_all=of_all)
                    message = maker.message(request_class(route.key))
                    answer = carol.ask(encode_request(RequestHeader(route.key, version, 1, "carol"), message))
                    assert answer is not None, (route.name, version)
                    seen[route.name] += MADE.encode() in answer
                    if HIDDEN.encode() in answer:
                        told.append((route.name, version, numbers, of_all, answer))
    assert told == []
    assert all(seen[name] for name in ("Metadata", "CreateTopics", "ListGroups", "DescribeTransactions"))
    assert kept(broker) == before


def only_the_id_is_unknown(there: bytes | None, missing: bytes | None) -> bool:
    """The two differ in the error, and Fetch leaves out the aborted transactions of a topic that it cannot find."""
    if not there or not missing or b"ID" not in there:
        return False
    alike = there.replace(TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_ID, 1)
    return alike == missing or (len(alike) == len(missing) and sum(map(int.__ne__, alike, missing)) == 1)
