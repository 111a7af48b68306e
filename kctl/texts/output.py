"""Rows to a table, JSON, YAML, CSV or names. Data go to standard output, everything else to standard error.

A row is a dict with raw values under the names of the command's columns; how a value looks is decided here, by the
kind of its column. Rows may be an endless iterator: nothing here keeps more than the first of them, unless it has to
sort. Programs read raw numbers with their unit in the name; `null` and `-` are what is not known.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice
from typing import Any, NamedTuple, TextIO

import click

from kctl.errors import Exit, KctlError, did_you_mean
from kctl.settings import Settings
from kctl.texts import fitting
from kctl.texts.taming import line_text, tame, tame_lines, without_c1

Row = Mapping[str, Any]

_MEASURED = 500
"""Rows that decide how wide the columns of a table are; in later rows a longer value just pushes the line."""
_TOLD_ONE_BY_ONE = 3
_YEAR_10000 = 253_402_300_800
_RIGHT = {"number", "size", "duration"}
_CUT = {"text", "list"}
_STYLES = {
    **dict.fromkeys(("error", "offline", "stalled"), "red"),
    **dict.fromkeys(("warn", "degraded", "growing", "uneven"), "yellow"),
    **dict.fromkeys(("ok", "shrinking", "steady", "idle"), "green"),
}


class Column(NamedTuple):
    """`name` is what programs see; `kind`: text, number, size, duration, time (both in ms), list or state.

    `wide` ones are only in the wide table, `machine` ones only in what programs read, `shown` ones only in tables.
    """

    name: str
    doc: str
    kind: str = "text"
    header: str = ""
    wide: bool = False
    machine: bool = False
    shown: bool = False

    @property
    def title(self) -> str:
        return self.header or self.name.upper().replace("_", "-")


class Document(NamedTuple):
    """The envelope of rows in json and yaml. A stream has none: it is one object a line."""

    command: str
    stream: bool = False
    cluster_id: str | None = None
    dry_run: bool = False


def size_text(size: int) -> str:
    """Bytes as people say them: 41.2 GB (1 KB is 1,000 bytes)."""
    if abs(size) < 1000:
        return f"{size} B"
    value = float(size)
    for unit in ("KB", "MB", "GB", "TB"):
        value /= 1000
        if abs(value) < 999.95:
            return f"{value:.1f} {unit}"
    return f"{value / 1000:.1f} PB"


def known_sum_text(sizes: Iterable[int | None]) -> str:
    """The sum of sizes, some of which may not be known: 41.2 GB, at least 41.2 GB, or "-" if none is."""
    parts = list(sizes)
    known = [size for size in parts if size is not None]
    if parts and not known:
        return "-"
    return f"{'' if len(known) == len(parts) else 'at least '}{size_text(sum(known))}"


def counted(number: int, word: str) -> str:
    """1 topic, 2 topics."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def duration_text(milliseconds: int) -> str:
    """3m12s: the two largest units that say something."""
    seconds = abs(milliseconds) // 1000
    sign = "-" if milliseconds < 0 else ""
    if seconds < 60:
        return f"{sign}{seconds}s"
    if seconds < 3600:
        return f"{sign}{seconds // 60}m{seconds % 60:02d}s"
    if seconds < 86400:
        return f"{sign}{seconds // 3600}h{seconds % 3600 // 60:02d}m"
    return f"{sign}{seconds // 86400}d{seconds % 86400 // 3600:02d}h"


def time_text(milliseconds: int, utc: bool) -> str:
    seconds, rest = divmod(milliseconds, 1000)
    if not 0 <= seconds < _YEAR_10000:  # a producer may write any 64 bits as a time
        return f"{milliseconds} ms"
    return f"{_second_text(seconds, utc)}.{rest:03d}"


@lru_cache(maxsize=1024)
def _second_text(seconds: int, utc: bool) -> str:
    """Records of a log crowd together in a few seconds, and this is most of what a row costs."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds) if utc else time.localtime(seconds))


def _place(value: Any) -> tuple[str, Any]:
    """By what rows are sorted: numbers by their size; bytes, which are {"base64": …}, before all texts."""
    if isinstance(value, dict):
        return "dict", str(value)
    return "" if isinstance(value, (int, float)) else type(value).__name__, value


def rfc3339(milliseconds: int) -> str | None:
    text = time_text(milliseconds, utc=True)
    return None if text.endswith("ms") else text.replace(" ", "T") + "Z"


def text_of(column: Column, utc: bool = False) -> Callable[[Any], str]:
    """A function that turns a value of this column into a table's text, on one line."""
    match column.kind:
        case "number":
            return lambda value: "-" if value is None else str(value)
        case "size":
            return lambda value: "-" if value is None else size_text(value)
        case "duration":
            return lambda value: "-" if value is None else duration_text(value)
        case "time":
            return lambda value: "-" if value is None or value < 0 else time_text(value, utc)
        case "list":
            return lambda value: ",".join(map(line_text, value or ())) or "-"
    return line_text


class Writer:
    """Prints the rows of one command as the settings say."""

    def __init__(self, settings: Settings, columns: Sequence[Column], document: Document) -> None:
        self.settings = settings
        self.document = document
        self.all = tuple(columns)
        self.columns = self._chosen()
        self._colored = settings.colored()
        self._told: set[str] = set()

    def _chosen(self) -> tuple[Column, ...]:
        settings = self.settings
        if settings.columns:
            return tuple(self._named(name) for name in settings.columns)
        if settings.output == "table":
            return tuple(column for column in self.all if not (column.wide or column.machine))
        if settings.output == "wide":
            return tuple(column for column in self.all if not column.machine)
        return tuple(column for column in self.all if not column.shown)

    @property
    def names(self) -> frozenset[str]:
        """The fields that are looked at; a row need not have others."""
        names = {column.name for column in self.columns}
        if self.settings.sort:
            names.add(self._named(self.settings.sort.removeprefix("-")).name)
        return frozenset(names)

    def _named(self, name: str) -> Column:
        for column in self.all:
            if name in (column.name, column.title):
                return column
        for column in self.all:
            if name.upper() == column.title:
                return column
        known = [column.name for column in self.all]
        hints = did_you_mean(name, known) or (f"there are: {', '.join(known)}",)
        raise KctlError(f'there is no column "{name}"', exit_code=Exit.USAGE, hints=hints)

    def write(self, rows: Iterable[Row], errors: Sequence[KctlError] = ()) -> None:
        rows = self._limited(rows)
        if self.settings.is_text:
            self._page(self._table(rows))
        else:
            self._write(rows, errors)

    def write_parts(self, parts: Iterable[Sequence[Row]]) -> None:
        """Rows of a stream, in its order: those of a part are out before the next part is asked for, which may never
        come. A table is as wide as its first part."""
        parts = iter(parts)
        first = next((part for part in parts if part), ())

        def rows() -> Iterator[Row]:
            for part in chain((first,), parts):
                yield from part
                sys.stdout.flush()

        if self.settings.is_text:
            print_lines(self._table(rows(), min(len(first), _MEASURED)))
        else:
            self._write(rows())
        sys.stdout.flush()

    def _write(self, rows: Iterable[Row], errors: Sequence[KctlError] = ()) -> None:
        match self.settings.output:
            case "json":
                self._json(rows, errors)
            case "yaml":
                self._yaml(rows, errors)
            case "csv":
                self._csv(rows)
            case "name":
                first = self.columns[0]
                print_lines(str(row.get(first.name)) for row in rows)

    def print_text(self, lines: Iterable[str]) -> None:
        """Lines made for people by the command itself."""
        self._page(map(tame, lines))

    def table(self, rows: Iterable[Row], *, whole: bool = False) -> Iterator[str]:
        """The lines of a table, for a command that prints more than one. --sort and --limit do not concern one that is
        `whole`."""
        return self._table(rows if whole else self._limited(rows))

    def _limited(self, rows: Iterable[Row]) -> Iterable[Row]:
        if self.settings.sort:
            name = self._named(self.settings.sort.removeprefix("-")).name
            known: list[Row] = []
            unknown: list[Row] = []
            for row in rows:
                (unknown if row.get(name) is None else known).append(row)
            known.sort(key=lambda row: _place(row[name]), reverse=self.settings.sort.startswith("-"))
            rows = known + unknown
        return rows if self.settings.limit is None else islice(rows, self.settings.limit)

    # --- for programs

    def _items(self, rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
        """HOT. A time is there as text too, before its milliseconds."""
        names: list[str] = []
        times: list[tuple[str, str]] = []
        for column in self.columns:
            if column.kind == "time":
                times.append((column.name.removesuffix("_ms"), column.name))
                names.append(times[-1][0])
            names.append(column.name)
        for row in rows:
            item = dict(zip(names, map(row.get, names), strict=True))
            for text_name, name in times:
                value = item[name]
                item[text_name] = None if value is None else rfc3339(value)
            yield item

    def _json(self, rows: Iterable[Row], errors: Sequence[KctlError]) -> None:
        import json

        if self.document.stream:
            encode = json.JSONEncoder(ensure_ascii=False).encode  # json.dumps would make one for every row
            self._answer(without_c1(encode(item)) for item in self._items(rows))
        else:
            whole = envelope(self.settings, self.document, list(self._items(rows)), errors)
            self._answer((without_c1(json.dumps(whole, ensure_ascii=False, indent=2)),))

    def _yaml(self, rows: Iterable[Row], errors: Sequence[KctlError]) -> None:
        import yaml

        def text(value: Any) -> str:
            dumped: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
            return dumped.rstrip("\n")

        if self.document.stream:
            self._answer(f"---\n{text(item)}" for item in self._items(rows))
        else:
            self._answer((text(envelope(self.settings, self.document, list(self._items(rows)), errors)),))

    def _answer(self, texts: Iterable[str]) -> None:
        """Prints the one document, or the objects of a stream: an error after the first is told beside it."""
        texts = iter(texts)
        for first in texts:
            self.settings.answered = True
            print_lines(chain((first,), texts))

    def _csv(self, rows: Iterable[Row]) -> None:
        import csv
        import json

        def cell(value: Any) -> Any:
            return json.dumps(value, ensure_ascii=False) if isinstance(value, (list, dict, tuple, bool)) else value

        writer = csv.writer(sys.stdout)
        if not self.settings.no_headers:
            writer.writerow([column.name for column in self.columns])
        writer.writerows([cell(row.get(column.name)) for column in self.columns] for row in rows)

    # --- for people

    def _table(self, rows: Iterable[Row], measured_rows: int = _MEASURED) -> Iterator[str]:
        """HOT: a segment has a million records."""
        cells = self._cells(rows)
        first = list(islice(cells, measured_rows))
        titles = [column.title for column in self.columns]
        measured = first if self.settings.no_headers else [titles, *first]
        widths = [max((fitting.places(line[at]) for line in measured), default=0) for at in range(len(titles))]
        line = self._liner(widths)
        if not self.settings.no_headers:
            yield line(titles)
        yield from map(line, chain(first, cells))

    def _cells(self, rows: Iterable[Row]) -> Iterator[list[str]]:
        makers = [(column.name, text_of(column, self.settings.utc)) for column in self.columns]
        for row in rows:
            get = row.get
            yield [make(get(name)) for name, make in makers]

    def _liner(self, widths: list[int]) -> Callable[[Sequence[str]], str]:
        """A function that joins cells into a line: one that fits on a terminal, an uncut one into a pipe."""
        kept, narrowed = list(range(len(widths))), set[int]()
        if sys.stdout.isatty():
            import shutil

            room = shutil.get_terminal_size().columns
            texts = {at for at, column in enumerate(self.columns) if column.kind in _CUT}
            kept = self._that_fit(widths, texts, room)
            narrowed = fitting.narrow(widths, kept, texts, room)
        right = [column.kind in _RIGHT for column in self.columns]
        styled = {at for at in kept if self._colored and self.columns[at].kind == "state"}
        template = fitting.GAP.join(f"%{'' if right[at] else '-'}{widths[at]}s" for at in kept)

        def line(cells: Sequence[str]) -> str:
            text = template % tuple(cells)
            return text.rstrip() if text.isascii() else fitted_line(cells)

        def fitted_line(cells: Sequence[str]) -> str:
            shown = []
            for at in kept:
                cell = fitting.cut(cells[at], widths[at]) if at in narrowed else cells[at]
                padded = fitting.pad(cell, widths[at], right=right[at])
                shown.append(self._styled(padded, cell) if at in styled else padded)
            return fitting.GAP.join(shown).rstrip()

        return fitted_line if narrowed or styled or len(kept) < len(widths) else line

    def _that_fit(self, widths: Sequence[int], texts: Collection[int], room: int) -> list[int]:
        """The first column stays, and those that say how something is; what was asked for by name or with -o wide,
        too, and all of what is about to be changed."""
        if self.settings.columns or self.settings.output == "wide" or self.document.dry_run:
            return list(range(len(widths)))
        stay = {at for at, column in enumerate(self.columns) if column.kind == "state" or at == 0}
        kept = fitting.that_fit(widths, texts, stay, room)
        gone = ", ".join(column.title for at, column in enumerate(self.columns) if at not in kept)
        if gone and gone not in self._told:
            self._told.add(gone)
            note(self.settings, f"{room} columns leave no room for {gone}: choose with --columns, or use -o json")
        return kept

    def _styled(self, padded: str, text: str) -> str:
        color = _STYLES.get(text.lower())
        return click.style(padded, fg=color) if color and self._colored else padded

    def _page(self, lines: Iterator[str]) -> None:
        """Prints lines; those of a table longer than the screen go through $PAGER."""
        if self.settings.no_pager or not (sys.stdout.isatty() and sys.stdin.isatty()):
            print_lines(lines)
            return
        import shutil

        first = list(islice(lines, shutil.get_terminal_size().lines))
        if len(first) < shutil.get_terminal_size().lines:
            print_lines(first)
        else:
            click.echo_via_pager(f"{line}\n" for line in chain(first, lines))


def envelope(
    settings: Settings, document: Document, items: list[dict[str, Any]], errors: Sequence[KctlError]
) -> dict[str, Any]:
    """The one object that json and yaml print, of a failure too."""
    told = [{"error": error.what, "code": error.code or None, "hints": _hints(settings, error)} for error in errors]
    whole = {"kctl": 1, "command": document.command, "cluster_id": document.cluster_id}
    if document.dry_run:
        whole["dry_run"] = True
    return whole | {"items": items, "errors": told}


def print_lines(lines: Iterable[str]) -> None:
    write = sys.stdout.write
    for line in lines:
        write(f"{line}\n")


def keep_writing() -> None:
    """From now on a reader that goes away stops nothing: further output is dropped. Nor does it stop anything that
    messages have no room; that data have none is an error."""
    for name, harmless in (("stdout", BrokenPipeError), ("stderr", OSError)):
        stream = getattr(sys, name)
        if not isinstance(stream, _Unstoppable):
            setattr(sys, name, _Unstoppable(stream, harmless))


def drop(stream: TextIO) -> None:
    """Redirects a stream that can no longer be written (its reader is gone, or the disk is full) to /dev/null."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class _Unstoppable:
    """A text stream that after a `harmless` error is dropped."""

    def __init__(self, stream: TextIO, harmless: type[OSError]) -> None:
        self._stream = stream
        self._harmless = harmless

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except self._harmless:
            drop(self._stream)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except self._harmless:
            drop(self._stream)


def note(settings: Settings, text: str) -> None:
    """Something beside the data, for a person."""
    if not settings.quiet:
        print(line_text(text), file=sys.stderr)


def render_error(error: KctlError, settings: Settings, stream: TextIO) -> None:
    """`error: what (CODE)`, and below it what to do next."""
    label = click.style("error:", fg="red") if settings.colored(stream) else "error:"
    tamed = tame_lines if error.has_lines else line_text
    print(f"{label} {tamed(error.with_code)}", file=stream)
    for hint in _hints(settings, error):
        print(f"       {tamed(hint)}", file=stream)


def _hints(settings: Settings, error: KctlError) -> list[str]:
    if not error.hints:
        return []
    from kctl.texts.spelling import hints_of

    return list(hints_of(settings, error))


def render_errors(errors: Iterable[KctlError], settings: Settings) -> None:
    """On standard error, each once: a broker that is gone is the same trouble for all that it led. More than a few with
    the same code are counted; json and yaml have them all."""
    kinds: dict[Any, list[KctlError]] = {}
    for error in {(error.what, error.code, error.hints): error for error in errors}.values():
        kinds.setdefault((error.code, error.hints) if error.code else error, []).append(error)
    for same in kinds.values():
        for error in same[:_TOLD_ONE_BY_ONE]:
            render_error(error, settings, sys.stderr)
        if (more := len(same) - _TOLD_ONE_BY_ONE) > 0:
            render_error(KctlError(f"and {more:,} more like this", code=same[0].code), settings, sys.stderr)
