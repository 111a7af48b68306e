"""Real worker processes: what they answer, and what happens when one is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import wait
from dataclasses import replace
from pathlib import Path

import pytest

from kafkad.config import LogConfig
from kafkad.errors import ErrorCode, KafkaError
from kafkad.log.recompress import SlowPath
from kafkad.log.recompress_worker import MODULE
from kafkad.log.record_search import RecordSearch, SearchResult, look_through
from kafkad.log.validate import Demands, demands, rebuild
from kafkad.names import TopicPartition
from kafkad.wire.records import Record, build_batch

NOW_MS = 1_700_000_000_000
BATCH = build_batch([Record(n, NOW_MS, b"k", b"v" * 100) for n in range(100)], codec=2)


def wanted(codec: str = "lz4") -> Demands:
    config = replace(LogConfig(), compression_type=codec, cleanup_policy=frozenset({"compact"}))
    return demands(config, TopicPartition("t", 0), NOW_MS)


@pytest.fixture
def slow_path() -> Iterator[SlowPath]:
    slow = SlowPath()
    yield slow
    slow.close()
    assert children() == []


def children() -> list[int]:
    found = []
    for started in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError):  # a thread or a process that has ended meanwhile
            pids = [int(pid) for pid in started.read_text().split()]
            found += [pid for pid in pids if MODULE.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return found


def test_a_worker_answers_as_the_function_does(slow_path: SlowPath) -> None:
    assert children() == []
    assert slow_path.submit(rebuild, BATCH, wanted()).result() == rebuild(BATCH, wanted())


def test_a_worker_looks_through_a_batch_as_the_function_does(slow_path: SlowPath) -> None:
    search = RecordSearch(bytes(BATCH), 70, NOW_MS)
    assert slow_path.submit(look_through, search).result() == look_through(search) == SearchResult((NOW_MS, 70))


def test_refusals_come_back_whole(slow_path: SlowPath) -> None:
    batch = build_batch([Record(0, NOW_MS, None, b"v")])
    outcome = slow_path.submit(rebuild, batch, wanted()).result()
    assert outcome == rebuild(batch, wanted())
    assert [error.batch_index for error in outcome.record_errors] == [0]


def test_workers_are_kept_and_shared() -> None:
    slow = SlowPath(workers=2)
    wait([slow.submit(rebuild, BATCH, wanted()) for _ in range(20)])
    assert 1 <= len(children()) <= 2
    slow.close()
    assert children() == []


def test_a_killed_worker_is_replaced(slow_path: SlowPath) -> None:
    slow_path.submit(rebuild, BATCH, wanted()).result()
    (pid,) = children()
    os.kill(pid, signal.SIGKILL)
    assert slow_path.submit(rebuild, BATCH, wanted()).result().batch is not None
    assert children() != [pid]


def test_a_worker_killed_at_work_is_replaced(slow_path: SlowPath) -> None:
    large = build_batch([Record(n, NOW_MS, b"%d" % n, os.urandom(500)) for n in range(5000)])
    slow_path.submit(rebuild, BATCH, wanted()).result()
    (pid,) = children()
    config = replace(LogConfig(), compression_type="zstd", compression_zstd_level=19, max_message_bytes=1 << 30)
    future = slow_path.submit(rebuild, large, demands(config, TopicPartition("t", 0), NOW_MS))
    os.kill(pid, signal.SIGKILL)
    assert future.result().batch is not None
    assert children() != [pid]


def test_workers_that_keep_dying_are_given_up(slow_path: SlowPath) -> None:
    broken = wanted()._replace(limit="no number")  # type: ignore[arg-type]
    with pytest.raises(KafkaError) as caught:
        slow_path.submit(rebuild, BATCH, broken).result()
    assert caught.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert slow_path.submit(rebuild, BATCH, wanted()).result().batch is not None


def test_signals_for_the_broker_do_not_end_a_worker(slow_path: SlowPath) -> None:
    slow_path.submit(rebuild, BATCH, wanted()).result()
    before = children()
    for pid in before:
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
    slow_path.submit(rebuild, BATCH, wanted()).result()
    assert children() == before


def test_a_worker_holds_nothing_of_the_broker() -> None:
    code = f"import sys, {MODULE}, kafkad.log.validate, kafkad.log.record_search; print(*sys.modules)"
    modules = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True).stdout.split()
    heavy = {"asyncio", "multiprocessing", "yaml", "kazoo", "socket", "lz4", "zstandard", "snappy", "kafkad.config"}
    assert heavy.isdisjoint(modules)
