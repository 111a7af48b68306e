"""Whole jobs between topics whose values have schemas: Protobuf with a schema of the job's own, and each format
by those of a real registry, Apicurio. What is written is read by libraries that know nothing of Spark."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kafkad_etl.errors import EtlExit
from kafkad_etl.job import Registry
from kafkad_etl.registry.client import SchemaRegistry
from kctl.segments.avro import compile_schema
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl
from tests.spark.apicurio import Apicurio
from tests.spark.conftest import SparkReady
from tests.spark.driver.rows import produced
from tests.spark.protobuf import ORDER, framed, message_class
from tests.spark.test_kills import Run

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.java, pytest.mark.timeout(900)]

AT = datetime(2026, 11, 1, 12, 0, 0, 123456, UTC)
JOB = """version: 1
name: NAME
kafka: {bootstrap: [BOOTSTRAP]}
source: {topics: [NAME]}
value: {format: FORM, BY, bad_rows: {action: dead_letter, topic: NAME-dead}}
transform: {sql: "SQL"}
sink:
  type: topic
  topic: {topic: NAME-out, key: id, format: FORM, schema: {file: OUT}, WRITTEN_BY}
spark: {master: "local[2]", driver_memory: 700m}
"""
BY_CITY = "SELECT id, named_struct('city', upper(address.city), 'zip', address.zip) AS address FROM source"


class Topics:
    """A job's source, its sink and its dead letters."""

    def __init__(self, broker: KafkadProcess, kctl: Kctl, name: str) -> None:
        self.name = name
        self._bootstrap = broker.bootstrap
        self._kctl = kctl

    def fill(self, values: list[bytes]) -> None:
        produced(self._bootstrap, self.name, [(at % 2, None, value) for at, value in enumerate(values)], partitions=2)
        for other in (f"{self.name}-out", f"{self.name}-dead"):
            produced(self._bootstrap, other, [], partitions=1)

    def run(self, form: str, out: str, *, by: str, sql: str, written_by: str) -> dict[str, Any]:
        """What the summary says."""
        words = {"BOOTSTRAP": self._bootstrap, "WRITTEN_BY": written_by, "OUT": out, "SQL": sql, "FORM": form, "BY": by}
        text = JOB.replace("NAME", self.name)
        for word, value in words.items():
            text = text.replace(word, value)
        Path("job.yaml").write_text(text)
        run = Run()
        summary = run.until("summary")
        code, said = run.end()
        assert code == EtlExit.DONE, said
        return summary

    def written(self, topic: str = "out") -> list[tuple[str, bytes]]:
        """Keys and values."""
        ran = self._kctl("consume", f"{self.name}-{topic}", "-o", "json")
        assert ran.code == 0, ran.err
        found = [json.loads(line) for line in ran.out.splitlines()]
        return [(each["key"], bytes_of(each["value"])) for each in found]


def bytes_of(value: str | dict[str, str]) -> bytes:
    return value.encode() if isinstance(value, str) else b64decode(value["base64"])


@pytest.fixture
def topics(request: pytest.FixtureRequest, spark_ready: SparkReady, broker: KafkadProcess, on_broker: Kctl) -> Topics:
    return Topics(broker, on_broker, f"registered-{request.node.name.partition('[')[2].rstrip(']') or 'own'}")


def order(kind: Any, number: int, **fields: Any) -> Any:
    made = kind(id=number, state=1, big=2**64 - 1, small=7, raw=b"\0\xff", **fields)
    made.customer.name, made.customer.address.city, made.customer.address.zip = "Anna", "Bern", 3000
    made.lines.add(sku="a", count=-2)
    made.stock["x"] = 7
    made.at.FromDatetime(AT)
    made.note.value = ""
    return made


def test_protobuf_by_schemas_of_the_jobs_own(topics: Topics) -> None:
    kind = message_class(ORDER, "shop.Order")
    orders = [order(kind, 1), order(kind, 2, cash=False, discount=0.0, weight=0.5), kind(id=3)]
    topics.fill([*(each.SerializeToString() for each in orders), b"\x0a"])
    Path("order.proto").write_text(ORDER)
    names = ", ".join(field.name for field in kind.DESCRIPTOR.fields if field.name != "weight")
    summary = topics.run(
        "protobuf",
        "order.proto",
        by="schema: {file: order.proto}, message: shop.Order",
        sql=f"SELECT {names}, CAST(2 * weight AS FLOAT) AS weight FROM source",
        written_by="message: shop.Order",
    )
    assert (summary["rows_read"], summary["rows_written"], summary["bad"]) == (4, 3, 1)
    for each in orders:
        each.weight *= 2
    assert {key: kind.FromString(value) for key, value in topics.written()} == {str(it.id): it for it in orders}
    assert [value for _, value in topics.written("dead")] == [b"\x0a"]


class Form(NamedTuple):
    schemas: tuple[str, str]
    """Of the first two records; the later one adds a field."""
    values: tuple[bytes, bytes]
    out: str
    decode: Callable[[bytes], dict[str, Any]]
    """A value that was written, after the id."""


def _avro() -> Form:
    fields = [{"name": "id", "type": "long"}]
    parts = [{"name": "city", "type": ["null", "string"]}, {"name": "zip", "type": ["null", "int"]}]
    address = {"name": "address", "type": ["null", {"type": "record", "name": "Address", "fields": parts}]}
    first = {"type": "record", "name": "Order", "fields": [*fields, address]}
    later = first | {"fields": [*fields, address, {"name": "more", "type": "long", "default": 0}]}
    bern = b"\x02\x02\x08Bern\x02\xf0\x2e"
    out = json.dumps(first | {"fields": [{"name": "id", "type": ["null", "long"]}, address]})
    return Form(
        (json.dumps(first), json.dumps(later)), (b"\x02" + bern, b"\x04" + bern + b"\x0a"), out, compile_schema(out)
    )


def _json() -> Form:
    parts = {"city": {"type": "string"}, "zip": {"type": "integer"}}
    properties = {"id": {"type": "integer"}, "address": {"type": "object", "properties": parts}}
    first = {"title": "Order", "type": "object", "properties": properties, "additionalProperties": False}
    later = first | {"properties": properties | {"more": {"type": "integer"}}}
    bern = {"city": "Bern", "zip": 3000}
    values = [{"id": 1, "address": bern}, {"id": 2, "address": bern, "more": 5}]
    one, other = (json.dumps(value).encode() for value in values)
    return Form((json.dumps(first), json.dumps(later)), (one, other), json.dumps(first), json.loads)


def _protobuf() -> Form:
    first = """syntax = "proto3";
package shop;
message Order { int64 id = 1; Address address = 2; }
message Address { string city = 1; int32 zip = 2; }
"""
    later = first.replace("address = 2;", "address = 2; int64 more = 3;")
    values = []
    for number, schema in enumerate((first, later), 1):
        made = message_class(schema, "shop.Order")(id=number)
        made.address.city, made.address.zip = "Bern", 3000
        values.append(b"\0" + made.SerializeToString())

    def decode(value: bytes) -> dict[str, Any]:
        found = message_class(first, "shop.Order").FromString(value.removeprefix(b"\0"))
        return {"id": found.id, "address": {"city": found.address.city, "zip": found.address.zip}}

    return Form((first, later), (values[0], values[1]), first, decode)


FORMS = {"avro": _avro, "json": _json, "protobuf": _protobuf}
FILES = {"avro": "order.avsc", "json": "order.json", "protobuf": "order.proto"}


@pytest.mark.parametrize("form", FORMS)
def test_a_job_reads_and_writes_by_a_real_registry(topics: Topics, registry: Apicurio, form: str) -> None:
    made = FORMS[form]()
    first, later = (registry.add(f"{topics.name}-value", schema, form.upper()) for schema in made.schemas)
    values = [framed(number, b"", value) for number, value in zip((first, later), made.values, strict=True)]
    stray = framed(77777, b"", made.values[0])
    topics.fill([*values, stray, made.values[0]])
    Path(FILES[form]).write_text(made.out)
    by = f'registry: {{url: "{registry.url}"}}'
    written_by = f'registry: {{url: "{registry.url}", auto_register: true}}'
    summary = topics.run(form, FILES[form], by=by, sql=BY_CITY, written_by=written_by)
    assert (summary["rows_read"], summary["rows_written"], summary["bad"]) == (4, 2, 2)
    (number,) = {int.from_bytes(value[1:5]) for _, value in topics.written()}
    latest = SchemaRegistry(Registry(url=registry.url)).latest(f"{topics.name}-out-value")
    assert latest is not None and latest.id == number
    found = {key: made.decode(value[5:]) for key, value in topics.written()}
    assert found == {str(at): {"id": at, "address": {"city": "BERN", "zip": 3000}} for at in (1, 2)}
    assert sorted(value for _, value in topics.written("dead")) == sorted([stray, made.values[0]])
