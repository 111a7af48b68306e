"""SaslHandshake and SaslAuthenticate where no login is due: refused as Kafka refuses them, and the connection stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafkad.wire.apis import request_class
from kafkad.wire.frames import encode_response, read_request_header
from kafkad.wire.schema import decode
from tests.one_broker import OneBroker

GOLDEN = Path(__file__).parents[1] / "golden" / "security" / "sasl.jsonl"


@pytest.mark.parametrize("number", [17, 18])
def test_what_kafka_says(broker: OneBroker, number: int) -> None:
    [recorded] = [case for case in map(json.loads, GOLDEN.read_text().splitlines()) if case["id"] == number]
    sent, received = (bytes.fromhex(step[1]) for step in recorded["steps"][-2:])
    header, at = read_request_header(memoryview(sent)[4:])
    key, version = header.api_key, header.api_version
    answer = broker.ask(decode(request_class(key), version, memoryview(sent)[4 + at :]), version)
    assert encode_response(key, version, header.correlation_id, answer) == received
