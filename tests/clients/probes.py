"""Questions to a broker in every version of every API, and its answers in a form that can be compared and kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from kafkad.wire.messages.list_groups import ListedGroup
from kafkad.wire.records import Record, build_batch
from kafkad.wire.schema import Message
from tests.clients import group_probes
from tests.clients.asker import STAMP_MS, Asker, Plain, batch, produce

NO_ID = bytes(16)


def corrupt(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def fetch(topic: str, offset: int, *, topic_id: bytes, **more: Plain) -> Plain:
    partitions = [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}]
    return {
        "replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20,
        "topics": [{"topic": topic, "topic_id": topic_id, "partitions": partitions}], **more,
    }  # fmt: skip


def list_offsets(topic: str, timestamp: int, partition: int = 0, **more: Plain) -> Plain:
    asked = {"partition_index": partition, "timestamp": timestamp, "max_num_offsets": 3, **more}
    return {"replica_id": -1, "timeout_ms": 1000, "topics": [{"name": topic, "partitions": [asked]}]}


Question = tuple[str, Plain | Message]
Probe = Callable[[Asker, int, str], Iterator[Question]]
"""Given who asks, the version and a topic of its own: named questions, each asked before the next is made.

Instead of a question it may give the answer, when it had to ask itself.
"""


def ask_produce(asker: Asker, version: int, topic: str) -> Iterator[Question]:
    topic_id = asker.topic_id(topic)
    yield "a batch", produce(topic, batch(2), topic_id=topic_id)
    yield "a corrupt batch", produce(topic, corrupt(batch(2)), topic_id=topic_id)
    yield "an unknown topic", produce("nowhere", batch(1), topic_id=b"x" * 16)
    yield "acks 1", produce(topic, batch(1), topic_id=topic_id) | {"acks": 1}
    yield "bad acks", produce(topic, batch(1), topic_id=topic_id) | {"acks": 5}
    asker.create(f"{topic}-compact", cleanup_policy="compact")
    asker.create(f"{topic}-small", segment_bytes="1048576", max_message_bytes="3000000")
    keyless = bytes(build_batch([Record(0, STAMP_MS, b"k", b"v"), Record(1, STAMP_MS, None, b"v")]))
    yield "no key", produce(f"{topic}-compact", keyless, topic_id=asker.topic_id(f"{topic}-compact"))
    large = bytes(build_batch([Record(0, STAMP_MS, b"k", bytes(1_100_000))]))
    yield "larger than a segment", produce(f"{topic}-small", large, topic_id=asker.topic_id(f"{topic}-small"))
    for sequence in (0, 9):
        numbered = bytes(
            build_batch([Record(0, STAMP_MS, b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=sequence)
        )
        yield f"sequence {sequence}", produce(topic, numbered, topic_id=topic_id)


def ask_fetch(asker: Asker, version: int, topic: str) -> Iterator[Question]:
    topic_id = asker.topic_id(topic)
    yield "from the start", fetch(topic, 0, topic_id=topic_id)
    yield "from within a batch", fetch(topic, 4, topic_id=topic_id, isolation_level=1)
    yield "at the end", fetch(topic, 6, topic_id=topic_id)
    yield "beyond the end", fetch(topic, 7, topic_id=topic_id)
    yield "an unknown topic", fetch("nowhere", 0, topic_id=b"x" * 16)
    yield "a session of its own", fetch(topic, 0, topic_id=topic_id, session_epoch=0)
    yield "an unknown session", fetch(topic, 0, topic_id=topic_id, session_id=77, session_epoch=3)


def ask_list_offsets(asker: Asker, version: int, topic: str) -> Iterator[Question]:
    times = {"latest": -1, "earliest": -2, "a time": STAMP_MS + 2, "too late": STAMP_MS * 2}
    for name, timestamp in times.items():
        yield name, list_offsets(topic, timestamp)
    if version >= 7:
        yield "largest timestamp", list_offsets(topic, -3)
    if version >= 8:
        yield "earliest local", list_offsets(topic, -4)
    yield "an unknown topic", list_offsets("nowhere", -1)
    yield "an unknown partition", list_offsets(topic, -1, partition=9)
    yield "an old leader epoch", list_offsets(topic, -1, current_leader_epoch=5)


def ask_metadata(asker: Asker, version: int, topic: str) -> Iterator[Question]:
    more = {"include_cluster_authorized_operations": True, "include_topic_authorized_operations": True}
    yield "a topic", {"topics": [{"name": topic}], **more}
    if version >= 4:
        yield "an unknown topic", {"topics": [{"name": "nowhere"}], "allow_auto_topic_creation": False}
        yield "a bad name", {"topics": [{"name": "a b"}], "allow_auto_topic_creation": False}
    if version >= 12:
        yield "by id", {"topics": [{"name": None, "topic_id": asker.topic_id(topic)}]}
        yield "by an unknown id", {"topics": [{"name": None, "topic_id": b"x" * 16}]}


def ask_api_versions(asker: Asker, version: int, topic: str) -> Iterator[Question]:
    yield "named client", {"client_software_name": "probe", "client_software_version": "1.0"}


def ask_create_topics(asker: Asker, version: int, topic: str) -> Iterator[Question]:
    def new(name: str, **more: Plain) -> Plain:
        return {"name": name, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": [], **more}

    def request(*topics: Plain, **more: Plain) -> Plain:
        return {"topics": list(topics), "timeout_ms": 30000, **more}

    yield "a topic", request(new(f"{topic}-a", configs=[{"name": "retention.ms", "value": "5000"}]))
    yield (
        "a topic by hand",
        request(
            new(
                f"{topic}-b",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[{"partition_index": 0, "broker_ids": [1]}],
            )
        ),
    )
    yield "one that is there", request(new(topic))
    yield (
        "bad ones",
        request(
            new("a b"),
            new("many-replicas", replication_factor=2),
            new("no-partitions", num_partitions=0),
            new("bad-config", configs=[{"name": "no.such", "value": "1"}]),
            new("bad-value", configs=[{"name": "retention.ms", "value": "soon"}]),
        ),
    )
    yield "one twice", request(new("twice"), new("twice"))
    yield "a name with a dot", request(new(f"{topic}.x"))
    yield "a name that is the same metric", request(new(f"{topic}_x"))
    by_hand = [{"partition_index": index, "broker_ids": [1]} for index in (0, 2)]
    yield "partitions with a gap", request(new("gap", num_partitions=-1, replication_factor=-1, assignments=by_hand))
    yield "partitions and an assignment", request(new("both", assignments=by_hand))
    if version >= 1:
        yield "only validated", request(new(f"{topic}-c"), validate_only=True)


def ask_delete_topics(asker: Asker, version: int, topic: str) -> Iterator[Question]:
    yield "a topic", {"topics": [{"name": topic}], "topic_names": [topic], "timeout_ms": 30000}
    yield "an unknown topic", {"topics": [{"name": "nowhere"}], "topic_names": ["nowhere"], "timeout_ms": 30000}
    if version >= 6:
        yield "an unknown id", {"topics": [{"name": None, "topic_id": b"x" * 16}], "timeout_ms": 30000}


def ask_delete_records(asker: Asker, version: int, topic: str) -> Iterator[Question]:
    for name, offset in (("some", 2), ("too many", 9), ("all", -1)):
        partitions = [{"partition_index": 0, "offset": offset}]
        yield name, {"topics": [{"name": topic, "partitions": partitions}], "timeout_ms": 30000}


def ask_init_producer_id(asker: Asker, version: int, topic: str) -> Iterator[Question]:
    yield "an idempotent producer", {"transactional_id": None, "transaction_timeout_ms": 60000}


def ask_offset_for_leader_epoch(asker: Asker, version: int, topic: str) -> Iterator[Question]:
    for name, epochs in (("known", (-1, 0)), ("later", (-1, 5)), ("fenced", (7, 0))):
        asked = {"partition": 0, "current_leader_epoch": epochs[0], "leader_epoch": epochs[1]}
        yield name, {"replica_id": -1, "topics": [{"topic": topic, "partitions": [asked]}]}
    nowhere = {"topic": "nowhere", "partitions": [{"partition": 0, "leader_epoch": 0}]}
    yield "an unknown topic", {"replica_id": -1, "topics": [nowhere]}


TOPIC, BROKER = 2, 4


def ask_describe_configs(asker: Asker, version: int, topic: str) -> Iterator[Question]:
    more = {"include_synonyms": True, "include_documentation": True}
    keys = {TOPIC: ["retention.ms", "segment.ms"], BROKER: ["log.segment.bytes", "broker.id"]}
    topics = {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": keys[TOPIC]}
    broker = {"resource_type": BROKER, "resource_name": "1", "configuration_keys": keys[BROKER]}
    yield "some", {"resources": [topics, broker], **more}
    yield "all of a topic", {"resources": [topics | {"configuration_keys": None}], **more}
    unknown = [{"resource_type": TOPIC, "resource_name": "nowhere", "configuration_keys": None}]
    yield "an unknown topic", {"resources": unknown}


def ask_alter_configs(asker: Asker, version: int, topic: str) -> Iterator[Question]:
    def request(name: str, setting: str, value: str) -> Plain:
        change = {"name": setting, "value": value}
        return {"resources": [{"resource_type": TOPIC, "resource_name": name, "configs": [change]}]}

    yield "a topic", request(topic, "retention.ms", "5000")
    yield "an unknown setting", request(topic, "no.such", "5000")
    yield "a bad value", request(topic, "retention.ms", "soon")
    yield "an unknown topic", request("nowhere", "retention.ms", "5000")


def _twice(request: Plain) -> Plain:
    request["resources"][0]["configs"] *= 2
    return request


def ask_incremental_alter_configs(asker: Asker, version: int, topic: str) -> Iterator[Question]:
    def request(name: str, operation: int, setting: str, value: str | None) -> Plain:
        change = {"name": setting, "config_operation": operation, "value": value}
        return {"resources": [{"resource_type": TOPIC, "resource_name": name, "configs": [change]}]}

    yield "set", request(topic, 0, "retention.ms", "5000")
    yield "delete", request(topic, 1, "retention.ms", None)
    yield "append", request(topic, 2, "cleanup.policy", "compact")
    yield "subtract", request(topic, 3, "cleanup.policy", "compact")
    yield "append to no list", request(topic, 2, "retention.ms", "1")
    yield "an unknown setting", request(topic, 0, "no.such", "1")
    yield "a bad value", request(topic, 0, "retention.ms", "soon")
    yield "no value", request(topic, 0, "retention.ms", None)
    yield "the same twice", _twice(request(topic, 0, "retention.ms", "1"))
    yield "no topic", request("", 0, "retention.ms", "1")
    yield "a value with blanks", request(topic, 0, "retention.ms", " 7000 ")
    asked = {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": ["retention.ms"]}
    yield "what became of it", asker.ask("DescribeConfigs", 4, {"resources": [asked], "include_synonyms": True})
    yield "an unknown topic", request("nowhere", 0, "retention.ms", "1")


def ask_alter_replica_log_dirs(asker: Asker, version: int, topic: str) -> Iterator[Question]:
    moves = [{"name": topic, "partitions": [0]}]
    yield "no such directory", {"dirs": [{"path": "/no/such/directory", "topics": moves}]}


def ask_describe_log_dirs(asker: Asker, version: int, topic: str) -> Iterator[Question]:
    yield "a topic", {"topics": [{"topic": topic, "partitions": [0]}]}


def ask_create_partitions(asker: Asker, version: int, topic: str) -> Iterator[Question]:
    def request(name: str, count: int, assignments: Plain = None, **more: Plain) -> Plain:
        asked = {"name": name, "count": count, "assignments": assignments}
        return {"topics": [asked], "timeout_ms": 30000, "validate_only": False, **more}

    yield "validated", request(topic, 3, validate_only=True)
    yield "more", request(topic, 3)
    yield "fewer", request(topic, 2)
    yield "as many", request(topic, 3)
    yield "by hand", request(topic, 4, [{"broker_ids": [1]}])
    yield "too few assignments", request(topic, 6, [{"broker_ids": [1]}])
    yield "on an unknown broker", request(topic, 5, [{"broker_ids": [9]}])
    yield "twice on one", request(topic, 5, [{"broker_ids": [1, 1]}])
    yield "on none", request(topic, 5, [{"broker_ids": []}])
    yield "an unknown topic", request("nowhere", 3)


def ask_elect_leaders(asker: Asker, version: int, topic: str) -> Iterator[Question]:
    for name, asked in (("a partition", topic), ("an unknown topic", "nowhere")):
        yield name, {"topic_partitions": [{"topic": asked, "partitions": [0]}], "timeout_ms": 30000}


def ask_alter_partition_reassignments(asker: Asker, version: int, topic: str) -> Iterator[Question]:
    def request(name: str, replicas: list[int] | None) -> Plain:
        partitions = [{"partition_index": 0, "replicas": replicas}]
        return {"topics": [{"name": name, "partitions": partitions}], "timeout_ms": 30000}

    yield "where it is", request(topic, [1])
    yield "to an unknown broker", request(topic, [7])
    yield "twice to one", request(topic, [1, 1])
    yield "to nowhere", request(topic, [])
    yield "cancelled", request(topic, None)
    yield "an unknown topic", request("nowhere", [1])


def ask_list_partition_reassignments(asker: Asker, version: int, topic: str) -> Iterator[Question]:
    yield "all", {"topics": None, "timeout_ms": 30000}
    yield "a topic", {"topics": [{"name": topic, "partition_indexes": [0]}], "timeout_ms": 30000}


def ask_update_features(asker: Asker, version: int, topic: str) -> Iterator[Question]:
    yield "an unknown feature", {"feature_updates": [{"feature": "no.such", "max_version_level": 1}]}


def ask_describe_cluster(asker: Asker, version: int, topic: str) -> Iterator[Question]:
    yield "with operations", {"include_cluster_authorized_operations": True}
    yield "without", {"include_cluster_authorized_operations": False}


def ask_describe_producers(asker: Asker, version: int, topic: str) -> Iterator[Question]:
    yield "none", {"topics": [{"name": topic, "partition_indexes": [0]}]}
    yield "an unknown topic", {"topics": [{"name": "nowhere", "partition_indexes": [0]}]}


def ask_describe_topic_partitions(asker: Asker, version: int, topic: str) -> Iterator[Question]:
    yield "topics", {"topics": [{"name": topic}, {"name": "nowhere"}]}


def ask_list_config_resources(asker: Asker, version: int, topic: str) -> Iterator[Question]:
    yield "client metrics", {"resource_types": [16]}


PROBES: dict[str, Probe] = {
    "Produce": ask_produce,
    "Fetch": ask_fetch,
    "ListOffsets": ask_list_offsets,
    "Metadata": ask_metadata,
    "ApiVersions": ask_api_versions,
    "CreateTopics": ask_create_topics,
    "DeleteTopics": ask_delete_topics,
    "DeleteRecords": ask_delete_records,
    "InitProducerId": ask_init_producer_id,
    "OffsetForLeaderEpoch": ask_offset_for_leader_epoch,
    "DescribeConfigs": ask_describe_configs,
    "AlterConfigs": ask_alter_configs,
    "AlterReplicaLogDirs": ask_alter_replica_log_dirs,
    "DescribeLogDirs": ask_describe_log_dirs,
    "CreatePartitions": ask_create_partitions,
    "ElectLeaders": ask_elect_leaders,
    "IncrementalAlterConfigs": ask_incremental_alter_configs,
    "AlterPartitionReassignments": ask_alter_partition_reassignments,
    "ListPartitionReassignments": ask_list_partition_reassignments,
    "UpdateFeatures": ask_update_features,
    "DescribeCluster": ask_describe_cluster,
    "DescribeProducers": ask_describe_producers,
    "ListConfigResources": ask_list_config_resources,
    "DescribeTopicPartitions": ask_describe_topic_partitions,
    **group_probes.PROBES,
}
FIRST_VERSION = {"Produce": 3, "Fetch": 4, "ListOffsets": 1}
"""kafkad's floors where they are above Kafka 3.9's: those of Kafka 4 (KIP-896)."""


def answers(asker: Asker, api: str, version: int) -> dict[str, Plain]:
    """Question → answer."""
    topic = f"{api.lower()}-{version}"
    asker.create(topic)
    found = {}
    for name, question in PROBES[api](asker, version, topic):
        answer = question if isinstance(question, Message) else asker.ask(api, version, question)
        while getattr(answer, "error_code", 0) == COORDINATOR_LOAD_IN_PROGRESS:
            answer = asker.ask(api, version, question)
        found[name] = comparable(answer, topic)
    return found


COORDINATOR_LOAD_IN_PROGRESS = 14
"""The error code of real Kafka while it fetches its first block of producer ids."""

ANY = "..."
"""Stands for a value that is not compared."""

VARYING = {
    "api_keys", "cluster_id", "controller_id", "finalized_features", "finalized_features_epoch", "host",
    "last_timestamp", "log_append_time_ms", "log_dir", "node_id", "partition_size", "port", "producer_id", "session_id",
    "supported_features", "throttle_time_ms", "topic_id", "total_bytes", "usable_bytes", "zk_migration_ready",
}  # fmt: skip
"""Fields whose values differ from run to run, or from broker to broker by their nature: only their presence is kept."""

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

PRESENT = {"documentation"}
"""Fields of which only whether they are null is kept: each broker has its own words."""

NULL_OR_EMPTY = {"aborted_transactions"}
"""Lists that mean the same when they are null."""


def comparable(value: Any, topic: str) -> Plain:
    """An answer without what varies, and without the name of its version's topic; lists are sorted."""
    if isinstance(value, Message):
        return {field.name: _field(field.name, getattr(value, field.name), topic) for field in value.__schema__.fields}
    if isinstance(value, list):
        items = [comparable(item, topic) for item in value if not _of_another(item, topic)]
        return sorted(items, key=repr) if items and isinstance(items[0], dict) else items
    if isinstance(value, bytes):
        return value.hex().replace(topic.encode().hex(), "TOPIC")
    return UUID.sub("UUID", value.replace(topic, "TOPIC")) if isinstance(value, str) else value


def _of_another(item: Any, topic: str) -> bool:
    """A setting that only kafkad has, or a group that another probe left."""
    if isinstance(item, ListedGroup):
        return not item.group_id.startswith(topic)
    return isinstance(item, Message) and str(getattr(item, "name", "")).startswith("kafkad.")


def _field(name: str, value: Any, topic: str) -> Plain:
    if name in VARYING:
        return ANY
    if name in PRESENT:
        return value is not None
    return comparable(value, topic) or [] if name in NULL_OR_EMPTY else comparable(value, topic)
