"""JSON read and written again with its numbers as they were: 1.10 does not become 1.1, nor 1e400 infinite.

As it is read a number is bytes, which nothing else is in JSON.
"""

from __future__ import annotations

from json import JSONDecoder
from json.encoder import encode_basestring
from typing import Any


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")


_DECODER = JSONDecoder(parse_float=str.encode, parse_int=str.encode, parse_constant=_no_number)


def read(text: str) -> Any:
    """ValueError for what is no JSON, as NaN; RecursionError for what is nested too deeply."""
    return _DECODER.decode(text)


def written(value: Any) -> str:
    """On one line and without spaces. RecursionError for what is nested too deeply."""
    match value:
        case bytes():
            return value.decode()
        case str():
            return encode_basestring(value)
        case dict():
            members = map("{}:{}".format, map(encode_basestring, value), map(written, value.values()))
            return "{" + ",".join(members) + "}"
        case list():
            return "[" + ",".join(map(written, value)) + "]"
    return "null" if value is None else "true" if value else "false"
