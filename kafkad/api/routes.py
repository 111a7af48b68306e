"""THE list: every request this broker answers, its versions, and who answers it.

A handler is named as text and imported at its first request, so that starting costs nothing for what nobody asks.
It is `handle(context, request, message)` and returns the response message, or a coroutine or a future of it. Produce
and Fetch are read in place by `dispatch` and have no handler here.
"""

from __future__ import annotations

from typing import NamedTuple

IN_PLACE = ""
_MANY = 100_000
PRODUCE, FETCH, OFFSET_COMMIT, API_VERSIONS = 0, 1, 8, 18


class Route(NamedTuple):
    key: int
    name: str
    first: int
    last: int
    handler: str = IN_PLACE
    items: int = 20_000
    """How many a request may name, in all its arrays together; more where they are answered in pieces."""
    advertised_from: int = -1
    """librdkafka compresses only when Produce is advertised from 0, although 0 to 2 are refused (KAFKA-18659)."""

    @property
    def advertised(self) -> tuple[int, int]:
        return (self.first if self.advertised_from < 0 else self.advertised_from, self.last)


ROUTES: tuple[Route, ...] = (
    Route(PRODUCE, "Produce", 3, 13, advertised_from=0),
    Route(FETCH, "Fetch", 4, 18),
    Route(2, "ListOffsets", 1, 11, "kafkad.api.list_offsets:handle", _MANY),
    Route(3, "Metadata", 0, 13, "kafkad.api.metadata:handle", _MANY),
    Route(OFFSET_COMMIT, "OffsetCommit", 0, 10, "kafkad.api.offset_commit:handle"),
    Route(9, "OffsetFetch", 0, 10, "kafkad.api.offset_fetch:handle", _MANY),
    Route(10, "FindCoordinator", 0, 6, "kafkad.api.find_coordinator:handle", _MANY),
    Route(11, "JoinGroup", 0, 9, "kafkad.api.join_group:handle"),
    Route(12, "Heartbeat", 0, 4, "kafkad.api.heartbeat:handle"),
    Route(13, "LeaveGroup", 0, 5, "kafkad.api.leave_group:handle"),
    Route(14, "SyncGroup", 0, 5, "kafkad.api.sync_group:handle"),
    Route(15, "DescribeGroups", 0, 6, "kafkad.api.describe_groups:handle", _MANY),
    Route(16, "ListGroups", 0, 5, "kafkad.api.list_groups:handle"),
    Route(API_VERSIONS, "ApiVersions", 0, 4, "kafkad.api.api_versions:handle"),
    Route(19, "CreateTopics", 0, 7, "kafkad.api.create_topics:handle"),
    Route(20, "DeleteTopics", 0, 6, "kafkad.api.delete_topics:handle"),
    Route(21, "DeleteRecords", 0, 2, "kafkad.api.delete_records:handle", _MANY),
    Route(22, "InitProducerId", 0, 5, "kafkad.api.init_producer_id:handle"),
    Route(23, "OffsetForLeaderEpoch", 0, 4, "kafkad.api.offset_for_leader_epoch:handle", _MANY),
    Route(32, "DescribeConfigs", 0, 4, "kafkad.api.describe_configs:handle", _MANY),
    Route(33, "AlterConfigs", 0, 2, "kafkad.api.alter_configs:handle"),
    Route(34, "AlterReplicaLogDirs", 0, 2, "kafkad.api.alter_replica_log_dirs:handle"),
    Route(35, "DescribeLogDirs", 0, 5, "kafkad.api.describe_log_dirs:handle"),
    Route(37, "CreatePartitions", 0, 3, "kafkad.api.create_partitions:handle"),
    Route(42, "DeleteGroups", 0, 2, "kafkad.api.delete_groups:handle", _MANY),
    Route(43, "ElectLeaders", 0, 2, "kafkad.api.elect_leaders:handle"),
    Route(44, "IncrementalAlterConfigs", 0, 1, "kafkad.api.incremental_alter_configs:handle"),
    Route(45, "AlterPartitionReassignments", 0, 1, "kafkad.api.alter_partition_reassignments:handle"),
    Route(46, "ListPartitionReassignments", 0, 0, "kafkad.api.list_partition_reassignments:handle"),
    Route(47, "OffsetDelete", 0, 0, "kafkad.api.offset_delete:handle"),
    Route(57, "UpdateFeatures", 0, 2, "kafkad.api.update_features:handle"),
    Route(60, "DescribeCluster", 0, 2, "kafkad.api.describe_cluster:handle"),
    Route(61, "DescribeProducers", 0, 0, "kafkad.api.describe_producers:handle", _MANY),
    Route(74, "ListConfigResources", 0, 1, "kafkad.api.list_config_resources:handle"),
    Route(75, "DescribeTopicPartitions", 0, 0, "kafkad.api.describe_topic_partitions:handle"),
)

BY_KEY: dict[int, Route] = {route.key: route for route in ROUTES}
