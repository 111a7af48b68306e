"""The cleaner over a broker's real logs, with a worker that does what the test says."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from time import monotonic

import pytest

from kafkad.cleaner.cleaner import Cleaner
from kafkad.cleaner.settings import CleanerSettings
from kafkad.config import load
from kafkad.log import swap
from kafkad.log.compaction import (
    AbandonedError,
    CompactionJob,
    CompactionResult,
    CompactionStats,
    Offer,
    Poison,
    UncleanableError,
)
from kafkad.log.files import Files
from kafkad.log.indexed import Hole
from kafkad.log.log import Log
from kafkad.log.move import Moves
from kafkad.log.truncation import truncate_to
from kafkad.log.txnindex import AbortedTransaction
from kafkad.log.worker import NoWorkerError
from kafkad.names import TopicPartition
from kafkad.wire.records import Record
from tests.cleaner.cleaner import clean
from tests.fakes import FakeClock, hangs
from tests.log.conftest import records
from tests.one_broker import OneBroker

COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "1000", "min.cleanable.dirty.ratio": "0.1"}
A0 = TopicPartition("a", 0)


class HeldCompactor:
    """Jobs wait until the test does them, or says how they fail."""

    def __init__(self) -> None:
        self.job: CompactionJob | None = None
        self.abandoned = 0
        self.closed = False
        self._future: Future[CompactionResult] = Future()

    def submit(self, job: CompactionJob, offer: Offer) -> Future[CompactionResult]:
        assert self.job is None, "one job at a time"
        self.job, self._future, self.offer = job, Future(), offer
        return self._future

    def abandon(self) -> None:
        self.abandoned += 1
        if self.job is not None:
            self.fail(AbandonedError())

    def close(self) -> None:
        self.abandon()
        self.closed = True

    def fail(self, error: Exception) -> None:
        self.job = None
        self._future.set_exception(error)

    def do(self, log: Log, groups: int = 1, poison: tuple[Poison, ...] = ()) -> None:
        assert self.job is not None
        segments = [segment for segment in log.segments if segment.base < self.job.upto]
        assert [(s.base, s.size) for s in segments] == [tuple(s) for s in self.job.segments]
        at = len(segments) // groups
        stats = CompactionStats(bytes_read=1000, bytes_written=250, seconds=7.5, buffer_utilization=0.25)
        result = CompactionResult(self.job.upto, stats, poison)
        self.job = None
        for part in filter(None, (segments[:at], segments[at:])):
            self.offer(clean(log, part))
        self._future.set_result(result)


class Scene:
    def __init__(self, directory: Path, *settings: str) -> None:
        self.broker = OneBroker(directory, "log.cleaner.backoff.ms=0", *settings)
        self.compactors: list[HeldCompactor] = []
        self.cleaner = self.broker.run(self._start())

    async def _start(self) -> Cleaner:
        await self.broker.parts.cleaner.stop()
        broker = self.broker
        cleaner = Cleaner(broker.replicas, lambda: broker.config, broker.threads, broker.timers, self._make)
        cleaner.start()
        return cleaner

    def _make(self) -> HeldCompactor:
        self.compactors.append(HeldCompactor())
        return self.compactors[-1]

    @property
    def worker(self) -> HeldCompactor:
        return self.compactors[-1]

    def log(self, tp: TopicPartition = A0) -> Log:
        return self.broker.replicas.leader(*tp).log

    def dirty(self, topic: str, **configs: str) -> None:
        """A topic of which nothing is compacted yet, and all may be from now on."""
        self.broker.create(topic, configs={**COMPACTED, "cleanup.policy": "delete"})
        self.fill(topic)
        self.configure(topic, **configs)

    def fill(self, topic: str, keys: int = 3, count: int = 60) -> None:
        for n in range(count):
            self.broker.append(topic, 0, Record(0, 1000, b"k%d" % (n % keys), b"v%d" % n + b"." * 50))

    def until(self, condition: Callable[[], object]) -> None:
        end = monotonic() + 10

        def met() -> bool:
            assert monotonic() < end, "this takes too long"
            return bool(condition())

        self.broker.run_until(met)

    def until_job(self) -> CompactionJob:
        self.until(lambda: self.compactors and self.worker.job)
        assert self.worker.job is not None
        return self.worker.job

    def look(self) -> None:
        """Until the cleaner has seen everything once more, and found nothing that it would clean."""
        before = self.cleaner.probe.last_look_ms
        self.until(lambda: self.cleaner.probe.last_look_ms > before + 1)
        assert self.worker.job is None

    def checkpoint(self) -> str:
        """Of the directories that have one."""
        paths = [Path(directory) / "cleaner-offset-checkpoint" for directory in self.broker.directories]
        return "".join(path.read_text() for path in paths if path.exists())

    def cleaned_files(self) -> list[Path]:
        return [path for place in self.broker.directories for path in Path(place).glob("*/*.cleaned")]

    def configure(self, topic: str, **configs: str) -> None:
        wanted = {**COMPACTED, **{name.replace("_", "."): value for name, value in configs.items()}}
        self.broker.configs._topics[topic] = wanted
        self.broker.replicas.topic_config_changed(topic)

    def stop(self) -> None:
        self.broker.run(self.cleaner.stop())
        assert all(compactor.closed for compactor in self.compactors)
        self.broker.stop()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.stop()


def test_a_dirty_log_is_compacted_and_remembered(scene: Scene) -> None:
    scene.broker.create("plain", configs={"segment.bytes": "1000"})
    scene.fill("plain")
    scene.dirty("a")
    job = scene.until_job()
    assert (job.directory, job.first_dirty, job.upto) == (scene.log().directory, 0, scene.log().segments[-1].base)
    scene.worker.do(scene.log(), groups=2)
    scene.until(scene.checkpoint)
    assert scene.checkpoint() == f"0\n1\na 0 {job.upto}\n"
    assert len(scene.log().segments) == 3
    assert scene.cleaned_files() == []
    assert {record.key for record in records(scene.log())[:3]} == {b"k0", b"k1", b"k2"}
    scene.look()
    assert scene.cleaner.probe.jobs[0].bytes_written == 250


def test_a_job_says_how_much_there_is_of_transactions_that_end_behind_it(scene: Scene) -> None:
    scene.dirty("a", min_cleanable_dirty_ratio="1")
    active = scene.log().segments.active
    active.transactions.append(AbortedTransaction(7, 1, 60, 60))
    active.has_transactions = True
    scene.configure("a")
    assert scene.until_job().later_transactions == ((active.base, 34),)


def test_the_dirtiest_log_comes_first(scene: Scene) -> None:
    for topic in ("a", "b", "c"):
        scene.dirty(topic, min_cleanable_dirty_ratio="1")
    for topic, clean_segments in (("a", 3), ("b", 1), ("c", 2)):
        log = scene.log(TopicPartition(topic, 0))
        log.cleaned_until = log.segments[clean_segments].base
    order = []
    for topic in ("a", "b", "c"):
        scene.configure(topic)
    for _ in range(3):
        log = next(scene.log(TopicPartition(t, 0)) for t in "abc" if f"/{t}-0" in scene.until_job().directory)
        order.append(log.topic_partition.topic)
        scene.worker.do(log)
        scene.until(lambda log=log: not log.compacting)
    assert order == ["b", "c", "a"]


def test_what_is_clean_enough_rests(scene: Scene) -> None:
    scene.dirty("a", min_cleanable_dirty_ratio="1")
    scene.look()
    assert scene.cleaner.probe.dirtiest_share == 1.0
    first_dirty = scene.log().cleaned_until = scene.log().segments[3].base
    scene.look()
    assert 0 < scene.cleaner.probe.dirtiest_share < 1
    scene.configure("a", min_cleanable_dirty_ratio="0.0")
    assert scene.until_job().first_dirty == first_dirty


def test_what_is_too_old_goes_at_each_look(scene: Scene) -> None:
    scene.dirty("a", cleanup_policy="compact,delete", min_cleanable_dirty_ratio="1", retention_ms="1")
    scene.until(lambda: scene.log().start_offset == scene.log().end_offset == 60)
    assert len(scene.log().segments) == 1
    scene.look()


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_topic_that_is_deleted_during_a_look_is_left_alone(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, is_made_anew: bool
) -> None:
    """Its log knows the names of files that are gone, or another's by now."""
    scene.broker.run(scene.cleaner.stop())
    scene.dirty("a", cleanup_policy="compact,delete", retention_ms="1")
    replicas, old = scene.broker.replicas, scene.log()

    class Turns:
        async def give_way(self) -> None:
            replicas._stop(A0, replicas.leader(*A0).leader_epoch, delete=True)
            if is_made_anew:
                replicas.logs.create(A0, b"another topic id", old.config, directory=os.path.dirname(old.directory))

    monkeypatch.setattr("kafkad.cleaner.cleaner.Turns", Turns)
    assert scene.broker.run(scene.cleaner._choose()) is None
    assert all(directory.failure is None for directory in replicas.logs.directories)
    assert os.path.exists(f"{old.directory}/00000000000000000000.log") is is_made_anew


@pytest.mark.parametrize("what", ["truncated", "deleted", "not compacted", "moved", "offline"])
def test_the_product_of_a_log_that_changed_meanwhile_is_dropped(scene: Scene, what: str) -> None:
    scene.dirty("a")
    scene.until_job()
    log, worker = scene.log(), scene.worker
    Path(log.directory, "00000000000000000000.log.cleaned").write_bytes(b"half of it")
    if what == "truncated":
        scene.configure("a", min_compaction_lag_ms="1", cleanup_policy="compact")
        truncate_to(log, 5)
    elif what == "deleted":
        scene.broker.replicas.logs.delete(A0)
    elif what == "not compacted":
        scene.configure("a", cleanup_policy="delete")
    elif what == "moved":
        Moves(scene.broker.replicas.logs).start(A0, scene.broker.directories[1])
    else:
        scene.broker.replicas.logs._take_offline(scene.broker.replicas.logs.directories[0], "a test says so")
    scene.until(lambda: worker.abandoned)
    scene.until(lambda: not log.compacting)
    scene.look()
    if what in ("truncated", "not compacted", "moved"):
        scene.until(lambda: not scene.cleaned_files())
    assert not scene.checkpoint()


def test_what_a_worker_finds_among_the_files_of_a_later_log_is_not_reported(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.dirty("a")
    scene.until_job()
    log = scene.log()
    scene.broker.replicas.logs.delete(A0)
    scene.worker.fail(UncleanableError(log.directory, 17, "it ends too early"))
    scene.until(lambda: not log.compacting)
    assert "it ends too early" not in caplog.text


def test_what_is_finished_takes_its_place_while_the_rest_is_made(scene: Scene) -> None:
    """A disk need not hold a log twice; what came before damage stays."""
    scene.dirty("a")
    scene.until_job()
    log = scene.log()
    count, before = len(log.segments), {record.offset for record in records(log)}
    scene.worker.offer(clean(log, log.segments[:4]))
    scene.until(lambda: len(log.segments) == count - 3)
    assert scene.worker.job is not None, "it goes on"
    assert not scene.checkpoint()
    scene.worker.fail(UncleanableError(log.directory, 17, "damage"))
    scene.until(lambda: scene.cleaner.uncleanable)
    assert {record.offset for record in records(log)} < before
    assert len(log.segments) == count - 3


def test_others_get_their_turn_while_what_is_finished_takes_its_place(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[int] = []

    class Turns:
        async def give_way(self) -> None:
            turns.append(len(scene.log().segments))

    scene.dirty("a")
    scene.until_job()
    log = scene.log()
    parts = [log.segments[at : at + 2] for at in (0, 2, 4)]
    monkeypatch.setattr("kafkad.cleaner.cleaner.Turns", Turns)
    count = len(log.segments)
    for part in parts:
        scene.worker.offer(clean(log, part))
    scene.until(lambda: len(log.segments) == count - 3)
    assert turns == [count, count - 1, count - 2]


def test_no_job_begins_among_the_files_of_another(scene: Scene) -> None:
    """A crash during the swap of a later segment would take it for void because of them."""
    scene.dirty("a", min_cleanable_dirty_ratio="1")
    stale = Path(scene.log().directory, "00000000000000000005.index.cleaned")
    stale.write_bytes(b"of a job that was broken off")
    scene.look()
    assert stale.exists()
    scene.configure("a")
    scene.until_job()
    assert not stale.exists()


def test_a_full_disk_in_the_middle_leaves_nothing_behind(scene: Scene) -> None:
    scene.dirty("a")
    scene.until_job()
    files, log = scene.broker.replicas.logs.files, scene.log()

    def full(path: str) -> None:
        raise OSError(errno.ENOSPC, "full")

    scene.configure("a", min_cleanable_dirty_ratio="1")
    files.sync_directory = full  # type: ignore[method-assign]
    scene.worker.do(log, groups=3)
    scene.until(lambda: not log.compacting)
    assert scene.cleaned_files() == []
    assert scene.broker.replicas.logs.directories[0].failure is None
    assert not scene.checkpoint()


def test_what_a_disk_does_not_let_go_at_once_goes_later(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of an earlier compaction, whose names the present one needs."""
    scene.dirty("a")
    scene.until_job()
    log = scene.log()
    scene.worker.do(log)
    scene.until(lambda: log.cleaned_until)
    before = set(Path(log.directory).glob("*.deleted"))
    assert before

    def full(path: str) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(scene.broker.replicas.logs.files, "unlink", full)
    scene.fill("a")
    scene.until_job()
    scene.worker.do(log)
    scene.until(lambda: not log.compacting)
    monkeypatch.undo()
    assert {Path(due.path) for due in log.doomed.due(1 << 60)} == before


def test_a_log_that_changes_between_two_segments_keeps_the_rest(scene: Scene) -> None:
    scene.dirty("a")
    scene.until_job()
    log = scene.log()
    count = len(log.segments)
    scene.worker.offer(clean(log, log.segments[:4]))
    scene.until(lambda: len(log.segments) == count - 3)
    clean(log, log.segments[1:3])
    scene.configure("a", cleanup_policy="delete")
    scene.until(lambda: not log.compacting)
    assert len(log.segments) == count - 3
    assert scene.cleaned_files() == []
    assert not scene.checkpoint()


def test_a_log_that_changes_while_its_names_are_made_durable_is_done_again(scene: Scene) -> None:
    scene.dirty("a")
    scene.until_job()
    log = scene.log()
    scene.broker.replicas.logs.files.sync_directory = lambda path: scene.configure("a", cleanup_policy="delete")  # type: ignore[method-assign]
    scene.worker.do(log, groups=2)
    scene.until(lambda: not log.compacting)
    assert log.cleaned_until is None


def test_what_cannot_be_compacted_is_reported_once_and_left_alone(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.dirty("a")
    scene.until_job()
    scene.worker.fail(UncleanableError(scene.log().directory, 17, "a batch that fails its checksum"))
    scene.until(lambda: scene.cleaner.uncleanable)
    scene.look()
    assert list(scene.cleaner.uncleanable) == [A0]
    assert [r.message for r in caplog.records].count(
        f"a-0 will not be compacted until its settings change, damage in it is mended or the broker restarts: "
        f"{scene.log().directory} at position 17: a batch that fails its checksum"
    ) == 1
    scene.configure("a", segment_bytes="1001")
    assert not scene.cleaner.uncleanable
    scene.until_job()


def test_a_log_that_lost_the_end_of_a_file_is_left_alone_until_that_is_mended(scene: Scene) -> None:
    """The new segment would have none of its marks, and nobody would look for what is lost at another replica."""
    scene.broker.create("a", configs={**COMPACTED, "cleanup.policy": "delete"})
    scene.fill("a")
    log = scene.log()
    first, second = log.segments[:2]
    damage(log, Hole(first.size, first.size, second.base, second.base + 1, lost=True))
    scene.configure("a")
    scene.until(lambda: scene.cleaner.uncleanable)
    scene.look()
    assert f"offsets {second.base} to {second.base} are damaged or gone" in scene.cleaner.uncleanable[A0]
    assert not any(worker.job for worker in scene.compactors)
    damage(log)
    assert not scene.cleaner.uncleanable
    scene.until_job()


def damage(log: Log, *holes: Hole) -> None:
    """As recovery finds it in the first segment."""
    log.segments[0].holes = holes
    log.segments.become(log.segments.all)


def test_a_batch_that_cannot_be_read_is_named_once(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.dirty("a")
    poison = Poison("/data/a-0/00000000000000000000.log", 4711, 17, 20, "a record of 1000 bytes where 3 are left")
    for job in range(2):
        scene.until_job()
        scene.worker.do(scene.log(), poison=(poison,))
        scene.until(lambda: scene.worker.job is None and scene.checkpoint())
        scene.look()
        if not job:
            scene.fill("a")
    [said] = [record.message for record in caplog.records if "cannot be read" in record.message]
    assert said == (
        "a-0 has a batch at offset 17 that cannot be read (/data/a-0/00000000000000000000.log at position 4711: a "
        "record of 1000 bytes where 3 are left). Compaction leaves it as it is; a consumer that does not get past it "
        "has to be set to offset 20"
    )
    assert not scene.cleaner.uncleanable


def test_a_worker_that_dies_twice_over_a_log_gives_it_up(scene: Scene) -> None:
    scene.dirty("a")
    for _ in range(2):
        scene.until_job()
        scene.worker.fail(AbandonedError())
    scene.until(lambda: scene.cleaner.uncleanable)
    assert "died twice" in scene.cleaner.uncleanable[A0]


@pytest.mark.parametrize(("code", "offline"), [(errno.ENOSPC, False), (errno.EIO, True)])
def test_a_disk_that_refuses_the_worker(scene: Scene, code: int, offline: bool) -> None:
    scene.dirty("a")
    scene.until_job()
    scene.worker.fail(OSError(code, "no"))
    directory = scene.broker.replicas.logs.directories[0]
    scene.until(lambda: scene.worker.job or directory.failure)
    assert (directory.failure is not None) == offline


def test_an_internal_error_in_a_thread_for_a_disk_ends_no_worker(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing = ["at the start of a job", "at the removal of what it left"]

    def discard_all(files: Files, directory: str) -> None:
        if failing:
            raise ValueError(failing.pop())

    monkeypatch.setattr(swap, "discard_all", discard_all)
    scene.dirty("a")
    scene.until_job()
    assert scene.cleaner.dead_workers == 0
    assert [directory.failure for directory in scene.broker.replicas.logs.directories] == [None, None]
    assert caplog.messages.count("internal error in a thread that waits for a disk") == 2


def test_a_topic_that_is_deleted_while_a_job_begins_costs_no_directory(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted: list[str] = []

    def listed(files: Files, directory: str) -> None:
        logs = scene.broker.replicas.logs
        logs.delete(A0)  # the loop does nothing else meanwhile
        deleted.append(directory)
        os.listdir(directory)

    monkeypatch.setattr(swap, "discard_all", listed)
    scene.dirty("a")
    scene.until(lambda: deleted)
    scene.look()
    assert [directory.failure for directory in scene.broker.replicas.logs.directories] == [None, None]
    assert scene.cleaner.dead_workers == 0


@pytest.mark.parametrize("step", ["sync_directory", "list_files"])
def test_a_disk_that_fails_while_a_log_changes_is_not_passed_over(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """It tells of a lost write once: in the fsync of new names, or while what a compaction left is removed."""
    scene.dirty("a")
    scene.until_job()

    def fail(path: str) -> None:
        scene.configure("a", cleanup_policy="delete")  # the loop does nothing else meanwhile
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(scene.broker.replicas.logs.files, step, fail)
    log = scene.log()
    if step == "sync_directory":
        scene.worker.do(log)
    else:
        scene.worker.fail(UncleanableError(log.directory, 17, "damage"))
    scene.until(lambda: not log.compacting)
    assert [bool(directory.failure) for directory in scene.broker.replicas.logs.directories] == [True, False]


def test_a_disk_that_hangs_holds_up_no_compaction_on_another(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.broker.run(scene.cleaner.stop())
    scene.dirty("a")
    [another] = set(scene.broker.directories) - {scene.log().log_directory}
    hangs(monkeypatch, another)
    scene.cleaner = scene.broker.run(scene._start())
    for _ in range(2):
        job = scene.until_job()
        scene.worker.do(scene.log())
        scene.until(lambda upto=job.upto: f"a 0 {upto}\n" in scene.checkpoint())
        scene.look()
        scene.fill("a")


def test_a_disk_that_hangs_gets_no_other_worker_to_wait_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path, "log.cleaner.threads=2")
    scene.broker.run(scene.cleaner.stop())
    clock = scene.broker.replicas.logs.clock = FakeClock()
    scene.dirty("a")
    for topic in ("b", "c"):
        scene.broker.create(topic, configs=COMPACTED)
    scene.dirty("d")
    waits, another, sound = (scene.log(TopicPartition(topic, 0)) for topic in ("a", "c", "d"))
    assert waits.log_directory == another.log_directory != sound.log_directory
    goes_on = hangs(monkeypatch, waits.log_directory)
    scene.cleaner = scene.broker.run(scene._start())
    job = scene.until_job()
    clock.advance(1_000)
    for topic in ("c", "d"):
        scene.fill(topic)
    scene.worker.do(sound)
    scene.until(lambda: sound.cleaned_until == job.upto)
    assert scene.until_job().directory == sound.directory
    assert (waits.compacting, another.compacting) == (True, False)
    goes_on.set()
    scene.worker.do(sound)
    scene.until(lambda: another.compacting)
    scene.stop()


def test_others_are_compacted_at_once_while_a_log_that_found_no_room_rests(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "log.cleaner.backoff.ms=600000")
    scene.broker.run(scene.cleaner.stop())
    for topic in ("a", "b", "c"):
        scene.dirty(topic)
    scene.cleaner = scene.broker.run(scene._start())
    refused = scene.until_job().directory
    scene.worker.fail(OSError(errno.ENOSPC, "no"))
    other = scene.until_job().directory

    def full(path: str) -> None:
        raise OSError(errno.ENOSPC, "full")

    scene.broker.replicas.logs.files.sync_directory = full  # type: ignore[method-assign]
    [log] = [log for log in scene.broker.replicas.logs.logs.values() if log.directory == other]
    scene.worker.do(log)
    last = scene.until_job().directory
    assert {os.path.basename(path) for path in (refused, other, last)} == {"a-0", "b-0", "c-0"}
    scene.stop()


def test_a_worker_that_cannot_be_started_costs_neither_log_nor_directory(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.dirty("a")
    for _ in range(3):
        scene.until_job()
        scene.worker.fail(NoWorkerError("no process"))
    scene.until_job()
    assert [directory.failure for directory in scene.broker.replicas.logs.directories] == [None, None]
    assert (scene.cleaner.uncleanable, scene.cleaner.dead_workers) == ({}, 0)
    assert caplog.messages.count("a-0 is compacted later: no process") == 3
    scene.worker.do(scene.log())
    scene.until(lambda: scene.log().cleaned_until)


def test_a_cleaner_rests_whatever_is_set() -> None:
    for backoff_ms, rest_ms in ((0, 100), (15_000, 15_000)):
        config = load(None, [f"log.cleaner.backoff.ms={backoff_ms}"], {})
        assert CleanerSettings.of(config).backoff_ms == rest_ms


def test_new_settings_begin_with_new_workers(scene: Scene) -> None:
    scene.dirty("a")
    job = scene.until_job()
    assert (job.dedupe_buffer_bytes, job.load_factor) == (134_217_728, 0.9)
    scene.cleaner.settings_changed()
    scene.broker.settle()
    assert scene.worker.abandoned == 0, "nothing about the cleaner has changed"
    first = scene.worker
    scene.broker.parts.settings.override(
        cluster_wide={"log.cleaner.threads": "2", "log.cleaner.io.max.bytes.per.second": "1000"}, per_broker={}
    )
    scene.cleaner.settings_changed()
    scene.until(lambda: first.closed and len(scene.compactors) == 3)
    scene.until(lambda: any(compactor.job for compactor in scene.compactors))
    [job] = [compactor.job for compactor in scene.compactors if compactor.job]
    assert (job.dedupe_buffer_bytes, job.max_bytes_per_second) == (67_108_864, 500.0)
    assert scene.cleaner.dead_workers == 0


def test_without_the_cleaner_nothing_is_compacted(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "log.cleaner.enable=false")
    scene.dirty("a")
    scene.broker.settle()
    assert scene.compactors == []
    scene.stop()
