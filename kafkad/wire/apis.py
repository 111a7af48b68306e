"""The APIs that kafkad can encode and decode: Kafka's names, and the modules that declare their messages.

What a listener serves, and in which versions, is in `api/routes.py`. Message modules are imported when first asked for.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

_NEVER = 0x7FFF


class Api(NamedTuple):
    key: int
    name: str
    module: str
    flexible: int = _NEVER
    """The first version with tagged fields; it also decides the versions of the headers."""


APIS: dict[int, Api] = {
    api.key: api
    for api in (
        Api(0, "Produce", "produce", 9),
        Api(1, "Fetch", "fetch", 12),
        Api(2, "ListOffsets", "list_offsets", 6),
        Api(3, "Metadata", "metadata", 9),
        Api(4, "LeaderAndIsr", "leader_and_isr", 4),
        Api(5, "StopReplica", "stop_replica", 2),
        Api(6, "UpdateMetadata", "update_metadata", 6),
        Api(7, "ControlledShutdown", "controlled_shutdown", 3),
        Api(8, "OffsetCommit", "offset_commit", 8),
        Api(9, "OffsetFetch", "offset_fetch", 6),
        Api(10, "FindCoordinator", "find_coordinator", 3),
        Api(11, "JoinGroup", "join_group", 6),
        Api(12, "Heartbeat", "heartbeat", 4),
        Api(13, "LeaveGroup", "leave_group", 4),
        Api(14, "SyncGroup", "sync_group", 4),
        Api(15, "DescribeGroups", "describe_groups", 5),
        Api(16, "ListGroups", "list_groups", 3),
        Api(17, "SaslHandshake", "sasl_handshake"),
        Api(18, "ApiVersions", "api_versions", 3),
        Api(19, "CreateTopics", "create_topics", 5),
        Api(20, "DeleteTopics", "delete_topics", 4),
        Api(21, "DeleteRecords", "delete_records", 2),
        Api(22, "InitProducerId", "init_producer_id", 2),
        Api(23, "OffsetForLeaderEpoch", "offset_for_leader_epoch", 4),
        Api(24, "AddPartitionsToTxn", "add_partitions_to_txn", 3),
        Api(25, "AddOffsetsToTxn", "add_offsets_to_txn", 3),
        Api(26, "EndTxn", "end_txn", 3),
        Api(27, "WriteTxnMarkers", "write_txn_markers", 1),
        Api(28, "TxnOffsetCommit", "txn_offset_commit", 3),
        Api(29, "DescribeAcls", "describe_acls", 2),
        Api(30, "CreateAcls", "create_acls", 2),
        Api(31, "DeleteAcls", "delete_acls", 2),
        Api(32, "DescribeConfigs", "describe_configs", 4),
        Api(33, "AlterConfigs", "alter_configs", 2),
        Api(34, "AlterReplicaLogDirs", "alter_replica_log_dirs", 2),
        Api(35, "DescribeLogDirs", "describe_log_dirs", 2),
        Api(36, "SaslAuthenticate", "sasl_authenticate", 2),
        Api(37, "CreatePartitions", "create_partitions", 2),
        Api(38, "CreateDelegationToken", "create_delegation_token", 2),
        Api(39, "RenewDelegationToken", "renew_delegation_token", 2),
        Api(40, "ExpireDelegationToken", "expire_delegation_token", 2),
        Api(41, "DescribeDelegationToken", "describe_delegation_token", 2),
        Api(42, "DeleteGroups", "delete_groups", 2),
        Api(43, "ElectLeaders", "elect_leaders", 2),
        Api(44, "IncrementalAlterConfigs", "incremental_alter_configs", 1),
        Api(45, "AlterPartitionReassignments", "alter_partition_reassignments", 0),
        Api(46, "ListPartitionReassignments", "list_partition_reassignments", 0),
        Api(47, "OffsetDelete", "offset_delete"),
        Api(48, "DescribeClientQuotas", "describe_client_quotas", 1),
        Api(49, "AlterClientQuotas", "alter_client_quotas", 1),
        Api(50, "DescribeUserScramCredentials", "describe_user_scram_credentials", 0),
        Api(51, "AlterUserScramCredentials", "alter_user_scram_credentials", 0),
        Api(55, "DescribeQuorum", "describe_quorum", 0),
        Api(56, "AlterPartition", "alter_partition", 0),
        Api(57, "UpdateFeatures", "update_features", 0),
        Api(58, "Envelope", "envelope", 0),
        Api(60, "DescribeCluster", "describe_cluster", 0),
        Api(61, "DescribeProducers", "describe_producers", 0),
        Api(64, "UnregisterBroker", "unregister_broker", 0),
        Api(65, "DescribeTransactions", "describe_transactions", 0),
        Api(66, "ListTransactions", "list_transactions", 0),
        Api(67, "AllocateProducerIds", "allocate_producer_ids", 0),
        Api(68, "ConsumerGroupHeartbeat", "consumer_group_heartbeat", 0),
        Api(69, "ConsumerGroupDescribe", "consumer_group_describe", 0),
        Api(71, "GetTelemetrySubscriptions", "get_telemetry_subscriptions", 0),
        Api(72, "PushTelemetry", "push_telemetry", 0),
        Api(74, "ListConfigResources", "list_config_resources", 0),
        Api(75, "DescribeTopicPartitions", "describe_topic_partitions", 0),
        Api(76, "ShareGroupHeartbeat", "share_group_heartbeat", 0),
        Api(77, "ShareGroupDescribe", "share_group_describe", 0),
        Api(78, "ShareFetch", "share_fetch", 0),
        Api(79, "ShareAcknowledge", "share_acknowledge", 0),
        Api(88, "StreamsGroupHeartbeat", "streams_group_heartbeat", 0),
        Api(89, "StreamsGroupDescribe", "streams_group_describe", 0),
        Api(90, "DescribeShareGroupOffsets", "describe_share_group_offsets", 0),
        Api(91, "AlterShareGroupOffsets", "alter_share_group_offsets", 0),
        Api(92, "DeleteShareGroupOffsets", "delete_share_group_offsets", 0),
    )
}


def is_flexible(key: int, version: int) -> bool:
    """True if this version has tagged fields; false for an unknown API."""
    api = APIS.get(key)
    return api is not None and version >= api.flexible


@cache
def request_class(key: int) -> type[Any]:
    return _class(APIS[key], "Request")


@cache
def response_class(key: int) -> type[Any]:
    return _class(APIS[key], "Response")


def _class(api: Api, suffix: str) -> type[Any]:
    found: type[Any] = getattr(import_module(f"kafkad.wire.messages.{api.module}"), api.name + suffix)
    return found
