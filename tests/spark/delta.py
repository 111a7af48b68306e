"""Tables of Delta Lake as delta-rs finds them, which knows nothing of Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def rows_in(directory: Path) -> list[dict[str, Any]]:
    from deltalake import DeltaTable

    found: list[dict[str, Any]] = DeltaTable(str(directory)).to_pyarrow_table().to_pylist()
    return found


def marks_in(directory: Path) -> list[str]:
    """What commits bear as their metadata, of those that bear any."""
    from deltalake import DeltaTable

    history: list[dict[str, Any]] = DeltaTable(str(directory)).history()
    return [str(commit["userMetadata"]) for commit in history if "userMetadata" in commit]
