"""Keys and values, which may be any bytes, as text."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

FORMATS = ("auto", "text", "json", "hex", "base64", "none")

Render = Callable[[bytes | None], Any]


def renderer(how: str, *, machine: bool) -> Render:
    """For a program (`machine`) a string, or {"base64": …} where it is none; for a person always a string."""
    match how:
        case "none":
            return lambda data: None
        case "text":
            return lambda data: None if data is None else data.decode("utf-8", "replace")
        case "hex":
            return lambda data: None if data is None else data.hex()
        case "base64":
            return lambda data: None if data is None else base64_text(data)
        case "json":
            return _json_for_programs if machine else _json_for_people
    return _auto_for_programs if machine else _auto_for_people


def _auto_for_programs(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64_text(data)}


def _auto_for_people(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"


def _loaded(data: bytes) -> Any:
    """ValueError for what is no JSON, as NaN, or could not be written as JSON: a number too large for a double."""
    import json

    def number(text: str) -> float:
        value = float(text)
        if not isfinite(value):
            raise ValueError(f"{text} is no number of JSON")
        return value

    return json.loads(data, parse_float=number, parse_constant=number)


def _json_for_programs(data: bytes | None) -> Any:
    try:
        return None if data is None else _loaded(data)
    except (ValueError, RecursionError):
        return _auto_for_programs(data)


def _json_for_people(data: bytes | None) -> Any:
    from kctl.texts import exact_json

    try:
        return None if data is None else exact_json.written(exact_json.read(data.decode()))
    except (ValueError, RecursionError):
        return _auto_for_people(data)


def compact(value: Any) -> str:
    """JSON on one line."""
    import json

    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def base64_text(data: bytes) -> str:
    from binascii import b2a_base64

    return b2a_base64(data, newline=False).decode()
