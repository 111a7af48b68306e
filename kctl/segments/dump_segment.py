"""`kctl dump-segment`: what is in the files of a log, without a broker."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import click

from kafkad.wire.compression import CODEC_NAMES
from kafkad.wire.control import read_control
from kafkad.wire.records import BatchHeader, Record, RecordsError, iter_records
from kctl.command import KctlCommand, pass_settings
from kctl.errors import Exit
from kctl.output import Document, Writer, note, print_lines
from kctl.segments import values
from kctl.segments.columns import ALL_COLUMNS, BATCH_COLUMNS, DECODED_COLUMNS, RECORD_COLUMNS
from kctl.segments.files import FILES, Batch, Damage, Segment, is_log, position_of, read_batches, segments_of
from kctl.segments.kafka_text import Decoder, LogText, index_lines, sequence_of
from kctl.segments.ranges import EVERYTHING, OffsetRange, Range, TimeRange
from kctl.settings import Settings


class Selection(NamedTuple):
    """Which records, and how they are shown."""

    offsets: Range
    times: Range
    key: str | None
    producer: int | None
    max_bytes: int | None
    key_format: str
    value_format: str
    decoder: Decoder | None
    machine: bool

    def wants(self, header: BatchHeader) -> bool:
        """Whether the batch may hold such records. A message that wraps others tells only its last offset."""
        wrapper = header.magic < 2 and header.codec
        if header.last_offset < self.offsets.start or (header.base_offset >= self.offsets.end and not wrapper):
            return False
        if self.producer is not None and header.producer_id != self.producer:
            return False
        return header.max_timestamp >= self.times.start or self.times is EVERYTHING


class Dump:
    """Reads segments one after the other and remembers what was wrong."""

    def __init__(self, settings: Settings, selection: Selection) -> None:
        self.settings = settings
        self.selection = selection
        self.damages = 0

    def batches(self, segments: Sequence[Segment]) -> Iterator[tuple[Segment, Batch]]:
        """Of those segments that the selection may touch."""
        wanted = self.selection
        for segment, following in zip(segments, [*segments[1:], None], strict=True):
            same = following is not None and os.path.dirname(following.path) == os.path.dirname(segment.path)
            if segment.base >= wanted.offsets.end or (same and following and following.base <= wanted.offsets.start):
                continue
            yield from ((segment, batch) for batch in self._segment(segment))

    def _segment(self, segment: Segment) -> Iterator[Batch]:
        wanted = self.selection
        file = FILES.open_log_file(segment.path, os.O_RDONLY)
        time_ms = None if wanted.times is EVERYTHING else wanted.times.start
        position = position_of(segment, file, wanted.offsets.start, time_ms)
        end = None if wanted.max_bytes is None else min(position + wanted.max_bytes, file.size)
        for step in read_batches(file, position, end):
            if isinstance(step, Damage):
                if end is None or step.end < end:  # where the caller cuts, a batch is cut too
                    self.damaged(segment, f"{_span(step)}: {step.reason}")
                continue
            if not step.crc_ok:
                self.damaged(segment, f"{_place(step)} fails its checksum")
            if step.header.base_offset >= wanted.offsets.end and step.header.magic == 2:
                return
            if wanted.wants(step.header):
                yield step

    def damaged(self, segment: Segment, text: str) -> None:
        self.damages += 1
        note(self.settings, f"damaged: {segment.path}: {text}")

    def records(self, segments: Sequence[Segment]) -> Iterator[dict[str, Any]]:
        for segment, batch in self.batches(segments):
            of_batch = _of_batch(segment, batch)
            try:
                for record in iter_records(batch.view, batch.at, batch.header):
                    if self._selected(record):
                        yield self._row(of_batch, batch.header, record)
            except RecordsError as error:
                if batch.crc_ok:
                    self.damaged(
                        segment, f"the batch with offset {batch.header.base_offset} at {batch.position}: {error}"
                    )

    def _selected(self, record: Record) -> bool:
        wanted = self.selection
        if record.offset not in wanted.offsets or record.timestamp not in wanted.times:
            return False
        return wanted.key is None or fnmatchcase((record.key or b"").decode("utf-8", "replace"), wanted.key)

    def _row(self, of_batch: dict[str, Any], header: BatchHeader, record: Record) -> dict[str, Any]:
        return {
            **of_batch,
            "offset": record.offset,
            "timestamp_ms": None if record.timestamp < 0 else record.timestamp,
            "sequence": sequence_of(header, record.offset),
            **self._contents(header, record),
        }

    def _contents(self, header: BatchHeader, record: Record) -> dict[str, Any]:
        wanted = self.selection
        if header.is_control:
            return {"type": "marker", "key": None, "value": _marker(record), "what": _marker(record), "headers": []}
        decoded = wanted.decoder(record) if wanted.decoder else None
        if decoded is not None:
            from kctl.segments.decoders import as_dict

            value = None if decoded.value is None else as_dict(decoded.value, decoded.value_version)
            key = as_dict(decoded.key, decoded.key_version)
            names = {"type": decoded.type, "subject": decoded.subject, "what": decoded.what}
            return {**names, "key": key, "value": value, "headers": self._headers(record)}
        contents = {
            "key": values.render(record.key, wanted.key_format, machine=wanted.machine),
            "value": values.render(record.value, wanted.value_format, machine=wanted.machine),
            "headers": self._headers(record),
        }
        if wanted.decoder:
            unknown = values.render(record.value, "hex", machine=False)
            return {**contents, "type": "unknown", "what": f"of a version that is not known: {unknown}"}
        if record.headers:
            contents["header_text"] = ", ".join(_header_text(*header) for header in record.headers)
        return contents

    def _headers(self, record: Record) -> list[dict[str, Any]]:
        return [
            {"key": name, "value": values.render(value, "auto", machine=self.selection.machine)}
            for name, value in record.headers
        ]

    def batch_rows(self, segments: Sequence[Segment]) -> Iterator[dict[str, Any]]:
        for segment, batch in self.batches(segments):
            yield _batch_row(segment, batch)


def _span(damage: Damage) -> str:
    return f"{damage.size} bytes from {damage.position:,} to {damage.end:,} are no batch"


def _place(batch: Batch) -> str:
    return f"the batch with offset {batch.header.base_offset} at byte {batch.position}"


def _codec(header: BatchHeader) -> str:
    return CODEC_NAMES[header.codec] if header.codec < len(CODEC_NAMES) else str(header.codec)


def _marker(record: Record) -> str:
    try:
        marker = read_control(record)
    except RecordsError:
        marker = None
    return "control" if marker is None else "commit" if marker.commit else "abort"


def _header_text(name: str, value: bytes | None) -> str:
    return f"{name}={'-' if value is None else values.render(value, 'auto', machine=False)}"


def _of_batch(segment: Segment, batch: Batch) -> dict[str, Any]:
    """What its records have in common."""
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
        "codec": _codec(header),
        "crc_ok": batch.crc_ok,
    }


def _batch_row(segment: Segment, batch: Batch) -> dict[str, Any]:
    header = batch.header
    flags = {
        "transactional": header.is_transactional,
        "control": header.is_control,
        "append-time": header.timestamp_type == "LogAppendTime",
        "delete-horizon": header.delete_horizon_ms is not None,
    }
    return {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "offsets": f"{header.base_offset}-{header.last_offset}"
        if header.last_offset_delta
        else str(header.base_offset),
        "count": header.record_count,
        "file": segment.path,
        "position": batch.position,
        "size_bytes": header.size,
        "codec": _codec(header),
        "crc": header.crc,
        "crc_ok": batch.crc_ok,
        "crc_state": "ok" if batch.crc_ok else "error",
        "leader_epoch": header.leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "flags": [name for name, is_set in flags.items() if is_set],
        "max_timestamp_ms": None if header.max_timestamp < 0 else header.max_timestamp,
        "magic": header.magic,
    }


def choose_decoder(how: str, segments: Sequence[Segment]) -> Decoder | None:
    """auto: by the topic that the directory's name tells."""
    topic = segments[0].topic if segments else ""
    if how == "offsets" or (how == "auto" and topic == "__consumer_offsets"):
        from kctl.segments.decoders import decode_offsets

        return decode_offsets
    if how == "txn" or (how == "auto" and topic == "__transaction_state"):
        from kctl.segments.decoders import decode_transactions

        return decode_transactions
    return None


@click.command("dump-segment", cls=KctlCommand, columns=ALL_COLUMNS)
@click.argument("paths", metavar="FILE|DIRECTORY...", nargs=-1, required=True)
@click.option("--offsets", type=OffsetRange(), default=EVERYTHING, show_default=False, help="From A up to before B.")
@click.option(
    "--time",
    "times",
    type=TimeRange(),
    default=EVERYTHING,
    show_default=False,
    help="The same by time: -30m (ago), ISO date and time, or milliseconds.",
)
@click.option("--key", metavar="GLOB", help="Only records whose key matches.")
@click.option("--producer", type=int, metavar="ID", help="Only records of this producer.")
@click.option("--batches", is_flag=True, help="Batches instead of the records in them.")
@click.option("--values", "value_format", type=click.Choice(values.FORMATS), default="auto", help="How to show values.")
@click.option("--key-format", type=click.Choice(values.FORMATS), default="auto", help="How to show keys.")
@click.option(
    "--decode",
    type=click.Choice(("auto", "offsets", "txn", "raw")),
    default="auto",
    help="What the records are; auto: by the directory's name.",
)
@click.option("--max-bytes", type=click.IntRange(min=1), metavar="N", help="Of each segment at most so many bytes.")
@click.option("--max-records", type=click.IntRange(min=0), metavar="N", help="At most so many rows; as --limit.")
@click.option("--kafka-format", is_flag=True, help="The lines of Kafka's own dump tool, for scripts that read them.")
@pass_settings
def dump_segment(settings: Settings, /, paths: tuple[str, ...], **options: Any) -> int:
    """Print what is in the files of a log.

    A FILE is a segment (.log) or one of the files beside it (.index, .timeindex, .txnindex, .snapshot, a checkpoint,
    partition.metadata, meta.properties); a DIRECTORY is that of a partition, or of a whole broker. Nothing is written.
    A broker may be using the files. What is damaged is named and passed over, and the exit code is 7.

    Example: kctl dump-segment /var/lib/kafka/orders-0 --offsets 100:200
    """
    if options["max_records"] is not None:
        settings.limit = options["max_records"]
    damages = 0
    for path in paths:
        if os.path.isdir(path) or is_log(path):
            damages += _dump_logs(settings, segments_of(path), options)
        else:
            damages += _dump_other(settings, path, options["kafka_format"])
    return Exit.FINDINGS if damages else Exit.DONE


def _dump_logs(settings: Settings, segments: list[Segment], options: dict[str, Any]) -> int:
    decoder = choose_decoder(options["decode"], segments)
    selection = Selection(
        offsets=options["offsets"],
        times=options["times"],
        key=options["key"],
        producer=options["producer"],
        max_bytes=options["max_bytes"],
        key_format=options["key_format"],
        value_format=options["value_format"],
        decoder=decoder,
        machine=settings.output in ("json", "yaml"),
    )
    dump = Dump(settings, selection)
    if options["kafka_format"]:
        for segment in segments:
            print_lines(_kafka_lines(dump, segment, deep=not options["batches"]))
    elif options["batches"]:
        Writer(settings, BATCH_COLUMNS, Document("dump-segment", stream=True)).write(dump.batch_rows(segments))
    else:
        columns = DECODED_COLUMNS if decoder else RECORD_COLUMNS
        Writer(settings, columns, Document("dump-segment", stream=True)).write(dump.records(segments))
    return dump.damages


def _kafka_lines(dump: Dump, segment: Segment, *, deep: bool) -> Iterator[str]:
    wanted = dump.selection
    contents = wanted.value_format != "none"
    text = LogText(segment.path, segment.base, deep=deep, contents=contents, decoder=wanted.decoder)
    yield from text.head()
    damage = None
    file = FILES.open_log_file(segment.path, os.O_RDONLY)
    for step in read_batches(file, 0, wanted.max_bytes):
        if isinstance(step, Damage):
            damage = Damage(step.position, file.size, step.reason)
            break
        try:
            yield from text.batch(step)
        except RecordsError as error:
            dump.damaged(segment, f"{_place(step)}: {error}")
    if damage is not None:
        dump.damages += 1
    yield from text.tail(damage)


def _dump_other(settings: Settings, path: str, kafka_format: bool) -> int:
    from kctl.segments.index_files import read_rows

    try:
        kind, rows = read_rows(path)
    except ValueError as error:
        note(settings, f"damaged: {path}: {error}")
        return 1
    if kafka_format and kind.name in ("index", "timeindex", "txnindex", "snapshot"):
        print_lines(index_lines(path, kind.name, rows))
    else:
        Writer(settings, kind.columns, Document("dump-segment")).write(rows)
    return 0
