from __future__ import annotations

from kafkad.wire.schema import Request, array, boolean, float64, int8, int16, int32, message, nested, string


@nested
class ComponentData:
    entity_type: str = string()
    match_type: int = int8()  # 0 exact, 1 the default entity, 2 any that is named
    match: str | None = string(nullable="0+")


@message(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest(Request["DescribeClientQuotasResponse"]):
    """Asks for the quotas of entities that match."""

    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


@nested
class EntityData:
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


@nested
class ValueData:
    key: str = string()
    value: float = float64()


@nested
class EntryData:
    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


@message(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    """Entities and their quotas."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entries: list[EntryData] | None = array(EntryData, nullable="0+")
