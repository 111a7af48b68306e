from __future__ import annotations

import pytest

from kafkad_etl.driver.source.registry import Schemas
from kafkad_etl.driver.terms import JobFailed
from kafkad_etl.job import Registry
from kafkad_etl.registry import protobuf
from kafkad_etl.registry.protobuf import NoProtoc
from tests.spark.schema_registry import running


def test_unknown_ids_are_asked_for_once() -> None:
    with running() as fake:
        number = fake.add("s", '"long"')
        schemas = Schemas(Registry(url=fake.url), "avro", {30: "known"})
        assert schemas.learn([30, number, 31])
        assert schemas.known == {30: "known", number: '"long"'}
        assert not schemas.learn([30, number])
        assert fake.asked == [f"GET /schemas/ids/{number}", "GET /schemas/ids/31"]


def test_what_no_value_can_be_read_with_is_kept_apart_with_its_reason() -> None:
    with running() as fake:
        avro, json_schema = fake.add("a", '"long"'), fake.add("j", "{}", "JSON")
        good, broken = fake.add("p", 'syntax = "proto3"; message M {}', "PROTOBUF"), fake.add("q", "mess", "PROTOBUF")
        schemas = Schemas(Registry(url=fake.url), "protobuf", {})
        assert schemas.learn([avro, json_schema, good, broken, 99])
        assert list(schemas.known) == [good]
        assert list(schemas.unusable) == [avro, json_schema, broken]
        assert schemas.unusable[avro] == "its type is AVRO, not PROTOBUF"
        assert schemas.unusable[broken].startswith("line 1, column 1: ")
        assert not schemas.learn([avro, broken, 99])
        of_json = Schemas(Registry(url=fake.url), "json", {})
        assert of_json.learn([avro, broken])
        assert (sorted(of_json.known), of_json.unusable) == ([avro, broken], {})


def test_avro_that_cannot_be_read_with_is_kept_apart_with_its_reason() -> None:
    with running() as fake:
        fake.add("mess", "mess")
        good, odd = fake.add("a", '"int"'), fake.add("b", '"odd"')
        broken = fake.add("c", '"long"', references=[{"name": "mess", "subject": "mess", "version": 1}])
        known = {30: '"odd"', 31: '"long"'}
        schemas = Schemas(Registry(url=fake.url), "avro", known, {'"odd"': "it is odd"}.get)
        assert schemas.learn([good, odd, broken])
        assert list(schemas.known) == [31, good]
        assert (schemas.unusable[30], schemas.unusable[odd]) == ("it is odd", "it is odd")
        assert schemas.unusable[broken].startswith("it is no Avro schema, or refers to what is none: ")
        assert not schemas.learn([good, odd, broken, 30])


def test_a_compiler_that_does_not_work_says_nothing_about_schemas(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(*_: object, **__: object) -> None:
        raise NoProtoc("protoc failed without a word")

    monkeypatch.setattr(protobuf, "compiled", compiled)
    with running() as fake:
        schemas = Schemas(Registry(url=fake.url), "protobuf", {})
        with pytest.raises(JobFailed, match="the Protobuf schemas 1 of the registry cannot be compiled: protoc failed"):
            schemas.learn([fake.add("p", "message M {}", "PROTOBUF")])
        assert (schemas.known, schemas.unusable) == ({}, {})


def test_a_registry_that_is_away_stops_the_batch_until_it_is_back() -> None:
    schemas = Schemas(Registry(url="http://127.0.0.1:1"), "avro", {})
    with pytest.raises(JobFailed) as away:
        schemas.learn([1])
    assert (away.value.failed.kind, away.value.failed.retriable) == ("registry", True)


def test_a_registry_that_denies_ends_the_run() -> None:
    with running() as fake:
        fake.login = "Basic other"
        with pytest.raises(JobFailed, match="401") as denied:
            Schemas(Registry(url=fake.url), "avro", {}).learn([1])
        assert not denied.value.failed.retriable
