"""DeleteAcls, 0 to 3: everything that a filter finds goes; what several find is answered with the first of them."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence

from kafkad.api.context import Context, Request
from kafkad.api.describe_acls import filter_of
from kafkad.cluster.acls import Acls
from kafkad.errors import ErrorCode, KafkaError
from kafkad.security.acl import Acl, Pattern
from kafkad.security.acl_filter import AclFilter
from kafkad.security.authorizer import Operation
from kafkad.turns import Turns
from kafkad.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


def handle(context: Context, request: Request, message: DeleteAclsRequest) -> Coroutine[None, None, DeleteAclsResponse]:
    filters = [filter_of(asked) for asked in message.filters]
    if context.acls is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    return _delete(context.acls, request, filters)


async def _delete(acls: Acls, request: Request, filters: Sequence[AclFilter]) -> DeleteAclsResponse:
    results = [DeleteAclsFilterResult(error_message=None) for _ in filters]
    found: dict[Pattern, dict[Acl, DeleteAclsMatchingAcl]] = {}
    turns = Turns()
    for pattern, acl in acls:
        await turns.give_way()
        for wanted, result in zip(filters, results, strict=True):
            if wanted.matches(pattern, acl):
                answer = _matching(pattern, acl)
                result.matching_acls.append(answer)
                found.setdefault(pattern, {})[acl] = answer
                break
    for pattern, answers in found.items():
        await turns.give_way()
        await _remove(acls, request, pattern, answers)
    return DeleteAclsResponse(filter_results=results)


async def _remove(acls: Acls, request: Request, pattern: Pattern, answers: dict[Acl, DeleteAclsMatchingAcl]) -> None:
    """The right to do so may have gone since the last one, or go while this waits for another change."""
    try:
        await acls.remove(pattern, answers.keys(), request.on_cluster(Operation.ALTER))
    except KafkaError as error:
        for answer in answers.values():
            answer.error_code, answer.error_message = error.code, error.message


def refused(request: Request, message: DeleteAclsRequest, error: KafkaError) -> DeleteAclsResponse:
    """There is no place for it but at each filter."""
    result = DeleteAclsFilterResult(error_code=error.code, error_message=error.message)
    return DeleteAclsResponse(filter_results=[result] * len(message.filters))


def _matching(pattern: Pattern, acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=pattern.resource,
        resource_name=pattern.name,
        pattern_type=pattern.type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
