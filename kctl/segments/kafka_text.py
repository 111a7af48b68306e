"""The text of Kafka 3.9's own dump tool, for the scripts that read it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kafkad.wire.compression import CODEC_NAMES
from kafkad.wire.control import read_control
from kafkad.wire.legacy import read_messages
from kafkad.wire.records import DECOMPRESSED_LIMIT, BatchHeader, Record, RecordsError, iter_records, next_sequence
from kctl.segments.decoders import Decoded, kafka_text
from kctl.segments.files import Batch, Damage

Decoder = Callable[[Record], Decoded | None]


class LogText:
    """The lines of one segment; `contents` says whether keys and values are printed, `deep` whether records are."""

    def __init__(self, path: str, base: int, *, deep: bool, contents: bool, decoder: Decoder | None) -> None:
        self.path = path
        self.base = base
        self.deep = deep
        self.contents = contents
        self.decoder = decoder
        self._last_offset = -1
        self._gaps: list[tuple[int, int]] = []

    def head(self) -> Iterator[str]:
        yield f"Dumping {self.path}"
        yield f"Log starting offset: {self.base}"

    def batch(self, batch: Batch) -> Iterator[str]:
        yield (_batch_line if batch.header.magic == 2 else _message_line)(batch)
        if self.deep:
            yield from self._records(batch)

    def tail(self, damage: Damage | None) -> Iterator[str]:
        """Kafka's tool gives up at the first damage."""
        if damage is not None:
            yield f"Found {damage.size} invalid bytes at the end of {self.path.rpartition('/')[2]}"
        if self._gaps:
            yield f"Non-consecutive offsets in {self.path}"
            for before, after in reversed(self._gaps):
                yield f"  {before} is followed by {after}"

    def _records(self, batch: Batch) -> Iterator[str]:
        header = batch.header
        if header.magic < 2:
            for own, record in read_messages(batch.view, batch.at, DECOMPRESSED_LIMIT):
                self._follow(record.offset)
                yield f"{_record_line(header, record)} isValid: true crc: {own.crc}}}{self._contents(record)}"
            return
        for record in iter_records(batch.view, batch.at, header):
            self._follow(record.offset)
            sequence = sequence_of(header, record.offset)
            names = ",".join(name for name, _ in record.headers)
            line = f"{_record_line(header, record)} sequence: {sequence} headerKeys: [{names}]"
            yield line + (_control(record) if header.is_control else self._contents(record))

    def _follow(self, offset: int) -> None:
        if self._last_offset not in (-1, offset - 1):
            self._gaps.append((self._last_offset, offset))
        self._last_offset = offset

    def _contents(self, record: Record) -> str:
        if not self.contents:
            return ""
        decoded = self.decoder(record) if self.decoder else None
        if decoded is not None:
            return " key: {} payload: {}".format(*kafka_text(decoded))
        key = "" if record.key is None else f" key: {record.key.decode('utf-8', 'replace')}"
        return key if record.value is None else f"{key} payload: {record.value.decode('utf-8', 'replace')}"


def sequence_of(header: BatchHeader, offset: int) -> int:
    """That of the record with this offset, -1 when nobody counts. The cleaner leaves gaps in both alike."""
    return -1 if header.base_sequence < 0 else next_sequence(header.base_sequence, offset - header.base_offset)


def _batch_line(batch: Batch) -> str:
    header = batch.header
    horizon = header.delete_horizon_ms
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
        f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} "
        f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
        f"partitionLeaderEpoch: {header.leader_epoch} isTransactional: {_bool(header.is_transactional)} "
        f"isControl: {_bool(header.is_control)} deleteHorizonMs: {_optional(horizon)} {_common(batch)}"
    )


def _message_line(batch: Batch) -> str:
    return f"offset: {batch.header.base_offset} {_common(batch)}"


def _common(batch: Batch) -> str:
    header = batch.header
    return (
        f"position: {batch.position} {_time(header, header.max_timestamp)} size: {header.size} magic: {header.magic} "
        f"compresscodec: {_codec(header)} crc: {header.crc} isvalid: {_bool(batch.crc_ok)}"
    )


def _record_line(header: BatchHeader, record: Record) -> str:
    return (
        f"| offset: {record.offset} {_time(header, record.timestamp)} "
        f"keySize: {_size(record.key)} valueSize: {_size(record.value)}"
    )


def _control(record: Record) -> str:
    try:
        marker = read_control(record)
    except RecordsError:
        marker = None
    if marker is None:
        return " controlType: UNKNOWN"
    return f" endTxnMarker: {'COMMIT' if marker.commit else 'ABORT'} coordinatorEpoch: {marker.coordinator_epoch}"


def _time(header: BatchHeader, timestamp: int) -> str:
    return f"{header.timestamp_type if header.magic else 'NoTimestampType'}: {timestamp}"


def _codec(header: BatchHeader) -> str:
    return CODEC_NAMES[header.codec] if header.codec < len(CODEC_NAMES) else str(header.codec)


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _optional(value: int | None) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


# --- the other files of a segment


def index_lines(path: str, kind: str, rows: list[dict[str, int]]) -> Iterator[str]:
    """Of .index, .timeindex, .txnindex and .snapshot."""
    yield f"Dumping {path}"
    if kind == "index" and not rows:
        yield f"{path} is empty."
    for row in rows:
        yield _INDEX_LINES[kind](row)


def _snapshot_line(row: dict[str, int]) -> str:
    text = (
        f"producerId: {row['producer_id']} producerEpoch: {row['producer_epoch']} "
        f"coordinatorEpoch: {row['coordinator_epoch']} "
        f"currentTxnFirstOffset: {_optional(row['transaction_first_offset'])} lastTimestamp: {row['timestamp_ms']} "
    )
    if row["last_sequence"] < 0:
        return text
    first = (row["last_sequence"] - row["offset_delta"]) & 0x7FFFFFFF
    return text + (
        f"firstSequence: {first} lastSequence: {row['last_sequence']} lastOffset: {row['last_offset']} "
        f"offsetDelta: {row['offset_delta']} timestamp: {row['timestamp_ms']}"
    )


_INDEX_LINES: dict[str, Callable[[dict[str, int]], str]] = {
    "index": lambda row: f"offset: {row['offset']} position: {row['position']}",
    "timeindex": lambda row: f"timestamp: {row['timestamp_ms']} offset: {row['offset']}",
    "txnindex": lambda row: (
        f"version: 0 producerId: {row['producer_id']} firstOffset: {row['first_offset']} "
        f"lastOffset: {row['last_offset']} lastStableOffset: {row['last_stable_offset']}"
    ),
    "snapshot": _snapshot_line,
}
