"""The request and response frames that real Kafka and its clients exchanged (`golden/README.md`, "Wire")."""

from __future__ import annotations

import functools
import json
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

GOLDEN = Path(__file__).parent.parent / "golden" / "wire"
SETS = ("clients", "raw", "inter-broker")


class Exchange(NamedTuple):
    label: str
    key: int
    version: int
    client_id: str | None
    request: bytes
    response: bytes | None
    left_over: int
    """Bytes after the end of the request."""
    decoded: dict[str, Any]
    """Both sides as JSON, as Kafka's own classes read them."""


@functools.cache
def exchanges() -> dict[str, list[Exchange]]:
    """All there are, by the name of the API."""
    found = defaultdict(list)
    for name in SETS:
        decoded = {line["id"]: line for line in _lines(f"decoded-{name}.jsonl")}
        for line in _lines(f"{name}.jsonl"):
            found[line["api"]].append(
                Exchange(
                    f"{name} {line['id']} {line['api']} v{line['version']}",
                    line["key"],
                    line["version"],
                    line["client_id"],
                    bytes.fromhex(line["request"]),
                    bytes.fromhex(line["response"]) if line["response"] else None,
                    line.get("request_trailing_bytes", 0),
                    decoded[line["id"]],
                )
            )
    return dict(found)


def _lines(name: str) -> list[dict[str, Any]]:
    with open(GOLDEN / name, encoding="utf-8") as file:
        return [json.loads(line) for line in file]
