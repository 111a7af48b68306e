"""Log files told in the words of Kafka's own dump tool, so that its output can be compared with what we read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kafkad.wire.compression import CODEC_NAMES
from kafkad.wire.control import read_control
from kafkad.wire.records import BatchHeader, Record, crc_matches, iter_batches, iter_records

LOGS = Path(__file__).parents[1] / "golden" / "logs"
DIRECTORIES = ("main", "before-compaction", "follower", "old-formats")
LOG_FILES = sorted(path for name in DIRECTORIES for path in (LOGS / name).glob("*/*.log"))


def log_id(path: Path) -> str:
    return str(path.relative_to(LOGS))


def expected_dump(path: Path) -> str:
    """The tool's text less what it adds of its own: decoded payloads, inner checksums, a remark on gaps."""
    text = (LOGS / "expected" / path.relative_to(LOGS)).with_suffix(".log.txt").read_bytes().decode()
    text = text.partition("Non-consecutive offsets in")[0]
    if not _has_payloads(path):
        text = re.sub(r" (key|payload):.*", "", text)
    return re.sub(r"( isValid: true) crc: \d+\}", r"\1", text)


def dump(path: Path) -> str:
    """The same of what we read. Inner checksums of v0 and v1 are left out: reading checks and drops them."""
    view = memoryview(path.read_bytes())
    lines = [f"Dumping {path.name}", f"Log starting offset: {int(path.stem)}"]
    for at, header in iter_batches(view):
        records = list(iter_records(view, at, header))
        lines.append((_batch_line if header.magic == 2 else _message_line)(view, at, header))
        lines.extend(_record_lines(header, records, _has_payloads(path)))
    return "\n".join(lines) + "\n"


def _has_payloads(path: Path) -> bool:
    topic = path.parent.name
    return not topic.startswith("__") and topic != "large-0"


def _time(header: BatchHeader, timestamp: int) -> str:
    return f"{header.timestamp_type if header.magic else 'NoTimestampType'}: {timestamp}"


def _common(view: memoryview, at: int, header: BatchHeader) -> str:
    valid = str(crc_matches(view, at, header)).lower()
    return (
        f"position: {at} {_time(header, header.max_timestamp)} size: {header.size} magic: {header.magic} "
        f"compresscodec: {CODEC_NAMES[header.codec]} crc: {header.crc} isvalid: {valid}"
    )


def _batch_line(view: memoryview, at: int, header: BatchHeader) -> str:
    horizon = header.delete_horizon_ms
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
        f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} "
        f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
        f"partitionLeaderEpoch: {header.leader_epoch} isTransactional: {str(header.is_transactional).lower()} "
        f"isControl: {str(header.is_control).lower()} "
        f"deleteHorizonMs: {'OptionalLong.empty' if horizon is None else f'OptionalLong[{horizon}]'} "
    ) + _common(view, at, header)


def _message_line(view: memoryview, at: int, header: BatchHeader) -> str:
    return f"offset: {header.base_offset} " + _common(view, at, header)


def _record_lines(header: BatchHeader, records: list[Record], with_payload: bool) -> Iterator[str]:
    for record in records:
        line = (
            f"| offset: {record.offset} {_time(header, record.timestamp)} "
            f"keySize: {_size(record.key)} valueSize: {_size(record.value)}"
        )
        if header.magic == 2:
            sequence = -1 if header.base_sequence < 0 else header.base_sequence + record.offset - header.base_offset
            line += f" sequence: {sequence} headerKeys: [{','.join(key for key, _ in record.headers)}]"
        else:
            line += " isValid: true"
        if header.is_control:
            line += _marker(record)
        elif with_payload:
            line += _text("key", record.key) + _text("payload", record.value)
        yield line


def _marker(record: Record) -> str:
    marker = read_control(record)
    assert marker is not None
    return f" endTxnMarker: {'COMMIT' if marker.commit else 'ABORT'} coordinatorEpoch: {marker.coordinator_epoch}"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _text(name: str, data: bytes | None) -> str:
    return "" if data is None else f" {name}: {data.decode('utf-8', 'replace')}"
