"""A log in a temporary directory; every one that a test opens here must be consistent when the test ends."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from kafkad.config import LogConfig
from kafkad.log.log import Log
from kafkad.log.record_search import look_through
from kafkad.log.time_search import Search
from kafkad.names import TopicPartition
from kafkad.wire.records import Record, build_batch, iter_batches, iter_records, read_header
from tests.fakes import FakeClock, FaultyFiles, read_slice
from tests.log.consistency import check

T = TypeVar("T")

GOLDEN = Path(__file__).parent.parent / "golden" / "logs"
SMALL = LogConfig(segment_bytes=4096, index_interval_bytes=512, segment_index_bytes=1 << 16)


@dataclass
class Home:
    """The directory of one partition, the clock and the disk under it."""

    directory: Path
    files: FaultyFiles = field(default_factory=FaultyFiles)
    clock: FakeClock = field(default_factory=FakeClock)
    config: LogConfig = SMALL
    log: Log | None = None
    expect_problems: bool = False
    was_compacted: bool = False

    def open(self, *, clean: bool = True, **options: Any) -> Log:
        config = {name: options.pop(name) for name in list(options) if hasattr(SMALL, name)}
        self.config = replace(self.config, **config)
        if self.log is not None:
            options.setdefault("start_offset", self.log.start_offset)
            options.setdefault("recovery_point", self.log.durability.recovery_point)
            options.setdefault("damaged_from", self.log.damaged_from)
        self.log = Log.open(
            str(self.directory),
            self.config,
            self.files,
            self.clock,
            topic_partition=TopicPartition("t", 0),
            clean=clean,
            was_compacted=self.was_compacted,
            **options,
        )
        return self.log

    def names(self) -> set[str]:
        """Of its files."""
        return {path.name for path in self.directory.iterdir()}

    def reopen(self, *, clean: bool = True) -> Log:
        assert self.log is not None
        self.log.close(clean)
        return self.open(clean=clean)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "logs" / "t-0")
    home.directory.parent.mkdir()
    yield home
    home.files.heal()
    if home.log is not None and home.directory.is_dir():
        home.log.close()
        if not home.expect_problems:
            assert check(str(home.directory)) == []


def batch(*values: bytes, timestamp: int = 1000, **options: Any) -> bytearray:
    records = [Record(i, timestamp, None, value) for i, value in enumerate(values or (b"x" * 30,))]
    return build_batch(records, base_offset=0, **options)


def append(log: Log, data: bytearray, epoch: int = 0) -> int:
    view = memoryview(data)
    return log.append(view, 0, len(data), read_header(view, 0), epoch)


def records(log: Log, offset: int | None = None, *, max_bytes: int = 1 << 20) -> list[Record]:
    """Everything from `offset` to the end, as a consumer would get it."""
    offset = log.start_offset if offset is None else offset
    found: list[Record] = []
    while (data := fetch(log, offset, max_bytes)) is not None:
        view = memoryview(data)
        for at, header in iter_batches(view):
            found += [record for record in iter_records(view, at, header) if record.offset >= offset]
            last = header.last_offset
        offset = last + 1
    return found


def searched(search: Search[T]) -> T:
    """What a search by time finds, which nobody else has to wait for."""
    answer = None
    try:
        while True:
            batch = search.send(answer)
            answer = None if batch is None else look_through(batch)
    except StopIteration as end:
        result: T = end.value
        return result


def pieces_of(work: Generator[Any, Any, T]) -> tuple[int, T]:
    """How often others get a turn, and the result: it leaves nothing to others."""
    count = 0
    while True:
        try:
            assert next(work) is None
        except StopIteration as end:
            return count, end.value
        count += 1


def fetch(log: Log, offset: int, max_bytes: int = 1 << 20, upto: int | None = None) -> bytes | None:
    part = log.read(offset, max_bytes, log.end_offset if upto is None else upto)
    return None if part is None else read_slice(*part)


@pytest.fixture
def disks(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "a", tmp_path / "b"


@pytest.fixture
def golden(tmp_path: Path) -> Iterator[Path]:
    copy = tmp_path / "main"
    shutil.copytree(GOLDEN / "main", copy)
    for path in (copy, *copy.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    yield copy


def remove_doomed(log: Log, now_ms: int) -> None:
    """Unlink what may be by then."""
    for due in log.doomed.due(now_ms):
        path = due.path
        os.unlink(path)
        due.was_tried(path, now_ms, is_gone=True)


def fill(log: Log, count: int) -> None:
    for i in range(count):
        append(log, batch(b"v%d" % i + b"." * 200, timestamp=1000 + i))


def flip_a_bit(log: Log, offset: int) -> None:
    """In the batch of one record that has this offset."""
    segment = next(segment for segment in reversed(log.segments) if segment.base <= offset)
    with Path(segment.path(".log")).open("r+b") as file:
        file.seek(segment.locate(offset) + 70)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))


def path_of(log: Log, suffix: str, number: int = -1) -> Path:
    return Path(log.segments[number].path(suffix))
