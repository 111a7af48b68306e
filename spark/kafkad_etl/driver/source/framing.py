"""SQL for the five bytes before a value that is in a schema registry: 0, and the id of its writer's schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kafkad_etl.driver.source.json_rows import because
from kafkad_etl.driver.source.registry import Schemas
from kafkad_etl.sql_text import quoted

PREFIX = 5
UNKNOWN = "the registry has no schema "


def payload(part: str) -> str:
    """What follows the prefix."""
    return f"substring({part}, {PREFIX + 1})"


def schema_id(part: str) -> str:
    """The schema id; NULL if the prefix is missing."""
    return (
        f"CASE WHEN length({part}) >= {PREFIX} AND hex(substring({part}, 1, 1)) = '00' "
        f"THEN CAST(conv(hex(substring({part}, 2, 4)), 16, 10) AS BIGINT) END"
    )


def reasons(part: str, schemas: Schemas | None) -> Iterator[tuple[str, str]]:
    """Conditions under which a value cannot be parsed, each with the reason; `schemas` if it is in a registry."""
    yield f"{part} IS NULL", "'it is null'"
    if schemas is None:
        return
    number, there = schema_id(part), ", ".join(map(str, sorted(schemas.known))) or "-1"
    yield f"{number} IS NULL", "'it does not begin with the five-byte prefix of a schema registry'"
    for each, fault in sorted(schemas.unusable.items()):
        yield f"{number} = {each}", quoted(f"the registry's schema {each} cannot be used: {fault}")
    yield f"{number} NOT IN ({there})", f"concat('{UNKNOWN}', CAST({number} AS STRING))"


def why(tests: Iterable[tuple[str, str]], otherwise: str) -> str:
    """SQL for struct<column, why> of the first condition that is true; `otherwise` is one, too."""
    cases = [(test, because("''", reason)) for test, reason in tests]
    return f"CASE {' '.join(f'WHEN {test} THEN {reason}' for test, reason in cases)} ELSE {otherwise} END"


def unknown_ids(found: Iterable[str]) -> list[int]:
    """The ids in reasons that name an unknown schema."""
    return [int(why.removeprefix(UNKNOWN)) for why in found if why.startswith(UNKNOWN)]


def prefix(number: int) -> bytes:
    return b"\0" + number.to_bytes(4, "big")
