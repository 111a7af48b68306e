"""`kctl dump-index`: the small files beside segments; whether an index fits its log; how a broker searches it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from typing import Any

import click

from kafkad.log.check import Problem, examine
from kafkad.log.index import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE
from kctl.command.paths import files
from kctl.command.verb import KctlCommand, pass_settings
from kctl.errors import Exit, KctlError
from kctl.segments.files import FILES
from kctl.segments.index_files import FileKind, Rows, read_rows
from kctl.segments.lookup import Search, search
from kctl.settings import Settings
from kctl.texts.output import Column, Document, Writer, note
from kctl.texts.parsing import parse_time_ms

PROBE_COLUMNS = (
    Column("step", "The number of the probe.", "number"),
    Column("entry", "The entry that was looked at.", "number"),
    Column("found", "What is in it: an offset, or a time in ms.", "number"),
    Column("verdict", "before: the answer is this entry or a later one; equal: this one; after: an earlier one."),
    Column("offset", "The offset in the entry.", "number"),
    Column("position", "The position in the entry, of an offset index.", "number"),
)
_FILE = Column("file", "The file that it is in.")
_PROBLEM_COLUMNS = (_FILE, Column("problem", "What does not fit."))

Columns = Sequence[Column]


@click.command("dump-index", cls=KctlCommand, columns=PROBE_COLUMNS)
@click.argument("files", shell_complete=files, metavar="FILE...", nargs=-1, required=True)
@click.option("--verify", is_flag=True, help="Print only entries that do not match the log beside it.")
@click.option("--lookup", metavar="OFFSET|@TIME", help="Search as a broker does, and print every step.")
@pass_settings
def dump_index(settings: Settings, /, files: tuple[str, ...], verify: bool, lookup: str | None) -> int:
    """Print indexes, producer snapshots and checkpoints.

    A FILE is a .index, .timeindex, .txnindex or .snapshot, a checkpoint, partition.metadata or meta.properties.
    --lookup needs a .index for an offset and a .timeindex for a time. Exits with 7 if a file is invalid or does not
    match its log.

    Example: kctl dump-index /var/lib/kafka/orders-0/00000000000000000000.index --lookup 1200
    """
    if verify:
        return _verify(settings, files)
    found: list[tuple[str, Columns, Rows]] = []
    for path in files:
        try:
            kind, rows = read_rows(path)
        except ValueError as error:
            note(settings, f"damaged: {path}: {error}")
        else:
            if lookup is None:
                found.append((path, kind.columns, rows))
            else:
                found.append((path, PROBE_COLUMNS, _lookup(path, kind, rows, lookup)))
    _write(settings, found)
    return Exit.DONE if len(found) == len(files) else Exit.FINDINGS


def _write(settings: Settings, found: list[tuple[str, Columns, Rows]]) -> None:
    """For people a table for each file; for programs the rows of all, which say their file when there are several."""
    if len(found) == 1 or settings.is_text:
        for number, (path, columns, rows) in enumerate(found):
            if len(found) > 1:
                print(f"{'' if number == 0 else chr(10)}{path}")
            Writer(settings, columns, Document("dump-index")).write(rows)
        return
    together = {column.name: column for _, columns, _ in found for column in (*columns, _FILE)}
    all_rows = ({**row, "file": path} for path, _, rows in found for row in rows)
    Writer(settings, tuple(together.values()), Document("dump-index")).write(all_rows)


def _verify(settings: Settings, files: Sequence[str]) -> int:
    """The problems of these files, of those that their partitions have."""
    checked: dict[str, list[Problem]] = {}
    found = []
    for path in files:
        os.stat(path)
        directory, name = os.path.split(os.path.abspath(path))
        if directory not in checked:
            checked[directory] = examine(directory, FILES).problems
        problems = [problem.text for problem in checked[directory] if os.path.basename(problem.path) == name]
        found += [{"file": path, "problem": text} for text in problems]
        if not problems:
            note(settings, f"{path}: fits its log")
    if found or not settings.is_text:
        Writer(settings, _PROBLEM_COLUMNS, Document("dump-index")).write(found)
    return Exit.FINDINGS if found else Exit.DONE


def _lookup(path: str, kind: FileKind, rows: Rows, target: str) -> Rows:
    field = "timestamp_ms" if target.startswith(("@", "-")) else "offset"
    if (kind.name, field) not in (("index", "offset"), ("timeindex", "timestamp_ms")):
        hint = "an offset is looked up in a .index, a time (@…) in a .timeindex"
        raise KctlError(f"{path}: {target} cannot be looked up in this file", exit_code=Exit.USAGE, hints=(hint,))
    try:
        wanted = int(target) if field == "offset" else parse_time_ms(target, time.time_ns() // 1_000_000)
    except ValueError:
        raise KctlError(f"{target!r} is neither an offset nor @TIME", exit_code=Exit.USAGE) from None
    entry_size = OFFSET_ENTRY_SIZE if kind.name == "index" else TIME_ENTRY_SIZE
    return list(_probes(rows, field, search([row[field] for row in rows], wanted, entry_size)))


def _probes(rows: Rows, field: str, done: Search) -> Iterator[dict[str, Any]]:
    """The last entry that is not after what is wanted: there reading begins; without one, where the segment does."""
    step = 0
    for step, probe in enumerate(done.probes, 1):
        verdict = "after" if probe.order > 0 else "before" if probe.order else "equal"
        yield _probe(step, rows[probe.entry], field, verdict)
    if done.found is None:
        yield {"step": step + 1, "verdict": "answer: the start of the segment"}
    else:
        yield _probe(step + 1, rows[done.found], field, "answer")


def _probe(step: int, row: dict[str, Any], field: str, verdict: str) -> dict[str, Any]:
    found = {"step": step, "entry": row["entry"], "found": row[field], "verdict": verdict}
    return {**found, "offset": row["offset"], "position": row.get("position")}
