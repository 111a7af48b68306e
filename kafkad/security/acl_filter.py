"""Filters of ACLs, as in requests: each part matches one value, or any."""

from __future__ import annotations

from typing import Final, NamedTuple

from kafkad.security.acl import ANYTHING, Acl, Pattern
from kafkad.security.authorizer import PatternType

UNKNOWN: Final = 0
"""What a client sends for a value that it does not know itself."""
ANY: Final = 1
MATCH: Final = 2
"""As the type of a pattern: all patterns that the name falls under."""


class AclFilter(NamedTuple):
    """Numbers as in requests; None matches every text."""

    resource: int
    name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    @property
    def is_unknown(self) -> bool:
        return UNKNOWN in (self.resource, self.pattern_type, self.operation, self.permission)

    def matches(self, pattern: Pattern, acl: Acl) -> bool:
        return (
            self._finds(pattern)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (ANY, acl.operation)
            and self.permission in (ANY, acl.permission)
        )

    def _finds(self, pattern: Pattern) -> bool:
        if self.resource not in (ANY, pattern.resource) or self.pattern_type not in (ANY, MATCH, pattern.type):
            return False
        if self.name is None or self.pattern_type != MATCH:
            return self.name in (None, pattern.name)
        if pattern.type is PatternType.PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name in (self.name, ANYTHING)
