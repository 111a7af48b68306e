"""Every declaration against Kafka's own, the JSON in its jars: names, types, order, nulls, tags, defaults, drops."""

from __future__ import annotations

import functools
import json
import re
import zipfile
from typing import Any

import pytest

from kafkad.names import NO_TOPIC_ID
from kafkad.wire import apis, schema
from kafkad.wire.log_records import consumer_groups, consumer_offsets, transaction_state
from kafkad.wire.messages import consumer_protocol
from kctl.segments import metadata_records
from tests.oracle import kafka
from tests.wire.values import versions_of

pytestmark = [pytest.mark.slow, pytest.mark.java]

JARS = ("clients", "group-coordinator", "metadata", "transaction-coordinator")
TYPES = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "float64": "d",
    "uuid": "16s",
    "string": "string",
    "bytes": "bytes",
    "records": "records",
}
ENDINGS = ("Key", "Value", "Subscription", "Assignment", "Record", "Message")
RECORDS = [
    cls
    for module in (metadata_records, consumer_offsets, consumer_groups, transaction_state, consumer_protocol)
    for cls in vars(module).values()
    if isinstance(cls, type) and cls.__name__.endswith(ENDINGS)
]
MESSAGES = [class_of(key) for key in apis.APIS for class_of in (apis.request_class, apis.response_class)] + RECORDS


@functools.cache
def definitions(version: str) -> dict[str, Any]:
    """Kafka's message definitions by name. Their JSON has comments."""
    if reason := kafka.missing(version):
        pytest.skip(reason)
    found = {}
    for jar in kafka.fetch(version).glob("kafka-*.jar"):
        if not jar.name.startswith(tuple(f"kafka-{name}-{version}" for name in JARS)):
            continue
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if name.startswith(("common/message/", "common/metadata/")) and name.endswith(".json"):
                    text = re.sub(r"(?m)(^|\s)//.*$", "", archive.read(name).decode())
                    definition = json.loads(text)
                    found[definition["name"]] = definition
    return found


@pytest.mark.parametrize("release", ["3.9", "4.3"])
@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_declared_as_kafka_does(cls: type[Any], release: str) -> None:
    definition = definitions(release).get(cls.__name__)
    if definition is None or definition["validVersions"] == "none" or _renumbered(cls, release):
        return
    first, last = schema.span(definition["validVersions"])
    declared = versions_of(cls)
    assert declared[0] <= first
    assert last <= declared[-1] or definition.get("latestVersionUnstable")
    common = {struct["name"]: struct["fields"] for struct in definition.get("commonStructs", [])}
    for version in range(first, min(last, declared[-1]) + 1):
        assert schema.within(version, cls.__schema__.flexible) == _within(version, definition["flexibleVersions"])
        expected = theirs(definition["fields"], common, version)
        assert without_later_tags(ours(cls, version), expected) == expected, version


DROPPED_HERE = {("UpdateMetadataRequest", "type")}
"""Kafka refuses to send it in a version without it. Here brokers that do not know it are told the rest."""


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_drops_what_kafka_drops(cls: type[Any]) -> None:
    """The fields that are left out in silence in versions that do not have them."""
    definition = definitions("4.3").get(cls.__name__)
    if definition is None or "fields" not in definition:
        definition = definitions("3.9")[cls.__name__]
    common = {struct["name"]: struct["fields"] for struct in definition.get("commonStructs", [])}
    assert_drops(cls, definition["fields"], common)


def assert_drops(cls: type[Any], fields: list[Any], common: dict[str, Any]) -> None:
    declared = {field.name.replace("_", ""): field for field in cls.__schema__.fields}
    for definition in fields:
        field = declared[definition["name"].lower()]
        is_dropped = str(definition.get("ignorable")).lower() == "true" or (cls.__name__, field.name) in DROPPED_HERE
        assert field.versions == "0+" or field.ignorable == is_dropped, field.name
        if isinstance(field.item, type):
            assert_drops(field.item, definition.get("fields") or common[definition["type"].removeprefix("[]")], common)


def test_every_message_of_both_releases_is_compared() -> None:
    known = definitions("3.9").keys() | definitions("4.3").keys()
    assert [cls.__name__ for cls in MESSAGES if cls.__name__ not in known] == []


def _renumbered(cls: type[Any], release: str) -> bool:
    """In 4.3 the keys of records count their versions from 0, and have the version written before them elsewhere."""
    return release == "4.3" and cls in RECORDS and cls.__name__.endswith("Key")


def _within(version: int, versions: str) -> bool:
    return versions != "none" and schema.within(version, versions)


Shape = tuple[Any, ...]


def ours(cls: type[Any], version: int) -> list[Shape]:
    found: list[Shape] = []
    for field in cls.__schema__.fields:
        if not schema.within(version, field.versions):
            continue
        kind: Any = field.kind
        if kind == "array":
            kind = ["struct" if isinstance(field.item, type) else field.item().kind]
        inner = ours(field.item, version) if isinstance(field.item, type) else []
        name = field.name.replace("_", "")
        nullable = schema.within(version, field.nullable)
        default = None if field.default == NO_TOPIC_ID else field.default or None
        found.append((name, kind, nullable, field.tag, default, inner))
    return sorted(found, key=_tags_last)


def _tag(field: Any) -> int | None:
    """Kafka wrote two of them as text."""
    return None if "tag" not in field else int(field["tag"])


def theirs(fields: list[Any], common: dict[str, Any], version: int) -> list[Shape]:
    found: list[Shape] = []
    for field in fields:
        if not _within(version, field.get("versions", field.get("taggedVersions"))):
            continue
        item = field["type"].removeprefix("[]")
        kind: Any = TYPES.get(item, "struct")
        if field["type"].startswith("[]"):
            kind = [kind]
        inner = theirs(field.get("fields") or common[item], common, version) if item not in TYPES else []
        nullable = schema.within(version, field.get("nullableVersions", ""))
        default = _default(field.get("default"), kind)
        found.append((field["name"].lower(), kind, nullable, _tag(field), default or None, inner))
    return sorted(found, key=_tags_last)


def without_later_tags(shapes: list[Shape], expected: list[Shape]) -> list[Shape]:
    """`shapes` less the tagged fields that a later release added to a version there was already."""
    known = {shape[0]: shape[-1] for shape in expected}
    return [
        (*shape[:-1], without_later_tags(shape[-1], known.get(shape[0], [])))
        for shape in shapes
        if shape[3] is None or shape[0] in known
    ]


def _tags_last(shape: Shape) -> int:
    return -1 if shape[3] is None else int(shape[3])


def _default(default: Any, kind: Any) -> Any:
    """Kafka writes defaults as text or as numbers, and leaves them out when they are zero, empty or false."""
    if default in (None, False, "null", "", "false") or isinstance(kind, list):
        return None
    if default == "true":
        return True
    if kind == "string":
        return default
    return float(default) if kind == "d" else int(str(default), 0)
