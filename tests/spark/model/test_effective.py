from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.messages import Schema
from kafkad_etl.model.effective import Effective, effective
from kafkad_etl.model.loading import JobFile, load
from tests.spark.model.jobs import SMALL

AVRO = {"type": "record", "name": "A", "fields": [{"name": "id", "type": "long"}]}
SPARK = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": ["null", "number"]},
        "paid": {"type": "boolean"},
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "mail": {"type": "string", "format": "email"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "home": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def read(directory: Path, addition: str, **files: str) -> Effective:
    job = directory / "jobs" / "orders.yaml"
    job.parent.mkdir(exist_ok=True)
    job.write_text(SMALL + addition)
    for name, text in files.items():
        (job.parent / name.replace("_", ".")).write_text(text)
    return effective(load(JobFile(job, {"day": "2026-11-01"}), {"PW": "hunter2"}))


def schema_of(directory: Path, form: str, file: str, text: str) -> Schema | None:
    addition = f"value:\n  format: {form}\n  schema: {{file: {file}}}\ndescription: ${{day}}\n"
    return read(directory, addition, **{file.replace(".", "_"): text}).schemas.value


def test_sql_is_read_from_beside_the_job_and_filled_in(tmp_path: Path) -> None:
    sql = "SELECT *\nFROM source WHERE day = '${day}' AND '$${x}' <> '${env:PW}'\n"
    found = read(tmp_path, "transform: {file: a.sql}\n", a_sql=sql)
    assert found.job.transform.sql == "SELECT *\nFROM source WHERE day = '2026-11-01' AND '${x}' <> 'hunter2'\n"
    assert found.job.transform.file == ""
    assert found.secrets == {"hunter2"}
    assert found.secret_variables == {"PW"}


def test_every_file_that_a_job_names_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    addition = f"""
kafka:
  options: {{ssl.truststore.location: keys/trust.jks, ssl.endpoint.identification.algorithm: ""}}
value: {{format: avro, schema: {{file: orders.avsc}}}}
transform:
  steps: [{{name: a, file: a.sql}}, {{name: b, sql: keys}}]
  lookups:
    names: {{format: jdbc, options: {{url: 'jdbc:sqlite:{tmp_path}/names.db?mode=ro', dbtable: names}}}}
spark: {{jars: [keys/own.jar], conf: {{spark.files: 'file:{tmp_path}/keys/one,keys/two, gone'}}}}
vars: {{file: keys/one}}
description: orders.yaml of ${{day}}
"""
    (tmp_path / "keys").mkdir()
    for name in ("keys/trust.jks", "keys/own.jar", "keys/one", "keys/two", "names.db"):
        (tmp_path / name).touch()
    found = read(tmp_path, addition, orders_avsc=json.dumps(AVRO), a_sql="SELECT 1").files
    assert {key: Path(path).absolute().relative_to(tmp_path).as_posix() for key, path in found} == {
        "the job file": "jobs/orders.yaml",
        "kafka.options.ssl.truststore.location": "keys/trust.jks",
        "value.schema.file": "jobs/orders.avsc",
        "transform.steps.0.file": "jobs/a.sql",
        "transform.lookups.names.options.url": "names.db",
        "spark.jars.0": "keys/own.jar",
        "spark.conf.spark.files": "keys/two",
    }
    assert ("spark.conf.spark.files", f"{tmp_path}/keys/one") in found


@pytest.mark.parametrize("key", ["value.schema", "value.schema.file"])
def test_what_a_protobuf_schema_imports_is_told(tmp_path: Path, key: str) -> None:
    text = 'syntax = "proto3"; import "%s"; import "google/protobuf/timestamp.proto"; message M {}'
    directory = tmp_path / "jobs"
    (directory / "geo").mkdir(parents=True)
    (directory / "geo" / "one.proto").write_text('syntax = "proto3"; import "geo/two.proto"; message One {}')
    (directory / "geo" / "two.proto").write_text('syntax = "proto3"; message Two {}')
    (directory / "main.proto").write_text(text % "geo/one.proto")
    schema = "{file: main.proto}" if key.endswith("file") else f"'{text % 'geo/one.proto'}'"
    found = read(tmp_path, f"value: {{format: protobuf, schema: {schema}}}\ndescription: ${{day}}\n").files
    assert {path for at, path in found if at == key} - {str(directory / "main.proto")} == {
        str(directory / "geo" / "one.proto"),
        str(directory / "geo" / "two.proto"),
    }


def test_a_schema_that_protoc_is_missing_for_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    text = 'syntax = "proto3"; message NotCompiledYet {}'
    with pytest.raises(EtlError, match="protoc is not installed: pip install grpcio-tools"):
        read(tmp_path, f"value: {{format: protobuf, schema: '{text}'}}\ndescription: ${{day}}\n")


def test_steps_may_be_files_each(tmp_path: Path) -> None:
    steps = "transform: {steps: [{name: a, file: a.sql}, {name: b, sql: 'SELECT * FROM a'}]}\ndescription: ${day}\n"
    found = read(tmp_path, steps, a_sql="SELECT 1")
    assert [(step.name, step.sql, step.file) for step in found.job.transform.steps] == [
        ("a", "SELECT 1", ""),
        ("b", "SELECT * FROM a", ""),
    ]


@pytest.mark.parametrize(
    ("addition", "files", "told"),
    [
        ("transform: {file: nix.sql}\n", {}, "orders.yaml:5 transform.file: cannot read"),
        ("transform: {file: a.sql}\n", {"a_sql": " \n"}, "a.sql is empty"),
        ("transform: {file: a.sql}\n#", {"a_sql": "SELECT 1"}, '--var day: the file declares no variable "day"'),
        ("transform: {file: a.sql}\n", {"a_sql": "${nix}"}, 'a.sql: there is no variable "nix"'),
        ("value: {format: json, schema: {file: a.xsd}}\n", {"a_xsd": "x"}, "unknown kind of schema"),
        (
            "value: {format: json, schema: {file: a.avsc}}\n",
            {"a_avsc": "{}"},
            "json needs a .ddl or .json",
        ),
        ("value: {format: avro, schema: {file: a.ddl}}\n", {"a_ddl": "a INT"}, "avro needs a .avsc"),
        ("value: {format: avro, schema: {file: a.avsc}}\n", {"a_avsc": '"long"'}, "is not an Avro record"),
        ("value: {format: avro, schema: '{'}\n", {}, "the schema is not JSON"),
        ("value: {format: json, schema: {file: a.json}}\n", {"a_json": "[1"}, "the schema is not JSON"),
        (
            "value: {format: json, schema: {file: a.json}}\n",
            {"a_json": "[" * 9999},
            "not JSON: it is nested too deeply",
        ),
        ("value: {format: json, schema: {file: a.json}}\n", {"a_json": "9" * 9999}, "a number in it has thousands of"),
        ("value: {format: json, schema: {file: a.json}}\n", {"a_json": "[1]"}, "$ is neither a Spark schema nor"),
        (
            "value: {format: json, schema: {file: a.json}}\n",
            {"a_json": '{"properties": {"a": {"oneOf": []}}}'},
            "$.a: a column needs exactly one simple `type`",
        ),
    ],
)
def test_files_that_do_not_do(tmp_path: Path, addition: str, files: dict[str, str], told: str) -> None:
    with pytest.raises(EtlError) as caught:
        read(tmp_path, addition + "description: ${day}\n", **files)
    assert caught.value.exit_code is EtlExit.USAGE
    assert told in caught.value.what
    assert "orders.yaml:" in caught.value.what


@pytest.mark.parametrize(
    ("addition", "where"),
    [
        ("transform: {file: a.sql}\n", "orders.yaml:5 transform.file: "),
        ("value: {format: json, schema: {file: a.sql}}\n", "orders.yaml:5 value.schema.file: "),
    ],
)
def test_a_named_pipe_that_a_job_names_is_not_waited_for(tmp_path: Path, addition: str, where: str) -> None:
    (tmp_path / "jobs").mkdir()
    os.mkfifo(tmp_path / "jobs" / "a.sql")
    with pytest.raises(EtlError) as caught:
        read(tmp_path, addition + "description: ${day}\n")
    assert caught.value.what.endswith(f"{where}{tmp_path}/jobs/a.sql is no regular file")
    assert caught.value.exit_code is EtlExit.USAGE
    assert caught.value.hints == (), "nobody can write <(COMMAND) into a job"


def test_kinds_of_schemas(tmp_path: Path) -> None:
    assert schema_of(tmp_path, "json", "a.ddl", "id BIGINT,\n  name STRING\n") == Schema(
        "ddl", "id BIGINT, name STRING"
    )
    for form, file, document, kind in (("avro", "a.avsc", AVRO, "avro"), ("csv", "a.json", SPARK, "spark")):
        found = schema_of(tmp_path, form, file, json.dumps(document))
        assert found is not None
        assert (found.kind, json.loads(found.text)) == (kind, document)


def test_a_json_schema_becomes_columns(tmp_path: Path) -> None:
    found = schema_of(tmp_path, "json", "a.json", json.dumps(JSON_SCHEMA))
    assert found is not None
    types = {field["name"]: field["type"] for field in json.loads(found.text)["fields"]}
    assert {name: kind for name, kind in types.items() if isinstance(kind, str)} == {
        "id": "long",
        "price": "double",
        "paid": "boolean",
        "at": "timestamp",
        "day": "date",
        "mail": "string",
    }
    assert types["tags"] == {"type": "array", "elementType": "string", "containsNull": True}
    assert types["labels"]["type"] == "map"
    assert types["home"]["fields"][0]["name"] == "city"


def test_schemas_in_the_job_file(tmp_path: Path) -> None:
    addition = "value: {format: json, schema: 'id BIGINT'}\nkey: {format: avro, schema: '%s'}\ndescription: ${day}\n"
    found = read(tmp_path, addition % json.dumps(AVRO))
    assert found.schemas.value == Schema("ddl", "id BIGINT")
    assert found.schemas.key is not None
    assert json.loads(found.schemas.key.text) == AVRO
    assert found.schemas.sink is None
