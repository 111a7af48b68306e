"""`kctl dump-index`: the small files beside segments; whether an index fits its log; how a broker searches it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import click

from kafkad.log.check import check
from kafkad.log.index import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE
from kctl.command import KctlCommand, pass_settings
from kctl.errors import Exit, KctlError
from kctl.output import Column, Document, Writer, note
from kctl.parsing import parse_time_ms
from kctl.segments.index_files import Rows, read_rows
from kctl.segments.lookup import Search, search
from kctl.settings import Settings

PROBE_COLUMNS = (
    Column("step", "The number of the probe.", "number"),
    Column("entry", "The entry that was looked at.", "number"),
    Column("found", "What is in it: an offset, or a time in ms.", "number"),
    Column("verdict", "before: the answer is this entry or a later one; equal: this one; after: an earlier one."),
    Column("offset", "The offset in the entry.", "number"),
    Column("position", "The position in the entry, of an offset index.", "number"),
)


@click.command("dump-index", cls=KctlCommand, columns=PROBE_COLUMNS)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--verify", is_flag=True, help="Print only what does not fit the log beside it.")
@click.option("--lookup", metavar="OFFSET|@TIME", help="Search as a broker does, and print every probe.")
@pass_settings
def dump_index(settings: Settings, /, files: tuple[str, ...], verify: bool, lookup: str | None) -> int:
    """Print indexes, producer snapshots and checkpoints.

    A FILE is a .index, .timeindex, .txnindex or .snapshot, a checkpoint, partition.metadata or meta.properties.
    --lookup needs a .index for an offset and a .timeindex for a time. What makes no sense or does not fit its log
    gives exit code 7.

    Example: kctl dump-index /var/lib/kafka/orders-0/00000000000000000000.index
    """
    findings = 0
    for path in files:
        if verify:
            findings += _verify(settings, path)
            continue
        try:
            kind, rows = read_rows(path)
        except ValueError as error:
            note(settings, f"damaged: {path}: {error}")
            findings += 1
            continue
        if lookup is not None:
            Writer(settings, PROBE_COLUMNS, Document("dump-index")).write(_lookup(path, kind.name, rows, lookup))
        else:
            Writer(settings, kind.columns, Document("dump-index")).write(rows)
    return Exit.FINDINGS if findings else Exit.DONE


def _verify(settings: Settings, path: str) -> int:
    """The problems of this one file, of those that the whole partition has."""
    os.stat(path)
    directory = os.path.dirname(os.path.abspath(path))
    name = os.path.basename(path)
    problems = [problem.text for problem in check(directory) if os.path.basename(problem.path) == name]
    for text in problems:
        print(f"{path}: {text}")
    if not problems:
        note(settings, f"{path}: fits its log")
    return len(problems)


def _lookup(path: str, kind: str, rows: Rows, target: str) -> Rows:
    field = "timestamp_ms" if target.startswith(("@", "-")) else "offset"
    if (kind, field) not in (("index", "offset"), ("timeindex", "timestamp_ms")):
        hint = "an offset is looked up in a .index, a time (@…) in a .timeindex"
        raise KctlError(f"{path}: {target} cannot be looked up in it", exit_code=Exit.USAGE, hints=(hint,))
    try:
        wanted = int(target) if field == "offset" else parse_time_ms(target, time.time_ns() // 1_000_000)
    except ValueError:
        raise KctlError(f"{target!r} is neither an offset nor @ and a time", exit_code=Exit.USAGE) from None
    entry_size = OFFSET_ENTRY_SIZE if kind == "index" else TIME_ENTRY_SIZE
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
