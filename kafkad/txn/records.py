"""Transactional ids as records of `__transaction_state`.

Written in value version 0, or 1 where every broker of the cluster has transaction version 1 or more; both are read. A
value that cannot be read is kept as Damaged: its id cannot be used until somebody looks at it, all others can.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from kafkad.names import TopicPartition
from kafkad.txn.transaction import EMPTY, NO_PARTITIONS, NONE, ONGOING, State, Transaction
from kafkad.wire.primitives import (
    MAX_TAGS,
    EncodeError,
    MalformedError,
    array_reader,
    get_compact_count,
    get_count,
    get_nullable_compact_string,
    get_nullable_string,
    get_tag_count,
    get_uvarint,
    put_compact_string,
    put_string,
    put_uvarint,
    skip_tags,
)

_LAST_VERSION = 1
_KEY_VERSION = 0
_NULL_ARRAY, _NULL_COMPACT_ARRAY = b"\xff\xff\xff\xff", b"\0"

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_KEY_START = struct.Struct(">hh")
_VALUE_START = struct.Struct(">hqhib")
_TIMES = struct.Struct(">qq")
_TAG_OF_ID, _TAG_OF_VERSION = struct.Struct(">BBq"), struct.Struct(">BBh")
"""The number of a tag, the size of its value, the value."""
_PREVIOUS_ID, _NEXT_ID, _CLIENT_VERSION = 0, 1, 2
_AT_REST = struct.Struct(">hqhibBqq3sq")
"""All of a value of version 1 without partitions, up to its first tag, the previous producer id."""
_ONE_TAG, _TWO_TAGS, _TAG_OF_CLIENT = b"\1\0\x08", b"\2\0\x08", b"\2\2"
_CLIENT_TAG = struct.Struct(">2sh")
_NO_TAGS = NONE, NONE, 0
_STATES = {state.value: state for state in State}
_READERS = (
    (get_count, get_nullable_string, array_reader("i", compact=False)),
    (get_compact_count, get_nullable_compact_string, array_reader("i", compact=True)),
)
"""By the version of a value: how many topics, a topic, its partitions."""
_FEW_PARTITIONS, _MOST_KEPT = 32, 512
"""The encoded partitions of transactions that have few are kept: so many at most of so many transactions."""
_MANY_PARTITIONS, _MOST_LARGE = 1_000, 8
"""Of open transactions that have many, what is encoded of each topic is kept: of so many transactions of a machine."""


class Forgotten(NamedTuple):
    """The id has expired."""

    id: str


class Damaged(NamedTuple):
    """Nobody knows what was recorded of the id last: that cannot be read."""

    id: str
    why: str


Record = Transaction | Forgotten | Damaged


def encode(record: Record, value_version: int, large: LargePartitions | None = None) -> tuple[bytes, bytes | None]:
    """Key and value; no value for what is forgotten. EncodeError when Kafka's format cannot hold it. `large` knows what
    its caller's earlier records had."""
    if isinstance(record, Transaction):
        return _key(record.id), _value(record, value_version, large)
    if isinstance(record, Forgotten):
        return _key(record.id), None
    raise EncodeError(f"what was recorded of {record.id!r} is not known: {record.why}")


def least_size(record: Record) -> int:
    """HOT. The bytes of key and value at least, known without encoding them."""
    partitions = len(record.partitions) if isinstance(record, Transaction) else 0
    return len(record.id) + _INT32.size * partitions


def decode(key: bytes, value: bytes | None) -> Record | None:
    """None for a kind of key that is not known; MalformedError for bytes that do not even name an id."""
    (version,) = _INT16.unpack_from(key) if len(key) >= _INT16.size else (NONE,)
    if version < _KEY_VERSION:
        raise MalformedError(f"a record with the key {key!r}")
    if version > _KEY_VERSION:
        return None
    try:
        name, _ = get_nullable_string(key, _INT16.size)
    except struct.error as error:
        raise MalformedError(f"a record with the key {key!r}: {error}") from None
    if name is None:
        raise MalformedError(f"a record with the key {key!r}, which names no id")
    if value is None:
        return Forgotten(name)
    try:
        return _transaction(name, value)
    except (struct.error, ValueError, IndexError) as error:
        return Damaged(name, str(error))


def _key(name: str) -> bytes:
    raw = name.encode()
    try:
        return _KEY_START.pack(_KEY_VERSION, len(raw)) + raw
    except struct.error as error:
        raise EncodeError(f"the transactional id {name[:40]!r}: {error}") from None


def _value(said: Transaction, version: int, large: LargePartitions | None) -> bytes:
    """HOT: three times for each transaction."""
    state, partitions = said.state, said.partitions
    start = _VALUE_START.pack(version, said.producer_id, said.epoch, said.timeout_ms, state)
    if state is EMPTY:  # which alone has null
        packed = _NULL_COMPACT_ARRAY if version else _NULL_ARRAY
    else:
        count = len(partitions)
        if count > _MANY_PARTITIONS and large is not None:
            packed = large.packed(said, version)
        else:
            packed = (_kept if count <= _FEW_PARTITIONS else _packed)(partitions, version)
    times = _TIMES.pack(said.updated_ms, said.started_ms)
    return start + packed + times + _tags(said) if version else start + packed + times


def _packed(partitions: frozenset[TopicPartition], version: int) -> bytes:
    return _array([_topic(topic, indexes, version) for topic, indexes in _by_topic(partitions)], version)


_kept = lru_cache(_MOST_KEPT)(_packed)


class _Large:
    """One of LargePartitions."""

    __slots__ = ("_encoded", "_topics", "partitions", "version")

    def __init__(self, version: int) -> None:
        self.version = version
        self.partitions = NO_PARTITIONS
        self._topics: dict[str, list[int]] = {}
        self._encoded: dict[str, bytes] = {}

    def packed_with(self, added: frozenset[TopicPartition]) -> bytes:
        for topic, indexes in _by_topic(added):
            of_topic = self._topics[topic] = sorted(self._topics.get(topic, []) + indexes)
            self._encoded[topic] = _topic(topic, of_topic, self.version)
        return _array(self._encoded.values(), self.version)


class LargePartitions:
    """What is encoded of open transactions with many partitions, topic by topic, as their last records had it.

    There can be 260,000 in a record of 1 MB: for one that is added, only its topic is encoded anew.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Large] = {}
        """By transactional id; that of the latest record is the last."""

    def __len__(self) -> int:
        return len(self._known)

    def clear(self) -> None:
        self._known.clear()

    def packed(self, said: Transaction, version: int) -> bytes:
        partitions = said.partitions
        large = self._known.pop(said.id, None) or _Large(version)
        added = partitions - large.partitions
        if version != large.version or len(large.partitions) + len(added) != len(partitions):
            large, added = _Large(version), partitions
        packed = large.packed_with(added)
        if said.state is ONGOING:
            large.partitions = partitions
            self._known[said.id] = large
            if len(self._known) > _MOST_LARGE:
                del self._known[next(iter(self._known))]
        return packed


def _array(topics: Collection[bytes], version: int) -> bytes:
    out = bytearray()
    if version:
        put_uvarint(out, len(topics) + 1)
    else:
        out += _INT32.pack(len(topics))
    return bytes(out) + b"".join(topics)


def _topic(name: str, indexes: Sequence[int], version: int) -> bytes:
    out = bytearray()
    packed = struct.pack(f">{len(indexes)}i", *indexes)
    if version:
        put_compact_string(out, name)
        put_uvarint(out, len(indexes) + 1)
        out += packed
        out.append(0)
    else:
        put_string(out, name)
        out += _INT32.pack(len(indexes))
        out += packed
    return bytes(out)


def _tags(said: Transaction) -> bytes:
    """Those that are not at their defaults."""
    tags = []
    if said.previous_producer_id != NONE:
        tags.append(_TAG_OF_ID.pack(_PREVIOUS_ID, 8, said.previous_producer_id))
    if said.next_producer_id != NONE:
        tags.append(_TAG_OF_ID.pack(_NEXT_ID, 8, said.next_producer_id))
    if said.version:
        tags.append(_TAG_OF_VERSION.pack(_CLIENT_VERSION, 2, said.version))
    return bytes((len(tags),)) + b"".join(tags)


def _by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        if topic in topics:
            topics[topic].append(partition)
        else:
            topics[topic] = [partition]
    for indexes in topics.values():
        indexes.sort()
    return sorted(topics.items())


def _transaction(name: str, value: bytes) -> Transaction:
    """HOT while a partition is loaded."""
    found = _at_rest(name, value)
    if found is not None:
        return found
    version, producer_id, epoch, timeout_ms, state = _VALUE_START.unpack_from(value)
    if not 0 <= version <= _LAST_VERSION:
        raise MalformedError(f"a value of version {version}; this broker knows 0 to {_LAST_VERSION}")
    at = _VALUE_START.size
    partitions, at = _read_partitions(value, at, version)
    updated_ms, started_ms = _TIMES.unpack_from(value, at)
    tags = _read_tags(value, at + _TIMES.size) if version else _NO_TAGS
    return Transaction(name, producer_id, epoch, timeout_ms, State(state), partitions, updated_ms, started_ms, *tags)


def _at_rest(name: str, value: bytes) -> Transaction | None:
    """HOT while a partition is loaded: a value as most are in the end, of version 1, without partitions, and with the
    tags that Kafka writes; None for any other."""
    more = len(value) - _AT_REST.size
    if more and more != _CLIENT_TAG.size:
        return None
    version, pid, epoch, timeout_ms, state, topics, updated_ms, started_ms, tags, previous = _AT_REST.unpack_from(value)
    if version != 1 or topics > 1 or state not in _STATES:
        return None
    client_version = 0
    if more:
        between, client_version = _CLIENT_TAG.unpack_from(value, _AT_REST.size)
        if tags != _TWO_TAGS or between != _TAG_OF_CLIENT:
            return None
    elif tags != _ONE_TAG:
        return None
    return Transaction(
        name,
        pid,
        epoch,
        timeout_ms,
        _STATES[state],
        NO_PARTITIONS,
        updated_ms,
        started_ms,
        previous,
        NONE,
        client_version,
    )


def _read_partitions(value: bytes, at: int, version: int) -> tuple[frozenset[TopicPartition], int]:
    get_topics, get_name, get_indexes = _READERS[version]
    topics, at = get_topics(value, at)
    found: list[TopicPartition] = []
    for _ in range(topics):
        topic, at = get_name(value, at)
        indexes, at = get_indexes(value, at)
        if topic is None or indexes is None:
            raise MalformedError(f"null before {at}, where it is not allowed")
        if version:
            at, _ = skip_tags(value, at)
        found += [TopicPartition(topic, index) for index in indexes]
    return frozenset(found) if found else NO_PARTITIONS, at


def _read_tags(value: bytes, at: int) -> Sequence[int]:
    """The previous producer id, the next one, and the client's transaction version; others are passed over."""
    found = list(_NO_TAGS)
    count, at, _ = get_tag_count(value, at, MAX_TAGS)
    for _ in range(count):
        tag, at = get_uvarint(value, at)
        size, at = get_uvarint(value, at)
        if tag < len(found):
            (found[tag],) = (_INT16 if tag == _CLIENT_VERSION else _INT64).unpack_from(value, at)
        at += size
    if at > len(value):
        raise MalformedError(f"tagged fields that end at {at}, of {len(value)} bytes")
    return found
