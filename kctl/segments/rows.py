"""Batches and records of a segment as rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from kafkad.wire.records import DELETE_HORIZON, LOG_APPEND_TIME, BatchHeader, Record, RecordsError
from kctl.segments.files import Batch, Segment
from kctl.segments.kafka_text import Decoder, codec_name, sequence_of
from kctl.segments.selection import Reading
from kctl.segments.values import Render

_LARGEST_PLAIN = 7
"""Attributes up to it name a codec and nothing else."""

Contents = Callable[[BatchHeader, Record], dict[str, Any]]


class Shown(NamedTuple):
    """The display of keys and values, and the names of the columns that will be looked at."""

    key: Render
    value: Render
    header: Render
    decoder: Decoder | None
    names: frozenset[str]


def record_rows(reading: Reading, segments: Sequence[Segment], show: Shown) -> Iterator[dict[str, Any]]:
    """HOT. One for each record."""
    contents = _decoded_contents(show) if show.decoder else _plain_contents(show)
    wants_sequence = "sequence" in show.names
    for segment, batch in reading.batches(segments):
        header = batch.header
        of_batch = {name: value for name, value in _of_batch(segment, batch).items() if name in show.names}
        row_of = _marker_contents if header.is_control else contents
        for record in reading.select(segment, batch):
            row = row_of(header, record)
            row["offset"] = record[0]
            row["timestamp_ms"] = None if record[1] < 0 else record[1]
            if wants_sequence:
                row["sequence"] = sequence_of(header, record[0])
            row.update(of_batch)
            yield row


def _plain_contents(show: Shown) -> Contents:
    key_of, value_of = show.key, show.value

    def contents(header: BatchHeader, record: Record) -> dict[str, Any]:
        _, _, key, value, headers = record
        row: dict[str, Any] = {"key": key_of(key), "value": value_of(value), "headers": []}
        if headers:
            row["headers"] = _headers(record, show)
            row["header_text"] = ", ".join(f"{name}={_header_text(data, show)}" for name, data in headers)
        return row

    return contents


def _decoded_contents(show: Shown) -> Contents:
    from kctl.segments.decoders import as_dict

    decoder = show.decoder
    assert decoder is not None  # by this it was chosen
    plain = _plain_contents(show)

    def contents(header: BatchHeader, record: Record) -> dict[str, Any]:
        decoded = decoder(record)
        if decoded is None:
            unknown = "deleted" if record.value is None else record.value.hex()
            return {**plain(header, record), "type": "unknown", "what": f"of a version that is not known: {unknown}"}
        return {
            "type": decoded.type,
            "subject": decoded.subject,
            "what": decoded.what,
            "key": None if decoded.key is None else as_dict(decoded.key, decoded.key_version),
            "value": None if decoded.value is None else as_dict(decoded.value, decoded.value_version),
            "headers": _headers(record, show),
        }

    return contents


def _marker_contents(_: BatchHeader, record: Record) -> dict[str, Any]:
    from kafkad.wire.control import read_control

    try:
        marker = read_control(record)
    except RecordsError:
        marker = None
    if marker is None:
        from kctl.segments.metadata import control_text

        text = control_text(record, camel=False) or "control"
    else:
        text = "commit" if marker.commit else "abort"
    return {"type": "marker", "key": None, "value": text, "what": text, "headers": []}


def _headers(record: Record, show: Shown) -> list[dict[str, Any]]:
    return [{"key": _header_name(name), "value": show.header(value)} for name, value in record.headers]


def _header_text(value: bytes | None, show: Shown) -> str:
    return "-" if value is None else str(show.header(value))


def _header_name(name: str) -> str:
    return name if name.isprintable() else name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _of_batch(segment: Segment, batch: Batch) -> dict[str, Any]:
    """The columns that all records of a batch share."""
    header = batch.header
    return {
        "file": segment.path,
        "position": batch.position,
        "batch_base_offset": header.base_offset,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "leader_epoch": header.leader_epoch,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "codec": codec_name(header.attributes),
        "crc_ok": batch.crc_ok,
    }


def batch_rows(reading: Reading, segments: Sequence[Segment]) -> Iterator[dict[str, Any]]:
    """HOT. One for each batch."""
    for segment, (position, header, crc_ok, _, _) in reading.batches(segments):
        base, length, epoch, magic, crc, attributes, delta, _, latest, producer, its_epoch, first, count = header
        reading.records += max(count, 0)
        yield {
            "base_offset": base,
            "last_offset": base + delta,
            "offsets": f"{base}-{base + delta}" if delta else str(base),
            "count": count,
            "file": segment.path,
            "position": position,
            "size_bytes": length + 12,
            "codec": codec_name(attributes),
            "crc": crc,
            "crc_ok": crc_ok,
            "crc_state": "ok" if crc_ok else "error",
            "leader_epoch": epoch,
            "producer_id": producer,
            "producer_epoch": its_epoch,
            "base_sequence": first,
            "flags": [] if attributes <= _LARGEST_PLAIN else _flags(header),
            "max_timestamp_ms": None if latest < 0 else latest,
            "magic": magic,
        }


def _flags(header: BatchHeader) -> list[str]:
    flags = {
        "transactional": header.is_transactional,
        "control": header.is_control,
        "append-time": bool(header.attributes & LOG_APPEND_TIME),
        "delete-horizon": bool(header.attributes & DELETE_HORIZON),
    }
    return [name for name, is_set in flags.items() if is_set]
