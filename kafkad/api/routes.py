"""THE list: every request this broker answers, its versions, the rights it needs, and its handler.

A handler is named as text, and imported at its first request or soon after the start, which does not wait for it.
It is `handle(context, request, message)` and returns the response message, or a coroutine or a future of it. Produce
and Fetch are read in place by `dispatch` and have no handler here.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkad.api.permissions import NONE, Permission, for_cluster, for_group, for_transaction
from kafkad.security.authorizer import Operation, ResourceType

IN_PLACE = ""
_MANY = 100_000
PRODUCE, FETCH, OFFSET_COMMIT, API_VERSIONS, ADD_PARTITIONS_TO_TXN = 0, 1, 8, 18, 24


class Route(NamedTuple):
    key: int
    name: str
    first: int
    last: int
    permissions: tuple[Permission, ...]
    """The rights that the whole request needs, checked by `dispatch`; the handler checks the others."""
    handler: str = IN_PLACE
    items: int = 20_000
    """The most items a request may name, in all its arrays together; more where they are answered in pieces."""
    advertised_from: int = -1
    """librdkafka compresses only when Produce is advertised from 0, although 0 to 2 are refused (KAFKA-18659)."""

    @property
    def advertised(self) -> tuple[int, int]:
        return (self.first if self.advertised_from < 0 else self.advertised_from, self.last)


_TOPIC, _GROUP, _CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
_READ_TOPIC = Permission(Operation.READ, _TOPIC)
_WRITE_TOPIC = Permission(Operation.WRITE, _TOPIC)
_CREATE_TOPIC = Permission(Operation.CREATE, _TOPIC)
_DELETE_TOPIC = Permission(Operation.DELETE, _TOPIC)
_ALTER_TOPIC = Permission(Operation.ALTER, _TOPIC)
_DESCRIBE_TOPIC = Permission(Operation.DESCRIBE, _TOPIC)
_DESCRIBE_TOPIC_CONFIGS = Permission(Operation.DESCRIBE_CONFIGS, _TOPIC)
_ALTER_TOPIC_CONFIGS = Permission(Operation.ALTER_CONFIGS, _TOPIC)
_DESCRIBE_GROUP = Permission(Operation.DESCRIBE, _GROUP)
_DELETE_GROUP = Permission(Operation.DELETE, _GROUP)
_WRITE_TRANSACTION = Permission(Operation.WRITE, ResourceType.TRANSACTIONAL_ID)
_DESCRIBE_TRANSACTION = Permission(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
_CREATE_ON_CLUSTER = Permission(Operation.CREATE, _CLUSTER)
_DESCRIBE_CLUSTER = Permission(Operation.DESCRIBE, _CLUSTER)
_IDEMPOTENT_WRITE = Permission(Operation.IDEMPOTENT_WRITE, _CLUSTER)
_DESCRIBE_CLUSTER_CONFIGS = Permission(Operation.DESCRIBE_CONFIGS, _CLUSTER)
_ALTER_CLUSTER_CONFIGS = Permission(Operation.ALTER_CONFIGS, _CLUSTER)
_AS_BROKER = Permission(Operation.CLUSTER_ACTION, _CLUSTER)
"""Followers ask so, where clients ask with a right of their own."""

_OF_MEMBERS = (for_group(Operation.READ),)
_COMMITTING = (for_group(Operation.READ), _READ_TOPIC)
_COMMITTING_IN_TRANSACTION = (for_transaction(Operation.WRITE), for_group(Operation.READ), _READ_TOPIC)
_DELETING_OFFSETS = (for_group(Operation.DELETE), _READ_TOPIC)
_ALTERING_CLUSTER = (for_cluster(Operation.ALTER),)
_DESCRIBING_CLUSTER = (for_cluster(Operation.DESCRIBE),)
_LISTING_CONFIGS = (for_cluster(Operation.DESCRIBE_CONFIGS),)
_ASKING_FOR_TOPICS = (_DESCRIBE_TOPIC, _CREATE_TOPIC, _CREATE_ON_CLUSTER)
_CREATING_TOPICS = (_CREATE_TOPIC, _CREATE_ON_CLUSTER, _DESCRIBE_TOPIC_CONFIGS)
_BEGINNING_TO_PRODUCE = (_WRITE_TRANSACTION, _IDEMPOTENT_WRITE, _WRITE_TOPIC)
_DESCRIBING_CONFIGS = (_DESCRIBE_TOPIC_CONFIGS, _DESCRIBE_CLUSTER_CONFIGS)
_FINDING = (_DESCRIBE_GROUP, _DESCRIBE_TRANSACTION)
_ASKING_EPOCHS = (_DESCRIBE_TOPIC, _AS_BROKER)
_ALTERING_QUOTAS = (for_cluster(Operation.ALTER_CONFIGS),)
_ALTERING_CONFIGS = (_ALTER_TOPIC_CONFIGS, _ALTER_CLUSTER_CONFIGS)
_ENDING_TRANSACTIONS = (Permission(Operation.ALTER, _CLUSTER), _AS_BROKER)
_IN_TRANSACTION = Permission(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, whole=True, field="transactional_id")
_ADDING_PARTITIONS = (_WRITE_TRANSACTION, _WRITE_TOPIC, _AS_BROKER)
_ADDING_OFFSETS = (_IN_TRANSACTION, for_group(Operation.READ))
_DESCRIBING_TRANSACTIONS = (_DESCRIBE_TRANSACTION, _DESCRIBE_TOPIC)
_ONLY_BROKERS = (for_cluster(Operation.CLUSTER_ACTION),)
_CREATE_TOKENS = Permission(Operation.CREATE_TOKENS, ResourceType.USER)
_DESCRIBING_TOKENS = (
    Permission(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN),
    Permission(Operation.DESCRIBE_TOKENS, ResourceType.USER),
)

ROUTES: tuple[Route, ...] = (
    Route(PRODUCE, "Produce", 3, 13, (_WRITE_TRANSACTION, _WRITE_TOPIC), advertised_from=0),
    Route(FETCH, "Fetch", 4, 18, (_READ_TOPIC, _AS_BROKER)),
    Route(2, "ListOffsets", 1, 11, (_DESCRIBE_TOPIC,), "kafkad.api.list_offsets:handle", _MANY),
    Route(3, "Metadata", 0, 13, _ASKING_FOR_TOPICS, "kafkad.api.metadata:handle", _MANY),
    Route(OFFSET_COMMIT, "OffsetCommit", 0, 10, _COMMITTING, "kafkad.api.offset_commit:handle"),
    Route(9, "OffsetFetch", 0, 10, (_DESCRIBE_GROUP, _DESCRIBE_TOPIC), "kafkad.api.offset_fetch:handle", _MANY),
    Route(10, "FindCoordinator", 0, 6, _FINDING, "kafkad.api.find_coordinator:handle", _MANY),
    Route(11, "JoinGroup", 0, 9, _OF_MEMBERS, "kafkad.api.join_group:handle"),
    Route(12, "Heartbeat", 0, 4, _OF_MEMBERS, "kafkad.api.heartbeat:handle"),
    Route(13, "LeaveGroup", 0, 5, _OF_MEMBERS, "kafkad.api.leave_group:handle"),
    Route(14, "SyncGroup", 0, 5, _OF_MEMBERS, "kafkad.api.sync_group:handle"),
    Route(15, "DescribeGroups", 0, 6, (_DESCRIBE_GROUP,), "kafkad.api.describe_groups:handle", _MANY),
    Route(16, "ListGroups", 0, 5, (_DESCRIBE_CLUSTER, _DESCRIBE_GROUP), "kafkad.api.list_groups:handle"),
    Route(17, "SaslHandshake", 0, 1, NONE, "kafkad.api.sasl_handshake:handle"),
    Route(API_VERSIONS, "ApiVersions", 0, 4, NONE, "kafkad.api.api_versions:handle"),
    Route(19, "CreateTopics", 0, 7, _CREATING_TOPICS, "kafkad.api.create_topics:handle"),
    Route(20, "DeleteTopics", 0, 6, (_DELETE_TOPIC, _DESCRIBE_TOPIC), "kafkad.api.delete_topics:handle"),
    Route(21, "DeleteRecords", 0, 2, (_DELETE_TOPIC,), "kafkad.api.delete_records:handle", _MANY),
    Route(22, "InitProducerId", 0, 5, _BEGINNING_TO_PRODUCE, "kafkad.api.init_producer_id:handle"),
    Route(23, "OffsetForLeaderEpoch", 0, 4, _ASKING_EPOCHS, "kafkad.api.offset_for_leader_epoch:handle", _MANY),
    Route(24, "AddPartitionsToTxn", 0, 5, _ADDING_PARTITIONS, "kafkad.api.add_partitions_to_txn:handle"),
    Route(25, "AddOffsetsToTxn", 0, 4, _ADDING_OFFSETS, "kafkad.api.add_offsets_to_txn:handle"),
    Route(26, "EndTxn", 0, 5, (_IN_TRANSACTION,), "kafkad.api.end_txn:handle"),
    Route(27, "WriteTxnMarkers", 0, 2, _ENDING_TRANSACTIONS, "kafkad.api.write_txn_markers:handle"),
    Route(28, "TxnOffsetCommit", 0, 5, _COMMITTING_IN_TRANSACTION, "kafkad.api.txn_offset_commit:handle"),
    Route(29, "DescribeAcls", 0, 3, _DESCRIBING_CLUSTER, "kafkad.api.describe_acls:handle"),
    Route(30, "CreateAcls", 0, 3, _ALTERING_CLUSTER, "kafkad.api.create_acls:handle"),
    Route(31, "DeleteAcls", 0, 3, _ALTERING_CLUSTER, "kafkad.api.delete_acls:handle"),
    Route(32, "DescribeConfigs", 0, 4, _DESCRIBING_CONFIGS, "kafkad.api.describe_configs:handle", _MANY),
    Route(33, "AlterConfigs", 0, 2, _ALTERING_CONFIGS, "kafkad.api.alter_configs:handle"),
    Route(34, "AlterReplicaLogDirs", 0, 2, _ALTERING_CLUSTER, "kafkad.api.alter_replica_log_dirs:handle"),
    Route(35, "DescribeLogDirs", 0, 5, _DESCRIBING_CLUSTER, "kafkad.api.describe_log_dirs:handle"),
    Route(36, "SaslAuthenticate", 0, 2, NONE, "kafkad.api.sasl_authenticate:handle"),
    Route(37, "CreatePartitions", 0, 3, (_ALTER_TOPIC,), "kafkad.api.create_partitions:handle"),
    Route(38, "CreateDelegationToken", 0, 3, (_CREATE_TOKENS,), "kafkad.api.create_delegation_token:handle"),
    Route(39, "RenewDelegationToken", 0, 2, NONE, "kafkad.api.renew_delegation_token:handle"),
    Route(40, "ExpireDelegationToken", 0, 2, NONE, "kafkad.api.expire_delegation_token:handle"),
    Route(41, "DescribeDelegationToken", 0, 3, _DESCRIBING_TOKENS, "kafkad.api.describe_delegation_token:handle"),
    Route(42, "DeleteGroups", 0, 2, (_DELETE_GROUP,), "kafkad.api.delete_groups:handle", _MANY),
    Route(43, "ElectLeaders", 0, 2, _ALTERING_CLUSTER, "kafkad.api.elect_leaders:handle"),
    Route(44, "IncrementalAlterConfigs", 0, 1, _ALTERING_CONFIGS, "kafkad.api.incremental_alter_configs:handle"),
    Route(
        45, "AlterPartitionReassignments", 0, 1, _ALTERING_CLUSTER, "kafkad.api.alter_partition_reassignments:handle"
    ),
    Route(
        46, "ListPartitionReassignments", 0, 0, _DESCRIBING_CLUSTER, "kafkad.api.list_partition_reassignments:handle"
    ),
    Route(47, "OffsetDelete", 0, 0, _DELETING_OFFSETS, "kafkad.api.offset_delete:handle"),
    Route(48, "DescribeClientQuotas", 0, 1, _LISTING_CONFIGS, "kafkad.api.describe_client_quotas:handle"),
    Route(49, "AlterClientQuotas", 0, 1, _ALTERING_QUOTAS, "kafkad.api.alter_client_quotas:handle"),
    Route(
        *(50, "DescribeUserScramCredentials", 0, 0, _DESCRIBING_CLUSTER),
        "kafkad.api.describe_user_scram_credentials:handle",
    ),
    Route(51, "AlterUserScramCredentials", 0, 0, _ALTERING_CLUSTER, "kafkad.api.alter_user_scram_credentials:handle"),
    Route(57, "UpdateFeatures", 0, 2, _ALTERING_CLUSTER, "kafkad.api.update_features:handle"),
    Route(60, "DescribeCluster", 0, 2, (_DESCRIBE_CLUSTER,), "kafkad.api.describe_cluster:handle"),
    Route(61, "DescribeProducers", 0, 0, (_READ_TOPIC,), "kafkad.api.describe_producers:handle", _MANY),
    Route(65, "DescribeTransactions", 0, 0, _DESCRIBING_TRANSACTIONS, "kafkad.api.describe_transactions:handle", _MANY),
    Route(66, "ListTransactions", 0, 2, (_DESCRIBE_TRANSACTION,), "kafkad.api.list_transactions:handle"),
    Route(74, "ListConfigResources", 0, 1, _LISTING_CONFIGS, "kafkad.api.list_config_resources:handle"),
    Route(75, "DescribeTopicPartitions", 0, 0, (_DESCRIBE_TOPIC,), "kafkad.api.describe_topic_partitions:handle"),
)

_ALL_PARTITIONS = 100_000_000
"""All of a cluster's partitions may stand in one request, each with its replicas."""

BETWEEN_BROKERS: tuple[Route, ...] = (
    Route(4, "LeaderAndIsr", 5, 7, _ONLY_BROKERS, "kafkad.api.leader_and_isr:handle", _ALL_PARTITIONS),
    Route(5, "StopReplica", 3, 4, _ONLY_BROKERS, "kafkad.api.stop_replica:handle", _ALL_PARTITIONS),
    Route(6, "UpdateMetadata", 7, 8, _ONLY_BROKERS, "kafkad.api.update_metadata:handle", _ALL_PARTITIONS),
    Route(7, "ControlledShutdown", 2, 3, _ONLY_BROKERS, "kafkad.api.controlled_shutdown:handle"),
    Route(56, "AlterPartition", 2, 3, _ONLY_BROKERS, "kafkad.api.alter_partition:handle", _ALL_PARTITIONS),
    Route(67, "AllocateProducerIds", 0, 0, _ONLY_BROKERS, "kafkad.api.allocate_producer_ids:handle"),
)
"""Served beside the others by a broker that can have others beside it."""

API_NAMES: dict[int, str] = {route.key: route.name for route in (*ROUTES, *BETWEEN_BROKERS)}
BY_KEY: dict[int, Route] = {route.key: route for route in ROUTES}
