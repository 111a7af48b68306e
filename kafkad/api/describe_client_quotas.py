"""DescribeClientQuotas, 0 and 1: the quotas of users, clients and addresses that match."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum

from kafkad.api.context import Context, Request
from kafkad.api.quota_entities import TYPES, parts_of
from kafkad.errors import ErrorCode, KafkaError
from kafkad.model import DEFAULT, Entity, Name
from kafkad.security.quotas.keys import OF_ADDRESSES, OF_USERS_AND_CLIENTS
from kafkad.security.quotas.levels import number
from kafkad.turns import Pieces
from kafkad.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)


class Match(IntEnum):
    """As requests number them."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


Wanted = Mapping[str, Name | None]
"""By field of Entity; None takes any that has the field at all."""


def handle(
    context: Context, request: Request, message: DescribeClientQuotasRequest
) -> Pieces[DescribeClientQuotasResponse]:
    wanted = _wanted(message.components)
    entities = context.configs.entities
    entries = []
    for entity in list(entities.all):
        yield
        if _matches(entity, wanted, message.strict) and (values := list(_values(entity, entities.of(entity)))):
            parts = [EntityData(entity_type=type_, entity_name=name) for type_, name in parts_of(entity)]
            entries.append(EntryData(entity=parts, values=values))
    return DescribeClientQuotasResponse(error_message="", entries=entries)


def refused(request: Request, message: DescribeClientQuotasRequest, error: KafkaError) -> DescribeClientQuotasResponse:
    words = None if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED else error.message
    return DescribeClientQuotasResponse(error_code=error.code, error_message=words, entries=None)


def _wanted(components: list[ComponentData]) -> Wanted:
    """Raises what is wrong with them."""
    wanted: dict[str, Name | None] = {}
    for component in components:
        type_ = component.entity_type
        if not type_:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Unexpected empty filter component entity type")
        field = TYPES.get(type_)
        if field is None:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{type_}' not supported")
        if field in wanted:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate {type_} filter component entity type")
        wanted[field] = _name(component)
    if "ip" in wanted and len(wanted) > 1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination, IP filter component should not be used with "
            "user or clientId filter component.",
        )
    return wanted


def _name(component: ComponentData) -> Name | None:
    match component.match_type:
        case Match.EXACT if component.match is not None:
            return component.match
        case Match.EXACT:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"an exact match of {component.entity_type} needs a name")
        case Match.DEFAULT:
            return DEFAULT
        case Match.ANY:
            return None
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no match type {component.match_type}: 0, 1 or 2")


def _matches(entity: Entity, wanted: Wanted, strict: bool) -> bool:
    for field in TYPES.values():
        name = getattr(entity, field)
        if field not in wanted:
            if strict and name is not None:
                return False
        elif name is None or wanted[field] not in (None, name):
            return False
    return True


def _values(entity: Entity, overrides: Mapping[str, str]) -> Iterator[ValueData]:
    """Not its credentials, nor what somebody wrote there by hand that is no number."""
    for quota in OF_USERS_AND_CLIENTS if entity.ip is None else OF_ADDRESSES:
        value = number(overrides.get(quota))
        if value is not None:
            yield ValueData(key=quota.value, value=value)
