"""Everything that is asked of a schema registry, asked of a real one: Apicurio."""

from __future__ import annotations

import json

import pytest

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.job import Registry
from kafkad_etl.messages import Schema
from kafkad_etl.model.effective import Effective
from kafkad_etl.model.schemas import NO_SCHEMAS
from kafkad_etl.planning.registries import asked, registered, registration
from kafkad_etl.registry.client import Incompatible, SchemaRegistry
from kafkad_etl.registry.protobuf import compiled
from tests.spark.apicurio import Apicurio
from tests.spark.jobs import job
from tests.spark.protobuf import NEXT, ORDER
from tests.spark.registry.test_client import MORE, WRONG
from tests.spark.registry.test_client import ORDER as AVRO
from tests.spark.registry.test_protobuf import COUNTRY, IMPORTING

pytestmark = [pytest.mark.long, pytest.mark.java, pytest.mark.spark, pytest.mark.timeout(900)]

JSON = {"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}, "city": {"type": "string"}}}


def client(registry: Apicurio) -> SchemaRegistry:
    return SchemaRegistry(Registry(url=registry.url))


def test_schemas_are_found_by_subject_version_and_id(registry: Apicurio) -> None:
    first, second = registry.add("found", AVRO), registry.add("found", MORE)
    found = client(registry)
    assert found.versions("found") == [1, 2]
    latest, by_id = found.latest("found"), found.by_id(first)
    assert latest is not None and (latest.id, latest.version, latest.kind) == (second, 2, "AVRO")
    assert by_id is not None and json.loads(by_id.text) == AVRO
    assert (found.by_id(77777), found.latest("gone"), found.versions("gone")) == (None, None, [])


def test_a_schema_is_registered_once_and_only_if_compatible(registry: Apicurio) -> None:
    found = client(registry)
    assert found.incompatibilities("once", "AVRO", json.dumps(AVRO)) == []
    number = found.register("once", "AVRO", json.dumps(AVRO))
    assert found.register("once", "AVRO", json.dumps(AVRO)) == number
    assert found.find("once", "AVRO", json.dumps(MORE)) is None
    assert found.incompatibilities("once", "AVRO", json.dumps(MORE)) == []
    assert found.incompatibilities("once", "AVRO", json.dumps(WRONG)) != []
    with pytest.raises(Incompatible, match="409"):
        found.register("once", "AVRO", json.dumps(WRONG))
    assert found.versions("once") == [1]


def test_referenced_schemas_come_along_with_theirs(registry: Apicurio) -> None:
    registry.add("country", COUNTRY, "PROTOBUF")
    reference = {"name": "geo/country.proto", "subject": "country", "version": 1}
    registry.add("place-value", IMPORTING, "PROTOBUF", [reference])
    found = client(registry).latest("place-value")
    assert found is not None and found.references == {"geo/country.proto": COUNTRY}
    value = read(registry, "protobuf", "place").schemas.value
    assert value is not None and value.message == "Place"


def read(registry: Apicurio, form: str, topic: str) -> Effective:
    blocks = job(source={"topics": [topic]}, value={"format": form, "registry": {"url": registry.url}})
    return asked(Effective(blocks, NO_SCHEMAS, frozenset()))


def written(registry: Apicurio, form: str, subject: str, schema: Schema) -> Effective:
    block = {"url": registry.url, "subject": subject, "auto_register": True}
    found = job(sink={"type": "topic", "topic": {"topic": "out", "format": form, "registry": block}})
    return asked(Effective(found, NO_SCHEMAS._replace(sink=schema), frozenset()))


@pytest.mark.parametrize(
    ("form", "kind", "text"),
    [("avro", "AVRO", json.dumps(AVRO)), ("json", "JSON", json.dumps(JSON)), ("protobuf", "PROTOBUF", ORDER)],
)
def test_each_format_is_registered_found_again_and_read(registry: Apicurio, form: str, kind: str, text: str) -> None:
    name = compiled(text) if form == "protobuf" else None
    schema = Schema({"json": "json-schema"}.get(form, form), text, *((name and (name.message, name.files)) or ()))
    first = written(registry, form, f"own-{form}-value", schema)
    pending = registration(first.job, first.schemas.sink, first.schemas.sink_id)
    assert pending is not None and pending.kind == kind
    number = registered(pending)
    assert written(registry, form, f"own-{form}-value", schema).schemas.sink_id == number
    value = read(registry, form, f"own-{form}").schemas
    assert value.value is not None and list(value.value_writers) == [number]


def test_a_change_that_is_not_compatible_is_refused_before_spark_starts(registry: Apicurio) -> None:
    registry.add("refused-value", AVRO)
    with pytest.raises(EtlError, match="not compatible with what subject refused-value") as refused:
        written(registry, "avro", "refused-value", Schema("avro", json.dumps(WRONG)))
    assert refused.value.exit_code == EtlExit.USAGE
    registry.add("renumbered-value", ORDER, "PROTOBUF")
    changed = ORDER.replace("int64 id = 1", "string id = 1")
    with pytest.raises(EtlError, match="not compatible with what subject renumbered-value"):
        written(registry, "protobuf", "renumbered-value", Schema("protobuf", changed, *compiled(changed)[::-1]))
    written(registry, "protobuf", "renumbered-value", Schema("protobuf", NEXT, *compiled(NEXT)[::-1]))


def test_a_schema_of_another_type_is_told(registry: Apicurio) -> None:
    registry.add("other-value", json.dumps(JSON), "JSON")
    with pytest.raises(EtlError, match="has schemas of type JSON, and the format here is protobuf") as refused:
        read(registry, "protobuf", "other")
    assert refused.value.hints == ("format: json",)
