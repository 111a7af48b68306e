"""CreateAcls, 0 to 3: each ACL with an answer of its own. Version 0 knows no prefixes."""

from __future__ import annotations

from collections.abc import Coroutine

from kafkad.api.context import Context, Request
from kafkad.cluster.acls import Acls
from kafkad.errors import ErrorCode, KafkaError
from kafkad.security.acl import Acl, Pattern, is_host
from kafkad.security.acl_filter import ANY, MATCH, UNKNOWN
from kafkad.security.authorizer import CLUSTER_NAME, Operation, PatternType, PermissionType, ResourceType
from kafkad.turns import Pieces, Turns
from kafkad.wire.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from kafkad.wire.primitives import MalformedError

_NO_ZNODE = frozenset((".", "..", "zookeeper"))


def handle(
    context: Context, request: Request, message: CreateAclsRequest
) -> Pieces[Coroutine[None, None, CreateAclsResponse]]:
    for asked in message.creations:
        if UNKNOWN in _numbers(asked):
            raise MalformedError("an ACL with a type, operation or permission that its sender does not know itself")
        yield
    if context.acls is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    return _create(context.acls, request, message)


async def _create(acls: Acls, request: Request, message: CreateAclsRequest) -> CreateAclsResponse:
    results: list[AclCreationResult] = []
    wanted: dict[Pattern, list[tuple[Acl, AclCreationResult]]] = {}
    turns = Turns()
    for asked in message.creations:
        await turns.give_way()
        result = AclCreationResult(error_message="")
        results.append(result)
        try:
            pattern, acl = _checked(asked)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        else:
            wanted.setdefault(pattern, []).append((acl, result))
    for pattern, added in wanted.items():
        await turns.give_way()
        await _add(acls, request, pattern, added)
    return CreateAclsResponse(results=results)


async def _add(acls: Acls, request: Request, pattern: Pattern, added: list[tuple[Acl, AclCreationResult]]) -> None:
    """The right to do so may have gone since the last one, or go while this waits for another change."""
    try:
        await acls.add(pattern, [acl for acl, _ in added], request.on_cluster(Operation.ALTER))
    except KafkaError as error:
        for _, result in added:
            result.error_code, result.error_message = error.code, error.message


def refused(request: Request, message: CreateAclsRequest, error: KafkaError) -> CreateAclsResponse:
    """There is no place for it but at each ACL."""
    result = AclCreationResult(error_code=error.code, error_message=error.message)
    return CreateAclsResponse(results=[result] * len(message.creations))


def _numbers(asked: AclCreation) -> tuple[int, int, int, int]:
    return asked.resource_type, asked.resource_pattern_type, asked.operation, asked.permission_type


def _checked(asked: AclCreation) -> tuple[Pattern, Acl]:
    """Raises KafkaError for what cannot be kept, or could never match anybody."""
    if asked.resource_type == ResourceType.CLUSTER and asked.resource_name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not asked.resource_name:
        raise _invalid("Invalid empty resource name")
    if ANY in _numbers(asked) or asked.resource_pattern_type == MATCH:
        raise _invalid("ANY and MATCH are for filters: an ACL has one resource type, pattern, operation and permission")
    if not asked.principal.partition(":")[1]:
        raise _invalid(f"{asked.principal!r} is no principal: expected TYPE:NAME, such as User:alice or User:*")
    if not is_host(asked.host):
        raise _invalid(f"{asked.host!r} would never match: a host is an address without a mask, or * for every address")
    try:
        pattern = Pattern(
            ResourceType(asked.resource_type), asked.resource_name, PatternType(asked.resource_pattern_type)
        )
        acl = Acl(asked.principal, asked.host, Operation(asked.operation), PermissionType(asked.permission_type))
    except ValueError:
        raise _invalid("Failed to create ACL") from None
    if not _can_be_kept(pattern.name):
        raise _invalid("Failed to create ACL")
    return pattern, acl


def _can_be_kept(name: str) -> bool:
    """A name is one part of a path in ZooKeeper, as it is."""
    return "/" not in name and name not in _NO_ZNODE and not any(map(_is_control, name))


def _is_control(character: str) -> bool:
    return (
        character < " " or "\x7f" <= character <= "\x9f" or "\ud800" <= character <= "\uf8ff" or character >= "\ufff0"
    )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
