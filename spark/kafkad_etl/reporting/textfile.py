"""Writes the metrics of a run that has ended to a file in `run.textfile`, for Prometheus' node exporter."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kafkad_etl.checkpoint.history import RunEnded
from kafkad_etl.reporting.exporter import PREFIX, head


def page(run: RunEnded, success_ms: int | None) -> str:
    """`success_ms`: the end of the last run with exit code 0, if there was any."""
    return "".join(f"{line}\n" for line in _lines(run, success_ms))


def _lines(run: RunEnded, success_ms: int | None) -> Iterator[str]:
    numbers: list[tuple[str, str, float | None]] = [
        ("last_run_start_time_seconds", "Start time of the last run, in seconds since 1970.", run.began_ms / 1000),
        ("last_run_end_time_seconds", "End time of the last run, in seconds since 1970.", run.ended_ms / 1000),
        ("last_run_exit_code", "Exit code of the last run.", run.code),
        ("last_run_rows_read", "Rows read by the last run.", run.rows_read),
        ("last_run_rows_written", "Rows written to the sink by the last run.", run.rows_written),
        ("last_run_bad_rows", "Rows of the last run that could not be parsed.", run.bad),
        ("last_run_late_rows", "Rows of the last run that arrived after the watermark.", run.late),
        ("last_run_duplicate_rows", "Rows that the last run dropped as duplicates.", run.duplicates),
        ("last_run_lost_records", "Records deleted before the last run had read them.", run.lost),
        ("last_run_lag", "Offsets not read yet when the last run ended.", run.lag),
        (
            "last_success_timestamp_seconds",
            "End time of the last run with exit code 0, in seconds since 1970.",
            success_ms and success_ms / 1000,
        ),
    ]
    for name, text, value in numbers:
        if value is not None:
            yield from head(name, "gauge", text)
            yield (
                f'{PREFIX}_{name}{{job="{run.job}"}} {value:.3f}'
                if isinstance(value, float)
                else (f'{PREFIX}_{name}{{job="{run.job}"}} {value}')
            )


def write(directory: Path, job: str, text: str) -> None:
    """Replaces the job's file at once; the exporter reads names that end in .prom. Raises OSError."""
    path = directory / f"kafkad_etl_{job}.prom"
    fresh = directory / f".{path.name}.{os.getpid()}"
    try:
        fresh.write_text(text)
        fresh.chmod(0o644)  # another user reads it
        fresh.rename(path)
    finally:
        fresh.unlink(missing_ok=True)
