"""Frames around messages: the length, and the headers of requests and responses.

A request header is v1, v2 (with tagged fields) in flexible versions, and v0 (no client id) for ControlledShutdown v0
only. A response header is v0, or v1 (with tagged fields) in flexible versions; ApiVersions stays at v0, since its asker
may not know the version in which it is answered.
"""

from __future__ import annotations

from collections.abc import Generator
from struct import Struct, error
from typing import Any, NamedTuple

from kafkad.wire.apis import is_flexible
from kafkad.wire.primitives import Buffer, MalformedError, get_nullable_string, or_null, put_string, skip_tags
from kafkad.wire.schema import write, write_in_pieces

API_VERSIONS = 18
CONTROLLED_SHUTDOWN = 7

_REQUEST = Struct(">hhi")
_SIZE_AND_REQUEST = Struct(">ihhi")
_CORRELATION = Struct(">i")
_FLEXIBLE_RESPONSE = Struct(">ix")
_put_client_id = or_null(put_string, b"\xff\xff")


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None


def read_request_header(data: Buffer, at: int = 0) -> tuple[RequestHeader, int]:
    """The header that starts at `at` (after the length), and where the body starts. MalformedError if it is none.

    An API or version nobody knows is no error here: whoever routes the request knows what to answer.
    """
    try:
        key, version, correlation_id = _REQUEST.unpack_from(data, at)
        at += _REQUEST.size
        if version == 0 and key == CONTROLLED_SHUTDOWN:
            return RequestHeader(key, version, correlation_id), at
        client_id, at = get_nullable_string(data, at)
        if is_flexible(key, version):
            at, _ = skip_tags(data, at)
    except (IndexError, error) as cause:
        raise MalformedError(f"no request header: {cause}") from cause
    return RequestHeader(key, version, correlation_id, client_id), at


def encode_request(header: RequestHeader, message: Any) -> bytearray:
    """A whole request frame, with its length."""
    key, version, correlation_id, client_id = header
    out = bytearray(_SIZE_AND_REQUEST.pack(0, key, version, correlation_id))
    if version != 0 or key != CONTROLLED_SHUTDOWN:
        _put_client_id(out, client_id)
    if is_flexible(key, version):
        out.append(0)
    return _finish(out, message, version)


def response_header(key: int, version: int, correlation_id: int) -> bytes:
    if key != API_VERSIONS and is_flexible(key, version):
        return _FLEXIBLE_RESPONSE.pack(correlation_id)
    return _CORRELATION.pack(correlation_id)


def read_response_header(key: int, version: int, data: Buffer, at: int = 0) -> tuple[int, int]:
    """The correlation id of a response frame (after the length), and where its body starts."""
    try:
        (correlation_id,) = _CORRELATION.unpack_from(data, at)
        at += _CORRELATION.size
        if key != API_VERSIONS and is_flexible(key, version):
            at, _ = skip_tags(data, at)
    except (IndexError, error) as cause:
        raise MalformedError(f"no response header: {cause}") from cause
    return correlation_id, at


def encode_response(key: int, version: int, correlation_id: int, message: Any) -> bytes:
    """A whole response frame, with its length."""
    return bytes(_finish(bytearray(b"\0\0\0\0" + response_header(key, version, correlation_id)), message, version))


def encode_response_in_pieces(
    out: bytearray, key: int, version: int, correlation_id: int, message: Any
) -> Generator[None, None, None]:
    """The same into `out`, which is empty."""
    out += b"\0\0\0\0" + response_header(key, version, correlation_id)
    yield from write_in_pieces(out, message, version)
    _CORRELATION.pack_into(out, 0, len(out) - 4)


def _finish(out: bytearray, message: Any, version: int) -> bytearray:
    write(out, message, version)
    _CORRELATION.pack_into(out, 0, len(out) - 4)
    return out
