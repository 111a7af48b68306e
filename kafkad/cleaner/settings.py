"""Settings of the log cleaner, taken from the broker's configuration."""

from __future__ import annotations

from typing import NamedTuple

from kafkad.config import Config

_LARGEST_BUFFER = 2**31 - 1
_SHORTEST_BACKOFF_MS = 100
"""With none, looking for something to clean would take all the time there is."""


class CleanerSettings(NamedTuple):
    """The broker's settings for compaction; those of a topic are in its LogConfig."""

    enabled: bool
    threads: int
    dedupe_buffer_bytes: int
    load_factor: float
    io_buffer_bytes: int
    max_bytes_per_second: float
    backoff_ms: int

    @classmethod
    def of(cls, config: Config) -> CleanerSettings:
        """Buffers and rate are those of one worker."""
        threads = max(config.int("log.cleaner.threads"), 1)
        return cls(
            enabled=config.bool("log.cleaner.enable"),
            threads=threads,
            dedupe_buffer_bytes=min(config.long("log.cleaner.dedupe.buffer.size") // threads, _LARGEST_BUFFER),
            load_factor=config.double("log.cleaner.io.buffer.load.factor"),
            io_buffer_bytes=config.int("log.cleaner.io.buffer.size") // threads,
            max_bytes_per_second=config.double("log.cleaner.io.max.bytes.per.second") / threads,
            backoff_ms=max(config.long("log.cleaner.backoff.ms"), _SHORTEST_BACKOFF_MS),
        )
