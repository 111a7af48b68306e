"""Our codec beside kio's, which is generated from Kafka's own message definitions: each reads what the other writes."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import io
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import UnknownAPIKey, UnknownEntity, load_payload_module
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from kafkad.names import NO_TOPIC_ID
from kafkad.wire import apis, schema
from tests.wire.values import BUDGETS, messages, versions_of

RETIRED = {4, 5, 6, 7}
"""Between brokers, and gone in Kafka 4, which kio is made from."""

KINDS = {EntityType.request: apis.request_class, EntityType.response: apis.response_class}


def known_to_kio(key: int) -> list[tuple[Any, int, Any]]:
    """(our class, version, kio's class) for all versions that both have."""
    found = []
    for kind, class_of in KINDS.items():
        ours = class_of(key)
        for version in versions_of(ours):
            try:
                module = load_payload_module(key, version, kind)
            except (UnknownAPIKey, UnknownEntity):
                continue
            found.append((ours, version, getattr(module, ours.__name__)))
    return found


@pytest.mark.parametrize("key", [key for key in apis.APIS if key not in RETIRED], ids=lambda key: apis.APIS[key].name)
@pytest.mark.parametrize("budget", BUDGETS)
def test_kio_reads_and_writes_the_same(key: int, budget: settings) -> None:
    pairs = known_to_kio(key)
    assert pairs, "kio does not know this API"

    @budget
    @given(st.data())
    def compare(data: st.DataObject) -> None:
        ours, version, theirs = data.draw(st.sampled_from(pairs))
        message = data.draw(messages(ours, version))
        raw = schema.encode(message, version)
        entity, size = entity_reader(theirs)(raw, 0)
        assert size == len(raw)
        assert_same(message, entity, version)
        out = io.BytesIO()
        entity_writer(theirs)(out, entity)
        assert schema.decode(ours, version, out.getvalue()) == message

    compare()


def assert_same(ours: Any, theirs: Any, version: int) -> None:
    unclaimed = {field.name.replace("_", ""): field.name for field in dataclasses.fields(theirs)}
    for field in ours.__schema__.fields:
        if schema.within(version, field.versions):
            name = field.name.replace("_", "")
            their_name = unclaimed.pop(name if name in unclaimed else name.removesuffix("ms"))
            assert_same_value(getattr(ours, field.name), getattr(theirs, their_name), version)
    assert not unclaimed


def assert_same_value(ours: Any, theirs: Any, version: int) -> None:
    if isinstance(ours, list):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_same_value(one, other, version)
    elif isinstance(ours, schema.Message):
        assert_same(ours, theirs, version)
    else:
        assert ours == plain(theirs, ours)


def plain(theirs: Any, ours: Any) -> Any:
    if isinstance(theirs, datetime.timedelta):
        return theirs // datetime.timedelta(milliseconds=1)
    if isinstance(theirs, datetime.datetime):
        return (theirs - datetime.datetime.fromtimestamp(0, datetime.UTC)) // datetime.timedelta(milliseconds=1)
    if isinstance(theirs, enum.IntEnum):
        return int(theirs)
    if isinstance(theirs, uuid.UUID):
        return theirs.bytes
    if theirs is None and ours == NO_TOPIC_ID:
        return ours
    return theirs
