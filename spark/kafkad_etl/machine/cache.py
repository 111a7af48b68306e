"""The user's cache for all jobs: jars, and what a Java needs to run Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kafkad_etl.errors import EtlError, EtlExit


def cache_directory(environ: Mapping[str, str]) -> Path:
    """$KAFKAD_ETL_CACHE, or kafkad-etl under $XDG_CACHE_HOME or ~/.cache."""
    if chosen := environ.get("KAFKAD_ETL_CACHE"):
        return Path(chosen).absolute()
    return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "kafkad-etl"


@contextmanager
def completed_file(target: Path, lacking: str) -> Iterator[Path]:
    """Yields a temporary file that becomes `target` once it is complete. EtlError ENVIRONMENT says what it was
    needed for."""
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield part
            os.replace(part, target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise EtlError(
            f"{error.filename or target}: {error.strerror or error}: {lacking}",
            EtlExit.ENVIRONMENT,
            hints=("set KAFKAD_ETL_CACHE to another cache directory",),
        ) from error
