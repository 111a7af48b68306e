"""Where the database of a JDBC URL is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kafkad_etl.facts import POSTGRESQL, SQLITE
from kafkad_etl.machine.reachability import Address

_ADDRESS = re.compile(r"(?P<host>\[[^]]+\]|[^:/,?]+)?(?::(?P<port>\d+))?")
_POSTGRESQL_PORT = 5432


def sqlite_file(url: str) -> Path | None:
    """The file of jdbc:sqlite:file.db; None for a database in memory."""
    path = Path(url.removeprefix(SQLITE).removeprefix("file:").partition("?")[0])
    return None if path.name == ":memory:" else path


def addresses(url: str) -> Iterator[Address]:
    """Parses jdbc:postgresql://host:port,host/database; hosts and ports are optional. One of the servers suffices."""
    rest = url.removeprefix(POSTGRESQL)
    servers = rest.removeprefix("//").partition("/")[0].partition("?")[0] if rest.startswith("//") else ""
    for server in servers.split(","):
        found = _ADDRESS.match(server)
        assert found is not None
        yield (found["host"] or "localhost").strip("[]"), int(found["port"] or _POSTGRESQL_PORT)
