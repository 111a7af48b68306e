"""Entities as requests for quotas name them: types and names, where no name is the default entity."""

from __future__ import annotations

from typing import Any, Final

from kafkad.errors import ErrorCode, KafkaError
from kafkad.model import DEFAULT, Default, Entity, Name

TYPES: Final = {"user": "user", "client-id": "client", "ip": "ip"}
"""The field of Entity for each type of entity in a request."""

Parts = tuple[tuple[str, str | None], ...]
"""Types and names; None is the default entity."""


def parts_named(entry: Any) -> Parts:
    """In an entry of AlterClientQuotas or of its answer. The last of two of one type counts."""
    return tuple({part.entity_type: part.entity_name for part in entry.entity}.items())


def entity_of(parts: Parts) -> Entity:
    """Raises INVALID_REQUEST."""
    fields: dict[str, Name] = {}
    for type_, name in parts:
        field = TYPES.get(type_)
        if field is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unhandled client quota entity type: {type_}")
        if name == "":
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Empty {type_} not supported")
        fields[field] = DEFAULT if name is None else name
    if not fields:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity")
    if "ip" in fields and len(fields) > 1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Invalid quota entity combination, IP entity should not be used with user/client ID entity.",
        )
    return Entity(**fields)


def parts_of(entity: Entity) -> Parts:
    named = [(type_, getattr(entity, field)) for type_, field in TYPES.items()]
    return tuple((type_, None if isinstance(name, Default) else name) for type_, name in named if name is not None)
