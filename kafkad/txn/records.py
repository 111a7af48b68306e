"""Transactional ids as records of `__transaction_state`.

Written in value version 0, or 1 where every broker of the cluster has transaction version 1 or more; both are read. A
value that cannot be read is kept as Damaged: its id cannot be used until somebody looks at it, all others can.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from kafkad.names import TopicPartition
from kafkad.txn.transaction import EMPTY, NO_PARTITIONS, NONE, State, Transaction
from kafkad.wire import schema
from kafkad.wire.log_records.transaction_state import TransactionLogKey, TransactionLogValue
from kafkad.wire.primitives import EncodeError, MalformedError, put_compact_string, put_string, put_uvarint

_LAST_VERSION = 1
_KEY_VERSION = 0
_NULL_ARRAY, _NULL_COMPACT_ARRAY = b"\xff\xff\xff\xff", b"\0"

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_KEY_START = struct.Struct(">hh")
_VALUE_START = struct.Struct(">hqhib")
_TIMES = struct.Struct(">qq")
_TAG_OF_ID, _TAG_OF_VERSION = struct.Struct(">BBq"), struct.Struct(">BBh")
"""The number of a tag, the size of its value, the value."""
_PREVIOUS_ID, _NEXT_ID, _CLIENT_VERSION = 0, 1, 2
_FEW_PARTITIONS, _MOST_KEPT = 32, 512
"""The encoded partitions of transactions that have few are kept: so many at most of so many transactions."""


class Forgotten(NamedTuple):
    """The id has expired."""

    id: str


class Damaged(NamedTuple):
    """The last record of the id cannot be read, and nobody knows what it says."""

    id: str
    why: str


Record = Transaction | Forgotten | Damaged


def encode(record: Record, value_version: int) -> tuple[bytes, bytes | None]:
    """Key and value; no value for what is forgotten. EncodeError when Kafka's format cannot hold it."""
    if isinstance(record, Transaction):
        return _key(record.id), _value(record, value_version)
    if isinstance(record, Forgotten):
        return _key(record.id), None
    raise EncodeError(f"what was recorded of {record.id!r} is not known: {record.why}")


def decode(key: bytes, value: bytes | None) -> Record | None:
    """None for a kind of key that is not known; MalformedError for bytes that do not even name an id."""
    (version,) = _INT16.unpack_from(key) if len(key) >= _INT16.size else (NONE,)
    if version < _KEY_VERSION:
        raise MalformedError(f"a record with the key {key!r}")
    if version > _KEY_VERSION:
        return None
    name = schema.read(TransactionLogKey, version, key, 2)[0].transactional_id
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


def _value(said: Transaction, version: int) -> bytes:
    """HOT: three times for each transaction."""
    state, partitions = said.state, said.partitions
    start = _VALUE_START.pack(version, said.producer_id, said.epoch, said.timeout_ms, state)
    if state is EMPTY:  # which alone has null
        packed = _NULL_COMPACT_ARRAY if version else _NULL_ARRAY
    else:
        packed = (_kept if len(partitions) <= _FEW_PARTITIONS else _packed)(partitions, version)
    times = _TIMES.pack(said.updated_ms, said.started_ms)
    return start + packed + times + _tags(said) if version else start + packed + times


def _packed(partitions: frozenset[TopicPartition], version: int) -> bytes:
    out = bytearray()
    if version:
        _put_compact_partitions(out, partitions)
    else:
        _put_partitions(out, partitions)
    return bytes(out)


_kept = lru_cache(_MOST_KEPT)(_packed)


def _put_partitions(out: bytearray, partitions: Iterable[TopicPartition]) -> None:
    topics = _by_topic(partitions)
    out += _INT32.pack(len(topics))
    for topic, indexes in topics:
        put_string(out, topic)
        out += _INT32.pack(len(indexes))
        out += struct.pack(f">{len(indexes)}i", *indexes)


def _put_compact_partitions(out: bytearray, partitions: Iterable[TopicPartition]) -> None:
    topics = _by_topic(partitions)
    put_uvarint(out, len(topics) + 1)
    for topic, indexes in topics:
        put_compact_string(out, topic)
        put_uvarint(out, len(indexes) + 1)
        out += struct.pack(f">{len(indexes)}i", *indexes)
        out.append(0)


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
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return list(topics.items())


def _transaction(name: str, value: bytes) -> Transaction:
    (version,) = _INT16.unpack_from(value)
    if not 0 <= version <= _LAST_VERSION:
        raise MalformedError(f"a value of version {version}; this broker knows 0 to {_LAST_VERSION}")
    said, _ = schema.read(TransactionLogValue, version, value, 2)
    partitions = NO_PARTITIONS
    if said.transaction_partitions:
        partitions = frozenset(
            TopicPartition(one.topic, partition)
            for one in said.transaction_partitions
            for partition in one.partition_ids
        )
    return Transaction(
        name,
        said.producer_id,
        said.producer_epoch,
        said.transaction_timeout_ms,
        State(said.transaction_status),
        partitions,
        said.transaction_last_update_timestamp_ms,
        said.transaction_start_timestamp_ms,
        said.previous_producer_id,
        said.next_producer_id,
        said.client_transaction_version,
    )
