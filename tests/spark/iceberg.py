"""Tables of Iceberg as PyIceberg finds them, which knows nothing of Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def table_in(directory: Path) -> Any:
    """A table of a Hadoop catalog: the version that its hint names."""
    from pyiceberg.table import StaticTable

    version = (directory / "metadata" / "version-hint.text").read_text().strip()
    return StaticTable.from_metadata(str(directory / "metadata" / f"v{version}.metadata.json"))


def rows_in(directory: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table_in(directory).scan().to_arrow().to_pylist()
    return found
