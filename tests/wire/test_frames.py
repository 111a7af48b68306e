from __future__ import annotations

import pytest

from kafkad.wire import apis, frames
from kafkad.wire.frames import RequestHeader
from kafkad.wire.messages.api_versions import ApiVersionsResponse
from kafkad.wire.messages.controlled_shutdown import ControlledShutdownRequest
from kafkad.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafkad.wire.schema import MalformedError, Schema, decode, encode, within
from tests.wire.values import versions_of


@pytest.mark.parametrize(
    ("header", "raw"),
    [
        (RequestHeader(12, 3, 7, "me"), "000c 0003 00000007 0002 6d65"),
        (RequestHeader(12, 4, 7, "me"), "000c 0004 00000007 0002 6d65 00"),
        (RequestHeader(12, 4, 7, None), "000c 0004 00000007 ffff 00"),
        (RequestHeader(12, 4, 7, ""), "000c 0004 00000007 0000 00"),
    ],
)
def test_request_headers(header: RequestHeader, raw: str) -> None:
    frame = frames.encode_request(header, HeartbeatRequest())
    head = bytes.fromhex(raw)
    assert frame[4:].startswith(head)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert frames.read_request_header(memoryview(frame), 4) == (header, 4 + len(head))


def test_only_the_first_controlled_shutdown_has_no_client_id() -> None:
    frame = frames.encode_request(RequestHeader(7, 0, 1), ControlledShutdownRequest(broker_id=5))
    assert frame.hex(" ", 4) == "0000000c 00070000 00000001 00000005"
    assert frames.read_request_header(frame, 4) == (RequestHeader(7, 0, 1), 12)


def test_headers_of_apis_and_versions_nobody_knows_are_read() -> None:
    assert frames.read_request_header(bytes.fromhex("7777 0001 00000002 0001 61"))[0].api_key == 0x7777
    assert frames.read_request_header(bytes.fromhex("0012 0063 00000002 0001 61 00")) == (
        RequestHeader(18, 99, 2, "a"),
        12,
    )


@pytest.mark.parametrize(("raw", "client_id"), [("fffe", None), ("8000", None), ("0002 6dfc", "m\ufffd")])
def test_any_client_id_is_read_as_kafka_reads_it(raw: str, client_id: str | None) -> None:
    head = bytes.fromhex("000c 0004 00000007" + raw + "00")
    assert frames.read_request_header(memoryview(head)) == (RequestHeader(12, 4, 7, client_id), len(head))


@pytest.mark.parametrize(
    "raw", ["", "000c 0004", "000c 0004 00000007", "000c 0004 00000007 0005 61", "000c 0004 00000007 fffe"]
)
def test_malformed_request_headers(raw: str) -> None:
    with pytest.raises(MalformedError):
        frames.read_request_header(bytes.fromhex(raw))


def test_response_frames() -> None:
    assert frames.encode_response(12, 0, 9, HeartbeatResponse(error_code=25)).hex(" ", -4) == "00000006 00000009 0019"
    assert frames.encode_response(12, 4, 9, HeartbeatResponse()).hex(" ", -4) == "0000000c 00000009 00000000 00000000"
    with pytest.raises(MalformedError):
        frames.read_response_header(12, 4, b"\0\0\0\1")


def test_api_versions_answers_have_the_first_header_always() -> None:
    for version in (0, 3, 4, 99):
        assert frames.response_header(18, version, 9) == b"\0\0\0\x09"
    frame = frames.encode_response(18, 3, 9, ApiVersionsResponse())
    assert frames.read_response_header(18, 3, frame, 4) == (9, 8)


@pytest.mark.parametrize("key", apis.APIS)
def test_the_table_of_apis_says_what_the_messages_say(key: int) -> None:
    request: Schema = apis.request_class(key).__schema__
    response: Schema = apis.response_class(key).__schema__
    assert request.key == response.key == apis.APIS[key].key == key
    assert request.versions == response.versions
    assert request.flexible == response.flexible
    for version in versions_of(apis.request_class(key)):
        assert apis.is_flexible(key, version) == within(version, request.flexible)


@pytest.mark.parametrize("key", apis.APIS)
def test_every_version_of_every_message_compiles(key: int) -> None:
    for cls in (apis.request_class(key), apis.response_class(key)):
        for version in versions_of(cls):
            assert decode(cls, version, encode(cls(), version)) == cls()
