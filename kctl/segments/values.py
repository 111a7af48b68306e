"""Keys and values, which may be any bytes, as text."""

from __future__ import annotations

from typing import Any

FORMATS = ("auto", "text", "json", "hex", "base64", "none")


def render(data: bytes | None, how: str, *, machine: bool) -> Any:
    """For a program (`machine`) a string, or {"base64": …} where it is none; for a person always a string."""
    if data is None or how == "none":
        return None
    match how:
        case "text":
            return data.decode("utf-8", "replace")
        case "hex":
            return data.hex()
        case "base64":
            return _base64(data)
        case "json":
            return _parsed(data, machine)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": _base64(data)} if machine else f"0x{data.hex()}"


def _parsed(data: bytes, machine: bool) -> Any:
    import json

    try:
        value = json.loads(data)
    except ValueError:
        return render(data, "auto", machine=machine)
    return value if machine else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _base64(data: bytes) -> str:
    from binascii import b2a_base64

    return b2a_base64(data, newline=False).decode()
