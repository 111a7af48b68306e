"""Authorized operations as the bits of responses (KIP-430). Without an authorizer a client may do everything."""

from __future__ import annotations

from kafkad.security.authorizer import Operation

NOT_ASKED_FOR = -(2**31)


def _bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


ON_CLUSTER = _bits(
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)
ON_TOPIC = _bits(
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
ON_GROUP = _bits(Operation.READ, Operation.DELETE, Operation.DESCRIBE)
