"""The records that every client writes and reads back: each shape a record may have."""

from __future__ import annotations

import time
from dataclasses import dataclass

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
START_MS = (int(time.time()) - 86_400) * 1000
"""Of yesterday: a broker that runs for a while deletes what is older than its retention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp: int


def sample(count: int = 120) -> list[Message]:
    """Null and empty keys and values, repeated and empty headers, text beyond ASCII, timestamps that go back."""
    keys = (None, b"", b"key", "clé-✓".encode())
    values = (b"value", b"", bytes(range(256)) * 4, "naïve".encode() * 50, None)
    headers = ((), (("a", b"1"),), (("a", b"1"), ("a", b"2"), ("é", b"")))
    return [
        Message(
            key=keys[i % 4],
            value=values[i % 5] if i % 4 else b"no key",  # some clients refuse a record with neither
            headers=headers[i % 3],
            timestamp=START_MS + i * 1000 - (i % 7) * 3000,
        )
        for i in range(count)
    ]
