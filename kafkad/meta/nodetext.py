"""The text of Kafka's znodes: compact JSON, and names quoted as Java quotes them."""

from __future__ import annotations

import json
from typing import Any


def json_text(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


class _Fields(dict[str, Any]):
    def __missing__(self, name: str) -> Any:
        raise ValueError(f"there is no field {name!r}")


def json_fields(data: bytes) -> _Fields:
    """Raises ValueError for what is no JSON object, or has names in it that are no text: those could not be written.
    Its words, which go to logs and clients, have nothing of `data`: there may be passwords in it."""
    try:
        value = json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError(f"it is no JSON object, but of the type {type(value).__name__}")
    if b"\\u" in data:
        json_text(value)  # UnicodeEncodeError for one half of a pair of surrogates
    return _Fields(value)


def sanitize(name: str) -> str:
    """A name as part of a path, quoted as Java's URL encoding does it with a space as `%20` and `*` as `%2A`."""
    from urllib.parse import quote  # slow to import, and only quotas and tokens need it

    return quote(name, safe="").replace("~", "%7E")


def unsanitize(name: str) -> str:
    from urllib.parse import unquote

    return unquote(name)
