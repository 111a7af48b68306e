"""The nodes that Kafka 3.9 keeps in ZooKeeper: where they are and what their text looks like, byte for byte.

One class per node (or family of nodes): `path`, `encode`, `decode`. Key orders are those that real Kafka writes. A
`decode` takes what older versions wrote as well, and raises ValueError when the text is not that node's: also where a
value has another type than belongs there, or does not fit into the requests that tell brokers of it. Container
nodes have no text; `PERSISTENT` are those that must exist before anything else. Those of consumers are in
`consumer_znodes`, ACLs and tokens in `security_znodes`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from kafkad.config.listeners import PROTOCOLS
from kafkad.meta.nodetext import json_fields, json_text, sanitize, unsanitize
from kafkad.model import (
    DEFAULT,
    BrokerInfo,
    Default,
    Endpoint,
    Entity,
    Name,
    PartitionAssignment,
    PartitionState,
)
from kafkad.names import NO_TOPIC_ID, TopicPartition, id_from_text, id_text
from kafkad.wire.primitives import MAX_STRING

DEFAULT_ENTITY = "<default>"

PERSISTENT = (
    "/consumers",
    "/brokers/ids",
    "/brokers/topics",
    "/config/changes",
    "/admin/delete_topics",
    "/brokers/seqid",
    "/isr_change_notification",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
)


def _number(value: object, bits: int = 32) -> int:
    """`value`, if it is a whole number that fits into so many bits."""
    half = 1 << (bits - 1)
    if type(value) is not int or not -half <= value < half:
        raise ValueError(f"there is something else where a number of {bits} bits belongs")
    return value


def _id(value: object) -> int:
    """Of a broker or a partition."""
    number = _number(value)
    if number < 0:
        raise ValueError(f"{number} is no id")
    return number


def _ids(values: object) -> tuple[int, ...]:
    """Different ones. They are looked at one by one in place, for at the start each partition has some."""
    if not isinstance(values, list):
        raise ValueError("there is something else where a list of ids belongs")
    for value in values:
        if type(value) is not int or not 0 <= value < 2**31:
            raise ValueError("there is something else where an id belongs")
    if len(values) > 1 and len(set(values)) != len(values):
        raise ValueError(f"an id is there twice: {values}")
    return tuple(values)


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value.encode()) > MAX_STRING:
        raise ValueError(f"there is something else where a text of up to {MAX_STRING} bytes belongs")
    return value


def _topic_partition(value: Mapping[str, object]) -> TopicPartition:
    return TopicPartition(_text(value["topic"]), _id(value["partition"]))


class Controller(NamedTuple):
    """The id of the controller; ephemeral."""

    broker: int
    timestamp_ms: int

    @staticmethod
    def path() -> str:
        return "/controller"

    def encode(self) -> bytes:
        return json_text(
            {"version": 2, "brokerid": self.broker, "timestamp": str(self.timestamp_ms), "kraftControllerEpoch": -1}
        )

    @classmethod
    def decode(cls, data: bytes) -> Controller:
        value = json_fields(data)
        return cls(_id(value["brokerid"]), int(value["timestamp"]))


class ControllerEpoch:
    PATH = "/controller_epoch"

    @staticmethod
    def encode(epoch: int) -> bytes:
        return str(epoch).encode()

    @staticmethod
    def decode(data: bytes) -> int:
        return _number(int(data))


class ClusterId:
    PATH = "/cluster/id"

    @staticmethod
    def encode(cluster_id: str) -> bytes:
        return json_text({"version": "1", "id": cluster_id})

    @staticmethod
    def decode(data: bytes) -> str:
        return str(json_fields(data)["id"])


class LogDirs(NamedTuple):
    """kafkad's own: the log directories that a broker has used. One of them that is empty now is not mounted.

    Version 2 has been written by a broker that is alone, and has let in none with partitions that it did not know.
    """

    paths: tuple[str, ...] = ()
    are_guarded: bool = False

    @staticmethod
    def path(broker: int) -> str:
        return f"/kafkad/log_dirs/{broker}"

    def encode(self) -> bytes:
        return json_text({"version": 2 if self.are_guarded else 1, "log_dirs": list(self.paths)})

    @staticmethod
    def decode(data: bytes) -> LogDirs:
        fields = json_fields(data)
        return LogDirs(tuple(map(str, fields["log_dirs"])), fields["version"] == 2)


_NO_FEATURES: Mapping[str, Mapping[str, int]] = {}


class Broker(NamedTuple):
    """A broker's registration; ephemeral. Its epoch is the czxid of the node, so it is not in the text.

    Version 5 has `features`, version 4 (Kafka below 2.7) has none.
    """

    broker: BrokerInfo
    timestamp_ms: int
    features: Mapping[str, Mapping[str, int]] = _NO_FEATURES
    version: int = 5
    jmx_port: int = -1

    @staticmethod
    def path(broker: int) -> str:
        return f"{BROKER_IDS}/{broker}"

    def encode(self) -> bytes:
        broker = self.broker
        plain = next((e for e in broker.endpoints if e.protocol == "PLAINTEXT"), None)
        value: dict[str, Any] = {"features": self.features} if self.version >= 5 else {}
        value["listener_security_protocol_map"] = {e.listener: e.protocol for e in broker.endpoints}
        value["endpoints"] = [f"{e.listener}://{_host_text(e.host)}:{e.port}" for e in broker.endpoints]
        if broker.rack is not None:
            value["rack"] = broker.rack
        value["jmx_port"] = self.jmx_port
        value["port"] = plain.port if plain else -1
        value["host"] = plain.host if plain else None
        value["version"] = self.version
        value["timestamp"] = str(self.timestamp_ms)
        return json_text(value)

    @classmethod
    def decode(cls, broker: int, data: bytes, epoch: int) -> Broker:
        value = json_fields(data)
        protocols, rack = value.get("listener_security_protocol_map", {}), value.get("rack")
        endpoints = tuple(_endpoint(text, protocols) for text in value.get("endpoints", ()))
        if not endpoints:
            raise ValueError("it has no endpoints: only Kafka 0.8 registered so")
        info = BrokerInfo(id=_id(broker), endpoints=endpoints, rack=None if rack is None else _text(rack), epoch=epoch)
        return cls(
            broker=info,
            timestamp_ms=int(value["timestamp"]),
            features={
                name: {end: _number(level, 16) for end, level in levels.items()}
                for name, levels in value.get("features", {}).items()
            },
            version=_number(value["version"]),
            jmx_port=_number(value.get("jmx_port", -1)),
        )


BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"


def _host_text(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _endpoint(text: str, protocols: Mapping[str, str]) -> Endpoint:
    listener, _, address = text.partition("://")
    host, _, port = address.rpartition(":")
    protocol = protocols.get(listener, listener)
    if protocol not in PROTOCOLS:
        raise ValueError(f"a listener has another protocol than {', '.join(PROTOCOLS)}")
    return Endpoint(listener=_text(listener), host=_text(host.strip("[]")), port=_number(int(port)), protocol=protocol)


class Topic(NamedTuple):
    """The assignment of a topic's partitions. Version 3; a topic of Kafka below 2.8 has no id (NO_TOPIC_ID)."""

    topic_id: bytes
    partitions: Mapping[int, PartitionAssignment]

    @staticmethod
    def path(topic: str) -> str:
        return f"{TOPICS}/{topic}"

    @staticmethod
    def partitions_path(topic: str) -> str:
        return f"{TOPICS}/{topic}/partitions"

    def encode(self) -> bytes:
        parts = self.partitions.items()
        value: dict[str, Any] = {"partitions": {str(p): a.replicas for p, a in parts}}
        if self.topic_id != NO_TOPIC_ID:
            value["topic_id"] = id_text(self.topic_id)
        value["adding_replicas"] = {str(p): a.adding for p, a in parts if a.adding}
        value["removing_replicas"] = {str(p): a.removing for p, a in parts if a.removing}
        value["version"] = 3
        return json_text(value)

    @classmethod
    def decode(cls, data: bytes, known: Container[int] = ()) -> Topic:
        """`known` partitions are left out."""
        value = json_fields(data)
        adding, removing = value.get("adding_replicas", {}), value.get("removing_replicas", {})
        return cls(
            topic_id=id_from_text(value["topic_id"]) if "topic_id" in value else NO_TOPIC_ID,
            partitions={
                partition: _assignment(replicas, adding.get(text, []), removing.get(text, []))
                for text, replicas in value["partitions"].items()
                if (partition := _id(int(text))) not in known
            },
        )


def _assignment(replicas: object, adding: object, removing: object) -> PartitionAssignment:
    assignment = PartitionAssignment(replicas=_ids(replicas), adding=_ids(adding), removing=_ids(removing))
    if not assignment.replicas or (assignment.removing and set(assignment.replicas) <= set(assignment.removing)):
        raise ValueError("a partition has no replicas, or none that stays")
    return assignment


class Partition:
    """Leader, epoch and in-sync replicas. The partition epoch is the version of the node."""

    @staticmethod
    def parent(topic: str, partition: int) -> str:
        return f"{TOPICS}/{topic}/partitions/{partition}"

    @staticmethod
    def path(topic: str, partition: int) -> str:
        return f"{TOPICS}/{topic}/partitions/{partition}/state"

    @staticmethod
    def encode(state: PartitionState) -> bytes:
        recovering = '"leader_recovery_state":1,' if state.recovering else ""
        isr = ",".join(map(str, state.isr))
        return (
            f'{{"controller_epoch":{state.controller_epoch},"leader":{state.leader},"version":1,{recovering}'
            f'"leader_epoch":{state.leader_epoch},"isr":[{isr}]}}'
        ).encode()

    @staticmethod
    @lru_cache(maxsize=1024)
    def decode(data: bytes, version: int) -> PartitionState:
        """Most partitions of a cluster are in one of few states, and share it in memory."""
        value = json_fields(data)
        return PartitionState(
            leader=_number(value["leader"]),
            leader_epoch=_number(value["leader_epoch"]),
            isr=_ids(value["isr"]),
            controller_epoch=_number(value["controller_epoch"]),
            partition_epoch=version,
            recovering=value.get("leader_recovery_state", 0) == 1,
        )


class Config:
    """Overrides of one entity. An entity path is what a change notification names: `topics/T`, `users/U/clients/C`."""

    TOPICS = "topics"
    BROKERS = "brokers"
    USERS = "users"
    CLIENTS = "clients"
    IPS = "ips"

    @staticmethod
    def path(entity_path: str) -> str:
        return f"/config/{entity_path}"

    @staticmethod
    def entity_path(kind: str, name: str) -> str:
        """For topics and brokers, whose names need no quoting. The default entity is DEFAULT_ENTITY."""
        return f"{kind}/{name}"

    @staticmethod
    def path_of(entity: Entity) -> str:
        """The entity path of a user, a client or both, or an address. Names are quoted as Kafka does it, but for the
        colons of addresses, which it does not understand itself when they are."""
        if entity.ip is not None:
            return f"{Config.IPS}/{_quoted(entity.ip).replace('%3A', ':')}"
        parts = []
        if entity.user is not None:
            parts.append(f"{Config.USERS}/{_quoted(entity.user)}")
        if entity.client is not None:
            parts.append(f"{Config.CLIENTS}/{_quoted(entity.client)}")
        return "/".join(parts)

    @staticmethod
    def entity_at(entity_path: str) -> Entity | None:
        """None for what is no user, client or address."""
        match entity_path.split("/"):
            case [Config.USERS, user]:
                return Entity(user=_unquoted(user))
            case [Config.USERS, user, Config.CLIENTS, client]:
                return Entity(user=_unquoted(user), client=_unquoted(client))
            case [Config.CLIENTS, client]:
                return Entity(client=_unquoted(client))
            case [Config.IPS, ip]:
                return Entity(ip=_unquoted(ip))
        return None

    @staticmethod
    def is_of_one_user(path: str) -> bool:
        """True for a user and for what is below it, which are there only as long as they have something."""
        return path.startswith(f"/config/{Config.USERS}/")

    @staticmethod
    def encode(overrides: Mapping[str, str]) -> bytes:
        return json_text({"version": 1, "config": dict(overrides)})

    @staticmethod
    def decode(data: bytes) -> dict[str, str]:
        """Kafka takes an empty node for no overrides."""
        if not data:
            return {}
        config = json_fields(data).get("config", {})
        if not isinstance(config, dict):
            raise ValueError(f"its config is no map of overrides, but of the type {type(config).__name__}")
        return {str(name): str(value) for name, value in config.items()}


def _quoted(name: Name) -> str:
    return DEFAULT_ENTITY if isinstance(name, Default) else sanitize(name)


def _unquoted(name: str) -> Name:
    return DEFAULT if name == DEFAULT_ENTITY else unsanitize(name)


class ConfigChange:
    """A sequential note that an entity's overrides changed. Brokers remove it after a quarter of an hour."""

    PARENT = "/config/changes"
    PREFIX = "/config/changes/config_change_"

    @staticmethod
    def encode(entity_path: str) -> bytes:
        return json_text({"version": 2, "entity_path": entity_path})

    @staticmethod
    def decode(data: bytes) -> str:
        """The entity path, also of version 1, which could name only topics and clients."""
        value = json_fields(data)
        if value["version"] == 1:
            return f"{value['entity_type']}/{value['entity_name']}"
        return str(value["entity_path"])


class TopicDeletion:
    """A topic that is to be deleted; without content."""

    PARENT = "/admin/delete_topics"

    @staticmethod
    def path(topic: str) -> str:
        return f"/admin/delete_topics/{topic}"


class Reassignments:
    """Targets that a tool of before Kafka 2.4 wrote; the controller takes them over and removes the node."""

    PATH = "/admin/reassign_partitions"

    @staticmethod
    def encode(targets: Mapping[TopicPartition, Sequence[int]]) -> bytes:
        partitions = [
            {"topic": tp.topic, "partition": tp.partition, "replicas": list(replicas)}
            for tp, replicas in targets.items()
        ]
        return json_text({"version": 1, "partitions": partitions})

    @staticmethod
    def decode(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
        """The replicas may be none that a partition can have: then only that partition stays where it is."""
        partitions = json_fields(data).get("partitions", ())
        return {_topic_partition(p): tuple(map(_number, p["replicas"])) for p in partitions}


class _PartitionList:
    @staticmethod
    def encode(partitions: Iterable[TopicPartition]) -> bytes:
        return json_text({"version": 1, "partitions": [{"topic": t, "partition": p} for t, p in partitions]})

    @staticmethod
    def decode(data: bytes) -> list[TopicPartition]:
        return [_topic_partition(p) for p in json_fields(data).get("partitions", ())]


class PreferredElections(_PartitionList):
    """Partitions whose preferred replica shall lead, as tools of before Kafka 2.4 asked for it."""

    PATH = "/admin/preferred_replica_election"


class IsrChange(_PartitionList):
    """Partitions whose state a broker below protocol version 2.7 wrote itself; sequential."""

    PARENT = "/isr_change_notification"
    PREFIX = "/isr_change_notification/isr_change_"


class LogDirEvent:
    """A broker's note that one of its log directories failed; sequential."""

    PARENT = "/log_dir_event_notification"
    PREFIX = "/log_dir_event_notification/log_dir_event_"

    @staticmethod
    def encode(broker: int) -> bytes:
        return json_text({"version": 1, "broker": broker, "event": 1})

    @staticmethod
    def decode(data: bytes) -> int:
        return int(json_fields(data)["broker"])


class ProducerIdBlock(NamedTuple):
    """The last block of producer ids that was given out, and to whom."""

    broker: int
    first: int
    last: int

    @staticmethod
    def path() -> str:
        return "/latest_producer_id_block"

    def encode(self) -> bytes:
        return json_text(
            {"version": 1, "broker": self.broker, "block_start": str(self.first), "block_end": str(self.last)}
        )

    @classmethod
    def decode(cls, data: bytes) -> ProducerIdBlock | None:
        """None for the empty node of a cluster that has given out none."""
        if not data:
            return None
        value = json_fields(data)
        return cls(value["broker"], int(value["block_start"]), int(value["block_end"]))


class Features(NamedTuple):
    """Finalized features and their levels. Status 1 is enabled; version 1 is of protocol versions below 3.3."""

    levels: Mapping[str, int]
    status: int = 1
    version: int = 2

    @staticmethod
    def path() -> str:
        return "/feature"

    def encode(self) -> bytes:
        features = {}
        for name, level in self.levels.items():
            features[name] = {"max_version_level": level}
            if self.version == 1:
                features[name]["min_version_level"] = level
        value = {"features": features, "version": self.version, "status": self.status}
        return json_text(value)

    @classmethod
    def decode(cls, data: bytes) -> Features:
        value = json_fields(data)
        levels = {name: _number(entry["max_version_level"], 16) for name, entry in value["features"].items()}
        return cls(levels, int(value["status"]), int(value["version"]))
