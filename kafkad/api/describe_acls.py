"""DescribeAcls, 0 to 3: the ACLs that a filter finds. Version 0 knows no prefixes, and finds none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkad.api.context import Context, Request
from kafkad.errors import ErrorCode, KafkaError
from kafkad.security.acl_filter import AclFilter
from kafkad.turns import Pieces
from kafkad.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from kafkad.wire.primitives import MalformedError

if TYPE_CHECKING:
    from kafkad.security.acl import Pattern
    from kafkad.wire.messages.delete_acls import DeleteAclsFilter

_AT_ONCE = 16


def handle(context: Context, request: Request, message: DescribeAclsRequest) -> Pieces[DescribeAclsResponse]:
    wanted = filter_of(message)
    if context.acls is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    resources: dict[Pattern, DescribeAclsResource] = {}
    for number, (pattern, acl) in enumerate(context.acls):
        if not number % _AT_ONCE:
            yield
        if not wanted.matches(pattern, acl):
            continue
        resource = resources.get(pattern)
        if resource is None:
            resource = resources[pattern] = DescribeAclsResource(
                resource_type=pattern.resource, resource_name=pattern.name, pattern_type=pattern.type
            )
        resource.acls.append(
            AclDescription(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
            )
        )
    return DescribeAclsResponse(error_message="", resources=list(resources.values()))


def filter_of(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """MalformedError, which closes the connection, for a filter with UNKNOWN in it."""
    found = AclFilter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )
    if found.is_unknown:
        raise MalformedError(
            "a filter of ACLs with a type, operation or permission that its sender does not know itself"
        )
    return found
