"""The requests about ACLs, and the options that say which ones are meant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import update_wrapper
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from kafkad.errors import ErrorCode
from kctl.acls.bindings import (
    ANY,
    ANYWHERE,
    CLUSTER_NAME,
    OPERATIONS,
    PATTERNS,
    PERMISSIONS,
    RESOURCES,
    Binding,
    Resource,
    operation_named,
    principal_named,
)
from kctl.errors import KctlError, failure
from kctl.texts.output import Column, Row

if TYPE_CHECKING:
    from kafkad.wire.messages.delete_acls import DeleteAclsMatchingAcl
    from kafkad.wire.messages.describe_acls import AclDescription, DescribeAclsResponse
    from kctl.reach.session import Session

R = TypeVar("R")

COLUMNS = (
    Column("principal", "Who: User:alice; User:* is everybody."),
    Column("host", "From where; * is everywhere."),
    Column("operation", "What may or may not be done."),
    Column("resource", "topic, group, cluster, transactional-id, delegation-token or user."),
    Column("name", "Of the resource, or how it begins; a literal * is all of them."),
    Column("pattern", "literal or prefixed."),
    Column("permission", "allow or deny; a deny wins.", "state"),
)


def row(binding: Binding) -> Row:
    kind, name, pattern = binding.resource
    return {
        "principal": binding.principal,
        "host": binding.host,
        "operation": binding.operation,
        "resource": kind,
        "name": name,
        "pattern": pattern,
        "permission": binding.permission,
    }


def _names(table: dict[str, int]) -> dict[int, str]:
    return {code: name for name, code in table.items()}


_RESOURCE_OF, _PATTERN_OF, _OPERATION_OF, _PERMISSION_OF = map(_names, (RESOURCES, PATTERNS, OPERATIONS, PERMISSIONS))


class Filter(NamedTuple):
    """None and "any" match everything; the pattern "match" finds what would apply to a name."""

    resource: str = ANY
    name: str | None = None
    pattern: str = ANY
    principal: str | None = None
    host: str | None = None
    operation: str = ANY
    permission: str = ANY

    def fields(self) -> dict[str, Any]:
        """As both requests with filters have them."""
        return {
            "resource_type_filter": RESOURCES[self.resource],
            "resource_name_filter": self.name,
            "pattern_type_filter": PATTERNS[self.pattern],
            "principal_filter": self.principal,
            "host_filter": self.host,
            "operation": OPERATIONS[self.operation],
            "permission_type": PERMISSIONS[self.permission],
        }


def binding_of(kind: int, name: str, pattern: int, acl: AclDescription | DeleteAclsMatchingAcl) -> Binding:
    """Of the numbers in an answer; one that is not known here stays a number."""
    resource = Resource(_RESOURCE_OF.get(kind, str(kind)), name, _PATTERN_OF.get(pattern, str(pattern)))
    operation = _OPERATION_OF.get(acl.operation, str(acl.operation))
    return Binding(acl.principal, acl.host, operation, resource, _PERMISSION_OF.get(acl.permission_type, "?"))


def described(session: Session, wanted: Filter) -> list[Binding]:
    """The ACLs that match, in the order of resources, principals and operations."""
    from kafkad.wire.messages.describe_acls import DescribeAclsRequest

    found = _bindings(session.call(DescribeAclsRequest(**wanted.fields())))
    return sorted(found, key=lambda b: (b.resource, b.principal, b.permission, b.operation, b.host))


def in_force(session: Session, *, anywhere: bool = False) -> set[Binding]:
    """All there are, at every broker that answers, or at any of them: each learns of a change in its own time."""
    from kafkad.wire.messages.describe_acls import DescribeAclsRequest

    answers = [set(_bindings(answer)) for answer in session.ask_all(DescribeAclsRequest(**Filter().fields()))]
    if not answers:
        return set(described(session, Filter()))
    return set.union(*answers) if anywhere else set.intersection(*answers)


def _bindings(response: DescribeAclsResponse) -> Iterator[Binding]:
    if response.error_code:
        raise acl_failure(response.error_code, "the ACLs cannot be listed", response.error_message)
    for resource in response.resources:
        for acl in resource.acls:
            yield binding_of(resource.resource_type, resource.resource_name, resource.pattern_type, acl)


def acl_failure(code: int, what: str, message: str | None) -> KctlError:
    if code == ErrorCode.SECURITY_DISABLED:
        hint = "its brokers run without an authorizer: authorizer.class.name"
        return failure(code, "this cluster has no ACLs", hints=(hint,))
    return failure(code, what, message)


# --- options

_RESOURCE_OPTIONS = {
    "topic": "topic",
    "group": "group",
    "transactional_id": "transactional-id",
    "delegation_token": "delegation-token",
    "user_principal": "user",
}


class Meant(NamedTuple):
    """The resources and the rest of what the options say."""

    resources: tuple[Resource, ...]
    allow: tuple[str, ...]
    deny: tuple[str, ...]
    hosts: tuple[str, ...]
    operations: tuple[str, ...]

    def filters(self) -> Iterator[Filter]:
        """Filters that match any of it; what is not given matches everything."""
        resources: Sequence[Resource] = self.resources or (Resource(ANY, "", ANY),)
        whom = [("allow", name) for name in self.allow] + [("deny", name) for name in self.deny] or [(ANY, "")]
        for resource, (permission, principal), host, operation in product(
            resources, whom, self.hosts or (None,), self.operations or (ANY,)
        ):
            yield Filter(
                resource.type, resource.name or None, resource.pattern, principal or None, host, operation, permission
            )


def meaning(function: Callable[..., R]) -> Callable[..., R]:
    """The options for resources, principals, hosts and operations; the command gets them as `meant`."""

    def command(
        *,
        prefixed: bool,
        cluster: bool,
        allow: Sequence[str],
        deny: Sequence[str],
        host: Sequence[str],
        operation: Sequence[str],
        **others: Any,
    ) -> R:
        pattern = "prefixed" if prefixed else "literal"
        resources = [
            Resource(kind, principal_named(name) if kind == "user" else name, pattern)
            for option, kind in _RESOURCE_OPTIONS.items()
            for name in others.pop(option)
        ]
        if cluster:
            resources.append(Resource("cluster", CLUSTER_NAME))
        meant = Meant(
            tuple(resources),
            tuple(map(principal_named, allow)),
            tuple(map(principal_named, deny)),
            tuple(host),
            tuple(map(operation_named, operation)),
        )
        return function(meant=meant, **others)

    update_wrapper(command, function)
    for option in reversed(list(_options())):
        command = option(command)
    return command


def _options() -> Iterable[Callable[[Any], Any]]:
    for option, kind in _RESOURCE_OPTIONS.items():
        spelling = "--" + option.replace("_", "-")
        yield click.option(spelling, multiple=True, metavar="NAME", help=f"A {kind}; * is every one.")
    yield click.option("--cluster", is_flag=True, help="The cluster itself.")
    yield click.option("--prefixed", is_flag=True, help="Names are prefixes of resource names.")
    yield click.option(
        "--allow",
        multiple=True,
        metavar="PRINCIPAL",
        help="The principal to allow: User:alice, or alice; * is everyone.",
    )
    yield click.option(
        "--deny", multiple=True, metavar="PRINCIPAL", help="The principal to deny, which overrides any allow."
    )
    yield click.option("--host", multiple=True, metavar="ADDRESS", help="Only for this client address.")
    yield click.option("--operation", multiple=True, metavar="NAME", help="Read, Write, Describe, … or All.")


def bindings_of(meant: Meant, operations: Sequence[tuple[Resource, str]]) -> list[Binding]:
    """Every principal at every host, for these operations on these resources."""
    whom = [("allow", name) for name in meant.allow] + [("deny", name) for name in meant.deny]
    return [
        Binding(principal, host, operation, resource, permission)
        for (resource, operation), (permission, principal), host in product(
            operations, whom, meant.hosts or (ANYWHERE,)
        )
    ]
