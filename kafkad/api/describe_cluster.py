"""DescribeCluster, 0 to 2: the cluster's id, controller and brokers (KIP-700, KIP-919)."""

from __future__ import annotations

from kafkad.api.context import Context, Request
from kafkad.api.operations import NOT_ASKED_FOR, on_cluster
from kafkad.api.reachable_brokers import ReachableBrokers
from kafkad.errors import ErrorCode, KafkaError
from kafkad.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS, _CONTROLLERS = 1, 2


def handle(context: Context, request: Request, message: DescribeClusterRequest) -> DescribeClusterResponse:
    if message.endpoint_type == _CONTROLLERS:
        raise KafkaError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is a broker; a KRaft controller was asked for")
    if message.endpoint_type != _BROKERS:
        raise KafkaError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"there is no endpoint type {message.endpoint_type}")
    metadata = context.replicas.metadata
    return DescribeClusterResponse(
        cluster_id=context.cluster_id,
        controller_id=metadata.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            for broker, endpoint in ReachableBrokers(metadata, request.listener).brokers
        ],
        cluster_authorized_operations=(
            on_cluster(request) if message.include_cluster_authorized_operations else NOT_ASKED_FOR
        ),
    )
