"""What is fetched or made once for all jobs of a user: jars, and what a Java needs to run Spark."""

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
def kept(target: Path, lacking: str) -> Iterator[Path]:
    """A file to be written, which becomes `target` once it is whole. EtlError ENVIRONMENT says what is `lacking`."""
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
            hints=("KAFKAD_ETL_CACHE names another directory for the cache",),
        ) from error
