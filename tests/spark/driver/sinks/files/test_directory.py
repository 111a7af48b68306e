from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkad_etl.driver.sinks.files.directory import Layout, TargetDirectory, named
from kafkad_etl.driver.sinks.files.manifest import KEPT, Manifest, Manifests, redone, steps
from kafkad_etl.driver.terms import BatchId, JobFailed, Written
from kafkad_etl.job import Job, Offsets
from kafkad_etl.messages import Plan, Reading
from tests.spark.driver.sinks.disk import Crash, Disk, Entry

TARGET = "/lake/orders"
PART = "part-{:05d}-a0b1.c000.zstd.parquet"

batches = st.lists(
    st.dictionaries(st.sampled_from(["", "day=1/", "_topic=a/"]), st.integers(1, 3), max_size=3), min_size=1, max_size=4
)
"""For each batch: how many files in which directory."""


def plan_of(mode: str = "append", run: Any = "available-now", end: Offsets | None = None, owner: str = "/cp") -> Plan:
    sink = {"type": "parquet", "path": TARGET, "mode": mode}
    job = msgspec.convert({"version": 1, "name": "orders", "source": {"topics": ["t"]}, "sink": sink}, Job)
    reading = Reading(
        client={}, how="assign", what="", start={"t": {0: 0}}, end=end or {"t": {0: 1}}, fail_on_data_loss=True
    )
    return Plan(
        task="run", job=job, mode=run, reading=reading, checkpoint="/cp", owner=owner, checkpoint_id="0123456789"
    )


def layout_on(plan: Plan) -> Layout:
    return Layout.of(TARGET, plan)


def directory_on(disk: Disk, plan: Plan) -> TargetDirectory:
    layout = layout_on(plan)
    return TargetDirectory(disk, layout, Manifests(disk, layout.manifests), plan)


def batch_of(number: int) -> BatchId:
    return BatchId(number, "0123456789", {"t": {0: number}}, {"t": {0: number + 1}})


def rows_in(number: int, shape: dict[str, int]) -> Counter[str]:
    return Counter(f"{number}:{path}{part}" for path, parts in shape.items() for part in range(parts))


def seen(disk: Disk) -> Counter[str]:
    """The files that a reader of `/lake/orders/**` reads: part of a file would be an error for it."""
    rows: Counter[str] = Counter()
    for entry in disk.under(TARGET):
        content = disk.read(f"{TARGET}/{entry.path}").decode()
        assert content.endswith("!"), f"part of a file: {entry.path}"
        rows[content[:-1]] += 1
    return rows


def write(disk: Disk, directory: TargetDirectory, number: int, shape: dict[str, int]) -> Written:
    """As a FileSink does it, with Spark's part played by this."""
    batch = batch_of(number)
    if (written := directory.finished(batch)) is not None:
        return written
    staging = directory.staging(batch)
    for path, parts in shape.items():
        for part in range(parts):
            name = f"{staging}/{path}{PART.format(part)}"
            disk.spill(name, b"par")
            disk.remove(name)
            disk.spill(name, f"{number}:{path}{part}!".encode())
    disk.spill(f"{staging}/_SUCCESS", b"")
    return directory.appear(batch, sum(shape.values()))


def run(
    disk: Disk,
    plan: Plan,
    shapes: list[dict[str, int]],
    crashes: list[int],
    after_crash: Callable[[], None] = lambda: None,
) -> None:
    """As Spark does it: a batch that is not committed comes again in the next process."""
    for steps_left in [*crashes, None]:
        disk.steps_left = steps_left
        directory = directory_on(disk, plan)
        try:
            for number, shape in enumerate(shapes):
                if not disk.exists(f"/cp/commits/{number}"):
                    write(disk, directory, number, shape)
                    disk.write(f"/cp/commits/{number}", b"")
        except Crash:
            after_crash()


crashing = st.lists(st.integers(0, 40), max_size=4)


@given(batches, crashing)
def test_readers_see_each_row_once_wherever_runs_crash(shapes: list[dict[str, int]], crashes: list[int]) -> None:
    disk = Disk()

    def no_row_twice() -> None:
        assert max(seen(disk).values(), default=0) <= 1

    disk.watch = no_row_twice
    run(disk, plan_of(), shapes, crashes)
    assert seen(disk) == sum((rows_in(n, shape) for n, shape in enumerate(shapes)), Counter())
    assert [entry.path for entry in disk.under("/lake") if entry.path.startswith(".")] == []


@given(batches, st.sampled_from(["append", "overwrite"]), crashing)
def test_a_loss_of_power_is_a_crash_like_others(shapes: list[dict[str, int]], mode: str, crashes: list[int]) -> None:
    disk = Disk()
    run(disk, plan_of(mode), shapes, crashes, disk.lose_power)
    disk.lose_power()
    written = [rows_in(number, shape) for number, shape in enumerate(shapes)]
    assert seen(disk) == (written[-1] if mode == "overwrite" else sum(written, Counter()))


@given(batches, crashing)
def test_what_readers_have_seen_never_vanishes_when_batches_are_appended(
    shapes: list[dict[str, int]], crashes: list[int]
) -> None:
    disk = Disk()
    names: set[str] = set()

    def all_are_still_there() -> None:
        there = {entry.path for entry in disk.under(TARGET)}
        assert names <= there
        names.update(there)

    disk.watch = all_are_still_there
    run(disk, plan_of(), shapes, crashes)


@given(batches, st.sampled_from(["overwrite", "overwrite_partitions"]), crashing)
def test_overwriting_leaves_what_it_promises_after_a_crash_anywhere(
    shapes: list[dict[str, int]], mode: str, crashes: list[int]
) -> None:
    disk = Disk()
    disk.write(f"{TARGET}/day=1/old.parquet", b"old 1!")
    disk.write(f"{TARGET}/day=9/old.parquet", b"old 9!")
    run(disk, plan_of(mode), shapes, crashes)
    if mode == "overwrite":
        assert seen(disk) == rows_in(len(shapes) - 1, shapes[-1])
        return
    last: dict[str, Counter[str]] = {"day=1/": Counter(["old 1"]), "day=9/": Counter(["old 9"])}
    for number, shape in enumerate(shapes):
        last |= {path: rows_in(number, {path: parts}) for path, parts in shape.items()}
    assert seen(disk) == sum(last.values(), Counter())


def test_overwriting_always_shows_the_old_rows_or_the_new_ones_in_full() -> None:
    disk = Disk()
    shape = {"day=1/": 2, "day=2/": 1}
    write(disk, directory_on(disk, plan_of("overwrite")), 0, shape)
    old, new = rows_in(0, shape), rows_in(1, shape)

    def complete() -> None:
        rows = seen(disk)
        assert rows & old == old or rows & new == new

    disk.watch = complete
    write(disk, directory_on(disk, plan_of("overwrite")), 1, shape)
    assert seen(disk) == new


@given(st.integers(0, 12))
def test_a_batch_run_that_was_cut_off_is_undone_by_one_that_reads_the_same(steps_left: int) -> None:
    disk = Disk()
    disk.steps_left = steps_left
    shape = {"": 3}
    with pytest.raises(Crash):
        write(disk, directory_on(disk, plan_of(run="batch")), 0, shape)
        raise Crash
    cut_off = sum(seen(disk).values()) < 3 or any(".orders" in name for name in disk.files)
    disk.steps_left = None
    directory = directory_on(disk, plan_of(run="batch", end={"t": {0: 5}}))
    assert directory.settle_cut_off() == ""
    write(disk, directory, 0, shape)
    assert seen(disk) == (rows_in(0, shape) if cut_off else rows_in(0, shape) + rows_in(0, shape))


def test_a_batch_run_that_was_cut_off_is_completed_when_its_rows_do_not_come_again() -> None:
    disk = Disk()
    shape = {"": 3}
    directory = directory_on(disk, plan_of(run="batch"))
    disk.steps_left = 3 * 3 + 1 + 2  # staging, the manifest, one of three renames
    with pytest.raises(Crash):
        write(disk, directory, 0, shape)
    assert sum(seen(disk).values()) == 1
    disk.steps_left = None
    later = plan_of(run="batch")
    assert later.reading is not None
    later = msgspec.structs.replace(later, reading=msgspec.structs.replace(later.reading, start={"t": {0: 1}}))
    directory = directory_on(disk, later)
    warning = directory.settle_cut_off()
    assert "an earlier run was interrupted after it had written 3 rows (3 files)" in warning
    assert seen(disk) == rows_in(0, shape)
    assert directory.settle_cut_off() == ""


def test_a_replayed_batch_says_what_was_written_the_first_time() -> None:
    disk = Disk()
    first = write(disk, directory_on(disk, plan_of()), 4, {"day=1/": 2})
    assert first == Written(2, 2, sum(len(f"4:day=1/{part}!") for part in range(2)))
    assert directory_on(disk, plan_of()).finished(batch_of(4)) == first


def test_other_offsets_under_the_number_of_a_written_batch_stop_the_job() -> None:
    disk = Disk()
    write(disk, directory_on(disk, plan_of()), 4, {"": 1})
    with pytest.raises(JobFailed, match=r"batch 4 was written .* with other offsets .* /cp/sink/4\.json") as it:
        directory_on(disk, plan_of()).finished(batch_of(4)._replace(end={"t": {0: 99}}))
    assert it.value.failed.kind == "checkpoint"


def test_files_that_are_in_neither_place_are_not_passed_over() -> None:
    manifest = Manifest(batch=3, target="/t", staging="/s", moves=[("a", "x"), ("b", "y")], rows=2, bytes=2)
    with pytest.raises(JobFailed, match="1 of the 2 files of batch 3 are neither in /s nor in /t: y"):
        steps(manifest, {"a"}, set())


def test_a_copy_that_a_store_has_not_removed_at_its_source_is_not_made_again() -> None:
    manifest = Manifest(batch=3, target="/t", staging="/s", moves=[("a", "x"), ("b", "y")], rows=2, bytes=2)
    left = steps(manifest, {"a", "b"}, {"x"})
    assert [(step.do, step.path, step.to) for step in left] == [("rename", "/s/b", "/t/y"), ("remove", "/s", "")]


def test_empty_batches_leave_nothing_behind_and_old_manifests_go() -> None:
    disk = Disk()
    directory = directory_on(disk, plan_of())
    assert write(disk, directory, 0, {}) == Written(0)
    assert disk.files == {}
    for number in range(1, KEPT + 3):
        write(disk, directory, number, {"": 1})
    assert len(disk.under("/cp/sink")) == KEPT
    assert not disk.exists("/cp/sink/2.json")
    assert disk.exists("/cp/sink/3.json")


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_rows_whose_files_are_on_other_disks_are_not_written(mode: str) -> None:
    disk = Disk()
    write(disk, directory_on(disk, plan_of(mode)), 0, {"": 1})
    there = dict(disk.files)
    with pytest.raises(JobFailed, match=r"batch 1 has 500 rows, and none of its files is in /lake/\.orders-") as it:
        directory_on(disk, plan_of(mode)).appear(batch_of(1), 500)
    assert it.value.failed.kind == "sink"
    assert disk.files == there


def test_runs_that_no_lock_keeps_apart_have_different_staging() -> None:
    plans = [plan_of(), plan_of(run="batch"), plan_of(run="batch", owner="/home/a/.etl/orders")]
    assert len({layout_on(plan).staging for plan in plans}) == 3


def test_final_names_tell_job_checkpoint_and_batch() -> None:
    staged = [
        Entry("day=1/part-00000-5b0f.c000.zstd.parquet", 1),
        Entry("part-00001-5b0f-c000.json.gz", 1),
        Entry("part-00002", 1),
        Entry("part-00003-5b0fc123.c000.csv", 1),
    ]
    assert [final for _, final in named(staged, "orders-01234567-000000007")] == [
        "day=1/orders-01234567-000000007-0000.zstd.parquet",
        "orders-01234567-000000007-0001.json.gz",
        "orders-01234567-000000007-0002",
        "orders-01234567-000000007-0003.csv",
    ]


@pytest.mark.parametrize(
    ("start", "end", "again"),
    [
        ({"t": {0: 0, 1: 5}}, {"t": {0: 10, 1: 9}}, True),
        ({"t": {0: 0}}, {"t": {0: 11}}, True),
        ({"t": {0: 1}}, {"t": {0: 11}}, False),
        ({"t": {0: 0}}, {"t": {0: 9}}, False),
        ({"u": {0: 0}}, {"u": {0: 10}}, False),
        ({}, {}, False),
    ],
)
def test_a_run_redoes_another_when_it_reads_all_of_its_offsets(start: Offsets, end: Offsets, again: bool) -> None:
    manifest = Manifest(
        batch=0,
        start={"t": {0: 0, 1: 7}},
        end={"t": {0: 10, 1: 7}},
        target="/t",
        staging="/s",
        moves=[],
        rows=0,
        bytes=0,
    )
    assert redone(manifest, start, end, "") is again


def test_without_offsets_the_same_source_is_read_again() -> None:
    manifest = Manifest(batch=0, source="ab", target="/t", staging="/s", moves=[], rows=0, bytes=0)
    assert redone(manifest, {}, {}, "ab")
    assert not redone(manifest, {}, {}, "cd")
