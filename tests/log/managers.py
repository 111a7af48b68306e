"""Log managers over directories of a test."""

from __future__ import annotations

from pathlib import Path

from kafkad.config import LogConfig
from kafkad.log.files import Files
from kafkad.log.log import Log
from kafkad.log.manager import LogManager
from kafkad.names import TopicPartition
from tests.fakes import FakeClock
from tests.log.conftest import append as append_one
from tests.log.conftest import batch

TOPIC_ID = bytes(range(16))
CONFIG = LogConfig(segment_bytes=4096, index_interval_bytes=300)
T0 = TopicPartition("t", 0)


def config_for(topic: str) -> LogConfig:
    return CONFIG


def forget_predecessors(manager: LogManager, tp: TopicPartition) -> None:
    for _, forget in manager.forget_predecessors([tp]):
        forget()


def append(log: Log, count: int = 1, size: int = 200) -> None:
    for _ in range(count):
        append_one(log, batch(bytes(size)))


def started(
    *paths: Path,
    clock: FakeClock | None = None,
    files: Files | None = None,
    config: LogConfig = CONFIG,
    **options: object,
) -> LogManager:
    manager = LogManager([str(path) for path in paths], files or Files(), clock or FakeClock(), **options)  # type: ignore[arg-type]
    manager.lock()
    manager.claim("cluster", 1)
    manager.load(lambda topic: config)
    return manager
