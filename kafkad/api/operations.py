"""Authorized operations as the bits of responses (KIP-430): which of a resource's operations the sender may do."""

from __future__ import annotations

from kafkad.api.context import Request
from kafkad.security.authorizer import CLUSTER_NAME, Operation, ResourceType

NOT_ASKED_FOR = -(2**31)

_OPERATIONS = {
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE),
}


def _bits(operations: tuple[Operation, ...]) -> int:
    return sum(1 << operation for operation in operations)


_ALL = {resource: _bits(operations) for resource, operations in _OPERATIONS.items()}


def authorized_operations(request: Request, resource: ResourceType, name: str) -> int:
    if not request.restricted:
        return _ALL[resource]
    return _bits(tuple(each for each in _OPERATIONS[resource] if request.allows(each, resource, name)))


def on_cluster(request: Request) -> int:
    """Nothing for those who may not describe it."""
    if not request.allowed(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return authorized_operations(request, ResourceType.CLUSTER, CLUSTER_NAME)
