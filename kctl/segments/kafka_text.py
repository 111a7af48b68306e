"""The text of Kafka 3.9's own dump tool of a segment, for the scripts that read it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from kafkad.log.batches import sound_headers
from kafkad.log.files import LogFile
from kafkad.wire.compression import CODEC_NAMES
from kafkad.wire.records import (
    CODEC_MASK,
    CONTROL,
    DECOMPRESSED_LIMIT,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    MAX_SEQUENCE,
    PREFIX_SIZE,
    TRANSACTIONAL,
    BatchHeader,
    Header,
    Record,
    RecordsError,
    iter_records,
    next_sequence,
)
from kctl.segments.files import FILES, Batch, snapshot_of

if TYPE_CHECKING:
    from kctl.segments.decoders import Decoded

Decoder = Callable[[Record], "Decoded | None"]
Accept = Callable[[Record], bool]


class LogText:
    """The text of one segment.

    `metadata` says whether of records what surrounds them is printed, `contents` whether keys and values are.
    """

    def __init__(self, path: str, *, contents: bool, metadata: bool = True, decoder: Decoder | None = None) -> None:
        self.path = path
        self.contents = contents
        self.metadata = metadata
        self.decoder = decoder
        self._last_offset = -1
        self._gaps: list[tuple[int, int]] = []

    def head(self, base: int) -> str:
        if taken := snapshot_of(self.path):
            return f"Dumping {self.path}\nSnapshot end offset: {taken[0]}, epoch: {taken[1]}\n"
        return f"Dumping {self.path}\nLog starting offset: {base}\n"

    def batch(self, batch: Batch) -> str:
        """The batch without its records."""
        if batch.header.magic < 2:
            return _message_line(batch.position, batch.header, batch.crc_ok)
        return _batch_lines([batch.header], batch.position, b"true" if batch.crc_ok else b"false")

    def records(self, batch: Batch, accept: Accept | None = None) -> Iterator[str]:
        """The batch and, of its records, those that `accept` takes; a RecordsError comes after those before it."""
        yield self.batch(batch)
        lines: list[str] = []
        try:
            self._records(lines, batch, accept)
        finally:
            if lines:
                yield "".join(lines)

    def gaps(self) -> list[str]:
        """The lines with which Kafka's tool ends if offsets do not follow one another."""
        if not self._gaps:
            return []
        pairs = [f"  {before} is followed by {after}" for before, after in reversed(self._gaps)]
        return [f"Non-consecutive offsets in {os.path.abspath(self.path)}", *pairs]

    def _records(self, lines: list[str], batch: Batch, accept: Accept | None) -> None:
        header = batch.header
        if header.magic < 2:
            self._messages(lines, batch, accept)
            return
        records = iter_records(batch.view, batch.at, header)
        chosen = records if accept is None else filter(accept, records)
        if not self.metadata:
            for record in chosen:
                self._follow(record.offset)
                lines.append("\n" if header.is_control else self._bare(record))
        elif header.is_control:
            lines += (f"{self._metadata(header, record)}{_control(record)}\n" for record in chosen)
        else:
            self._data(lines, header, chosen)

    def _data(self, lines: list[str], header: BatchHeader, records: Iterable[Record]) -> None:
        """HOT. The lines of most records."""
        kind, contents, add = header.timestamp_type, self.contents, lines.append
        first, base = header.base_sequence, header.base_offset
        last = self._last_offset
        sequence = -1
        tail = "\n"
        for record in records:
            offset, timestamp, key, value, headers = record
            if offset != last + 1 and last != -1:
                self._gaps.append((last, offset))
            self._last_offset = last = offset
            if first >= 0:
                sequence = (first + offset - base) & MAX_SEQUENCE
            if contents:
                tail = f"{self._contents(record)}\n"
            add(
                f"| offset: {offset} {kind}: {timestamp} keySize: {-1 if key is None else len(key)} "
                f"valueSize: {-1 if value is None else len(value)} sequence: {sequence} "
                f"headerKeys: [{_header_names(headers) if headers else ''}]{tail}"
            )

    def _metadata(self, header: BatchHeader, record: Record) -> str:
        self._follow(record.offset)
        names = _header_names(record.headers)
        return f"{_record_line(header, record)} sequence: {sequence_of(header, record.offset)} headerKeys: [{names}]"

    def _messages(self, lines: list[str], batch: Batch, accept: Accept | None) -> None:
        """Lines for messages of formats v0 and v1, each with a checksum of its own."""
        from kafkad.wire.legacy import read_messages

        for own, record in read_messages(batch.view, batch.at, DECOMPRESSED_LIMIT):
            if accept is not None and not accept(record):
                continue
            self._follow(record.offset)
            if self.metadata:
                line = _record_line(batch.header, record)
                lines.append(f"{line} isValid: true crc: {own.crc}}}{self._contents(record)}\n")
            else:
                lines.append(self._bare(record))

    def _bare(self, record: Record) -> str:
        """Without what surrounds it: only a key is put behind a bar."""
        contents = self._contents(record)
        return f"|{contents}\n" if contents.startswith(" key:") else f"{contents}\n"

    def _follow(self, offset: int) -> None:
        if self._last_offset not in (-1, offset - 1):
            self._gaps.append((self._last_offset, offset))
        self._last_offset = offset

    def _contents(self, record: Record) -> str:
        if not self.contents:
            return ""
        decoded = self.decoder(record) if self.decoder else None
        if decoded is not None:
            from kctl.segments.decoders import kafka_text

            key, payload = kafka_text(decoded)
            return f" key: {key} payload: {payload}" if decoded.key else f" payload: {payload}"
        key = "" if record.key is None else f" key: {record.key.decode('utf-8', 'replace')}"
        return key if record.value is None else f"{key} payload: {record.value.decode('utf-8', 'replace')}"


def sequence_of(header: BatchHeader, offset: int) -> int:
    """That of the record with this offset, -1 when nobody counts. The cleaner leaves gaps in both alike."""
    return -1 if header.base_sequence < 0 else next_sequence(header.base_sequence, offset - header.base_offset)


def sound_batches(file: LogFile, position: int, end: int) -> Iterator[tuple[str, int]]:
    """The text of many batches, and where the last of them ends; up to `end`, or to what `sound_headers` leaves."""
    for headers, following in sound_headers(FILES, file.fd, position, end):
        yield _batch_lines(headers, position), following
        position = following


def _batch_lines(headers: Iterable[Header], position: int, valid: bytes = b"true") -> str:
    """HOT. Of batches that lie one behind the other from `position` on; bytes take in numbers quicker than text."""
    lines: list[bytes] = []
    before: tuple[int, ...] = ()
    line = b""
    for (
        base,
        length,
        epoch,
        _,
        crc,
        attributes,
        delta,
        first_time,
        max_time,
        producer,
        its_epoch,
        first,
        count,
    ) in headers:
        alike = length, epoch, attributes, producer, its_epoch, count, first_time if attributes & DELETE_HORIZON else 0
        if alike != before:
            before, line = alike, _line(*alike)
        last = -1 if first < 0 else (first + delta) & MAX_SEQUENCE
        lines.append(line % (base, base + delta, first, last, position, max_time, crc, valid))
        position += length + PREFIX_SIZE
    return b"".join(lines).decode()


@lru_cache(maxsize=1024)
def _line(length: int, epoch: int, attributes: int, producer: int, its_epoch: int, count: int, horizon: int) -> bytes:
    """The part of a batch's line that many batches of a segment share, with room for the rest."""
    return (
        f"baseOffset: %d lastOffset: %d count: {count} baseSequence: %d lastSequence: %d "
        f"producerId: {producer} producerEpoch: {its_epoch} partitionLeaderEpoch: {epoch} "
        f"isTransactional: {_bool(bool(attributes & TRANSACTIONAL))} isControl: {_bool(bool(attributes & CONTROL))} "
        f"deleteHorizonMs: {optional(horizon if attributes & DELETE_HORIZON else None)} position: %d "
        f"{'LogAppendTime' if attributes & LOG_APPEND_TIME else 'CreateTime'}: %d size: {length + PREFIX_SIZE} "
        f"magic: 2 compresscodec: {codec_name(attributes)} crc: %d isvalid: %b\n"
    ).encode()


def _message_line(position: int, header: BatchHeader, crc_ok: bool) -> str:
    return (
        f"offset: {header.base_offset} position: {position} {_time(header, header.max_timestamp)} "
        f"size: {header.size} magic: {header.magic} compresscodec: {codec_name(header.attributes)} crc: {header.crc} "
        f"isvalid: {_bool(crc_ok)}\n"
    )


def _record_line(header: BatchHeader, record: Record) -> str:
    return (
        f"| offset: {record.offset} {_time(header, record.timestamp)} "
        f"keySize: {_size(record.key)} valueSize: {_size(record.value)}"
    )


def _header_names(headers: Iterable[tuple[str, bytes | None]]) -> str:
    return ",".join(name.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for name, _ in headers)


def _control(record: Record) -> str:
    from kafkad.wire.control import read_control

    try:
        marker = read_control(record)
    except RecordsError:
        marker = None
    if marker is None:
        from kctl.segments.metadata import control_text

        return f" {control_text(record, camel=True) or 'controlType: UNKNOWN'}"
    return f" endTxnMarker: {'COMMIT' if marker.commit else 'ABORT'} coordinatorEpoch: {marker.coordinator_epoch}"


def _time(header: BatchHeader, timestamp: int) -> str:
    return f"{header.timestamp_type if header.magic else 'NoTimestampType'}: {timestamp}"


def codec_name(attributes: int) -> str:
    codec = attributes & CODEC_MASK
    return CODEC_NAMES[codec] if codec < len(CODEC_NAMES) else str(codec)


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _bool(value: bool) -> str:
    return "true" if value else "false"


def optional(value: int | None) -> str:
    """A Java OptionalLong."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"
