from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.messages import Schema
from kafkad_etl.model.effective import Effective, effective
from kafkad_etl.model.loading import JobFile, load
from kafkad_etl.model.schemas import NO_SCHEMAS
from kafkad_etl.planning.registries import asked, registered, registration
from kafkad_etl.registry.protobuf import compiled
from tests.spark.jobs import job
from tests.spark.protobuf import NEXT
from tests.spark.protobuf import ORDER as ORDERS
from tests.spark.registry.test_client import MORE, ORDER, WRONG
from tests.spark.registry.test_protobuf import COUNTRY, IMPORTING
from tests.spark.schema_registry import FakeRegistry, running

TITLED = {"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}}
AVRO = Schema("avro", json.dumps(ORDER))


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with running() as registry:
        yield registry


def read(fake: FakeRegistry, schema: Schema | None = None, form: str = "avro", **value: Any) -> Effective:
    registry = {"url": fake.url} | value
    blocks = job(value={"format": form, "registry": registry})
    return asked(Effective(blocks, NO_SCHEMAS._replace(value=schema), frozenset()))


def written(fake: FakeRegistry, schema: Schema | None = None, form: str = "avro", **registry: Any) -> Effective:
    topic = {"topic": "out", "format": form, "registry": {"url": fake.url} | registry}
    found = job(sink={"type": "topic", "topic": topic})
    return asked(Effective(found, NO_SCHEMAS._replace(sink=schema), frozenset()))


def test_columns_are_those_of_the_subjects_latest_schema(fake: FakeRegistry) -> None:
    first, second = fake.add("orders-value", ORDER), fake.add("orders-value", MORE)
    schemas = read(fake).schemas
    assert schemas.value == Schema("avro", json.dumps(MORE))
    assert {number: json.loads(text) for number, text in schemas.value_writers.items()} == {first: ORDER, second: MORE}


def test_json_has_the_columns_of_its_latest_json_schema(fake: FakeRegistry) -> None:
    number = fake.add("orders-value", json.dumps(TITLED), "JSON")
    schemas = read(fake, form="json").schemas
    assert schemas.value is not None and schemas.value.kind == "spark"
    assert [(each["name"], each["type"]) for each in json.loads(schemas.value.text)["fields"]] == [("id", "long")]
    assert list(schemas.value_writers) == [number]


def test_json_is_written_by_a_json_schema(fake: FakeRegistry) -> None:
    schema = Schema("json-schema", json.dumps(TITLED))
    found = written(fake, schema, "json", auto_register=True, subject_naming="record")
    pending = registration(found.job, found.schemas.sink, found.schemas.sink_id)
    assert pending is not None and (pending.subject, pending.kind) == ("Order", "JSON")
    registered(pending)
    assert fake.subjects["Order"][0].kind == "JSON"
    assert written(fake, None, "json", subject="Order").schemas.sink == Schema("json-schema", json.dumps(TITLED))
    with pytest.raises(EtlError, match="has no `title`"):
        written(fake, Schema("json-schema", "{}"), "json", subject_naming="topic-record")


def test_protobuf_has_the_columns_of_the_message_that_is_named(fake: FakeRegistry) -> None:
    fake.add("orders-value", ORDERS, "PROTOBUF")
    number = fake.add("orders-value", NEXT, "PROTOBUF")
    blocks = job(value={"format": "protobuf", "registry": {"url": fake.url}, "message": "Customer"})
    schemas = asked(Effective(blocks, NO_SCHEMAS, frozenset())).schemas
    assert schemas.value is not None and (schemas.value.text, schemas.value.message) == (NEXT, "shop.Customer")
    assert list(schemas.value_writers) == [number]  # older ones are compiled when a record names them
    first = read(fake, form="protobuf").schemas.value
    assert first is not None and first.message == "shop.Order"


def test_a_protobuf_schema_that_is_none_is_told(fake: FakeRegistry) -> None:
    fake.add("orders-value", "message {", "PROTOBUF")
    with pytest.raises(EtlError, match="the subject's Protobuf schema cannot be used: line 1, column 9"):
        read(fake, form="protobuf")


def test_a_version_that_none_can_be_read_with_is_in_the_way_of_no_other_schema(fake: FakeRegistry) -> None:
    declared = Schema("protobuf", ORDERS, *reversed(compiled(ORDERS)))
    fake.add("orders-value", "message {", "PROTOBUF")
    schemas = read(fake, declared, form="protobuf").schemas
    assert (schemas.value, schemas.value_writers) == (declared, {})  # its records are bad rows


def test_older_versions_may_be_of_another_type(fake: FakeRegistry) -> None:
    fake.add("orders-value", json.dumps(TITLED), "JSON")
    number = fake.add("orders-value", ORDER)
    schemas = read(fake).schemas
    assert schemas.value == AVRO and list(schemas.value_writers) == [number]


def test_a_compiler_that_is_not_there_is_told(fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    declared = Schema("protobuf", ORDERS, *reversed(compiled(ORDERS)))
    fake.add("orders-value", ORDERS + "// to be compiled", "PROTOBUF")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    for schema in (None, declared):
        with pytest.raises(EtlError, match="protoc is not installed: pip install grpcio-tools") as refused:
            read(fake, schema, form="protobuf")
        assert refused.value.key == "value.registry"


def test_an_avro_schema_that_is_none_is_told_if_columns_are_of_it(fake: FakeRegistry) -> None:
    fake.add("mess", "mess")
    refers = [{"name": "mess", "subject": "mess", "version": 1}]
    fake.add("orders-value", ORDER | {"doc": "refers to what is none"}, references=refers)
    number = fake.add("orders-value", ORDER)
    assert list(read(fake).schemas.value_writers) == [number]  # records of the other are bad rows
    fake.add("orders-value", ORDER | {"doc": "the latest"}, references=refers)
    assert list(read(fake, AVRO).schemas.value_writers) == [number]
    with pytest.raises(EtlError, match="the subject's Avro schema cannot be used: it is no Avro schema, or"):
        read(fake)


def test_protobuf_is_registered_if_it_is_whole(fake: FakeRegistry) -> None:
    schema = Schema("protobuf", ORDERS, *reversed(compiled(ORDERS)))
    found = written(fake, schema, "protobuf", auto_register=True, subject_naming="record")
    pending = registration(found.job, found.schemas.sink, found.schemas.sink_id)
    assert pending is not None and (pending.subject, pending.kind, pending.text) == ("shop.Order", "PROTOBUF", ORDERS)
    number = registered(pending)
    assert written(fake, None, "protobuf", subject="shop.Order").schemas.sink == schema
    assert written(fake, schema, "protobuf", subject="shop.Order").schemas.sink_id == number
    importing = Schema("protobuf", IMPORTING, *reversed(compiled(IMPORTING, references={"geo/country.proto": COUNTRY})))
    with pytest.raises(EtlError, match=r"the schema imports geo/country\.proto, and registering"):
        written(fake, importing, "protobuf", auto_register=True)


def test_a_declared_schema_is_read_with_and_needs_no_subject_yet(fake: FakeRegistry) -> None:
    assert read(fake, AVRO).schemas.value == AVRO


def test_only_the_newest_of_many_versions_are_fetched_in_advance(fake: FakeRegistry) -> None:
    for number in range(50):
        fake.add("s", ORDER | {"doc": str(number)})
    assert len(read(fake, subject="s").schemas.value_writers) == 20
    assert len(fake.asked) == 21


@pytest.mark.parametrize(
    ("subject", "says", "ends"),
    [
        ("nobody", "has no subject nobody", EtlExit.CLUSTER),
        ("json", "has schemas of type JSON, and the format here is avro; format: json", EtlExit.USAGE),
        ("long", "is not an Avro record", EtlExit.USAGE),
    ],
)
def test_a_subject_without_columns_is_refused(fake: FakeRegistry, subject: str, says: str, ends: EtlExit) -> None:
    fake.add("json", "{}", "JSON")
    fake.add("long", '"long"')
    with pytest.raises(EtlError) as refused:
        read(fake, subject=subject)
    assert says in "; ".join((refused.value.what, *refused.value.hints))
    assert (refused.value.exit_code, refused.value.key) == (ends, "value.registry")


@pytest.mark.parametrize(
    ("naming", "subject"),
    [
        ({}, "out-value"),
        ({"subject": "s"}, "s"),
        ({"subject_naming": "record"}, "order"),
        ({"subject_naming": "topic-record"}, "out-order"),
    ],
)
def test_the_schema_is_written_under_its_subject(fake: FakeRegistry, naming: dict[str, str], subject: str) -> None:
    number = fake.add(subject, ORDER)
    assert written(fake, AVRO, **naming).schemas.sink_id == number


def test_without_a_schema_the_subjects_latest_is_written(fake: FakeRegistry) -> None:
    fake.add("out-value", ORDER)
    number = fake.add("out-value", MORE)
    schemas = written(fake).schemas
    assert (schemas.sink, schemas.sink_id) == (Schema("avro", json.dumps(MORE)), number)


def test_a_new_schema_is_registered_when_the_run_begins(fake: FakeRegistry) -> None:
    fake.add("out-value", ORDER)
    found = written(fake, Schema("avro", json.dumps(MORE)), auto_register=True)
    assert found.schemas.sink_id is None
    assert len(fake.subjects["out-value"]) == 1
    pending = registration(found.job, found.schemas.sink, found.schemas.sink_id)
    assert pending is not None
    assert registered(pending) == fake.subjects["out-value"][1].id
    assert registration(found.job, found.schemas.sink, 2) is None


def test_a_schema_that_became_incompatible_meanwhile_is_refused(fake: FakeRegistry) -> None:
    found = written(fake, Schema("avro", json.dumps(WRONG)), auto_register=True)
    fake.add("out-value", ORDER)
    pending = registration(found.job, found.schemas.sink, found.schemas.sink_id)
    assert pending is not None
    with pytest.raises(EtlError, match="not compatible with what subject out-value"):
        registered(pending)


@pytest.mark.parametrize(
    ("schema", "auto", "says", "ends", "key"),
    [
        (None, False, "has no subject out-value", EtlExit.CLUSTER, "sink.topic.registry"),
        (AVRO, False, "does not have the schema", EtlExit.CLUSTER, "sink.topic.registry"),
        (Schema("avro", json.dumps(WRONG)), True, "field n has no default", EtlExit.USAGE, "sink.topic.schema"),
    ],
)
def test_what_the_registry_lacks_or_refuses_is_found_before_spark(
    fake: FakeRegistry, schema: Schema | None, auto: bool, says: str, ends: EtlExit, key: str
) -> None:
    if auto:
        fake.add("out-value", ORDER)
    with pytest.raises(EtlError, match=says) as refused:
        written(fake, schema, auto_register=auto)
    assert (refused.value.exit_code, refused.value.key) == (ends, key)


def test_a_registry_that_is_away_or_denies_is_named_with_its_line(tmp_path: Path, fake: FakeRegistry) -> None:
    file = tmp_path / "a.yaml"
    value = f'value: {{format: avro, registry: {{url: "{fake.url}", ca: ""}}}}'
    file.write_text(f"version: 1\nname: a\nsource: {{topics: [orders]}}\n{value}\nsink: {{type: none}}\n")
    loaded = load(JobFile(file))
    fake.login = "Basic other"
    with pytest.raises(EtlError) as refused, loaded.locating_errors():
        asked(effective(loaded))
    assert refused.value.exit_code == EtlExit.CLUSTER
    assert refused.value.what.startswith(f"{file}:4 value.registry.url: the schema registry {fake.url} returned 401")


def test_certificates_are_relative_to_the_job_file(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    value = "value: {format: avro, registry: {url: https://r, ca: ca.pem, cert: /c.pem, key: k.pem}}"
    file.write_text(f"version: 1\nname: a\nsource: {{topics: [orders]}}\n{value}\nsink: {{type: none}}\n")
    found = effective(load(JobFile(file))).job.value.registry
    assert found is not None
    assert (found.ca, found.cert, found.key) == (f"{tmp_path}/ca.pem", "/c.pem", f"{tmp_path}/k.pem")
