"""`kctl produce`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import click

from kafkad.wire.compression import CODEC_NAMES
from kctl.command.cluster_names import topic_names
from kctl.command.paths import files
from kctl.command.verb import KctlCommand, pass_session
from kctl.errors import Exit, KctlError
from kctl.reach.session import Session
from kctl.records.delivery import COLUMNS, Delivery, Wishes, transaction_options
from kctl.records.formats import Headers, Parsed
from kctl.records.interrupts import Interrupts
from kctl.texts.parsing import LARGEST_INT32

Read = Callable[[bytes], Parsed]
_PATIENCE_SECONDS = 0.02


class Lines(NamedTuple):
    """Lines that came at once, and the number of the first one."""

    first: int
    records: list[Parsed]


class Values(NamedTuple):
    """Lines that are no more than a value."""

    first: int
    values: list[bytes]


class Source(NamedTuple):
    """An input by name, and what comes from it; None when nothing came for a while."""

    name: str
    records: Iterator[Lines | Values | None]


class BadLine(Exception):
    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line
        self.why = why


@click.command("produce", cls=KctlCommand, columns=COLUMNS, may_be_empty=("key", "value"))
@click.argument("topic", shell_complete=topic_names)
@click.option("--value", metavar="TEXT", help="Send one record with this value instead of reading standard input.")
@click.option(
    "--tombstone", is_flag=True, help="Send one record without a value, which deletes its key in a compacted topic."
)
@click.option("--key", metavar="TEXT", help="Key of all records that have none of their own.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="Header of all records; repeatable.")
@click.option(
    "--partition", type=click.IntRange(0, LARGEST_INT32), metavar="N", help="Send all records to this partition."
)
@click.option(
    "--timestamp", metavar="TIME", help="Timestamp of all records that have none of their own.  [default: now]"
)
@click.option(
    "--file",
    "files",
    shell_complete=files,
    multiple=True,
    metavar="FILE",
    help="Read lines from files instead; repeatable.",
)
@click.option("--whole", is_flag=True, help="Send each file, or all of standard input, as the value of one record.")
@click.option("-f", "--format", "line_format", metavar="FORMAT", help="Format of a line: %k\\t%v, also %h %T %p.")
@click.option(
    "--key-delimiter",
    metavar="TEXT",
    help="Separates the key from the value in each line; without it a line is a value.",
)
@click.option("--json", "as_json", is_flag=True, help="Each line is a JSON object, as consume -o json prints it.")
@click.option("--keep-partition", is_flag=True, help="With --json: send to the partitions given in the lines.")
@click.option("--empty-is-null", is_flag=True, help="Send empty keys and values as null; a null value is a tombstone.")
@click.option("--partitioner", metavar="HOW", help="sticky, round-robin, or module:callable.  [default: sticky]")
@click.option("--compression", type=click.Choice(CODEC_NAMES), default="none", help="Compression of batches.")
@click.option(
    "--acks", type=click.Choice(("all", "1", "0")), default="all", help="Replicas that must have written a record."
)
@click.option(
    "--idempotent/--no-idempotent",
    default=None,
    help="Write each record exactly once, even when requests are repeated.  [default: with acks all]",
)
@transaction_options
@click.option("--batch-size", metavar="SIZE", default="512KB", help="Largest size of a batch.", show_default=True)
@click.option(
    "--linger", metavar="TIME", default="5ms", help="How long a batch waits for more records.", show_default=True
)
@pass_session
def produce(session: Session, /, topic: str, **options: Any) -> int:
    """Send records from standard input, files or the command line.

    Each line is a value, or what --format, --key-delimiter or --json describe. Records with a key go to the partition
    that the Java producer would choose; without a key they stay with a partition until a batch is full (sticky), or
    rotate (round-robin). A partitioner module:callable is called with key, value (bytes or None) and the number of
    partitions.

    An invalid line ends the input; its number and what was sent before it are reported. Exits with 1 if any record was
    not delivered.

    Example: kctl consume orders -o json | kctl produce orders-copy --json
    """
    wishes = _wishes(session, options)
    sources = _sources(options)
    with Interrupts() as interrupts, Delivery(session, topic, wishes, interrupts) as delivery:
        return delivery.report(_deliver(delivery, sources))


def _wishes(session: Session, options: dict[str, Any]) -> Wishes:
    from kctl.texts.parsing import parse_duration_ms, parse_size, parse_time_ms

    now_ms = time.time_ns() // 1_000_000
    if options["idempotent"] and options["acks"] != "all":
        raise KctlError("--idempotent needs --acks all", exit_code=Exit.USAGE)
    if options["transactional_id"] and (options["acks"] != "all" or options["idempotent"] is False):
        raise KctlError("--transactional-id needs --acks all and idempotence", exit_code=Exit.USAGE)
    timestamp = options["timestamp"]
    key = _encoded(options["key"])
    return Wishes(
        key=key or None if options["empty_is_null"] else key,
        headers=_headers(options["headers"]),
        partition=options["partition"],
        timestamp=None if timestamp is None else parse_time_ms(timestamp, now_ms, session.settings.utc),
        keep_partition=options["keep_partition"] or not options["as_json"],
        partitioner=options["partitioner"] or "sticky",
        codec=CODEC_NAMES.index(options["compression"]),
        acks={"all": -1, "1": 1, "0": 0}[options["acks"]],
        idempotent=options["idempotent"],
        transactional_id=options["transactional_id"],
        transaction_timeout_ms=options["transaction_timeout"],
        batch_bytes=parse_size(options["batch_size"]),
        linger=parse_duration_ms(options["linger"]) / 1000,
    )


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "surrogateescape")


def _headers(texts: Sequence[str]) -> Headers:
    pairs = (text.partition("=") for text in texts)
    return tuple((name, _encoded(value) if equals else None) for name, equals, value in pairs)


def _sources(options: dict[str, Any]) -> Iterator[Source]:
    """Checked before anything is sent."""
    if options["tombstone"] or options["value"] is not None:
        readers = ("files", "whole", "line_format", "key_delimiter", "as_json")
        if (options["tombstone"] and options["value"] is not None) or any(options[name] for name in readers):
            what = "--value and --tombstone are one record by themselves: leave out the other, and what reads lines"
            raise KctlError(what, exit_code=Exit.USAGE)
        if options["tombstone"] and options["key"] is None:
            raise KctlError("--tombstone needs --key, the key to delete", exit_code=Exit.USAGE)
        parsed = Parsed(None, _encoded(options["value"]))
        one = _nulled(parsed) if options["empty_is_null"] else parsed
        return iter([Source("the command line", iter([Lines(1, [one])]))])
    for file in options["files"]:
        if file != "-":
            os.stat(file)
    return _opened(options["files"] or ("-",), _reader(options), options["whole"])


def _opened(files: Sequence[str], read: Read, whole: bool) -> Iterator[Source]:
    for file in files:
        if file == "-":
            if sys.stdin.isatty():
                print("type records, one a line; Ctrl-D ends", file=sys.stderr)
            yield Source("standard input", _records(sys.stdin.fileno(), read, whole))
        else:
            with open(file, "rb") as stream:
                yield Source(file, _records(stream.fileno(), read, whole))


def _reader(options: dict[str, Any]) -> Read:
    from kctl.records.formats import line_reader, unescaped

    ways = [name for name in ("line_format", "key_delimiter", "as_json", "whole") if options[name]]
    if len(ways) > 1:
        what = "use only one of --format, --key-delimiter, --json and --whole"
        raise KctlError(what, exit_code=Exit.USAGE)
    if options["as_json"]:
        from kctl.records.jsonlines import read_json_line

        read: Read = read_json_line
    elif options["line_format"]:
        read = line_reader(options["line_format"])
    elif options["key_delimiter"]:
        read = _delimited(unescaped(options["key_delimiter"]))
    else:
        read = _plain
    return (lambda line: _nulled(read(line))) if options["empty_is_null"] else read


def _plain(line: bytes) -> Parsed:
    return Parsed(None, line)


def _delimited(delimiter: bytes) -> Read:
    def read(line: bytes) -> Parsed:
        key, found, value = line.partition(delimiter)
        if not found:
            raise ValueError(f"has no {delimiter.decode('utf-8', 'replace')!r} between a key and a value")
        return Parsed(key, value)

    return read


def _nulled(parsed: Parsed) -> Parsed:
    return parsed._replace(key=parsed.key or None, value=parsed.value or None)


def _records(descriptor: int, read: Read, whole: bool) -> Iterator[Lines | Values | None]:
    from kctl.records.inputs import all_of, lines

    if whole:
        yield Lines(1, [read(all_of(descriptor))])
        return
    number = 1
    for chunk in lines(descriptor, _PATIENCE_SECONDS):
        if not chunk:
            yield None
            continue
        if read is _plain:
            yield Values(number, chunk)
            number += len(chunk)
            continue
        parsed: list[Parsed] = []
        try:
            parsed.extend(map(read, chunk))
        except ValueError as error:
            yield Lines(number, parsed)
            raise BadLine(number + len(parsed), str(error)) from None
        yield Lines(number, parsed)
        number += len(parsed)


def _deliver(delivery: Delivery, sources: Iterable[Source]) -> list[KctlError]:
    """Everything that the sources have, until one is wrong or nothing more can be sent."""
    source = None
    try:
        for source in sources:
            for lines in source.records:
                if lines is None:
                    delivery.poll()
                else:
                    _send(delivery, lines)
                if delivery.over:
                    return []
    except BadLine as bad:
        error = KctlError(f"line {bad.line} of {source.name if source else 'the input'} {bad.why}")
    except KctlError as caught:
        error = caught
    except OSError as caught:
        error = KctlError(f"{caught.filename or (source and source.name)}: {caught.strerror}")
    else:
        return []
    delivery.finish(commit=False)
    before = f"before it {delivery.told()}; nothing from it on" if delivery.committed else delivery.told()
    return [KctlError(error.what, code=error.code, hints=(*error.hints, before))]


def _send(delivery: Delivery, lines: Lines | Values) -> None:
    if isinstance(lines, Values):
        if delivery.takes_values:
            delivery.send_values(lines.values, lines.first)
            return
        lines = Lines(lines.first, list(map(_plain, lines.values)))
    line = lines.first
    try:
        for line, parsed in enumerate(lines.records, lines.first):
            delivery.send(parsed, line)
    except ValueError as error:
        raise BadLine(line, str(error)) from None
