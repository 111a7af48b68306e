"""The records of a KRaft cluster's metadata log, by their number, and the control records of its quorum."""

from __future__ import annotations

from kafkad.wire.schema import (
    array,
    boolean,
    bytes_,
    float64,
    int8,
    int16,
    int32,
    int64,
    message,
    nested,
    string,
    struct,
    uint16,
    uuid,
)


@nested
class BrokerEndpoint:
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


@nested
class BrokerFeature:
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


@message(key=0, versions="0-4", flexible="0+")
class RegisterBrokerRecord:
    """A broker has come."""

    broker_id: int = int32()
    is_migrating_zk_broker: bool = boolean("2+")
    incarnation_id: bytes = uuid()
    broker_epoch: int = int64()
    end_points: list[BrokerEndpoint] = array(BrokerEndpoint)
    features: list[BrokerFeature] = array(BrokerFeature)
    rack: str | None = string(nullable="0+")
    fenced: bool = boolean(default=True)
    in_controlled_shutdown: bool = boolean("1+")
    log_dirs: list[bytes] = array(uuid, "3+", tag=0)
    cordoned_log_dirs: list[bytes] | None = array(uuid, "4+", nullable="4+", default=None, tag=1)


@message(key=1, versions="0", flexible="0+")
class UnregisterBrokerRecord:
    """A broker was taken out for good."""

    broker_id: int = int32()
    broker_epoch: int = int64()


@message(key=2, versions="0", flexible="0+")
class TopicRecord:
    """A topic was made."""

    name: str = string()
    topic_id: bytes = uuid()


@message(key=3, versions="0-2", flexible="0+")
class PartitionRecord:
    """A partition was made."""

    partition_id: int = int32(default=-1)
    topic_id: bytes = uuid()
    replicas: list[int] = array(int32)
    isr: list[int] = array(int32)
    removing_replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32)
    leader: int = int32(default=-1)
    leader_recovery_state: int = int8(tag=0)
    leader_epoch: int = int32(default=-1)
    partition_epoch: int = int32(default=-1)
    directories: list[bytes] = array(uuid, "1+")
    eligible_leader_replicas: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=1)
    last_known_elr: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=2)


@message(key=4, versions="0", flexible="0+")
class ConfigRecord:
    """A setting was set, or taken back."""

    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(nullable="0+")


@message(key=5, versions="0-2", flexible="0+")
class PartitionChangeRecord:
    """A change of a partition; fields that are None stay as they were."""

    partition_id: int = int32(default=-1)
    topic_id: bytes = uuid()
    isr: list[int] | None = array(int32, nullable="0+", default=None, tag=0)
    leader: int = int32(default=-2, tag=1)
    replicas: list[int] | None = array(int32, nullable="0+", default=None, tag=2)
    removing_replicas: list[int] | None = array(int32, nullable="0+", default=None, tag=3)
    adding_replicas: list[int] | None = array(int32, nullable="0+", default=None, tag=4)
    leader_recovery_state: int = int8(default=-1, tag=5)
    directories: list[bytes] | None = array(uuid, "1+", nullable="1+", default=None, tag=8)
    eligible_leader_replicas: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=6)
    last_known_elr: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=7)


@message(key=7, versions="0", flexible="0+")
class FenceBrokerRecord:
    """A broker must lead nothing."""

    id: int = int32()
    epoch: int = int64()


@message(key=8, versions="0", flexible="0+")
class UnfenceBrokerRecord:
    """A broker may lead again."""

    id: int = int32()
    epoch: int = int64()


@message(key=9, versions="0", flexible="0+")
class RemoveTopicRecord:
    """A topic was deleted."""

    topic_id: bytes = uuid()


@message(key=10, versions="0", flexible="0+")
class DelegationTokenRecord:
    """A token was made or renewed."""

    owner: str = string()
    requester: str = string()
    renewers: list[str] = array(string)
    issue_timestamp: int = int64()
    max_timestamp: int = int64()
    expiration_timestamp: int = int64()
    token_id: str = string()


@message(key=11, versions="0", flexible="0+")
class UserScramCredentialRecord:
    """A user has a password."""

    name: str = string()
    mechanism: int = int8()
    salt: bytes = bytes_()
    stored_key: bytes = bytes_()
    server_key: bytes = bytes_()
    iterations: int = int32()


@message(key=12, versions="0", flexible="0+")
class FeatureLevelRecord:
    """A feature is used at this level."""

    name: str = string()
    feature_level: int = int16()


@nested
class EntityData:
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


@message(key=14, versions="0", flexible="0+")
class ClientQuotaRecord:
    """A quota was set or taken back."""

    entity: list[EntityData] = array(EntityData)
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


@message(key=15, versions="0", flexible="0+")
class ProducerIdsRecord:
    """Up to which ids of producers are given out."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    next_producer_id: int = int64()


@message(key=17, versions="0-3", flexible="0+")
class BrokerRegistrationChangeRecord:
    """A change of a broker's registration; fields that are 0 stay as they were."""

    broker_id: int = int32()
    broker_epoch: int = int64()
    fenced: int = int8(tag=0)
    in_controlled_shutdown: int = int8("1+", tag=1)
    log_dirs: list[bytes] = array(uuid, "2+", tag=2)
    cordoned_log_dirs: list[bytes] | None = array(uuid, "3+", nullable="3+", default=None, tag=3)


@message(key=18, versions="0", flexible="0+")
class AccessControlEntryRecord:
    """An ACL was made."""

    id: bytes = uuid()
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8()
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@message(key=19, versions="0", flexible="0+")
class RemoveAccessControlEntryRecord:
    """An ACL was deleted."""

    id: bytes = uuid()


@message(key=20, versions="0", flexible="0+")
class NoOpRecord:
    """Nothing; only the offset moves."""


@message(key=21, versions="0", flexible="0+")
class ZkMigrationStateRecord:
    """The state of the migration from ZooKeeper."""

    zk_migration_state: int = int8()


@message(key=22, versions="0", flexible="0+")
class RemoveUserScramCredentialRecord:
    """A user has this password no more."""

    name: str = string()
    mechanism: int = int8()


@message(key=23, versions="0", flexible="0+")
class BeginTransactionRecord:
    """The beginning of a transaction: the records that follow count only once it ends."""

    name: str | None = string(nullable="0+", default=None, tag=0)


@message(key=24, versions="0", flexible="0+")
class EndTransactionRecord:
    """The end of a transaction: the records since its beginning count."""


@message(key=25, versions="0", flexible="0+")
class AbortTransactionRecord:
    """The abort of a transaction: the records since its beginning do not count."""

    reason: str | None = string(nullable="0+", default=None, tag=0)


@message(key=26, versions="0", flexible="0+")
class RemoveDelegationTokenRecord:
    """A token was deleted."""

    token_id: str = string()


@nested
class ControllerEndpoint:
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


@nested
class ControllerFeature:
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


@message(key=27, versions="0", flexible="0+")
class RegisterControllerRecord:
    """A controller has come."""

    controller_id: int = int32()
    incarnation_id: bytes = uuid()
    zk_migration_ready: bool = boolean()
    end_points: list[ControllerEndpoint] = array(ControllerEndpoint)
    features: list[ControllerFeature] = array(ControllerFeature)


@message(key=28, versions="0", flexible="0+")
class ClearElrRecord:
    """Eligible leaders of a topic, or of all, are forgotten."""

    topic_name: str = string()


@nested
class Voter:
    voter_id: int = int32()
    voter_directory_id: bytes = uuid("1+")


@message(versions="0-1", flexible="0+")
class LeaderChangeMessage:
    """The leader of the quorum from here on."""

    version: int = int16()
    leader_id: int = int32()
    voters: list[Voter] = array(Voter)
    granting_voters: list[Voter] = array(Voter)


@message(versions="0", flexible="0+")
class SnapshotHeaderRecord:
    """A snapshot begins."""

    version: int = int16()
    last_contained_log_timestamp: int = int64()


@message(versions="0", flexible="0+")
class SnapshotFooterRecord:
    """A snapshot is whole."""

    version: int = int16()


@message(versions="0", flexible="0+")
class KRaftVersionRecord:
    """The version of the quorum's own protocol."""

    version: int = int16()
    k_raft_version: int = int16()


@nested
class VoterEndpoint:
    name: str = string()
    host: str = string()
    port: int = uint16()


@nested
class VersionRange:
    min_supported_version: int = int16()
    max_supported_version: int = int16()


@nested
class QuorumVoter:
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    endpoints: list[VoterEndpoint] = array(VoterEndpoint)
    k_raft_version_feature: VersionRange = struct(VersionRange)


@message(versions="0", flexible="0+")
class VotersRecord:
    """The voters of the quorum."""

    version: int = int16()
    voters: list[QuorumVoter] = array(QuorumVoter)
