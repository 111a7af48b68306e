"""Authorization: the words of Kafka's ACLs, and the interface of authorizers."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from kafkad.errors import ErrorCode

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of the type CLUSTER."""


class Operation(IntEnum):
    """Operations by their number in requests, which is also their bit in authorized operations (KIP-430)."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class ResourceType(IntEnum):
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PermissionType(IntEnum):
    DENY = 2
    ALLOW = 3


class PatternType(IntEnum):
    """Of a resource's name in an ACL."""

    LITERAL = 3
    PREFIXED = 4


def kafka_name(value: Operation | ResourceType | PermissionType) -> str:
    """In Kafka's spelling, as in `ClusterAction` and `TransactionalId`."""
    return value.name.title().replace("_", "")


REFUSALS: Final = {
    ResourceType.TOPIC: (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."),
    ResourceType.GROUP: (ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
    ResourceType.CLUSTER: (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."),
    ResourceType.TRANSACTIONAL_ID: (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "Transactional Id authorization failed.",
    ),
    ResourceType.DELEGATION_TOKEN: (
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        "Delegation Token authorization failed.",
    ),
}
"""The error for a resource that is refused, in the words of Kafka's clients."""


class Principal(NamedTuple):
    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")


class Identity(Protocol):
    """A principal at an address, and what it may do. All connections of the two share one."""

    restricted: bool
    """False where there is no authorizer: everything is allowed, and nothing need be asked."""

    era: int
    """Another one with each change of rights: what was asked holds as long as this stays."""

    def allows(self, operation: Operation, resource: ResourceType, name: str) -> bool:
        """Without a word in the audit log: where a refusal only leaves something out, or another right will do."""

    def may(self, operation: Operation, resource: ResourceType, name: str, request: str) -> bool:
        """The same for what was asked for: the audit log has the answer, and the name of the request."""

    def writes_any(self, resource: ResourceType) -> bool:
        """True if there is any resource of the type that it may write to."""


class Authorizer(Protocol):
    def identity(self, principal: Principal, host: str) -> Identity: ...


class Anybody:
    """The identity of everybody where everything is allowed."""

    restricted = False
    era = 0

    def allows(self, operation: Operation, resource: ResourceType, name: str) -> bool:
        return True

    def may(self, operation: Operation, resource: ResourceType, name: str, request: str) -> bool:
        return True

    def writes_any(self, resource: ResourceType) -> bool:
        return True


class AllowAll:
    """No authorizer: everybody may do everything."""

    def __init__(self) -> None:
        self._anybody = Anybody()

    def identity(self, principal: Principal, host: str) -> Identity:
        return self._anybody


ALLOW_ALL: Final = AllowAll()
