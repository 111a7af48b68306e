"""Tables of Iceberg as PyIceberg finds them, which knows nothing of Spark."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import urlopen

NOTED = "SELECT metadata_location FROM iceberg_tables"
"""Where the database of a JDBC catalog with a single table says that it is."""


def table_at(location: str) -> Any:
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(location)


def table_in(directory: Path) -> Any:
    """A table of a Hadoop catalog: the version that its hint names."""
    version = (directory / "metadata" / "version-hint.text").read_text().strip()
    return table_at(str(directory / "metadata" / f"v{version}.metadata.json"))


def table_of_sqlite(file: Path) -> Any:
    """The only table of a JDBC catalog."""
    with closing(sqlite3.connect(file)) as database:
        ((location,),) = database.execute(NOTED).fetchall()
    return table_at(location)


def table_of_server(url: str, namespace: str, name: str) -> Any:
    """A table of a REST catalog."""
    with urlopen(f"{url}/v1/namespaces/{namespace}/tables/{name}") as answer:
        return table_at(json.load(answer)["metadata-location"])


def rows_of(table: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.scan().to_arrow().to_pylist()
    return found


def rows_in(directory: Path) -> list[dict[str, Any]]:
    return rows_of(table_in(directory))
