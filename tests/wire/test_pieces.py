"""Codecs that stop between items say the same as those that do not, and take only so many items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from kafkad.turns import at_once
from kafkad.wire import apis
from kafkad.wire.compiler import PIECE
from kafkad.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from kafkad.wire.messages.describe_topic_partitions import DescribeTopicPartitionsResponse
from kafkad.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkad.wire.primitives import MAX_TAGS, put_uvarint
from kafkad.wire.schema import (
    Field,
    MalformedError,
    count_errors,
    count_errors_in_pieces,
    decode,
    decode_in_pieces,
    encode,
    within,
    write_in_pieces,
)
from tests.wire.values import versions_of

CLASSES = [class_of(key) for key in apis.APIS for class_of in (apis.request_class, apis.response_class)]


PLAIN = {"string": "text", "bytes": b"bytes", "records": b"batches", "?": True, "16s": bytes(range(16)), "d": 1.5}


def filled(cls: type[Any], version: int) -> Any:
    """With something in every field that the version has, and two items in every array."""
    fields = [field for field in cls.__schema__.fields if within(version, field.versions)]
    return cls(**{field.name: value_of(field, version) for field in fields})


def value_of(field: Field, version: int) -> Any:
    if field.kind == "struct":
        return filled(field.item, version)
    if field.kind == "array":
        return [filled(field.item, version) if isinstance(field.item, type) else value_of(field.item(), version)] * 2
    return PLAIN.get(field.kind, 7)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_the_same_bytes_and_the_same_message(cls: type[Any]) -> None:
    for version in versions_of(cls):
        message = filled(cls, version)
        data, out = encode(message, version), bytearray()
        at_once(write_in_pieces(out, message, version))
        assert out == data
        assert at_once(decode_in_pieces(cls, version, data, 1000)) == decode(cls, version, data)


def error_codes(message: Any) -> Iterator[int]:
    """Those in a message, at any depth."""
    for field in message.__schema__.fields:
        value = getattr(message, field.name)
        if field.name == "error_code":
            yield value
        elif isinstance(field.item, type):
            for item in value if field.kind == "array" else [value]:
                yield from error_codes(item)


@pytest.mark.parametrize("key", apis.APIS)
def test_errors_are_counted_wherever_they_stand(key: int) -> None:
    cls: type[Any] = apis.response_class(key)
    message = filled(cls, versions_of(cls)[-1])
    there = Counter(code for code in error_codes(message) if code)
    assert count_errors(message) == at_once(count_errors_in_pieces(message)) == there
    assert count_errors(cls()) == at_once(count_errors_in_pieces(cls())) == {}


def test_errors_of_one_kind_are_counted_apart() -> None:
    topics = [DeletableTopicResult(error_code=code) for code in (3, 0, 29, 3)]
    assert count_errors(DeleteTopicsResponse(responses=topics)) == {3: 2, 29: 1}
    assert count_errors(DescribeTopicPartitionsResponse(topics=[], next_cursor=None)) == {}


def test_stops_after_every_so_many_items() -> None:
    message = MetadataRequest(topics=[MetadataRequestTopic(name=f"topic-{i}") for i in range(10 * PIECE)])
    data = encode(message, 9)
    assert sum(1 for _ in decode_in_pieces(MetadataRequest, 9, data, 10 * PIECE)) == 11
    assert sum(1 for _ in write_in_pieces(bytearray(), message, 9)) == 11
    answer = DeleteTopicsResponse(responses=[DeletableTopicResult() for _ in range(10 * PIECE)])
    assert sum(1 for _ in count_errors_in_pieces(answer)) == 10


def test_more_items_than_are_taken_are_refused_before_they_are_read() -> None:
    data = encode(MetadataRequest(topics=[MetadataRequestTopic(name="t")] * 1001), 9)
    pieces = decode_in_pieces(MetadataRequest, 9, data, 1000)
    next(pieces)
    with pytest.raises(MalformedError, match="names more than"):
        next(pieces)


def test_a_million_tagged_fields_are_refused() -> None:
    data = bytearray(encode(MetadataRequest(topics=[]), 9)[:-1])
    put_uvarint(data, MAX_TAGS + 1)
    with pytest.raises(MalformedError, match="tagged fields"):
        decode(MetadataRequest, 9, bytes(data) + bytes(10_000))


def topics_with_tags(topics: int, tags: int) -> bytes:
    """A Metadata request with so many tagged fields for each topic."""
    data = bytearray()
    put_uvarint(data, topics + 1)
    for _ in range(topics):
        data += b"\x02t"
        put_uvarint(data, tags)
        data += b"\x05\x01." * tags
    return bytes(data) + bytes(4)


def test_tagged_fields_are_counted_over_all_of_a_message_where_they_are_more_than_a_few() -> None:
    few, many, too_many = topics_with_tags(1000, 2), topics_with_tags(2, 500), topics_with_tags(3, 500)
    assert len(decode(MetadataRequest, 9, few).topics or ()) == 1000
    assert len(decode(MetadataRequest, 9, many).topics or ()) == 2
    for read in (decode, lambda cls, version, data: at_once(decode_in_pieces(cls, version, data, 1000))):
        with pytest.raises(MalformedError, match="tagged fields"):
            read(MetadataRequest, 9, too_many)
