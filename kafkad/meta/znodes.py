"""Every node that Kafka 3.9 keeps in ZooKeeper: where it is and what its text looks like, byte for byte.

One class per node (or family of nodes): `path`, `encode`, `decode`. Key orders are those that real Kafka writes. A
`decode` takes what older versions wrote as well, and raises ValueError when the text is not that node's. Container
nodes have no text; `PERSISTENT` are those that must exist before anything else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kafkad.model import (
    NO_TOPIC_ID,
    BrokerInfo,
    Endpoint,
    PartitionAssignment,
    PartitionState,
    TopicPartition,
    id_from_text,
    id_text,
)

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


def _text(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


class _Fields(dict[str, Any]):
    def __missing__(self, name: str) -> Any:
        raise ValueError(f"there is no field {name!r}")


def _object(data: bytes) -> _Fields:
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError(f"not a JSON object: {data!r}")
    return _Fields(value)


class Controller(NamedTuple):
    """Who is the controller; ephemeral."""

    broker: int
    timestamp_ms: int

    @staticmethod
    def path() -> str:
        return "/controller"

    def encode(self) -> bytes:
        return _text(
            {"version": 2, "brokerid": self.broker, "timestamp": str(self.timestamp_ms), "kraftControllerEpoch": -1}
        )

    @classmethod
    def decode(cls, data: bytes) -> Controller:
        value = _object(data)
        return cls(int(value["brokerid"]), int(value["timestamp"]))


class ControllerEpoch:
    PATH = "/controller_epoch"

    @staticmethod
    def encode(epoch: int) -> bytes:
        return str(epoch).encode()

    @staticmethod
    def decode(data: bytes) -> int:
        return int(data)


class ClusterId:
    PATH = "/cluster/id"

    @staticmethod
    def encode(cluster_id: str) -> bytes:
        return _text({"version": "1", "id": cluster_id})

    @staticmethod
    def decode(data: bytes) -> str:
        return str(_object(data)["id"])


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
        return _text(value)

    @classmethod
    def decode(cls, broker: int, data: bytes, epoch: int) -> Broker:
        value = _object(data)
        protocols = value.get("listener_security_protocol_map", {})
        info = BrokerInfo(
            id=broker,
            endpoints=tuple(_endpoint(text, protocols) for text in value.get("endpoints", ())),
            rack=value.get("rack"),
            epoch=epoch,
        )
        return cls(
            broker=info,
            timestamp_ms=int(value["timestamp"]),
            features=value.get("features", {}),
            version=value["version"],
            jmx_port=value.get("jmx_port", -1),
        )


BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"


def _host_text(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _endpoint(text: str, protocols: Mapping[str, str]) -> Endpoint:
    listener, _, address = text.partition("://")
    host, _, port = address.rpartition(":")
    return Endpoint(
        listener=listener, host=host.strip("[]"), port=int(port), protocol=protocols.get(listener, listener)
    )


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
        return _text(value)

    @classmethod
    def decode(cls, data: bytes) -> Topic:
        value = _object(data)
        adding, removing = value.get("adding_replicas", {}), value.get("removing_replicas", {})
        return cls(
            topic_id=id_from_text(value["topic_id"]) if "topic_id" in value else NO_TOPIC_ID,
            partitions={
                int(p): PartitionAssignment(
                    replicas=tuple(replicas), adding=tuple(adding.get(p, ())), removing=tuple(removing.get(p, ()))
                )
                for p, replicas in value["partitions"].items()
            },
        )


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
    def decode(data: bytes, version: int) -> PartitionState:
        value = _object(data)
        return PartitionState(
            leader=value["leader"],
            leader_epoch=value["leader_epoch"],
            isr=tuple(value["isr"]),
            controller_epoch=value["controller_epoch"],
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
        """For topics, brokers and addresses, whose names need no quoting. The default entity is DEFAULT_ENTITY."""
        return f"{kind}/{name}"

    @staticmethod
    def quota_entity_path(*, user: str | None = None, client: str | None = None) -> str:
        """For a user, a client, or both; names are quoted as Kafka does it."""
        parts = []
        if user is not None:
            parts.append(f"users/{sanitize(user)}")
        if client is not None:
            parts.append(f"clients/{sanitize(client)}")
        return "/".join(parts)

    @staticmethod
    def encode(overrides: Mapping[str, str]) -> bytes:
        return _text({"version": 1, "config": dict(overrides)})

    @staticmethod
    def decode(data: bytes) -> dict[str, str]:
        """Kafka takes an empty node for no overrides."""
        if not data:
            return {}
        config = _object(data).get("config", {})
        if not isinstance(config, dict):
            raise ValueError(f"not a map of overrides: {data!r}")
        return {str(name): str(value) for name, value in config.items()}


class ConfigChange:
    """A sequential note that an entity's overrides changed. Brokers remove it after a quarter of an hour."""

    PARENT = "/config/changes"
    PREFIX = "/config/changes/config_change_"

    @staticmethod
    def encode(entity_path: str) -> bytes:
        return _text({"version": 2, "entity_path": entity_path})

    @staticmethod
    def decode(data: bytes) -> str:
        """The entity path, also of version 1, which could name only topics and clients."""
        value = _object(data)
        if value["version"] == 1:
            return f"{value['entity_type']}/{value['entity_name']}"
        return str(value["entity_path"])


class TopicDeletion:
    """A topic that somebody asked to delete; without text."""

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
        return _text({"version": 1, "partitions": partitions})

    @staticmethod
    def decode(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
        return {
            TopicPartition(p["topic"], p["partition"]): tuple(p["replicas"])
            for p in _object(data).get("partitions", ())
        }


class _PartitionList:
    @staticmethod
    def encode(partitions: Iterable[TopicPartition]) -> bytes:
        return _text({"version": 1, "partitions": [{"topic": t, "partition": p} for t, p in partitions]})

    @staticmethod
    def decode(data: bytes) -> list[TopicPartition]:
        return [TopicPartition(p["topic"], p["partition"]) for p in _object(data).get("partitions", ())]


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
        return _text({"version": 1, "broker": broker, "event": 1})

    @staticmethod
    def decode(data: bytes) -> int:
        return int(_object(data)["broker"])


class ProducerIdBlock(NamedTuple):
    """The last block of producer ids that was given out, and to whom."""

    broker: int
    first: int
    last: int

    @staticmethod
    def path() -> str:
        return "/latest_producer_id_block"

    def encode(self) -> bytes:
        return _text({"version": 1, "broker": self.broker, "block_start": str(self.first), "block_end": str(self.last)})

    @classmethod
    def decode(cls, data: bytes) -> ProducerIdBlock | None:
        """None for the empty node of a cluster that has given out none."""
        if not data:
            return None
        value = _object(data)
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
        return _text(value)

    @classmethod
    def decode(cls, data: bytes) -> Features:
        value = _object(data)
        levels = {name: int(entry["max_version_level"]) for name, entry in value["features"].items()}
        return cls(levels, int(value["status"]), int(value["version"]))


class AclEntry(NamedTuple):
    """Names as the text has them: `User:alice`, `Allow`, `*`, `IdempotentWrite`."""

    principal: str
    permission: str
    host: str
    operation: str


class Acls:
    """The entries of one resource. `resource_type` as in the path: `Topic`, `TransactionalId`, ..."""

    RESOURCE_TYPES = ("Topic", "Group", "Cluster", "TransactionalId", "DelegationToken", "User")
    PARENTS = ("/kafka-acl", "/kafka-acl-extended/prefixed")

    @staticmethod
    def path(resource_type: str, name: str, *, prefixed: bool = False) -> str:
        return f"{Acls.PARENTS[prefixed]}/{resource_type}/{name}"

    @staticmethod
    def encode(entries: Iterable[AclEntry]) -> bytes:
        acls = [
            {"principal": e.principal, "permissionType": e.permission, "host": e.host, "operation": e.operation}
            for e in entries
        ]
        return _text({"acls": acls, "version": 1})

    @staticmethod
    def decode(data: bytes) -> list[AclEntry]:
        if not data:
            return []
        return [AclEntry(e["principal"], e["permissionType"], e["host"], e["operation"]) for e in _object(data)["acls"]]


class AclChange(NamedTuple):
    """A note that a resource's ACLs changed; sequential. `resource_type` is in capitals here: `TRANSACTIONAL_ID`."""

    resource_type: str
    name: str
    prefixed: bool = False

    @property
    def prefix(self) -> str:
        return f"/kafka-acl{'-extended' if self.prefixed else ''}-changes/acl_changes_"

    def encode(self) -> bytes:
        if not self.prefixed:
            return f"{self.resource_type}:{self.name}".encode()
        return _text({"version": 1, "resourceType": self.resource_type, "name": self.name, "patternType": "PREFIXED"})

    @classmethod
    def decode(cls, data: bytes, *, prefixed: bool) -> AclChange:
        if prefixed:
            value = _object(data)
            return cls(value["resourceType"], value["name"], True)
        resource_type, separator, name = data.decode().partition(":")
        if not separator:
            raise ValueError(f"not a resource: {data!r}")
        return cls(resource_type, name)


class DelegationToken(NamedTuple):
    """A token without its secret, which brokers derive from their master key. Principals are `User:alice`."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int

    @staticmethod
    def path(token_id: str) -> str:
        return f"/delegation_token/tokens/{token_id}"

    def encode(self) -> bytes:
        return _text(
            {
                "issueTimestamp": self.issued_ms,
                "renewers": [sanitize(r) for r in self.renewers],
                "tokenRequester": sanitize(self.requester),
                "tokenId": self.token_id,
                "owner": sanitize(self.owner),
                "expiryTimestamp": self.expires_ms,
                "maxTimestamp": self.max_ms,
                "version": 3,
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> DelegationToken:
        value = _object(data)
        owner = unsanitize(value["owner"])
        return cls(
            token_id=value["tokenId"],
            owner=owner,
            requester=unsanitize(value["tokenRequester"]) if "tokenRequester" in value else owner,
            renewers=tuple(unsanitize(r) for r in value.get("renewers", ())),
            issued_ms=int(value["issueTimestamp"]),
            expires_ms=int(value["expiryTimestamp"]),
            max_ms=int(value["maxTimestamp"]),
        )


class DelegationTokenChange:
    """A note that a token changed; sequential. The text is the token id."""

    PARENT = "/delegation_token/token_changes"
    PREFIX = "/delegation_token/token_changes/token_change_"

    @staticmethod
    def encode(token_id: str) -> bytes:
        return token_id.encode()

    @staticmethod
    def decode(data: bytes) -> str:
        return data.decode()


class ConsumerOffset:
    """An offset that OffsetCommit version 0 wrote."""

    @staticmethod
    def path(group: str, topic: str, partition: int) -> str:
        return f"/consumers/{group}/offsets/{topic}/{partition}"

    @staticmethod
    def encode(offset: int) -> bytes:
        return str(offset).encode()

    @staticmethod
    def decode(data: bytes) -> int:
        return int(data)


def sanitize(name: str) -> str:
    """A name as part of a path, quoted as Java's URL encoding does it with a space as `%20` and `*` as `%2A`."""
    from urllib.parse import quote  # slow to import, and only quotas and tokens need it

    return quote(name, safe="").replace("~", "%7E")


def unsanitize(name: str) -> str:
    from urllib.parse import unquote

    return unquote(name)
