"""Compares the rows that a case expects with those that came, by the columns' types. Pure.

Rows have no order. A column that no expected row names is not compared; in the others, a row that leaves a column out
expects null. A record's value and headers are compared in the same way, by their own names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from decimal import Decimal, InvalidOperation
from typing import Any

from kafkad_etl.model.cases import Expected
from kctl.errors import did_you_mean

LETTER = '{"type": "struct", "fields": [{"name": "key", "type": "string"}, {"name": "value", "type": "string"}, \
{"name": "headers", "type": "headers"}]}'
"""The type of dead letters."""
_SHOWN = 20
"""Differences that are shown of each kind of rows."""
_WHOLE = ("byte", "short", "integer", "long")
_REAL = ("float", "double")
Flat = dict[str, Any]


def differences(expected: Sequence[Expected], came: Sequence[str], schema: str, zone: tzinfo = UTC) -> list[str]:
    """The differences, one text each; none if the rows are the same. Times without an offset are in `zone`."""
    types = _flat_types(json.loads(schema)) if schema else {}
    rows = [_flat(json.loads(text, parse_float=Decimal), types) for text in came]
    wanted = [_flat(each.row, types) for each in expected]
    names = list(dict.fromkeys(name for row in wanted for name in row))
    if not names:
        return list(_shown([f"not expected: {_text(row)}" for row in rows])) if not expected else []
    if schema and (unknown := [name for name in names if not _type_of(name, types)]):
        return [_unknown(expected, wanted, name, types) for name in unknown]
    kinds = {name: _kind(name, wanted, types) for name in names}
    return list(_shown(_compared(expected, wanted, rows, kinds, zone)))


def _compared(
    expected: Sequence[Expected], wanted: Sequence[Flat], rows: Sequence[Flat], kinds: Mapping[str, Any], zone: tzinfo
) -> list[str]:
    def normal(row: Flat) -> tuple[Any, ...]:
        return tuple(normalised(row.get(name), kind, zone) for name, kind in kinds.items())

    left = [(normal(row), row) for row in rows]
    missing = []
    for each, row in zip(expected, wanted, strict=True):
        want = normal(row)
        at = next((at for at, (has, _) in enumerate(left) if has == want), None)
        if at is None:
            missing.append((each, row, want))
        else:
            del left[at]
    found = []
    for each, row, want in missing:
        at = _closest(want, [has for has, _ in left])
        if at is None:
            found.append(f"{each.where}: did not come: {_text(row)}")
            continue
        has, other = left.pop(at)
        for name, one, two in zip(kinds, want, has, strict=True):
            if one != two:
                found.append(f"{each.where}: {name}: expected {_text(row.get(name))}, came {_text(other.get(name))}")
    return found + [f"not expected: {_text({name: row.get(name) for name in kinds})}" for _, row in left]


def _closest(want: tuple[Any, ...], others: Sequence[tuple[Any, ...]]) -> int | None:
    """The row that has the most columns in common; None if none has any."""
    common = [sum(one == two for one, two in zip(want, other, strict=True)) for other in others]
    most = max(common, default=0)
    return common.index(most) if most else None


def _shown(found: Sequence[str]) -> Iterator[str]:
    yield from found[:_SHOWN]
    if len(found) > _SHOWN:
        yield f"and {len(found) - _SHOWN:,} more differences"


def _unknown(expected: Sequence[Expected], wanted: Sequence[Flat], name: str, types: Mapping[str, Any]) -> str:
    where = next(each.where for each, row in zip(expected, wanted, strict=True) if name in row)
    known = [each for each in types if types[each] != "headers"]
    hints = did_you_mean(name, known) or (f"it has {', '.join(known)}",)
    return f"{where}: the result has no column {name}; {hints[0]}"


# --- a record's value and headers, as columns of their own


def _flat_types(schema: Mapping[str, Any]) -> dict[str, Any]:
    types: dict[str, Any] = {}
    is_record = any(field["type"] == "headers" for field in schema["fields"])
    for field in schema["fields"]:
        if is_record and field["name"] == "value" and isinstance(field["type"], dict):
            types |= {f"value.{each['name']}": each["type"] for each in field["type"]["fields"]}
        else:
            types[field["name"]] = field["type"]
    return types


def _flat(row: Mapping[str, Any], types: Mapping[str, Any]) -> Flat:
    flat: Flat = {}
    for name, value in row.items():
        if isinstance(value, Mapping) and (types.get(name) == "headers" or (name == "value" and name not in types)):
            flat |= {f"{name}.{each}": inner for each, inner in value.items()}
        else:
            flat[name] = value
    return flat


def _type_of(name: str, types: Mapping[str, Any]) -> Any:
    return "string" if name.startswith("headers.") and types.get("headers") == "headers" else types.get(name)


def _kind(name: str, wanted: Sequence[Flat], types: Mapping[str, Any]) -> Any:
    """The column's type; text that is expected as a block or a list is compared as JSON."""
    kind = _type_of(name, types)
    values = [row.get(name) for row in wanted]
    as_json = kind == "string" and any(isinstance(v, list) or _is_block(v) for v in values)
    return "json" if as_json else kind


def _is_block(value: Any) -> bool:
    return isinstance(value, dict) and set(value) != {"base64"}


# --- values


def normalised(value: Any, kind: Any, zone: tzinfo) -> Any:
    """The value in a form that is equal for equal values; anything that does not fit the type stays as it is."""
    if value is None:
        return None
    if isinstance(kind, dict):
        return _nested(value, kind, zone)
    if kind == "json":
        return _of_json(value)
    if kind in _REAL or kind in _WHOLE or str(kind).startswith("decimal"):
        return _number(value, kind)
    if kind == "timestamp" and isinstance(value, str):
        moment = _moment(value)
        return value if moment is None else (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(UTC)
    if kind == "timestamp_ntz" and isinstance(value, str):
        return _moment(value) or value
    if isinstance(value, dict | list):
        return json.dumps(value, sort_keys=True, default=str)
    return type(value).__name__, value


def _nested(value: Any, kind: Mapping[str, Any], zone: tzinfo) -> Any:
    if kind["type"] == "struct" and isinstance(value, dict):
        names = [field["name"] for field in kind["fields"]]
        others = tuple(sorted(set(value) - set(names)))
        return others, tuple(normalised(value.get(each["name"]), each["type"], zone) for each in kind["fields"])
    if kind["type"] == "array" and isinstance(value, list):
        return tuple(normalised(each, kind["elementType"], zone) for each in value)
    if kind["type"] == "map" and isinstance(value, dict):
        return tuple(sorted((name, normalised(each, kind["valueType"], zone)) for name, each in value.items()))
    return type(value).__name__, json.dumps(value, sort_keys=True, default=str)


def _of_json(value: Any) -> Any:
    if isinstance(value, str):
        try:
            value = json.loads(value, parse_float=Decimal)
        except ValueError:
            return value
    return json.dumps(value, sort_keys=True, default=lambda number: float(number))


def _number(value: Any, kind: str) -> Any:
    if isinstance(value, bool) or (isinstance(value, str) and kind in _WHOLE):
        return type(value).__name__, value
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return type(value).__name__, str(value)
    if not number.is_finite():  # NaN is not equal to itself
        return str(number)
    return float(number) if kind in _REAL else number.normalize()


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(number: Decimal) -> int | float:
    return int(number) if number == number.to_integral_value() else float(number)
