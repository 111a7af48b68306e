"""Every recorded frame: read it, compare each field with what Kafka read, write it again to the same bytes."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from kafkad.names import id_text
from kafkad.wire import apis, frames, schema
from tests.wire.recorded import exchanges

APIS = sorted(exchanges())


@pytest.mark.parametrize("api", APIS)
def test_requests(api: str) -> None:
    for exchange in exchanges()[api]:
        header, at = frames.read_request_header(exchange.request)
        assert header[:2] == (exchange.key, exchange.version), exchange.label
        cls = apis.request_class(exchange.key)
        message, end = schema.read(cls, exchange.version, exchange.request, at)
        assert differences(message, exchange.decoded["request"], exchange.version) == [], exchange.label
        assert end == len(exchange.request) - exchange.left_over
        assert frames.encode_request(header, message)[4:] == exchange.request[:end], exchange.label


@pytest.mark.parametrize("api", APIS)
def test_responses(api: str) -> None:
    for exchange in exchanges()[api]:
        if exchange.response is None:
            continue
        correlation_id, at = frames.read_response_header(exchange.key, exchange.version, exchange.response)
        message = schema.decode(apis.response_class(exchange.key), exchange.version, exchange.response[at:])
        assert differences(message, exchange.decoded["response"], exchange.version) == [], exchange.label
        again = frames.encode_response(exchange.key, exchange.version, correlation_id, message)
        assert again[4:] == exchange.response, exchange.label


def differences(message: Any, expected: dict[str, Any], version: int) -> list[str]:
    """Messages that differ from Kafka's JSON; that JSON names no tagged field that is at its default."""
    found = []
    fields = {field.name.replace("_", ""): field for field in message.__schema__.fields}
    for name, value in expected.items():
        field = fields.pop(name.lower())
        if not schema.within(version, field.versions):
            found.append(f"{field.name} is not in version {version}")
        found += _differs(getattr(message, field.name), value, field, version)
    for field in fields.values():
        if schema.within(version, field.versions) and field.tag is None:
            found.append(f"{field.name} is not in Kafka's JSON")
    return found


def _differs(value: Any, expected: Any, field: schema.Field, version: int) -> list[str]:
    if isinstance(expected, dict):
        return [f"{field.name}.{found}" for found in differences(value, expected, version)]
    if isinstance(expected, list) and isinstance(value, list):
        if len(value) != len(expected):
            return [f"{field.name} has {len(value)} items, not {len(expected)}"]
        pairs = zip(value, expected, strict=True)
        return [found for ours, theirs in pairs for found in _differs(ours, theirs, field, version)]
    plain = _plain(value, field)
    return [] if plain == expected else [f"{field.name} is {plain!r}, not {expected!r}"]


def _plain(value: Any, field: schema.Field) -> Any:
    """A value as in the JSON: ids and bytes in base64, records left out."""
    if not isinstance(value, bytes):
        return value
    if field.name == "records":
        return ""
    return id_text(value) if field.kind == "16s" else base64.b64encode(value).decode()
