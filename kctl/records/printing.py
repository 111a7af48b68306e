"""Records as the settings say: values a line, a format, JSON lines, or a table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from kafkad.wire.records import Record
from kctl.records.located import Located
from kctl.records.searching import Chunk
from kctl.settings import Settings
from kctl.texts.output import Column, Document, Row, Writer

Encode = Callable[[Chunk], bytes]


def print_records(
    settings: Settings, columns: Sequence[Column], line_format: str | None, chunks: Iterable[Chunk]
) -> None:
    """Everything of a chunk is out before the next one is asked for: whoever counts what was printed relies on it."""
    encode = _encoder(settings, line_format)
    if encode is None:
        Writer(settings, columns, Document(settings.command, stream=True)).write_parts(_rows(chunks, settings.is_text))
        return
    sys.stdout.flush()
    out = sys.stdout.buffer
    for chunk in chunks:
        settings.answered = True
        out.write(encode(chunk))
        out.flush()


def _encoder(settings: Settings, line_format: str | None) -> Encode | None:
    """None: it is a matter for the Writer."""
    if line_format is not None:
        from kctl.records.formats import formatter

        render = formatter(line_format)
        return lambda chunk: b"".join([render(Located(chunk[0], chunk[1], record)) for record in chunk.records])
    if settings.columns or settings.output not in ("table", "json"):
        return None
    return _json if settings.output == "json" else _values


def prints_values(settings: Settings, line_format: str | None) -> bool:
    """True if nothing but values is printed."""
    return _encoder(settings, line_format) is _values


def _json(chunk: Chunk) -> bytes:
    from kctl.records.jsonlines import json_line

    topic, partition, records, _ = chunk
    return "".join([json_line(Located(topic, partition, record)) + "\n" for record in records]).encode()


def _values(chunk: Chunk) -> bytes:
    values = [record.value for record in chunk.records] if chunk.values is None else chunk.values
    lines = [value or b"" for value in values] if None in values else values
    return b"\n".join([*lines, b""])


def _rows(chunks: Iterable[Chunk], for_people: bool) -> Iterator[list[Row]]:
    from kctl.segments.values import renderer

    render = renderer("auto", machine=not for_people)
    for topic, partition, records, _ in chunks:
        yield [_row(topic, partition, record, render) for record in records]


def _row(topic: str, partition: int, record: Record, shown: Callable[[bytes | None], Any]) -> Row:
    from kctl.records.formats import headers_text

    return {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "key": shown(record.key),
        "value": shown(record.value),
        "headers": [{"key": name, "value": shown(value)} for name, value in record.headers],
        "header_text": headers_text(record.headers).decode("utf-8", "replace"),
    }
