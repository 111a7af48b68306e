"""Whom a quota is for, what it limits, and which of several applies. Pure but for the two requests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kctl.errors import Exit, KctlError, did_you_mean, failure
from kctl.texts.output import Column, Row, size_text

if TYPE_CHECKING:
    from kctl.reach.session import Session

TYPES = {"user": "user", "client": "client-id", "client-id": "client-id", "ip": "ip"}
BY_SIZE = ("producer_byte_rate", "consumer_byte_rate")
KEYS = {
    "producer_byte_rate": "bytes a second that it may produce",
    "consumer_byte_rate": "bytes a second that it may fetch",
    "request_percentage": "percent of the time of one network and request thread",
    "controller_mutation_rate": "topics and partitions a second that it may create or delete",
    "connection_creation_rate": "connections a second that an address may open",
}
DEFAULT = "<default>"
_AND = rf",(?=(?:{'|'.join(TYPES)})=)"

Entity = tuple[tuple[str, str | None], ...]
"""Pairs of type and name, user first; no name is the default for those without a quota of their own."""

COLUMNS = (
    Column("entity", "Whom it is for."),
    Column("quota", "What is limited."),
    Column("value", "How much; bytes, percent or times a second.", "number", machine=True),
    Column("limit", "How much, for people.", shown=True),
    Column("user", "The user; <default> is every user without one of its own.", machine=True),
    Column("client", "The client id; <default> as for users.", machine=True),
    Column("ip", "The address; <default> as for users.", machine=True),
)


class Quota(NamedTuple):
    entity: Entity
    key: str
    value: float

    def row(self) -> Row:
        names = {kind: DEFAULT if name is None else name for kind, name in self.entity}
        return {
            "entity": entity_text(self.entity),
            "quota": self.key,
            "value": whole(self.value),
            "limit": limit_text(self.key, self.value),
            "user": names.get("user"),
            "client": names.get("client-id"),
            "ip": names.get("ip"),
        }


def entity_text(entity: Entity) -> str:
    return " ".join(f"{kind}={DEFAULT if name is None else name}" for kind, name in entity)


def whole(value: float) -> float:
    """Without a point where there is nothing after it."""
    return int(value) if value == int(value) else value


def limit_text(key: str, value: float) -> str:
    if key in BY_SIZE:
        return f"{size_text(int(value))}/s"
    return f"{value:g}%" if key == "request_percentage" else f"{value:g}/s"


def entity_of(words: Iterable[str]) -> Entity:
    """`user=alice`, `client=<default>`, `ip=10.0.0.1`, also `user=alice,client=app`; another comma is part of the name,
    as in `user=CN=alice,OU=it`. No name is a variable that is not set, and none for all."""
    found: dict[str, str | None] = {}
    for word in (each for text in words for each in re.split(_AND, text)):
        kind, equals, name = word.partition("=")
        if not equals or kind not in TYPES:
            hints = did_you_mean(kind, list(TYPES)) or ("write user=alice, client=app, ip=10.0.0.1 or user=<default>",)
            raise KctlError(f'"{word}" is not a user, client or ip', exit_code=Exit.USAGE, hints=hints)
        if not name:
            hint = f"{kind}={DEFAULT} is every {kind} without a quota of its own"
            raise KctlError(f'"{word}" names no {kind}', exit_code=Exit.USAGE, hints=(hint,))
        found[TYPES[kind]] = None if name == DEFAULT else name
    if "ip" in found and len(found) > 1:
        raise KctlError("a quota is either for an ip, or for a user and client", exit_code=Exit.USAGE)
    return tuple((kind, found[kind]) for kind in ("user", "client-id", "ip") if kind in found)


def quota_key(word: str) -> str:
    name = word.replace("-", "_")
    if name in KEYS:
        return name
    hints = did_you_mean(name, list(KEYS)) or (f"there are: {', '.join(KEYS)}",)
    raise KctlError(f'there is no quota "{word}"', exit_code=Exit.USAGE, hints=hints)


_PRECEDENCE: tuple[tuple[tuple[str, bool], ...], ...] = (
    (("user", True), ("client-id", True)),
    (("user", True), ("client-id", False)),
    (("user", True),),
    (("user", False), ("client-id", True)),
    (("user", False), ("client-id", False)),
    (("user", False),),
    (("client-id", True),),
    (("client-id", False),),
    (("ip", True),),
    (("ip", False),),
)
"""Kafka's order: the first of these that has the quota decides. True: the name itself; False: the default."""


def applying(quotas: Sequence[Quota], who: Mapping[str, str]) -> list[Quota]:
    """The quota of each kind that applies to this user, client or address."""
    by_entity = {(quota.entity, quota.key): quota for quota in quotas}
    found: list[Quota] = []
    for key in KEYS:
        for level in _PRECEDENCE:
            if any(kind not in who for kind, _ in level):
                continue
            entity = tuple((kind, who[kind] if named else None) for kind, named in level)
            if quota := by_entity.get((entity, key)):
                found.append(quota)
                break
    return found


def described(session: Session) -> list[Quota]:
    """All there are."""
    from kafkad.wire.messages.describe_client_quotas import DescribeClientQuotasRequest

    response = session.call(DescribeClientQuotasRequest(components=[], strict=False))
    if response.error_code:
        raise failure(response.error_code, "quotas cannot be listed", response.error_message)
    order = ("user", "client-id", "ip")
    found: list[Quota] = []
    for entry in response.entries or ():
        names = {part.entity_type: part.entity_name for part in entry.entity}
        entity = tuple((kind, names[kind]) for kind in order if kind in names)
        found.extend(Quota(entity, value.key, value.value) for value in entry.values)
    return sorted(found, key=lambda quota: ([(kind, name or "") for kind, name in quota.entity], quota.key))


def altered(session: Session, entity: Entity, values: Mapping[str, float | None]) -> list[KctlError]:
    """Sets values, or with None removes them; what the broker refused."""
    from kafkad.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, OpData, RequestEntryData

    operations = [
        OpData(key=key, value=0.0 if value is None else value, remove=value is None) for key, value in values.items()
    ]
    parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
    request = AlterClientQuotasRequest(entries=[RequestEntryData(entity=parts, ops=operations)])
    response = session.ask_controller(request, lambda answer: [entry.error_code for entry in answer.entries])
    return [
        failure(entry.error_code, f"quota of {entity_text(entity)}", entry.error_message)
        for entry in response.entries
        if entry.error_code
    ]
