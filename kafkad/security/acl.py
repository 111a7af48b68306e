"""ACLs, and the decision by them: Kafka's rules, without any I/O.

A decision gathers the ACLs of a resource's name, those of the literal `*`, and those of every prefix of the name. A
deny that matches refuses, else an allow that matches permits, else nothing does. Reading, writing, deleting and
altering include describing; altering settings includes describing them; a deny includes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from kafkad.security.access_log import Access, AccessLog
from kafkad.security.authorizer import Operation, PatternType, PermissionType, Principal, ResourceType
from kafkad.turns import Pieces

ANYTHING: Final = "*"
"""As a literal name: every resource of the type. As a host: every address."""
EVERYBODY: Final = "User:*"
_MOST_REMEMBERED: Final = 10_000
"""Decisions for one identity: names are made up by clients."""
_MOST_OF_ALL: Final = 100_000
"""Decisions for all identities together: 15 MB with names of a dozen characters, 60 MB with the longest ones of topics,
140 MB with the longest ones that are remembered."""
_BETWEEN: Final = 2_000
"""So many more may be remembered until it is looked again whether they are too many."""
_LONGEST_REMEMBERED: Final = 255
"""Characters, of up to four bytes. Topics have no longer names, and only ASCII in them; others may have 32 KB."""
_AT_ONCE: Final = 200
"""ACLs that are worked on before others get a turn: one pattern may have ten thousand."""

_IMPLIED_BY: Final = {
    Operation.READ: Operation.DESCRIBE,
    Operation.WRITE: Operation.DESCRIBE,
    Operation.DELETE: Operation.DESCRIBE,
    Operation.ALTER: Operation.DESCRIBE,
    Operation.ALTER_CONFIGS: Operation.DESCRIBE_CONFIGS,
}
_NUMBERS: Final = max(Operation) + 1
_NOBODY: Final = (None,) * _NUMBERS


class Pattern(NamedTuple):
    """The resources that an ACL applies to: the one of that name, or all whose names begin with it."""

    resource: ResourceType
    name: str
    type: PatternType = PatternType.LITERAL


class Acl(NamedTuple):
    principal: str
    host: str
    operation: Operation
    permission: PermissionType


Entries = tuple[Acl, ...]
Who = tuple[str, str]
"""Principal and host; either may stand for all."""


_Table = Sequence[frozenset[Who] | None]


class Rules:
    """The ACLs of one pattern: for each operation, by its number, who is allowed and who is denied."""

    __slots__ = ("allowed", "damaged", "denied")

    def __init__(self, allowed: _Table, denied: _Table, *, damaged: bool) -> None:
        self.allowed = allowed
        self.denied = denied
        self.damaged = damaged

    @classmethod
    def of(cls, entries: Entries | None) -> Pieces[Rules | None]:
        """No rules without entries. None: they cannot be read, and nobody may do anything with its resources."""
        if entries == ():
            return None
        allowed: list[set[Who]] = [set() for _ in range(_NUMBERS)]
        denied: list[set[Who]] = [set() for _ in range(_NUMBERS)]
        for number, acl in enumerate(entries or ()):
            if number % _AT_ONCE == _AT_ONCE - 1:
                yield
            who = acl.principal, plain_host(acl.host)
            table = allowed if acl.permission is PermissionType.ALLOW else denied
            for operation in Operation if acl.operation is Operation.ALL else (acl.operation,):
                table[operation].add(who)
                if table is allowed and operation in _IMPLIED_BY:
                    table[_IMPLIED_BY[operation]].add(who)
        return cls((yield from _shared(allowed)), (yield from _shared(denied)), damaged=entries is None)

    def allow(self, whom: frozenset[Who], operation: Operation) -> bool:
        allowed = self.allowed[operation]
        return allowed is not None and not allowed.isdisjoint(whom)

    def deny(self, whom: frozenset[Who], operation: Operation) -> bool:
        denied = self.denied[operation]
        return self.damaged or (denied is not None and not denied.isdisjoint(whom))


def _shared(table: Sequence[set[Who]]) -> Pieces[_Table]:
    """One set where several operations have the same: there may be a hundred thousand patterns."""
    if not any(table):
        return _NOBODY
    made: dict[frozenset[Who], frozenset[Who]] = {}
    shared: list[frozenset[Who] | None] = []
    for whom in map(frozenset, table):
        shared.append(made.setdefault(whom, whom) if whom else None)
        if len(whom) > _AT_ONCE:
            yield
    return tuple(shared)


class _OfType:
    """The rules for one type of resource."""

    __slots__ = ("_of_length", "lengths", "literals", "prefixes", "writable")

    def __init__(self) -> None:
        self.literals: dict[str, Rules] = {}
        self.prefixes: dict[str, Rules] = {}
        self.writable: dict[Who, set[Pattern]] = {}
        """The patterns that allow somebody to write: there may be a hundred thousand that do not."""
        self.lengths: tuple[int, ...] = ()
        """Those of the prefixes, in their order."""
        self._of_length: Counter[int] = Counter()

    def put(self, pattern: Pattern, rules: Rules | None) -> None:
        table = self.literals if pattern.type is PatternType.LITERAL else self.prefixes
        before = len(table)
        self._put_writers(pattern, _writers(table.get(pattern.name)), _writers(rules))
        if rules is None:
            table.pop(pattern.name, None)
        else:
            table[pattern.name] = rules
        if table is self.prefixes and len(table) != before:
            self._of_length[len(pattern.name)] += len(table) - before
            self.lengths = tuple(sorted(+self._of_length))

    def _put_writers(self, pattern: Pattern, before: frozenset[Who], now: frozenset[Who]) -> None:
        for who in before - now:
            patterns = self.writable[who]
            patterns.discard(pattern)
            if not patterns:
                del self.writable[who]
        for who in now - before:
            self.writable.setdefault(who, set()).add(pattern)

    def of_prefixes(self, name: str) -> list[Rules]:
        found = []
        prefixes, size = self.prefixes, len(name)
        for length in self.lengths:
            if length > size:
                break
            rules = prefixes.get(name[:length])
            if rules is not None:
                found.append(rules)
        return found


def _writers(rules: Rules | None) -> frozenset[Who]:
    return (rules and rules.allowed[Operation.WRITE]) or frozenset()


class AclIndex:
    """All ACLs, as decisions need them."""

    def __init__(self) -> None:
        self._by_type = [_OfType() for _ in range(max(ResourceType) + 1)]

    def put(self, pattern: Pattern, rules: Rules | None) -> None:
        """Replaces what is decided by for a pattern."""
        self._by_type[pattern.resource].put(pattern, rules)

    def replace(self, acls: Iterable[tuple[Pattern, Entries | None]]) -> Pieces[None]:
        """Everything, at the end of the work."""
        by_type = [_OfType() for _ in self._by_type]
        for pattern, entries in acls:
            by_type[pattern.resource].put(pattern, (yield from Rules.of(entries)))
            yield
        self._by_type = by_type

    def allows(self, whom: frozenset[Who], operation: Operation, resource: ResourceType, name: str) -> bool | None:
        """None if there is no ACL at all, for anybody, about the resource."""
        of_type = self._by_type[resource]
        found = of_type.of_prefixes(name)
        literals = of_type.literals
        for literal in (name, ANYTHING):
            rules = literals.get(literal)
            if rules is not None:
                found.append(rules)
        allowed = False
        for rules in found:  # as `deny` and `allow`, without calling them: it takes a third less time
            denied = rules.denied[operation]
            if rules.damaged or (denied is not None and not denied.isdisjoint(whom)):
                return False
            if not allowed:
                may = rules.allowed[operation]
                allowed = may is not None and not may.isdisjoint(whom)
        return allowed if found else None

    def writes_any(self, whom: frozenset[Who], resource: ResourceType, *, unless_denied: bool) -> bool:
        """`unless_denied`: also without an ACL that allows it, if none denies it on everything."""
        of_type = self._by_type[resource]
        everything = of_type.literals.get(ANYTHING)
        if everything is not None and everything.deny(whom, Operation.WRITE):
            return False
        if unless_denied or (everything is not None and everything.allow(whom, Operation.WRITE)):
            return True
        return any(
            self.allows(whom, Operation.WRITE, resource, pattern.name)
            if pattern.type is PatternType.LITERAL
            else not any(rules.deny(whom, Operation.WRITE) for rules in of_type.of_prefixes(pattern.name))
            for who in whom
            for pattern in of_type.writable.get(who, ())
        )


class AclAuthorizer:
    """Kafka's AclAuthorizer. `index` is kept up to date by whoever follows the ACLs, and calls `changed`."""

    def __init__(self, super_users: Iterable[str], allow_if_no_acl: bool, log: AccessLog) -> None:
        self.index = AclIndex()
        self.super_users = frozenset(super_users)
        self.allow_if_no_acl = allow_if_no_acl
        self.log = log
        self._identities: WeakValueDictionary[tuple[Principal, str], AclIdentity] = WeakValueDictionary()
        self._decisions = 0

    def identity(self, principal: Principal, host: str) -> AclIdentity:
        host = plain_host(host)
        known = self._identities.get((principal, host))
        if known is None:
            known = self._identities[principal, host] = AclIdentity(self, principal, host)
        return known

    def changed(self) -> None:
        """Whatever was decided before may be decided in another way now."""
        for identity in self._identities.values():
            identity.forget()

    def has_decided(self, identity: AclIdentity) -> None:
        """It remembers one more decision. Once there are too many, what is remembered is dropped of those who have had
        nothing decided for longest: it is decided again, in the same way, when they ask."""
        self._decisions += 1
        identity.last_decision = self._decisions
        if self._decisions % _BETWEEN:
            return
        remembering = [each for each in self._identities.values() if each.remembered]
        excess = sum(each.remembered for each in remembering) - _MOST_OF_ALL
        if excess > 0:
            for each in sorted(remembering, key=lambda each: each.last_decision):
                excess -= each.remembered
                each.drop()
                if excess <= 0:
                    break


class AclIdentity:
    """A user at one address, with what was decided for it since the ACLs changed last. All its connections from there
    share it, and it is gone with the last of them."""

    __slots__ = (
        "__weakref__",
        "_authorizer",
        "_decided",
        "_is_super",
        "_whom",
        "_writes_any",
        "era",
        "host",
        "last_decision",
        "principal",
    )

    restricted = True

    def __init__(self, authorizer: AclAuthorizer, principal: Principal, host: str) -> None:
        self.principal = str(principal)
        self.host = host
        self._authorizer = authorizer
        self._is_super = self.principal in authorizer.super_users
        names, hosts = (self.principal, EVERYBODY), (host, ANYTHING)
        self._whom = frozenset((name, at) for name in names for at in hosts)
        self._decided: dict[tuple[int, str], bool] = {}
        self._writes_any: dict[ResourceType, bool] = {}
        self.era = 0
        """Another one once the ACLs have changed: what was decided before may be decided in another way."""
        self.last_decision = 0
        """Its number among those of all identities."""

    @property
    def remembered(self) -> int:
        return len(self._decided)

    def allows(self, operation: Operation, resource: ResourceType, name: str) -> bool:
        """HOT."""
        if self._is_super:
            return True
        key = operation << 4 | resource, name  # numbers: an enum hashes slowly
        decided = self._decided.get(key)
        if decided is None:
            authorizer = self._authorizer
            allowed = authorizer.index.allows(self._whom, operation, resource, name)
            decided = authorizer.allow_if_no_acl if allowed is None else allowed
            if len(name) <= _LONGEST_REMEMBERED:
                self._remember(key, decided)
        return decided

    def may(self, operation: Operation, resource: ResourceType, name: str, request: str) -> bool:
        allowed = self.allows(operation, resource, name)
        log = self._authorizer.log
        if log.wants(allowed):
            log.note(Access(self.principal, self.host, operation, resource, name, request), allowed=allowed)
        return allowed

    def writes_any(self, resource: ResourceType) -> bool:
        if self._is_super:
            return True
        decided = self._writes_any.get(resource)
        if decided is None:
            authorizer = self._authorizer
            unless_denied = authorizer.allow_if_no_acl
            decided = authorizer.index.writes_any(self._whom, resource, unless_denied=unless_denied)
            self._writes_any[resource] = decided
        return decided

    def _remember(self, key: tuple[int, str], decided: bool) -> None:
        if len(self._decided) >= _MOST_REMEMBERED:
            self.drop()
        self._decided[key] = decided
        self._authorizer.has_decided(self)

    def drop(self) -> None:
        """For want of memory: what was decided still holds, and would be decided again."""
        self._decided.clear()

    def forget(self) -> None:
        """For the ACLs have changed."""
        self._decided.clear()
        self._writes_any.clear()
        self.era += 1


@lru_cache(10_000)
def plain_host(host: str) -> str:
    """An address in its one shortest form, however it was written; any other text as it is."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


def is_host(text: str) -> bool:
    """True for a host that an ACL can match: `*`, or an address."""
    if text == ANYTHING:
        return True
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
