"""Protobuf on real Spark, beside Google's own library for Python."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from kafkad_etl.driver.failures import failure_of
from kafkad_etl.driver.sinks.topic import Records
from kafkad_etl.driver.source.parser import Parser
from kafkad_etl.driver.terms import JobFailed
from kafkad_etl.facts import BAD
from kafkad_etl.messages import Schema
from kafkad_etl.registry.protobuf import compiled
from tests.spark.driver.rows import IN_PROCESS, plan_of, records
from tests.spark.protobuf import NEXT, ORDER, framed, message_class
from tests.spark.schema_registry import running

pytestmark = IN_PROCESS

AT = datetime(2026, 11, 1, 12, 0, 0, 123456, UTC)


def schema(text: str = ORDER, name: str = "shop.Order") -> Schema:
    return Schema("protobuf", text, name, compiled(text, name).files)


def full() -> Any:
    order = message_class(ORDER, "shop.Order")(id=1, state=1, big=2**64 - 1, small=2**32 - 1, raw=b"\0\xff", weight=0.5)
    order.customer.name, order.customer.address.city, order.customer.address.zip = "Anna", "Bern", 3000
    order.lines.add(sku="a", count=-2)
    order.lines.add(sku="b")
    order.stock["x"] = 7
    order.at.FromDatetime(AT)
    order.note.value = ""
    order.discount, order.cash = 0.0, False
    return order


def parsed(spark: Any, plan: Any, *values: bytes | None) -> list[Any]:
    found = Parser(spark, plan).parsed(records(spark, *values)).orderBy("_offset").collect()
    return list(found)


def test_messages_are_read_with_everything_in_them(spark: Any) -> None:
    plan = plan_of({"value": {"format": "protobuf"}}, schema=schema())
    order, empty, broken, none = parsed(spark, plan, full().SerializeToString(), b"", b"\x0a", None)
    assert order[BAD] is None
    assert order.customer.asDict(recursive=True) == {"name": "Anna", "address": {"city": "Bern", "zip": 3000}}
    assert [tuple(line) for line in order.lines] == [("a", -2), ("b", 0)]
    assert (order.id, order.stock, order.state, order.note) == (1, {"x": 7}, "SENT", "")
    assert (order.big, order.small, bytes(order.raw)) == (Decimal(2**64 - 1), 2**32 - 1, b"\0\xff")
    assert (order.discount, order.card, order.cash, order.weight) == (0.0, None, False, 0.5)
    assert order.at.timestamp() == AT.timestamp()
    assert (empty.id, empty.customer, empty.lines, empty.stock, empty.state) == (0, None, [], {}, "NEW")
    assert (empty.at, empty.note, empty.discount, empty.cash, empty[BAD]) == (None, None, None, None, None)
    assert tuple(broken[BAD]) == ("", "its 1 bytes do not match the message shop.Order")
    assert tuple(none[BAD]) == ("", "it is null")


def test_records_of_a_registry_name_their_schema_and_their_message(spark: Any) -> None:
    older, newer = full().SerializeToString(), message_class(NEXT, "shop.Order")(id=2, channel="web")
    customer = message_class(ORDER, "shop.Customer")(name="Anna").SerializeToString()
    with running() as registry:
        avro = registry.add("other-value", '"long"')
        refused = registry.add("orders-value", ORDER + "'mess'", "PROTOBUF")
        number = registry.add("orders-value", NEXT, "PROTOBUF")
        block = {"format": "protobuf", "registry": {"url": registry.url}}
        plan = replace(plan_of({"value": block}, schema=schema()), value_writers={10: schema().files})
        parser = Parser(spark, plan)
        raw = records(
            spark,
            framed(10, b"\0", older),
            framed(10, b"\2\0", older),
            framed(number, b"\0", newer.SerializeToString()),
            framed(10, b"\2\2", customer),
            framed(99, b"\0", older),
            older,
            framed(10, b"", b""),
            framed(avro, b"\0", older),
            framed(refused, b"\0", older),
        )
        assert parser.learn(parser.parsed(raw))
        rows = parser.parsed(raw).orderBy("_offset").collect()
    assert [row.id for row in rows[:3]] == [1, 1, 2]
    assert rows[0].customer.name == "Anna"
    assert [row[BAD] and row[BAD].why for row in rows] == [
        None,
        None,
        None,
        "it is not a message shop.Order",
        "the registry has no schema 99",
        "it does not begin with the five-byte prefix of a schema registry",
        "it is not a message shop.Order",
        "the registry's schema 1 cannot be used: its type is AVRO, not PROTOBUF",
        'the registry\'s schema 2 cannot be used: line 27, column 1: Expected top-level statement (e.g. "message").',
    ]


def times(seconds: int, nanos: int = 0) -> bytes:
    order = message_class(ORDER, "shop.Order")(id=1)
    order.at.seconds, order.at.nanos = seconds, nanos
    return bytes(order.SerializeToString())


def test_a_time_that_no_column_can_hold_makes_its_row_bad(spark: Any) -> None:
    plan = plan_of({"value": {"format": "protobuf"}}, schema=schema())
    beyond = [times(10**15), times(-(10**15)), times(10**17), times(2**63 - 1, 10**9), times(-(2**63), -1)]
    good, *bad = parsed(spark, plan, times(1), *beyond)
    assert good[BAD] is None
    assert [row[BAD].why for row in bad] == [
        f"its {len(value)} bytes do not match the message shop.Order" for value in beyond
    ]


def test_an_enums_number_without_a_name_is_kept(spark: Any) -> None:
    kind = message_class(ORDER.replace("SENT = 1;", "SENT = 1; LOST = 7; GONE = -2;"), "shop.Order")
    values = [kind(state=number).SerializeToString() for number in (7, -2, 1)]
    frame = Parser(spark, plan_of({"value": {"format": "protobuf"}}, schema=schema())).parsed(records(spark, *values))
    states = frame.select("state", *writing(spark).of(frame.select("state"))).collect()
    assert [(row.state, bytes(row.value)) for row in states] == list(zip(["7", "-2", "SENT"], values, strict=True))


PROTO2 = """syntax = "proto2"; message M { optional string s = 1; map<string, E> m = 2; optional E e = 3;
                                          map<string, string> t = 4; enum E { A = 0; B = 1; } }"""


def test_a_map_has_no_other_value_for_an_enums_number_without_a_name(spark: Any) -> None:
    known, nothing, unknown = b"\x12\x05\x0a\x01a\x10\x01", b"\x12\x03\x0a\x01b", b"\x12\x05\x0a\x01c\x10\x07"
    plan = plan_of({"value": {"format": "protobuf"}}, schema=schema(PROTO2, "M"))
    (row,) = parsed(spark, plan, known + nothing + unknown + b"\x18\x07")
    assert (row.m, row.e, row[BAD]) == ({"a": "B", "b": "A"}, None, None)


@pytest.mark.parametrize("syntax", ["proto2", "proto3"])
def test_a_text_that_is_not_utf_8_makes_its_row_bad(spark: Any, syntax: str) -> None:
    plan = plan_of({"value": {"format": "protobuf"}}, schema=schema(PROTO2.replace("proto2", syntax), "M"))
    rows = parsed(spark, plan, "\n\2ä".encode(), b"\n\1\xff", b"\x22\x06\n\1a\x12\1\xff", b"\x22\x06\n\1\xff\x12\1b")
    assert [row.s for row in rows] == ["ä", None, None, None]
    assert [row[BAD] is None for row in rows] == [True, False, False, False]


def writing(spark: Any, number: int | None = None, name: str = "shop.Order") -> Records:
    topic = {"topic": "out", "format": "protobuf", "schema": ORDER}
    plan = replace(plan_of({"sink": {"type": "topic", "topic": topic}}), sink_schema=schema(name=name))
    assert plan.job.sink.topic is not None
    return Records(spark, replace(plan, sink_schema_id=number), plan.job.sink.topic)


def test_what_was_read_is_written_as_it_was(spark: Any) -> None:
    plan = plan_of({"value": {"format": "protobuf"}}, schema=schema())
    old = [times(-62135596800), times(-14831769600, 123456000), times(-1, 999999000)]  # the year 1, 1500, 1969
    # 10 and 5 October 1582, which Java's old calendar lacks
    old += [times(-12219724800, 123456000), times(-12220156800)]
    old += [times(9223372036854), times(-9223372036854)]  # the first and last seconds that Spark knows
    frame = Parser(spark, plan).parsed(records(spark, full().SerializeToString(), b"", *old))
    fields = frame.select(*[name for name in frame.columns if not name.startswith("_")])
    made = writing(spark)
    made.check(fields.dtypes)
    found = [bytes(row.value) for row in fields.select(*made.of(fields)).collect()]
    kind = message_class(ORDER, "shop.Order")
    assert [kind.FromString(value) for value in found] == [
        kind.FromString(value) for value in (full().SerializeToString(), b"", *old)
    ]
    framing = writing(spark, 258)
    assert bytes(fields.select(*framing.of(fields)).first().value)[:6] == b"\0\0\0\1\2\0"
    lines = writing(spark, 258, "shop.Order.Line")
    row = spark.sql("SELECT 'a' AS sku, 3 AS count")
    assert bytes(row.select(*lines.of(row)).first().value) == framed(258, b"\4\0\0", b"\x0a\x01a\x10\x06")


def test_times_are_written_wherever_they_are(spark: Any) -> None:
    text = """syntax = "proto3"; import "google/protobuf/timestamp.proto";
    message M { repeated google.protobuf.Timestamp a = 1; repeated In n = 3;
                map<string, google.protobuf.Timestamp> m = 2; }
    message In { In1 one = 1; int32 i = 2; } message In1 { google.protobuf.Timestamp at = 1; }"""
    message = message_class(text, "M")()
    message.a.add(seconds=-12219724800)
    message.a.add(seconds=1)
    message.m["k"].seconds = -12219724800
    message.n.add(i=1)
    message.n.add().one.at.seconds = -12219724800
    message.n.add().one.SetInParent()
    value = message.SerializeToString()
    plan = plan_of({"value": {"format": "protobuf"}}, schema=schema(text, "M"))
    frame = Parser(spark, plan).parsed(records(spark, value, b"")).orderBy("_offset").select("a", "m", "n")
    topic = {"topic": "out", "format": "protobuf", "schema": text}
    plan = replace(plan_of({"sink": {"type": "topic", "topic": topic}}), sink_schema=schema(text, "M"))
    assert plan.job.sink.topic is not None
    found = frame.select(*Records(spark, plan, plan.job.sink.topic).of(frame)).collect()
    assert [bytes(row.value) for row in found] == [value, b""]


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("SELECT 'LOST' AS state", "shop.Order: state: its enum has no value LOST"),
        ("SELECT '99999999999' AS state", "shop.Order: state: its enum has no value 99999999999"),
        ("SELECT -1L AS small", "shop.Order: small: -1 is no uint32"),
        ("SELECT CAST(-1 AS DECIMAL(20,0)) AS big", "shop.Order: big: -1 is no uint64"),
        ("SELECT map('a', CAST(NULL AS INT)) AS stock", "stock.* has a null inside|value has a null inside"),
    ],
)
def test_a_row_that_no_message_can_be_ends_the_run(spark: Any, sql: str, says: str) -> None:
    row, made = spark.sql(sql), writing(spark)
    made.check(row.dtypes)
    with pytest.raises(Exception, match=says) as failed:
        row.select(*made.of(row)).collect()
    assert failure_of(failed.value).kind == "schema"


def test_columns_that_do_not_fit_are_told_before_anything_is_read(spark: Any) -> None:
    with pytest.raises(JobFailed, match=r"do not fit the Protobuf schema of sink\.topic: shop\.Order has no field x"):
        writing(spark).check([("x", "int")])
