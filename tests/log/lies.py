"""Batches with a true CRC and lying contents, with what Kafka 3.9.2 answers for each.

`test_lies` holds our checks against these answers, `test_lies_oracle` holds the answers against a running Kafka. To ask
one anew: python -m tests.log.test_lies_oracle
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kafkad.wire.compression import Codec, compress
from kafkad.wire.records import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    BatchHeader,
    Record,
    RecordsError,
    assemble_batch,
    encode_records,
    iter_records,
    read_header,
    write_varint,
)

ANSWERS = Path(__file__).parent / "lies.tsv"
NOW_MS = 1_700_000_000_000
COUNT = 4
TOPICS = ("plain", "compacted", "gzip", "uncompressed", "append-time")
"""Of those in `produced`."""


class Lie(NamedTuple):
    name: str
    codec: Codec
    batch: bytes


class Told(NamedTuple):
    """A broker's verdict on a batch: its code, how far the end of the log moved, and the max timestamp it stored."""

    code: int
    moved: int
    max_timestamp: int


def lies() -> list[Lie]:
    return [lie for codec in Codec for lie in (*_of_headers(codec), *_of_bodies(codec), *_of_codecs(codec))]


def answers() -> dict[str, dict[str, Told]]:
    """By topic and `key` of the lie."""
    [_, *topics], *rows = [line.split("\t") for line in ANSWERS.read_text().splitlines()]
    return {
        topic: {row[0]: Told._make(map(int, row[column].split())) for row in rows}
        for column, topic in enumerate(topics, 1)
    }


def readable(lie: Lie) -> bool:
    """True if consumers get past it: every record whole, numbered from 0 on, in numbers that fit their types."""
    view = memoryview(lie.batch)
    header = read_header(view, 0)
    try:
        records = list(iter_records(view, 0, header._replace(attributes=header.codec)))
    except RecordsError:
        return False
    return [record.offset for record in records] == list(range(header.record_count)) and all(
        record.timestamp < 2**63 for record in records
    )


def key(lie: Lie) -> str:
    return f"{lie.codec.name.lower()}: {lie.name}"


def _records() -> list[Record]:
    return [Record(n, NOW_MS + n, b"key%d" % n, b"value%d" % n, (("h", b"x"),)) for n in range(COUNT)]


def _header(codec: Codec, **fields: int) -> BatchHeader:
    sound = BatchHeader(0, 0, -1, 2, 0, codec, COUNT - 1, NOW_MS, NOW_MS + COUNT - 1, -1, -1, -1, COUNT)
    attributes = fields.pop("flags", 0) | codec
    return sound._replace(**{"attributes": attributes, **fields})


def _sealed(codec: Codec, body: bytes, **fields: int) -> bytes:
    return bytes(assemble_batch(_header(codec, **fields), compress(codec, body)))


def _of_headers(codec: Codec) -> Iterator[Lie]:
    body = encode_records(_records(), 0, NOW_MS)
    for name, fields in _HEADERS.items():
        own = {"producer_id": fields["producer_id"] + 100 * codec} if fields.get("producer_id", -1) > 0 else {}
        yield Lie(name, codec, _sealed(codec, body, **fields | own))


_HEADERS: dict[str, dict[str, int]] = {
    "nothing but the truth": {},
    "2147483647 records": {"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 2},
    "1000 records": {"record_count": 1000, "last_offset_delta": 999},
    "one record more": {"record_count": COUNT + 1, "last_offset_delta": COUNT},
    "one record fewer": {"record_count": COUNT - 1, "last_offset_delta": COUNT - 2},
    "no records": {"record_count": 0, "last_offset_delta": -1},
    "no records, last offset delta 3": {"record_count": 0},
    "-1 records": {"record_count": -1, "last_offset_delta": -2},
    "-1 records, last offset delta 3": {"record_count": -1},
    "last offset delta 2147483647": {"last_offset_delta": 2**31 - 1},
    "last offset delta one more": {"last_offset_delta": COUNT},
    "last offset delta one less": {"last_offset_delta": COUNT - 2},
    "max timestamp of yesterday": {"max_timestamp": NOW_MS - 86_400_000},
    "max timestamp in 300 years": {"max_timestamp": NOW_MS + 300 * 365 * 86_400_000},
    "max timestamp -1": {"max_timestamp": -1},
    "max timestamp -5": {"max_timestamp": -5},
    "base timestamp a day earlier": {"base_timestamp": NOW_MS - 86_400_000},
    "base timestamp -1": {"base_timestamp": -1},
    "base timestamp -100": {"base_timestamp": -100},
    "base timestamp 2^63-1": {"base_timestamp": 2**63 - 1},
    "a delete horizon": {"flags": DELETE_HORIZON},
    "log append time": {"flags": LOG_APPEND_TIME},
    "a control batch": {"flags": CONTROL},
    "unknown attributes": {"flags": 0x7F80},
    "negative attributes": {"flags": -0x8000},
    "leader epoch 7": {"leader_epoch": 7},
    "base offset 5": {"base_offset": 5},
    "producer without sequence": {"producer_id": 4000, "producer_epoch": 0},
    "producer without epoch": {"producer_id": 4001, "base_sequence": 0},
    "producer -5": {"producer_id": -5, "producer_epoch": 0, "base_sequence": 0},
    "epoch without producer": {"producer_epoch": 3},
    "sequence without producer": {"base_sequence": 3},
    "sequence -7": {"producer_id": 4002, "producer_epoch": 0, "base_sequence": -7},
}


def _of_bodies(codec: Codec) -> Iterator[Lie]:
    for name, body in _bodies():
        yield Lie(name, codec, _sealed(codec, body))


def _record(number: int, **parts: bytes) -> bytes:
    """One record, with parts of it as they are given instead."""
    fields = {
        "attributes": b"\0",
        "timestamp": write_varint(number),
        "delta": write_varint(number),
        "key": write_varint(4) + b"key%d" % number,
        "value": write_varint(6) + b"value%d" % number,
        "headers": b"\0",
        "more": b"",
    }
    body = b"".join((fields | parts).get(name, b"") for name in fields)
    return parts.get("length", write_varint(len(body))) + body


def _bodies() -> Iterator[tuple[str, bytes]]:
    good = [_record(n) for n in range(COUNT)]
    random_bytes = random.Random(12).randbytes
    yield "200 random bytes", random_bytes(200)
    yield "200 other random bytes", random.Random(7).randbytes(200)
    yield "200 zero bytes", bytes(200)
    yield "200 bytes 0xff", b"\xff" * 200
    yield "no bytes", b""
    yield "bytes after the last record", b"".join(good) + b"more"
    yield "a zero byte after the last record", b"".join(good) + b"\0"
    yield "a fifth record", b"".join(good) + _record(4)
    yield "the last record cut off", b"".join(good)[:-3]
    yield "the last record missing", b"".join(good[:-1])
    for name, deltas in _DELTAS.items():
        yield f"offset deltas {name}", b"".join(_record(n, delta=write_varint(d)) for n, d in enumerate(deltas))
    for where, place in (("first", 0), ("last", COUNT - 1)):
        for name, parts in _PARTS.items():
            spoilt = [_record(n, **parts) if n == place else good[n] for n in range(COUNT)]
            yield f"{where} record: {name}", b"".join(spoilt)
    longer = _record(1, length=write_varint(len(good[1]) - 1 + len(good[2])))
    yield "a record that holds the next", b"".join((good[0], longer, good[2], good[3]))


_DELTAS = {
    "0 1 3 4": (0, 1, 3, 4),
    "3 2 1 0": (3, 2, 1, 0),
    "0 0 0 0": (0, 0, 0, 0),
    "1 2 3 4": (1, 2, 3, 4),
    "0 1 2 99": (0, 1, 2, 99),
    "-1 0 1 2": (-1, 0, 1, 2),
    "0 1 2 2^31-1": (0, 1, 2, 2**31 - 1),
}

_PARTS: dict[str, dict[str, bytes]] = {
    "length -1": {"length": write_varint(-1)},
    "length 0": {"length": write_varint(0)},
    "length 3": {"length": write_varint(3)},
    "length 6": {"length": write_varint(6)},
    "length one more": {"length": write_varint(19)},
    "length one less": {"length": write_varint(17)},
    "length 1000": {"length": write_varint(1000)},
    "length 2^31-1": {"length": write_varint(2**31 - 1)},
    "length in 6 bytes": {"length": b"\xff\xff\xff\xff\xff\x01"},
    "length in 5 bytes where one does": {"length": b"\xa4\x80\x80\x80\x00"},
    "bytes after its headers": {"more": b"abc"},
    "attributes 1": {"attributes": b"\1"},
    "timestamp delta 2^40": {"timestamp": write_varint(2**40)},
    "timestamp delta 2^63-1": {"timestamp": write_varint(2**63 - 1)},
    "timestamp delta in 11 bytes": {"timestamp": b"\xff" * 10 + b"\x01"},
    "offset delta in 6 bytes": {"delta": b"\x80\x80\x80\x80\x80\x00"},
    "key length -1": {"key": write_varint(-1)},
    "key length -2": {"key": write_varint(-2)},
    "key length -2^31": {"key": write_varint(-(2**31))},
    "key length beyond the record": {"key": write_varint(100) + b"key"},
    "key length 2^31-1": {"key": write_varint(2**31 - 1) + b"key"},
    "value length -1": {"value": write_varint(-1)},
    "value length -2": {"value": write_varint(-2)},
    "value length beyond the record": {"value": write_varint(100) + b"value"},
    "value length 2^31-1": {"value": write_varint(2**31 - 1) + b"value"},
    "no header count": {"headers": b""},
    "-1 headers": {"headers": write_varint(-1)},
    "1 header that is not there": {"headers": write_varint(1)},
    "1000 headers": {"headers": write_varint(1000) + b"\x02h\x02x"},
    "2^31-1 headers": {"headers": write_varint(2**31 - 1)},
    "0 headers and bytes of one": {"headers": b"\0\x02h\x02x"},
    "header key length -1": {"headers": b"\x02\x01"},
    "header key length beyond": {"headers": b"\x02\x64h\x02x"},
    "header key of bad UTF-8": {"headers": b"\x02\x04\xff\xfe\x02x"},
    "header value length -1": {"headers": b"\x02\x02h\x01"},
    "header value length -2": {"headers": b"\x02\x02h\x03"},
    "header value length beyond": {"headers": b"\x02\x02h\x64x"},
}


def _of_codecs(codec: Codec) -> Iterator[Lie]:
    """Bytes that this codec's compressor did not write, or not only."""
    body = encode_records(_records(), 0, NOW_MS)
    whole = compress(codec, body)
    if codec == Codec.NONE:
        for number in (5, 6, 7):
            yield Lie(f"unknown codec {number}", codec, bytes(assemble_batch(_header(codec, flags=number), body)))
        return
    stored: dict[str, bytes] = {
        "not compressed at all": body,
        "200 bytes that nobody compressed": random.Random(5).randbytes(200),
        "nothing": b"",
        "one byte": whole[:1],
        "cut off in the middle": whole[: len(whole) // 2],
        "last byte missing": whole[:-1],
        "last 9 bytes missing": whole[:-9],
        "bytes after its end": whole + b"rest",
        "twice": whole + whole,
        "a byte changed in the middle": _flipped(whole, len(whole) // 2),
        "a byte changed at the end": _flipped(whole, len(whole) - 1),
        "compressed twice": compress(codec, whole),
    }
    for other in Codec:
        if other not in (codec, Codec.NONE):
            stored[f"in truth {other.name.lower()}"] = compress(other, body)
    for name, data in stored.items():
        yield Lie(name, codec, bytes(assemble_batch(_header(codec), data)))


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes((data[at] ^ 0x55,)) + data[at + 1 :]
