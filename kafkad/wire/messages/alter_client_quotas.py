from __future__ import annotations

from kafkad.wire.schema import Request, array, boolean, float64, int16, int32, message, nested, string


@nested
class EntityData:
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


@nested
class OpData:
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


@nested
class RequestEntryData:
    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


@message(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest(Request["AlterClientQuotasResponse"]):
    """Sets or removes quotas."""

    entries: list[RequestEntryData] = array(RequestEntryData)
    validate_only: bool = boolean()


@nested
class ResponseEntryData:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entity: list[EntityData] = array(EntityData)


@message(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    """The result for each entity."""

    throttle_time_ms: int = int32()
    entries: list[ResponseEntryData] = array(ResponseEntryData)
