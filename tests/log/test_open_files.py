"""No more files of segments are open than there may be, whatever is written and read."""

from __future__ import annotations

import errno
import gc
import os
import random
from contextlib import suppress
from pathlib import Path

from kafkad.config import LogConfig
from kafkad.log.log import Log
from kafkad.log.open_files import LimitedFiles
from kafkad.log.segment import Segment
from kafkad.log.time_search import offset_for_timestamp
from kafkad.names import TopicPartition
from tests.log.conftest import append, batch, records, searched
from tests.log.consistency import check as check_directory
from tests.log.managers import TOPIC_ID, started

LIMIT = 64
CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=100)


def open_log_files(directory: Path) -> int:
    """Those of this test: threads of tests before it may still close theirs."""
    names = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            names.append(Path(os.readlink(f"/proc/self/fd/{fd}")))
    return sum(name.suffix in (".log", ".index", ".timeindex") and directory in name.parents for name in names)


def test_writers_and_readers_of_many_partitions(tmp_path: Path) -> None:
    chance = random.Random(5)
    manager = started(tmp_path, files=LimitedFiles(LIMIT), config=CONFIG)
    logs = [manager.create(TopicPartition("t", p), TOPIC_ID, CONFIG) for p in range(200)]
    written = [0] * len(logs)
    for turn in range(2000):
        number = chance.randrange(len(logs))
        append(logs[number], batch(b"%d %d" % (number, written[number]) + bytes(90), timestamp=1000 + written[number]))
        written[number] += 1
        if chance.random() < 0.2:
            some = chance.randrange(len(logs))
            check(logs[some], some, written[some])
        if turn % 10 == 0:
            assert open_log_files(tmp_path) <= LIMIT + 4
    manager.close()
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    assert not [problem for log in logs for problem in check_directory(log.directory)]
    again = started(tmp_path, files=LimitedFiles(LIMIT), config=CONFIG)
    for number, count in enumerate(written):
        log = again.get(TopicPartition("t", number))
        assert log is not None
        check(log, number, count)
    again.close()


def check(log: Log, number: int, count: int) -> None:
    assert [r.value and r.value.rstrip(b"\0") for r in records(log)] == [b"%d %d" % (number, n) for n in range(count)]
    if count:
        assert searched(offset_for_timestamp(log, 1000 + count // 2)) == (1000 + count // 2, count // 2, 0)


def test_of_a_log_that_is_deleted_nothing_is_kept(tmp_path: Path) -> None:
    manager = started(tmp_path, files=LimitedFiles(10_000), config=CONFIG)
    log = manager.create(TopicPartition("t", 0), TOPIC_ID, CONFIG)
    append(log, batch())
    log.roll()
    del log
    assert segments_in(tmp_path) == 2
    manager.delete(TopicPartition("t", 0))
    assert segments_in(tmp_path) == 0
    manager.close()


def segments_in(directory: Path) -> int:
    gc.collect()
    return sum(isinstance(each, Segment) and each.directory.startswith(str(directory)) for each in gc.get_objects())


def test_what_is_used_all_the_time_stays_open(tmp_path: Path) -> None:
    manager = started(tmp_path, files=LimitedFiles(LIMIT), config=CONFIG)
    logs = [manager.create(TopicPartition("t", p), TOPIC_ID, CONFIG) for p in range(100)]
    busy = logs[0]
    append(busy, batch())
    file = busy.segments[-1].file
    for log in logs[1:]:
        append(log, batch())
        append(busy, batch(b"x"))
    assert busy.segments[-1].file is file or len(busy.segments) > 1
    manager.close()


class FullFiles(LimitedFiles):
    full = False

    def pwrite(self, fd: int, data: bytes | memoryview, at: int) -> int:  # type: ignore[override]
        if self.full and os.readlink(f"/proc/self/fd/{fd}").endswith("index"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.pwrite(fd, data, at)


def test_a_full_disk_keeps_files_open_that_have_something_to_write(tmp_path: Path) -> None:
    files = FullFiles(LIMIT)
    manager = started(tmp_path, files=files, config=CONFIG)
    logs = [manager.create(TopicPartition("t", p), TOPIC_ID, CONFIG) for p in range(100)]
    files.full = True
    for n in range(5):
        for log in logs:
            append(log, batch(b"v" * 150, timestamp=1000 + n))
    files.full = False
    append(manager.create(TopicPartition("t", 100), TOPIC_ID, CONFIG), batch())
    for log in logs:
        assert len(records(log)) == 5
        assert searched(offset_for_timestamp(log, 1004)) == (1004, 4, 0)
    assert open_log_files(tmp_path) <= LIMIT + 4
    manager.close()
