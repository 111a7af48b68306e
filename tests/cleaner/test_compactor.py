"""The real worker process: what it answers, how it is ended, and what is left of its memory."""

from __future__ import annotations

import errno
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from kafkad.cleaner import compactor as compactor_module
from kafkad.cleaner.compactor import MODULE, NICENESS, Compactor
from kafkad.cleaner.worker import Pace
from kafkad.log.compaction import AbandonedError, Replacement, UncleanableError
from kafkad.log.worker import NoWorkerError, Worker
from kafkad.wire.records import Record, build_batch
from tests.cleaner.compacting import NOW_MS, Partition, run
from tests.fakes import no_more_threads
from tests.workers import children, no_more_processes

SLOW = 1.0
"""Bytes a second: such a job lasts for as long as the test lets it."""


@pytest.fixture
def compactor() -> Iterator[Compactor]:
    compactor = Compactor()
    yield compactor
    compactor.close()
    assert children(MODULE) == []


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    partition = Partition(tmp_path / "t-0")
    for base in (0, 100):
        records = [Record(base + n, NOW_MS, b"%d" % (n % 7), b"v") for n in range(100)]
        partition.write(base, build_batch(records))
    partition.write(200)
    return partition


def test_a_worker_that_ended_by_itself_is_no_zombie() -> None:
    """Nobody asks it for anything for hours: its process entry goes all the same."""
    worker = Worker("tests.log.ends_at_once")
    while Path(f"/proc/{worker.pid}").exists():
        time.sleep(0.01)
    while not worker.has_ended:
        time.sleep(0.01)
    worker.close()


def wait_for_worker() -> int:
    while not (pids := children(MODULE)):
        time.sleep(0.01)
    return pids[0]


def test_a_worker_does_what_the_function_does(compactor: Compactor, partition: Partition) -> None:
    assert children(MODULE) == []
    result = compactor.submit(partition.job(), partition.offered.append).result()
    offered: list[Replacement] = []
    made = [path.read_bytes() for path in sorted(partition.directory.glob("*.cleaned"))]
    assert result.next_dirty == run(partition.job(), offered.append).next_dirty
    assert offered == partition.offered
    assert made == [path.read_bytes() for path in sorted(partition.directory.glob("*.cleaned"))]
    partition.take()
    assert partition.offsets() == list(range(193, 200))


def test_one_worker_does_all_jobs_and_gives_way_to_the_broker(compactor: Compactor, partition: Partition) -> None:
    compactor.submit(partition.job(), partition.offered.append).result()
    (pid,) = children(MODULE)
    lowest = 19
    mine = os.getpriority(os.PRIO_PROCESS, 0)
    assert os.getpriority(os.PRIO_PROCESS, pid) == min(mine + NICENESS, lowest)
    compactor.submit(partition.job(), partition.offered.append).result()
    assert children(MODULE) == [pid]


def test_a_sandbox_that_forbids_priorities_does_not_keep_a_worker_from_its_work(
    compactor: Compactor, partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(which: int, who: int, priority: int) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "setpriority", forbidden)
    compactor.submit(partition.job(), partition.offered.append).result()
    partition.take()
    assert partition.offsets() == list(range(193, 200))


def test_a_worker_keeps_to_its_buffer(compactor: Compactor, tmp_path: Path) -> None:
    partition = Partition(tmp_path / "many-0")
    keys = 200_000
    batches = [
        build_batch([Record(base + n, NOW_MS, b"%020d" % (base + n), bytes(60)) for n in range(1000)])
        for base in range(0, keys, 1000)
    ]
    partition.write(0, *batches)
    partition.write(keys)
    compactor.submit(partition.job(dedupe_buffer_bytes=24), partition.offered.append).result()
    (pid,) = children(MODULE)
    before = peak_bytes(pid)
    buffer = 12 << 20
    job = partition.job(dedupe_buffer_bytes=buffer, segment_bytes=1 << 30)
    assert compactor.submit(job, partition.offered.append).result().next_dirty == keys
    assert peak_bytes(pid) - before < buffer + (4 << 20)


def test_a_worker_gives_back_what_its_jobs_took(compactor: Compactor, tmp_path: Path) -> None:
    """It need not rest for that: where compaction never stops, a worker never ends."""
    partition = Partition(tmp_path / "many-0")
    keys = 200_000
    partition.write(
        0,
        *(
            build_batch([Record(base + n, NOW_MS, b"%020d" % (base + n), bytes(60)) for n in range(1000)])
            for base in range(0, keys, 1000)
        ),
    )
    partition.write(keys)
    compactor.submit(partition.job(dedupe_buffer_bytes=24), partition.offered.append).result()
    (pid,) = children(MODULE)
    before = own_bytes(pid)
    for _ in range(3):
        compactor.submit(partition.job(dedupe_buffer_bytes=12 << 20), partition.offered.append).result()
    assert own_bytes(pid) - before < 3 << 20


def own_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no such line")


def peak_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no peak")


def test_segments_are_offered_one_by_one(compactor: Compactor, partition: Partition) -> None:
    compactor.submit(partition.job(segment_bytes=1), partition.offered.append).result()
    assert [new.base for new in partition.offered] == [0, 100]


def test_damage_is_named(compactor: Compactor, partition: Partition) -> None:
    path = partition.path(100)
    batches = [build_batch([Record(100 + n, NOW_MS, b"k", b"v")]) for n in range(3)]
    batches[2][-1] ^= 1
    path.write_bytes(b"".join(batches))
    with pytest.raises(UncleanableError) as caught:
        compactor.submit(partition.job(), partition.offered.append).result()
    assert str(caught.value) == f"{path} at position {2 * len(batches[0])}: the batch fails its CRC"


def test_a_refusal_of_the_disk_is_no_damage(compactor: Compactor, partition: Partition) -> None:
    job = partition.job()
    partition.path(0).unlink()
    with pytest.raises(FileNotFoundError):
        compactor.submit(job, partition.offered.append).result()


def test_a_fault_of_ours_is_told_with_where_it_is(
    compactor: Compactor, partition: Partition, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UncleanableError, match="TypeError"):
        compactor.submit(partition.job(load_factor=None), partition.offered.append).result()
    assert "Traceback" in capfd.readouterr().err


def test_a_job_can_be_broken_off_and_the_next_one_done(compactor: Compactor, partition: Partition) -> None:
    future = compactor.submit(partition.job(max_bytes_per_second=SLOW), partition.offered.append)
    wait_for_worker()
    compactor.abandon()
    with pytest.raises(AbandonedError):
        future.result()
    assert compactor.submit(partition.job(), partition.offered.append).result().next_dirty == 200


def test_a_job_is_broken_off_while_its_worker_starts(
    compactor: Compactor, partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_go_on = threading.Event(), threading.Event()

    def start_slowly(module: str, niceness: int) -> Worker:
        begun.set()
        may_go_on.wait()
        return Worker(module, niceness)

    monkeypatch.setattr(compactor_module, "Worker", start_slowly)
    future = compactor.submit(partition.job(max_bytes_per_second=SLOW), partition.offered.append)
    begun.wait()
    compactor.abandon()
    may_go_on.set()
    with pytest.raises(AbandonedError):
        future.result()


@pytest.mark.parametrize(
    "refuse",
    [no_more_processes, no_more_threads, partial(no_more_threads, left=1)],
    ids=["no process", "no thread for the job", "no thread for the end of the process"],
)
def test_a_worker_that_cannot_be_started_is_no_fault_of_the_disk_and_is_tried_again(
    compactor: Compactor,
    partition: Partition,
    monkeypatch: pytest.MonkeyPatch,
    refuse: Callable[[pytest.MonkeyPatch], None],
) -> None:
    with monkeypatch.context() as faulty:
        refuse(faulty)
        with pytest.raises(NoWorkerError):
            compactor.submit(partition.job(), partition.offered.append).result()
    assert children(MODULE) == []
    refused = list(partition.offered)
    assert compactor.submit(partition.job(), partition.offered.append).result().next_dirty == 200
    assert (refused, len(partition.offered)) == ([], 1)


def test_an_idle_worker_that_went_is_replaced(compactor: Compactor, partition: Partition) -> None:
    compactor.submit(partition.job(), partition.offered.append).result()
    (pid,) = children(MODULE)
    os.kill(pid, signal.SIGKILL)
    while Path(f"/proc/{pid}").exists():
        time.sleep(0.01)
    assert compactor.submit(partition.job(), partition.offered.append).result().next_dirty == 200


def test_closing_breaks_off(partition: Partition) -> None:
    compactor = Compactor()
    future = compactor.submit(partition.job(max_bytes_per_second=SLOW), partition.offered.append)
    waiting = compactor.submit(partition.job(), partition.offered.append)
    wait_for_worker()
    compactor.close()
    assert isinstance(future.exception(), AbandonedError)
    assert waiting.cancelled()
    assert children(MODULE) == []


def test_a_worker_does_not_outlive_its_broker(partition: Partition) -> None:
    """Nobody told it: the end of the pipe does, in the middle of a job."""
    broker = (
        "import pickle, sys\n"
        "from kafkad.log.worker import Worker\n"
        f"worker = Worker({MODULE!r})\n"
        "print(worker._process.pid, flush=True)\n"
        "worker.ask(pickle.loads(sys.stdin.buffer.read()))\n"
    )
    with subprocess.Popen([sys.executable, "-c", broker], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(pickle.dumps(partition.job(max_bytes_per_second=SLOW)))
        process.stdin.close()
        pid = int(process.stdout.readline())
        while not reads_a_log(pid):
            time.sleep(0.01)
        process.kill()
    end = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert not Path(f"/proc/{pid}").exists()


def reads_a_log(pid: int) -> bool:
    with suppress(FileNotFoundError):  # closed between two looks
        return any(os.readlink(link).endswith(".log") for link in Path(f"/proc/{pid}/fd").iterdir())
    return False


class Waiting:
    def __init__(self) -> None:
        self.now = 100.0
        self.waited = 0.0

    def monotonic(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.waited += seconds
        self.now += seconds


def test_the_rate_is_held() -> None:
    waiting = Waiting()
    pace = Pace(1_000_000, waiting.monotonic, waiting.wait)
    for _ in range(10_000):
        pace.spend(1000)
    assert waiting.waited == pytest.approx(10, rel=0.01)
    waiting.now += 60  # what was not used is gone
    waiting.waited = 0
    for _ in range(1000):
        pace.spend(1000)
    assert waiting.waited == pytest.approx(1, rel=0.02)


def test_without_a_limit_nothing_waits() -> None:
    waiting = Waiting()
    pace = Pace(float("inf"), waiting.monotonic, waiting.wait)
    pace.spend(1 << 40)
    assert waiting.waited == 0
