"""Our codec beside kafka-python's: each reads what the other writes."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.api_message import ApiMessage

from kafkad.names import NO_TOPIC_ID
from kafkad.wire import apis, schema
from tests.wire.values import BUDGETS, messages, versions_of

MODULES = (
    "admin.acl admin.client_quotas admin.cluster admin.configs admin.groups admin.topics admin.transactions "
    "admin.users consumer.fetch consumer.group consumer.metadata consumer.offsets "
    "metadata.api_versions metadata.find_coordinator metadata.metadata producer.produce producer.transaction sasl"
)


def theirs() -> dict[str, Any]:
    for module in MODULES.split():
        import_module(f"kafka.protocol.{module}")
    return {cls.__name__: cls for cls in ApiMessage.__subclasses__()}


THEIRS = theirs()
OWN_WAYS = {18}
"""Its ApiVersionsResponse reads any error as version 0."""

KNOWN = [key for key, api in apis.APIS.items() if f"{api.name}Request" in THEIRS and key not in OWN_WAYS]


@pytest.mark.parametrize("key", KNOWN, ids=lambda key: apis.APIS[key].name)
@pytest.mark.parametrize("budget", BUDGETS)
def test_kafka_python_reads_and_writes_the_same(key: int, budget: settings) -> None:
    pairs = [
        (ours, version, THEIRS[ours.__name__])
        for ours in (apis.request_class(key), apis.response_class(key))
        for version in versions_of(ours)
        if THEIRS[ours.__name__].valid_versions[0] <= version <= THEIRS[ours.__name__].valid_versions[1]
    ]

    @budget
    @given(st.data())
    def compare(data: st.DataObject) -> None:
        ours, version, cls = data.draw(st.sampled_from(pairs))
        message = data.draw(messages(ours, version))
        other = cls.decode(schema.encode(message, version), version=version)
        assert_same(message, other, version)
        other._header = None  # its decoder leaves that unset, its encoder looks
        assert schema.decode(ours, version, other.encode(version=version)) == message

    compare()


def assert_same(ours: Any, other: Any, version: int) -> None:
    names = {name.replace("_", ""): name for name in other.fields}
    for field in ours.__schema__.fields:
        if schema.within(version, field.versions) and "authorized_operations" not in field.name:  # sets in theirs
            assert_same_value(getattr(ours, field.name), getattr(other, names[field.name.replace("_", "")]), version)


def assert_same_value(ours: Any, other: Any, version: int) -> None:
    if isinstance(ours, list):
        assert len(ours) == len(other)
        for one, two in zip(ours, other, strict=True):
            assert_same_value(one, two, version)
    elif isinstance(ours, schema.Message):
        assert_same(ours, other, version)
    elif ours == NO_TOPIC_ID:
        assert other is None or other.bytes == ours
    else:
        assert ours == getattr(other, "bytes", other)
