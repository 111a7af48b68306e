"""The rights that requests need."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from kafkad.errors import KafkaError
from kafkad.security.authorizer import CLUSTER_NAME, REFUSALS, Operation, ResourceType
from kafkad.turns import Pieces, at_once

if TYPE_CHECKING:
    from kafkad.api.context import Context, Request

Handler = Callable[["Context", "Request", Any], Any]
T = TypeVar("T")


class Permission(NamedTuple):
    """An operation on a kind of resource."""

    operation: Operation
    resource: ResourceType
    whole: bool = False
    """True if the request is refused as a whole, before its handler sees it. Otherwise the handler asks by
    `Request.allowed`, for each thing that is named or for what the request makes necessary."""
    field: str = ""
    """The field of the message that names the resource, where a whole request needs it. There is only one cluster."""

    def resource_name(self, message: Any) -> str:
        return getattr(message, self.field) if self.field else CLUSTER_NAME


def for_group(operation: Operation) -> Permission:
    """On the group that the whole request is about."""
    return Permission(operation, ResourceType.GROUP, whole=True, field="group_id")


def for_transaction(operation: Operation) -> Permission:
    """On the transactional id that the whole request is about."""
    return Permission(operation, ResourceType.TRANSACTIONAL_ID, whole=True, field="transactional_id")


def for_cluster(operation: Operation) -> Permission:
    return Permission(operation, ResourceType.CLUSTER, whole=True)


NONE: Final[tuple[Permission, ...]] = ()
"""Everybody may ask."""


def may_create_topic(request: Request, topic: str) -> bool:
    """By the right to create on the cluster, or on the topic."""
    return request.allows(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME) or request.allowed(
        Operation.CREATE, ResourceType.TOPIC, topic
    )


def guarded(handler: Handler, permissions: Iterable[Permission]) -> Handler:
    """The handler behind a check of what the request needs as a whole."""
    whole = [permission for permission in permissions if permission.whole]

    def handle(context: Context, request: Request, message: Any) -> Any:
        for permission in whole:
            if not request.allowed(permission.operation, permission.resource, permission.resource_name(message)):
                raise KafkaError(*REFUSALS[permission.resource])
        return handler(context, request, message)

    return handle if whole else handler


def by_present_rights(
    request: Request,
    sort_out: Callable[[], Pieces[T]],
    may_still: Callable[[T], bool],
    is_so_still: Callable[[T], bool] = lambda found: True,
) -> Pieces[T]:
    """What `sort_out` finds by asking for the rights to each thing that is named, in many turns. If rights have changed
    before it ends, `may_still` asks again for those that are made use of, and raises what the whole request is refused
    with. If one of them has ended, or what was found `is_so_still` no more, all is sorted out again: once in turns, and
    then in one, however much changes.

    What it lets through may be done until others get a turn.
    """
    for _ in range(2):
        rights = request.rights
        found = yield from sort_out()
        if (request.rights == rights or may_still(found)) and is_so_still(found):
            return found
    return at_once(sort_out())


def check_unread(request: Request, permissions: Iterable[Permission]) -> None:
    """Raises the refusal of a request that its sender may not make, whatever is in it: a large one may be 100 MB, and
    takes many times that once it is read. What is granted is logged when it is asked for again after that."""
    for operation, resource, whole, field in permissions:
        if whole and not field and not request.allows(operation, resource, CLUSTER_NAME):
            request.check(operation, resource, CLUSTER_NAME)
