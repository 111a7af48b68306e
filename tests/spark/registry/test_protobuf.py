from __future__ import annotations

import errno
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from kafkad_etl.process.launching import sweep
from kafkad_etl.registry import protobuf
from kafkad_etl.registry.protobuf import NoProtoc, columns, compiled, faults, index_bytes
from kafkad_etl.registry.unsupported import Unsupported
from tests.spark.protobuf import ORDER

COUNTRY = 'syntax = "proto3"; package geo; message Country { string code = 1; }'
IMPORTING = 'syntax = "proto3"; import "geo/country.proto"; message Place { geo.Country country = 1; }'


def names_and_types(struct: Any) -> dict[str, Any]:
    def short(kind: Any) -> Any:
        if isinstance(kind, str):
            return kind
        if kind["type"] == "struct":
            return names_and_types(kind)
        if kind["type"] == "array":
            return [short(kind["elementType"])]
        return {short(kind["keyType"]): short(kind["valueType"])}

    return {field["name"]: short(field["type"]) for field in struct["fields"]}


def test_fields_become_columns() -> None:
    schema = compiled(ORDER)
    assert schema.message == "shop.Order"
    assert names_and_types(columns(schema)) == {
        "id": "long",
        "customer": {"name": "string", "address": {"city": "string", "zip": "integer"}},
        "lines": [{"sku": "string", "count": "integer"}],
        "stock": {"string": "integer"},
        "state": "string",
        "at": "timestamp",
        "note": "string",
        "big": "decimal(20,0)",
        "small": "long",
        "raw": "binary",
        "discount": "double",
        "card": "string",
        "cash": "boolean",
        "weight": "float",
    }


def test_a_message_is_named_with_or_without_its_package() -> None:
    assert compiled(ORDER, "shop.Address").message == "shop.Address"
    assert compiled(ORDER, "Order.Line").message == "shop.Order.Line"
    with pytest.raises(Unsupported, match=r"has no message Ordr, but shop\.Order, shop\.Customer, shop\.Address"):
        compiled(ORDER, "Ordr")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("shop.Order", [b"\0", b"\2\0"]),
        ("shop.Customer", [b"\2\2"]),
        ("shop.Address", [b"\2\4"]),
        ("shop.Order.Line", [b"\4\0\0", b"\4\0\2"]),  # the second for those who count the map's entries
        ("shop.Gone", []),
    ],
)
def test_records_name_a_message_by_its_indexes(name: str, found: list[bytes]) -> None:
    assert index_bytes(compiled(ORDER).files, name) == found


def test_a_far_index_takes_two_bytes() -> None:
    text = 'syntax = "proto3";' + "".join(f"message M{number} {{}}" for number in range(70))
    assert index_bytes(compiled(text).files, "M63") == [b"\2\x7e"]
    assert index_bytes(compiled(text).files, "M64") == [b"\2\x80\x01"]


def test_an_index_that_may_be_of_two_messages_is_of_the_one_that_java_means() -> None:
    text = 'syntax = "proto3"; message A { map<string, int32> m = 1; message B {} message C {} }'
    assert index_bytes(compiled(text).files, "A.B") == [b"\4\0\0"]
    assert index_bytes(compiled(text).files, "A.C") == [b"\4\0\2", b"\4\0\4"]


def test_imports_are_found_among_references() -> None:
    schema = compiled(IMPORTING, references={"geo/country.proto": COUNTRY})
    assert names_and_types(columns(schema)) == {"country": {"code": "string"}}
    assert protobuf.imports(schema.files) == ["geo/country.proto"]
    assert protobuf.imports(compiled(ORDER).files) == []


def test_imports_are_found_beside_a_file(tmp_path: Any) -> None:
    (tmp_path / "geo").mkdir()
    (tmp_path / "geo" / "country.proto").write_text(COUNTRY)
    assert compiled(IMPORTING, beside=str(tmp_path)).message == "Place"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('syntax = "proto3";\nmessage A {\n  int32 a = 0;\n}', "line 3, column 13: Field numbers must be positive"),
        (IMPORTING, "geo/country.proto: File not found"),
        ("{}", "line 1, column 1: Expected top-level statement"),
        ('syntax = "proto3";', "the schema has no message"),
    ],
)
def test_what_protoc_refuses_is_told_with_its_line(text: str, says: str) -> None:
    with pytest.raises(Unsupported) as refused:
        compiled(text)
    assert str(refused.value).startswith(says)


@pytest.mark.parametrize(
    ("text", "references", "says"),
    [
        (
            COUNTRY.replace("package", 'import "No module named.proto"; package'),
            {},
            r"No module named\.proto: File not",
        ),
        (ORDER, {"a": COUNTRY, "a/b.proto": COUNTRY}, "its files cannot be laid out: .*a"),
        (ORDER, {"a/b.proto": COUNTRY, "a": COUNTRY}, "its files cannot be laid out: .*a"),
        (ORDER, {"a" * 300: COUNTRY}, "its files cannot be laid out: .*too long"),
        (ORDER, {"a\0b": COUNTRY}, "its files cannot be laid out: .*null"),
        (ORDER + "// \ud800", {}, "its files cannot be laid out: .*surrogates"),
    ],
)
def test_no_text_of_a_schema_is_taken_for_a_compiler_that_is_not_there(
    text: str, references: dict[str, str], says: str
) -> None:
    with pytest.raises(Unsupported, match=says):
        compiled(text, references=references)


def test_references_may_be_called_as_anything_of_ours() -> None:
    assert compiled(ORDER, references={"descriptors/a.proto": COUNTRY}).message == "shop.Order"


def test_a_full_disk_and_a_missing_compiler_say_nothing_about_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(NoProtoc, match="No space left on device"):
        compiled(ORDER + "// full")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(NoProtoc, match="protoc is not installed: pip install grpcio-tools"):
        compiled(ORDER + "// not installed")


def test_an_import_stays_within_its_directory() -> None:
    with pytest.raises(Unsupported, match=r"it imports \.\./\.\./x"):
        compiled(ORDER, references={"../../x": COUNTRY})


def test_a_message_that_contains_itself_has_no_columns() -> None:
    schema = compiled('syntax = "proto3"; message Node { Node next = 1; }')
    with pytest.raises(Unsupported, match=r"Node\.next: the message Node contains itself"):
        columns(schema)


LINES = {"type": "array", "elementType": {"type": "struct", "fields": [{"name": "sku", "type": "long"}]}}


@pytest.mark.parametrize(
    ("name", "kind", "fault"),
    [
        ("id", "integer", ""),
        ("id", "string", "id is STRING, and the field is BIGINT"),
        ("gone", "long", "shop.Order has no field gone"),
        ("lines", LINES, "lines[].sku is BIGINT, and the field is STRING"),
        ("lines", "string", "lines is STRING, and the field is repeated"),
        ("stock", "string", "stock is STRING, and the field is a map"),
        ("customer", "string", "customer is STRING, and the field is a shop.Customer"),
        ("big", "long", ""),
        ("at", "timestamp", ""),
        ("at", "string", "at is STRING, and the field is TIMESTAMP"),
        ("note", "string", ""),
    ],
)
def test_columns_fit_the_fields(name: str, kind: Any, fault: str) -> None:
    struct = {"type": "struct", "fields": [{"name": name, "type": kind}]}
    assert list(faults(compiled(ORDER), struct)) == ([fault] if fault else [])


def test_columns_of_a_message_fit_it() -> None:
    schema = compiled(ORDER)
    assert list(faults(schema, json.loads(json.dumps(columns(schema))))) == []


def test_a_run_that_begins_meanwhile_leaves_the_compilers_files_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = subprocess.run

    def swept(*words: Any, **how: Any) -> Any:
        assert list(tmp_path.iterdir()) and sweep(tmp_path) == []
        return real(*words, **how)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(subprocess, "run", swept)
    assert compiled('syntax = "proto3"; message Meanwhile { int32 id = 1; }').message == "Meanwhile"
