"""Real worker processes: what they answer, and what happens when one is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import replace
from functools import partial
from threading import Event

import pytest

from kafkad.config import LogConfig
from kafkad.errors import ErrorCode, KafkaError
from kafkad.log.batch_worker_main import MODULE
from kafkad.log.batch_workers import BatchWorkers
from kafkad.log.record_search import RecordSearch, SearchResult, look_through
from kafkad.log.validate import Demands, RebuildResult, demands, rebuild
from kafkad.names import TopicPartition
from kafkad.wire.records import BASE_OFFSET, BATCH_HEADER, RECORD_COUNT, Record, build_batch
from tests.fakes import no_more_threads
from tests.workers import children, no_more_processes

NOW_MS = 1_700_000_000_000
BATCH = build_batch([Record(n, NOW_MS, b"k", b"v" * 100) for n in range(100)], codec=2)


def wanted(codec: str = "lz4") -> Demands:
    config = replace(LogConfig(), compression_type=codec, cleanup_policy=frozenset({"compact"}))
    return demands(config, TopicPartition("t", 0), NOW_MS)


@pytest.fixture
def batch_workers() -> Iterator[BatchWorkers]:
    pool = BatchWorkers()
    yield pool
    pool.close()
    assert children(MODULE) == []


def submitted(
    batch_workers: BatchWorkers, batch: bytes | bytearray, demanded: Demands | None = None, request: object = None
) -> Future[RebuildResult]:
    return batch_workers.submit(partial(rebuild, batch, demanded or wanted()), count(batch), request)


def test_a_worker_answers_as_the_function_does(batch_workers: BatchWorkers) -> None:
    assert children(MODULE) == []
    assert submitted(batch_workers, BATCH).result() == rebuild(BATCH, wanted())


def test_a_worker_looks_through_a_batch_as_the_function_does(batch_workers: BatchWorkers) -> None:
    search = RecordSearch(bytes(BATCH), 70, NOW_MS)
    answer = batch_workers.submit(partial(look_through, search), search.most_records, None).result()
    assert answer == look_through(search) == SearchResult((NOW_MS, 70))


def test_refusals_come_back_whole(batch_workers: BatchWorkers) -> None:
    batch = build_batch([Record(0, NOW_MS, None, b"v")])
    outcome = submitted(batch_workers, batch).result()
    assert outcome == rebuild(batch, wanted())
    assert [error.batch_index for error in outcome.record_errors] == [0]


def test_workers_are_kept_and_shared() -> None:
    pool = BatchWorkers(workers=2)
    wait([submitted(pool, BATCH) for _ in range(20)])
    assert 1 <= len(children(MODULE)) <= 2
    pool.close()
    assert children(MODULE) == []


class Workers:
    """Workers of which each notes its batch, and is done with one of many records when it is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[bytes] = []
        self.may_end = Event()
        self.has_begun = Event()
        monkeypatch.setattr("kafkad.log.batch_workers.Worker", lambda module: self)

    def ask(self, call: partial[RebuildResult]) -> RebuildResult:
        batch, _ = call.args
        if count(batch) > 10_000:
            self.has_begun.set()
            self.may_end.wait()
        self.done.append(batch)
        return RebuildResult()

    def close(self) -> None:
        pass


def of_records(number: int, name: int) -> bytes:
    """As much of a batch as is looked at before a worker has it."""
    header = list(BATCH_HEADER.unpack_from(BATCH))
    header[RECORD_COUNT], header[BASE_OFFSET] = number, name
    return BATCH_HEADER.pack(*header)


def count(batch: bytes | bytearray) -> int:
    number: int = BATCH_HEADER.unpack_from(batch)[RECORD_COUNT]
    return number


def test_a_batch_of_few_records_waits_for_none_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = Workers(monkeypatch)
    pool = BatchWorkers()
    many = [submitted(pool, of_records(700_000, number), wanted(), "attacker") for number in range(20)]
    workers.has_begun.wait()
    few = of_records(2_000, 0)
    assert submitted(pool, few, wanted(), "honest").result() == RebuildResult()
    assert workers.done == [few]
    workers.may_end.set()
    wait(many)
    pool.close()


def test_requests_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = Workers(monkeypatch)
    pool = BatchWorkers()
    first = submitted(pool, of_records(20_000, 0), wanted(), "large")
    workers.has_begun.wait()
    large = [of_records(20_000, number) for number in range(1, 4)]
    other = of_records(20_000, 100)
    waiting = [submitted(pool, batch, wanted(), "large") for batch in large]
    waiting.append(submitted(pool, other, wanted(), "other"))
    given_up = submitted(pool, of_records(20_000, 200), wanted(), "third")
    given_up.cancel()
    workers.may_end.set()
    wait([first, *waiting])
    pool.close()
    assert workers.done[1:] == [large[0], other, large[1], large[2]]


def test_what_waits_at_the_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = Workers(monkeypatch)
    pool = BatchWorkers()
    first = submitted(pool, of_records(20_000, 0), wanted(), "large")
    workers.has_begun.wait()
    second = submitted(pool, of_records(20_000, 1), wanted(), "large")
    second.add_done_callback(lambda given_up: workers.may_end.set())
    pool.close()
    assert second.cancelled()
    assert first.result() == RebuildResult()
    assert len(workers.done) == 1


def test_a_killed_worker_is_replaced(batch_workers: BatchWorkers) -> None:
    submitted(batch_workers, BATCH).result()
    (pid,) = children(MODULE)
    os.kill(pid, signal.SIGKILL)
    assert submitted(batch_workers, BATCH).result().batch is not None
    assert children(MODULE) != [pid]


def test_a_worker_killed_at_work_is_replaced(batch_workers: BatchWorkers) -> None:
    large = build_batch([Record(n, NOW_MS, b"%d" % n, os.urandom(500)) for n in range(5000)])
    submitted(batch_workers, BATCH).result()
    (pid,) = children(MODULE)
    config = replace(LogConfig(), compression_type="zstd", compression_zstd_level=19, max_message_bytes=1 << 30)
    future = submitted(batch_workers, large, demands(config, TopicPartition("t", 0), NOW_MS), None)
    os.kill(pid, signal.SIGKILL)
    assert future.result().batch is not None
    assert children(MODULE) != [pid]


def test_workers_that_keep_dying_are_given_up(batch_workers: BatchWorkers) -> None:
    broken = wanted()._replace(limit="no number")  # type: ignore[arg-type]
    with pytest.raises(KafkaError) as caught:
        submitted(batch_workers, BATCH, broken, None).result()
    assert caught.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert submitted(batch_workers, BATCH).result().batch is not None


@pytest.mark.parametrize("refuse", [no_more_processes, no_more_threads])
def test_without_a_process_or_a_thread_clients_are_to_try_again(
    batch_workers: BatchWorkers, monkeypatch: pytest.MonkeyPatch, refuse: Callable[[pytest.MonkeyPatch], None]
) -> None:
    with monkeypatch.context() as faulty:
        refuse(faulty)
        with pytest.raises(KafkaError) as caught:
            submitted(batch_workers, BATCH).result()
    assert caught.value.code == ErrorCode.REQUEST_TIMED_OUT
    assert submitted(batch_workers, BATCH).result().batch is not None


def test_signals_for_the_broker_do_not_end_a_worker(batch_workers: BatchWorkers) -> None:
    submitted(batch_workers, BATCH).result()
    before = children(MODULE)
    for pid in before:
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
    submitted(batch_workers, BATCH).result()
    assert children(MODULE) == before


def test_a_worker_holds_nothing_of_the_broker() -> None:
    code = f"import sys, {MODULE}, kafkad.log.validate, kafkad.log.record_search; print(*sys.modules)"
    modules = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True).stdout.split()
    heavy = {"asyncio", "multiprocessing", "yaml", "kazoo", "socket", "lz4", "zstandard", "snappy", "kafkad.config"}
    assert heavy.isdisjoint(modules)
