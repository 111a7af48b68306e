"""Records as lines of JSON, and back: what `consume -o json` prints is what `produce --json` takes.

Text is a string, bytes that are not UTF-8 are {"base64": …}, none is null: the way back gives the same bytes.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any

from kctl.records.formats import Headers, Parsed
from kctl.records.located import Located
from kctl.texts import exact_json
from kctl.texts.output import rfc3339
from kctl.texts.taming import without_c1

FIELDS = ("topic", "partition", "offset", "timestamp", "timestamp_ms", "key", "value", "headers")


def _text(data: bytes | None) -> str:
    if data is None:
        return "null"
    try:
        return encode_basestring(data.decode())
    except UnicodeDecodeError:
        from base64 import b64encode

        return f'{{"base64": "{b64encode(data).decode()}"}}'


_name = lru_cache(maxsize=256)(lambda name: _text(name.encode("utf-8", "surrogateescape")))


def _time(milliseconds: int) -> str:
    text = rfc3339(milliseconds)
    return "null" if text is None else f'"{text}"'


def json_line(at: Located) -> str:
    """Put together by hand, for this is most of what a record costs."""
    topic, partition, (offset, timestamp, key, value, headers) = at
    listed = ", ".join([f'{{"key": {_name(name)}, "value": {_text(data)}}}' for name, data in headers])
    return without_c1(
        f'{{"topic": {_name(topic)}, "partition": {partition}, "offset": {offset}, "timestamp": {_time(timestamp)}, '
        f'"timestamp_ms": {timestamp}, "key": {_text(key)}, "value": {_text(value)}, "headers": [{listed}]}}'
    )


def read_json_line(line: bytes) -> Parsed:
    """ValueError when it is none. Keys and values may be any JSON: what is no text goes as it is written, compactly."""
    try:
        return _parsed(_said(line))
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def _said(line: bytes) -> Any:
    try:
        return exact_json.read(line.removeprefix(BOM_UTF8).decode())
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from None


def _parsed(said: Any) -> Parsed:
    if not isinstance(said, dict):
        raise ValueError('is no object like {"key": …, "value": …}')
    if unknown := [name for name in said if name not in FIELDS]:
        raise ValueError(f'has a field "{unknown[0]}"; there are {", ".join(FIELDS)}')
    return Parsed(
        _bytes(said.get("key"), "key"),
        _bytes(said.get("value"), "value"),
        _headers(said.get("headers")),
        _number(said, "timestamp_ms"),
        _number(said, "partition"),
        said.get("topic"),
    )


def _bytes(value: Any, what: str) -> bytes | None:
    match value:
        case None:
            return None
        case str():
            try:
                return value.encode()
            except UnicodeEncodeError:
                raise ValueError(f"has half a character as {what}") from None
        case {"base64": str(text), **others} if not others:
            from base64 import b64decode

            try:
                return b64decode(text, validate=True)
            except ValueError:
                raise ValueError(f"has a {what} that is not base64") from None
    return exact_json.written(value).encode("utf-8", "backslashreplace")  # half a character stays as \ud800


def _headers(value: Any) -> Headers:
    if value is None:
        return ()
    if isinstance(value, dict):
        return tuple(_header({"key": name, "value": data}) for name, data in value.items())
    if not isinstance(value, list):
        raise ValueError('has headers that are no list of {"key": …, "value": …}')
    return tuple(_header(each) for each in value)


def _header(value: Any) -> tuple[str, bytes | None]:
    name = _bytes(value["key"], "header's key") if isinstance(value, dict) and "key" in value else None
    if name is None:
        raise ValueError('has a header that is not like {"key": …, "value": …}')
    return name.decode("utf-8", "surrogateescape"), _bytes(value.get("value"), "header")


def _number(said: dict[str, Any], name: str) -> int | None:
    value = said.get(name)
    if value is None:
        return None
    try:
        if isinstance(value, bytes):
            return int(value)
    except ValueError:
        pass
    raise ValueError(f"has a {name} that is no whole number")
