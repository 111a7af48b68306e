"""`kctl dump-segment`: what is in the files of a log, without a broker."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from kafkad.wire.records import Record, RecordsError
from kctl.command.paths import files
from kctl.command.verb import KctlCommand, pass_settings
from kctl.errors import Exit, KctlError
from kctl.segments import values
from kctl.segments.columns import ALL_COLUMNS, BATCH_COLUMNS, DECODED_COLUMNS, RECORD_COLUMNS
from kctl.segments.files import Segment, brokers_in, is_log, segments_of
from kctl.segments.kafka_text import Decoder, LogText, sound_batches
from kctl.segments.ranges import EVERYTHING, OffsetRange, TimeRange
from kctl.segments.rows import Shown, batch_rows, record_rows
from kctl.segments.selection import Accept, Reading, Selection
from kctl.settings import Settings
from kctl.texts.output import Document, Writer, counted, note
from kctl.texts.text_files import text_of

if TYPE_CHECKING:
    from kctl.segments.avro import AvroValues

_KAFKA_ONLY = "With --kafka-format: "


_OF_KAFKAS_TOOL = {
    "--print": "records are printed anyway; --batches prints batches",
    "--print-data-log": "records are printed anyway; --kafka-format prints the lines of Kafka's own dump tool",
    "--deep-iteration": "records are printed anyway; --kafka-format prints the lines of Kafka's own dump tool",
    "--files": "name the files without an option: kctl dump-segment FILE…",
    "--offsets-decoder": "__consumer_offsets is decoded by its name; --decode offsets for other names",
    "--transaction-log-decoder": "__transaction_state is decoded by its name; --decode txn for other names",
    "--cluster-metadata-decoder": "__cluster_metadata is decoded by its name; --decode metadata for other names",
    "--key-decoder-class": "--key-format text, json, hex or base64; --avro SCHEMA for Avro values",
    "--value-decoder-class": "--values text, json, hex or base64; --avro SCHEMA for Avro values",
}


@click.command("dump-segment", cls=KctlCommand, columns=ALL_COLUMNS, foreign=_OF_KAFKAS_TOOL)
@click.argument("paths", shell_complete=files, metavar="FILE|DIRECTORY...", nargs=-1, required=True)
@click.option(
    "--offsets",
    type=OffsetRange(),
    default=EVERYTHING,
    show_default=False,
    help="Offsets from A up to, but excluding, B.",
)
@click.option(
    "--time",
    "times",
    type=TimeRange(),
    default=EVERYTHING,
    show_default=False,
    help="The same by time: -30m (ago), ISO 8601, or milliseconds since 1970.",
)
@click.option(
    "--key",
    metavar="GLOB",
    help="Only records whose key matches; for decoded records, whose group or transactional id does.",
)
@click.option("--producer", type=int, metavar="ID", help="Only records of this producer.")
@click.option("--batches", is_flag=True, help="Print batches instead of the records in them.")
@click.option("--values", "value_format", type=click.Choice(values.FORMATS), default="auto", help="Format of values.")
@click.option("--key-format", type=click.Choice(values.FORMATS), default="auto", help="Format of keys.")
@click.option(
    "--avro", shell_complete=files, metavar="SCHEMA", help="Decode values as Avro with the schema in this file."
)
@click.option(
    "--decode",
    type=click.Choice(("auto", "offsets", "txn", "metadata", "raw")),
    default="auto",
    help="Type of the records; auto: by the directory's name.",
)
@click.option("--max-bytes", type=click.IntRange(min=1), metavar="N", help="Read at most N bytes of each segment.")
@click.option("--max-records", type=click.IntRange(min=0), metavar="N", help="Print at most N rows, like --limit.")
@click.option(
    "--kafka-format", is_flag=True, help="Print lines like Kafka's own dump tool, for scripts that parse them."
)
@click.option("--skip-record-metadata", is_flag=True, help=_KAFKA_ONLY + "only keys and values of records.")
@click.option("--verify-index-only", is_flag=True, help=_KAFKA_ONLY + "only index entries that do not match the log.")
@click.option("--index-sanity-check", is_flag=True, help=_KAFKA_ONLY + "only whether a broker would accept indexes.")
@pass_settings
def dump_segment(settings: Settings, /, paths: tuple[str, ...], **options: Any) -> int:
    """Print the contents of log files.

    A FILE is a segment (.log) or one of the files beside it (.index, .timeindex, .txnindex, .snapshot, a checkpoint,
    partition.metadata, meta.properties), or a metadata snapshot of a KRaft cluster; a DIRECTORY is that of a partition,
    or the log directory of a broker. Nothing is written, and a broker may be using the files. Damaged parts are
    reported and skipped; the exit code is then 7. -o json prints each row as a line of JSON.

    Example: kctl dump-segment /var/lib/kafkad/orders-0 --offsets 1200:1300 --key 'user-4*'
    """
    if options["max_records"] is not None:
        settings.limit = options["max_records"]
    dump = _Dump(settings, options)
    for path in paths:
        if os.path.isdir(path) or is_log(path):
            dump.logs(segments_of(path))
            for other in brokers_in(path):
                note(settings, f"{other} is of another broker of the host: nothing of it was printed")
        else:
            dump.other(path)
    dump.complain()
    return Exit.FINDINGS if dump.findings else Exit.DONE


class _Dump:
    """One call of the command: counts what is wrong."""

    def __init__(self, settings: Settings, options: dict[str, Any]) -> None:
        self.settings = settings
        self.options = options
        self.findings = 0
        self._complaints: list[str] = []

    def damaged(self, segment: Segment, text: str) -> None:
        self.findings += 1
        note(self.settings, f"damaged: {segment.path}: {text}")

    def logs(self, segments: list[Segment]) -> None:
        options, settings = self.options, self.settings
        decoder = choose_decoder(options["decode"], segments)
        reading = Reading(_selection(options, decoder), self.damaged)
        if options["kafka_format"]:
            for segment in reading.chosen(segments):
                for text in self._log_text(reading, segment, decoder):
                    sys.stdout.write(text)
        elif options["batches"]:
            writer = Writer(settings, BATCH_COLUMNS, Document("dump-segment", stream=True))
            writer.write(batch_rows(reading, segments))
        else:
            columns = DECODED_COLUMNS if decoder else RECORD_COLUMNS
            writer = Writer(settings, columns, Document("dump-segment", stream=True))
            machine = settings.output in ("json", "yaml")
            avro = _read_schema(options["avro"], machine=machine)
            show = Shown(
                key=values.renderer(options["key_format"], machine=machine),
                value=avro or values.renderer(options["value_format"], machine=machine),
                header=values.renderer("auto", machine=machine),
                decoder=decoder,
                names=writer.names,
            )
            writer.write(record_rows(reading, segments, show))
            if avro and avro.strangers:
                note(settings, f"{counted(avro.strangers, 'value')} not of the schema in {options['avro']}")
        if settings.is_text and not options["kafka_format"]:
            note(settings, reading.summary())

    def _log_text(self, reading: Reading, segment: Segment, decoder: Decoder | None) -> Iterator[str]:
        options = self.options
        text = LogText(
            segment.path,
            contents=options["value_format"] != "none",
            metadata=not options["skip_record_metadata"],
            decoder=decoder,
        )
        yield text.head(segment.base)
        if options["batches"]:
            yield from self._batch_text(reading, segment, text)
        else:
            for batch in reading.segment(segment):
                try:
                    yield from text.records(batch, reading.selection.accept(batch.header))
                except RecordsError as error:
                    reading.broken(segment, batch, error)
        if reading.torn:
            yield f"Found {reading.torn} invalid bytes at the end of {os.path.basename(segment.path)}\n"
        self._complaints += text.gaps()

    @staticmethod
    def _batch_text(reading: Reading, segment: Segment, text: LogText) -> Iterator[str]:
        """Many batches at a time while all are wanted and none is damaged."""
        stretch = reading.stretch_of(segment)
        if reading.selection.is_everything:
            file, start, end = stretch
            for lines, position in sound_batches(file, start, file.size if end is None else end):
                yield lines
                stretch = stretch._replace(position=position)
        yield from map(text.batch, reading.stretch(segment, stretch))

    def other(self, path: str) -> None:
        """One of the files beside a segment, or a checkpoint."""
        from kctl.segments.index_files import read_rows

        try:
            kind, rows = read_rows(path)
        except ValueError as error:
            self.findings += 1
            note(self.settings, f"damaged: {path}: {error}")
            return
        if self.options["kafka_format"] and kind.is_of_segment:
            self._index_text(path, kind.name, rows)
        else:
            Writer(self.settings, kind.columns, Document("dump-segment", stream=True)).write(rows)

    def _index_text(self, path: str, kind: str, rows: list[dict[str, Any]]) -> None:
        from kctl.segments import kafka_index_text

        lines, complaints = kafka_index_text.text_of(
            path, kind, rows, verify_only=self.options["verify_index_only"], sanity=self.options["index_sanity_check"]
        )
        for line in lines:
            print(line)
        self._complaints += complaints
        self.findings += len(complaints)

    def complain(self) -> None:
        """Prints the complaints with which Kafka's tool ends."""
        sys.stdout.flush()
        for line in self._complaints:
            print(line, file=sys.stderr)


def _selection(options: dict[str, Any], decoder: Decoder | None) -> Selection:
    return Selection(
        offsets=options["offsets"],
        times=options["times"],
        key=_key_matcher(options["key"], decoder),
        producer=options["producer"],
        max_bytes=options["max_bytes"],
    )


def _read_schema(path: str | None, *, machine: bool) -> AvroValues | None:
    if path is None:
        return None
    from kctl.segments.avro import AvroError, AvroValues

    try:
        return AvroValues(text_of(path), machine=machine)
    except AvroError as error:
        raise KctlError(f"{path}: {error}", exit_code=Exit.USAGE) from None


def _key_matcher(glob: str | None, decoder: Decoder | None) -> Accept | None:
    """A test of keys; for a decoded record, of the group or the transactional id that its key is about."""
    if glob is None:
        return None
    import re
    from fnmatch import translate

    matches = re.compile(translate(glob)).match

    def wants(record: Record) -> bool:
        decoded = decoder(record) if decoder else None
        text = (record.key or b"").decode("utf-8", "replace") if decoded is None else decoded.subject
        return matches(text) is not None

    return wants


def choose_decoder(how: str, segments: Sequence[Segment]) -> Decoder | None:
    """auto: by the topic that the directory's name tells."""
    topic = segments[0].topic if segments else ""
    if how == "offsets" or (how == "auto" and topic == "__consumer_offsets"):
        from kctl.segments.decoders import decode_offsets

        return decode_offsets
    if how == "txn" or (how == "auto" and topic == "__transaction_state"):
        from kctl.segments.decoders import decode_transactions

        return decode_transactions
    if how == "metadata" or (how == "auto" and topic == "__cluster_metadata"):
        from kctl.segments.metadata import decode_metadata

        return decode_metadata
    return None
