"""ACLs, and the decision among them. Pure.

Kafka's authorizer: a superuser may do everything; then one matching deny is enough to refuse, one matching allow is
enough to permit, and where no ACL speaks of the resource at all `allow.everyone.if.no.acl.found` decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from ipaddress import ip_address
from typing import NamedTuple

from kctl.errors import Exit, KctlError, did_you_mean
from kctl.texts.spelling import quote

ANY = "any"
RESOURCES = {ANY: 1, "topic": 2, "group": 3, "cluster": 4, "transactional-id": 5, "delegation-token": 6, "user": 7}
PATTERNS = {ANY: 1, "match": 2, "literal": 3, "prefixed": 4}
PERMISSIONS = {ANY: 1, "deny": 2, "allow": 3}
OPERATIONS = {
    ANY: 1,
    "All": 2,
    "Read": 3,
    "Write": 4,
    "Create": 5,
    "Delete": 6,
    "Alter": 7,
    "Describe": 8,
    "ClusterAction": 9,
    "DescribeConfigs": 10,
    "AlterConfigs": 11,
    "IdempotentWrite": 12,
    "CreateTokens": 13,
    "DescribeTokens": 14,
}
CLUSTER_NAME = "kafka-cluster"
EVERYBODY = "User:*"
ANYWHERE = "*"

_IMPLIES = {
    "Describe": {"Describe", "Read", "Write", "Delete", "Alter"},
    "DescribeConfigs": {"DescribeConfigs", "AlterConfigs"},
}
"""An operation, and those whose permission brings it along."""

_ON_TOPICS = {"Read", "Write", "Create", "Delete", "Alter", "Describe", "DescribeConfigs", "AlterConfigs"}
_ASKED_FOR = {
    "topic": _ON_TOPICS,
    "group": {"Read", "Delete", "Describe", "DescribeConfigs", "AlterConfigs"},
    "cluster": {
        *("Create", "Alter", "Describe", "ClusterAction", "DescribeConfigs", "AlterConfigs", "IdempotentWrite"),
    },
    "transactional-id": {"Write", "Describe"},
    "delegation-token": {"Describe"},
    "user": {"CreateTokens", "DescribeTokens"},
}
"""The operations that brokers ever ask for, by the type of the resource."""


class Resource(NamedTuple):
    type: str
    name: str
    pattern: str = "literal"

    def __str__(self) -> str:
        return f"{self.type}/{self.name}{'*' if self.pattern == 'prefixed' else ''}"


class Binding(NamedTuple):
    principal: str
    host: str
    operation: str
    resource: Resource
    permission: str

    def __str__(self) -> str:
        where = "" if self.host == ANYWHERE else f" from {self.host}"
        return f"{self.permission} {self.principal} {self.operation} on {self.resource}{where}"


def adding(binding: Binding) -> str:
    """The command that adds this ACL, without `kctl`."""
    host = () if binding.host == ANYWHERE else (binding.host,)
    return f"acls add {_options([binding], host)}"


def removing(bindings: Sequence[Binding], others: Collection[Binding]) -> list[str]:
    """Commands, without `kctl`, that remove these ACLs and no others: a single one, or where that is not possible one
    for each."""
    resources = {binding.resource for binding in bindings}
    whom = {(binding.permission, binding.principal) for binding in bindings}
    hosts = {binding.host for binding in bindings}
    operations = {binding.operation for binding in bindings}
    hit = any(
        other.resource in resources
        and (other.permission, other.principal) in whom
        and other.host in hosts
        and other.operation in operations
        for other in others
    )
    parts = [[binding] for binding in bindings] if hit else [bindings]
    return [f"acls remove {_options(part, dict.fromkeys(b.host for b in part))}" for part in parts if part]


def _options(bindings: Sequence[Binding], hosts: Iterable[str]) -> str:
    """Every combination of what these have, as options; resources of one command are literal or prefixed together."""
    words = [f"--{binding.permission} {quote(binding.principal)}" for binding in bindings]
    words += [f"--host {quote(host)}" for host in hosts]
    words += [f"--operation {binding.operation}" for binding in bindings]
    words += [_resource_option(binding.resource) for binding in bindings]
    if any(binding.resource.pattern == "prefixed" for binding in bindings):
        words.append("--prefixed")
    return " ".join(dict.fromkeys(words))


def _resource_option(resource: Resource) -> str:
    if resource.type == "cluster":
        return "--cluster"
    option = "--user-principal" if resource.type == "user" else f"--{resource.type}"
    return f"{option} {quote(resource.name)}"


def operation_named(word: str) -> str:
    """`read`, `READ`, `describe-configs`, `DescribeConfigs`: however it is written."""
    flat = word.replace("-", "").replace("_", "").lower()
    for name in OPERATIONS:
        if name.lower() == flat and name != ANY:
            return name
    known = [name for name in OPERATIONS if name != ANY]
    hints = did_you_mean(word, known) or (f"there are: {', '.join(known)}",)
    raise KctlError(f'there is no operation "{word}"', exit_code=Exit.USAGE, hints=hints)


def principal_named(word: str) -> str:
    """Kafka writes the type in front; a bare name is a user."""
    return word if ":" in word else f"User:{word}"


def why_never(binding: Binding) -> str:
    """Why this ACL can never match anything; empty if it can. Brokers take and keep such ACLs."""
    operations = _ASKED_FOR.get(binding.resource.type)
    if not _is_address(binding.host):
        return f"{binding.host or 'an empty host'} is no address: names, ranges and masks never match"
    named = not binding.operation.isdecimal()  # else it is newer than this kctl
    if operations is not None and named and binding.operation not in operations | {"All"}:
        return f"nobody is ever asked for {binding.operation} on a {binding.resource.type}"
    if binding.principal != EVERYBODY and binding.principal.endswith(":*"):
        return f"{binding.principal} is one principal of that name: everybody is {EVERYBODY}"
    if binding.resource == Resource(binding.resource.type, "*", "prefixed"):
        return "prefixed * is names that begin with an asterisk: everything is the literal *"
    return ""


def _is_address(host: str) -> bool:
    if host == ANYWHERE:
        return True
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


class Verdict(NamedTuple):
    allowed: bool | None
    """None: a setting decides that the brokers do not tell."""
    why: str


def decide(
    bindings: Sequence[Binding],
    principal: str,
    host: str,
    operation: str,
    resource: Resource,
    superusers: Collection[str] | None = (),
    allow_without_acl: bool | None = False,
) -> Verdict:
    """The verdict on `principal` at `host` doing `operation` on the thing that `resource` names; `superusers` and
    `allow_without_acl` are None where the brokers hide them."""
    if superusers is not None and principal in superusers:
        return Verdict(True, f"{principal} is a superuser")
    verdict = _by_acls(bindings, principal, host, operation, resource, allow_without_acl)
    if verdict.allowed is not False or superusers is not None:
        return verdict
    return Verdict(False, f"{verdict.why}; unless {principal} is one of super.users, which the brokers do not tell")


def _by_acls(
    bindings: Sequence[Binding],
    principal: str,
    host: str,
    operation: str,
    resource: Resource,
    allow_without_acl: bool | None,
) -> Verdict:
    """The verdict on somebody who is no superuser."""
    about = [binding for binding in bindings if _covers(binding.resource, resource)]
    if not about:
        nothing = f"no ACL speaks of {resource}, and"
        if allow_without_acl is None:
            return Verdict(None, f"{nothing} the brokers do not tell allow.everyone.if.no.acl.found, which decides")
        return Verdict(allow_without_acl, f"{nothing} allow.everyone.if.no.acl.found={str(allow_without_acl).lower()}")
    who = [b for b in about if b.principal in (principal, EVERYBODY) and b.host in (host, ANYWHERE)]
    for binding in who:
        if binding.permission == "deny" and binding.operation in (operation, "All"):
            return Verdict(False, f"decided by: {binding}")
    enough = _IMPLIES.get(operation, {operation}) | {"All"}
    for binding in who:
        if binding.permission == "allow" and binding.operation in enough:
            return Verdict(True, f"decided by: {binding}")
    return Verdict(False, f"no ACL allows {principal} {operation} on {resource}")


def _covers(pattern: Resource, resource: Resource) -> bool:
    if pattern.type != resource.type:
        return False
    if pattern.pattern == "prefixed":
        return resource.name.startswith(pattern.name)
    return pattern.name in (resource.name, "*")
