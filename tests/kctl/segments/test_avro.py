"""Avro's binary form, by the examples of its specification and by values encoded here in its own words."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkad.wire.records import Record, build_batch, write_varint
from kctl.errors import Exit
from kctl.segments.avro import AvroError, compile_schema
from tests.kctl.conftest import Kctl

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "before", "type": ["null", "Order"]},
        {"name": "was", "type": "State"},
    ],
}


def text(value: str) -> bytes:
    return write_varint(len(value.encode())) + value.encode()


def order(number: int, note: str | None, tags: list[str], state: int, before: bytes | None) -> bytes:
    return b"".join(
        (
            write_varint(number),
            b"\x00" if note is None else b"\x02" + text(note),
            *((write_varint(len(tags)), *map(text, tags)) if tags else ()),
            b"\x00",
            write_varint(state),
            b"\x00" if before is None else b"\x02" + before,
            write_varint(0),
        )
    )


@pytest.mark.parametrize(
    ("schema", "data", "value"),
    [
        ("null", b"", None),
        ("boolean", b"\x01", True),
        ("int", b"\x7f", -64),
        ("long", b"\x80\x01", 64),
        ("float", struct.pack("<f", 1.5), 1.5),
        ("double", struct.pack("<d", -0.1), -0.1),
        ("double", struct.pack("<d", float("nan")), "NaN"),
        ("float", struct.pack("<f", float("-inf")), "-Infinity"),
        ("bytes", b"\x04\xff\x00", {"base64": "/wA="}),
        ("string", b"\x06foo", "foo"),
        ({"type": "array", "items": "long"}, b"\x04\x06\x36\x00", [3, 27]),
        ({"type": "array", "items": "long"}, b"\x03\x04\x06\x36\x00", [3, 27]),  # a block that says its size
        ({"type": "map", "values": "long"}, b"\x02\x02a\x02\x00", {"a": 1}),
        (["null", "string"], b"\x02\x02a", "a"),
        ({"type": "fixed", "name": "F", "size": 2}, b"ab", {"base64": "YWI="}),
        ({"type": "long", "logicalType": "timestamp-millis"}, b"\x02", 1),
        ({"type": "record", "name": "test", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}]},
         b"\x36\x06foo", {"a": 27, "b": "foo"}),
    ],
)  # fmt: skip
def test_types(schema: Any, data: bytes, value: Any) -> None:
    assert compile_schema(json.dumps(schema))(data) == value


def test_a_record_may_hold_its_own_kind_and_what_was_named_before() -> None:
    decode = compile_schema(json.dumps(ORDER))
    inner = order(1, None, [], 0, None)
    value = decode(order(2, "é", ["a", "b"], 1, inner))
    assert value["before"]["state"] == "NEW"
    assert (value["id"], value["note"], value["tags"], value["state"]) == (2, "é", ["a", "b"], "PAID")


def test_what_a_registry_puts_in_front_is_passed_over() -> None:
    decode = compile_schema(json.dumps(ORDER))
    plain = order(0, "x", [], 0, None)  # begins with 0 as well
    assert decode(plain) == decode(b"\x00\x00\x00\x00\x07" + plain)


@given(st.binary(max_size=40))
def test_anything_else_is_refused(data: bytes) -> None:
    try:
        value = compile_schema(json.dumps(ORDER))(data)
    except AvroError:
        return
    assert set(value) == {field["name"] for field in ORDER["fields"]}  # type: ignore[index]


@pytest.mark.parametrize("schema", ["{", "7", '"nosuch"', '{"type": "record", "name": "R", "fields": [1]}', "{}"])
def test_schemas_that_are_none(schema: str) -> None:
    with pytest.raises(AvroError):
        compile_schema(schema)


def test_on_the_command_line(kctl: Kctl, tmp_path: Path) -> None:
    schema, log = tmp_path / "order.avsc", tmp_path / f"{0:020d}.log"
    schema.write_text(json.dumps(ORDER))
    values = [order(7, "n", [], 1, None), None, b"\xffno such thing"]
    log.write_bytes(build_batch([Record(n, 0, None, value) for n, value in enumerate(values)]))
    ran = kctl("dump-segment", log, "--avro", schema, "-o", "json")
    first, second, third = (json.loads(line)["value"] for line in ran.out.splitlines())
    assert (first["id"], second, third) == (7, None, {"base64": "/25vIHN1Y2ggdGhpbmc="})
    assert ran.err == f"1 value not of the schema in {schema}\n"
    assert '"id":7,"note":"n"' in kctl("dump-segment", log, "--avro", schema).out
    schema.write_text("{")
    ran = kctl("dump-segment", log, "--avro", schema)
    assert ran.code == Exit.USAGE
    assert ran.err.startswith(f"error: {schema}: the schema is no JSON: ")
    assert kctl("dump-segment", log, "--avro", tmp_path / "nowhere").code == Exit.NOT_FOUND
