from __future__ import annotations

import os
import threading
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkad_etl.driver.paths import Entry, exchange
from kafkad_etl.driver.sinks.files.merging import Merging, merges
from kafkad_etl.facts import hidden
from tests.spark.driver.sinks.disk import Crash, Disk
from tests.spark.driver.sinks.files.test_directory import (
    TARGET,
    batch_of,
    directory_on,
    layout_on,
    plan_of,
    rows_in,
    seen,
    write,
)


def entries(*names: str, size: int = 10) -> list[Entry]:
    return [Entry(name, size) for name in names]


def name_of(batch: int, job: str = "orders") -> str:
    return f"{job}-01234567-{batch:09d}-0000.zstd.parquet"


def test_only_small_files_of_the_job_in_directories_with_enough_of_them_are_merged() -> None:
    there = [
        *entries(*(f"day=1/{name_of(n)}" for n in range(3))),
        *entries("day=1/orders-89abcdef-merged-0000.zstd.parquet", "day=1/other.parquet"),
        *entries(*(f"day=1/{name_of(n, 'orders-eu')}" for n in range(3)), f"day=1/.{name_of(7)}", f"_x/{name_of(8)}"),
        Entry(f"day=1/{name_of(4)}", 1000),
        *entries(*(f"day=2/{name_of(n)}" for n in range(2))),
    ]
    (merge,) = merges(there, "orders", 3, 1000)
    assert merge.directory == "day=1"
    assert merge.names == [
        *(f"day=1/{name_of(n)}" for n in range(3)),
        "day=1/orders-89abcdef-merged-0000.zstd.parquet",
    ]


@given(st.lists(st.integers(1, 120), max_size=30), st.integers(2, 6))
def test_merges_take_each_file_once_and_make_none_too_large(sizes: list[int], min_files: int) -> None:
    there = [Entry(name_of(n), size) for n, size in enumerate(sizes)]
    found = merges(there, "orders", min_files, 100)
    taken = [entry for merge in found for entry in merge.files]
    assert len(taken) == len(set(taken))
    assert all(len(merge.files) > 1 and merge.bytes <= 100 for merge in found)
    small = [entry for entry in there if entry.size < 100]
    assert not found or len(small) >= min_files


@pytest.mark.parametrize("exchanges", [True, False])
@pytest.mark.parametrize("steps_left", range(60))
def test_rows_are_there_once_after_a_merge_that_was_cut_off_anywhere(steps_left: int, exchanges: bool) -> None:
    disk = Disk(exchanges=exchanges)
    plan = plan_of()
    for number in range(3):
        write(disk, directory_on(disk, plan), number, {"day=1/": 2, "": 1})
    expected = sum((rows_in(number, {"day=1/": 2, "": 1}) for number in range(3)), Counter[str]())
    lost: list[Counter[str]] = []
    disk.watch = lambda: lost.append(expected - rows_of(disk))
    for left in (steps_left, None):
        disk.steps_left = left
        try:
            compact(disk)
        except Crash:
            continue
    assert all(not missing for missing in lost), "a row was missing in between"
    assert rows_of(disk) == expected
    assert len([entry for entry in disk.under(TARGET) if not hidden(entry.path)]) == 2
    directory = directory_on(disk, plan)
    assert directory.finished(batch_of(2)) is not None, "a replay does not miss the files that were merged"
    assert rows_of(disk) == expected


SHAPE = {"day=1/": 2, "day=2/": 1}


@pytest.mark.parametrize("steps_left", range(40))
def test_readers_see_each_row_once_during_a_merge_and_after_its_crash(steps_left: int) -> None:
    disk = Disk()
    for number in range(3):
        write(disk, directory_on(disk, plan_of()), number, SHAPE)
    disk.write(f"{TARGET}/day=1/of-another-job.parquet", b"other!")
    expected = rows_of(disk)

    def once() -> None:
        assert rows_of(disk) == expected

    disk.watch = once
    disk.steps_left = steps_left
    try:
        compact(disk)
    except Crash:
        disk.steps_left = None
        compact(disk)
    assert len(disk.under(f"{TARGET}/day=1")) == 2
    assert [path for path in disk.files if "staging" in path or "merging" in path] == []


def test_a_file_that_comes_while_a_directory_is_exchanged_is_not_lost() -> None:
    disk = Disk()
    for number in range(3):
        write(disk, directory_on(disk, plan_of()), number, {"day=1/": 1})

    def comes() -> None:
        if any(path.endswith("swap.json") for path in disk.files):
            disk.watch = lambda: None
            disk.files[f"{TARGET}/day=1/late.parquet"] = b"late!"

    disk.watch = comes
    before = rows_of(disk)
    compact(disk)
    assert rows_of(disk) == before + Counter(["late"])


def test_directories_change_names_at_once_and_keep_their_rights(tmp_path: Path) -> None:
    one, other = tmp_path / "new", tmp_path / "day=1"
    for directory, name in ((one, "merged"), (other, "small")):
        directory.mkdir()
        (directory / name).touch()
    other.chmod(0o750)
    exchange(str(one), str(other))
    assert ([path.name for path in one.iterdir()], [path.name for path in other.iterdir()]) == (["small"], ["merged"])
    assert other.stat().st_mode & 0o777 == 0o750
    with pytest.raises(OSError):
        exchange(str(one), "/proc/self")


def test_who_lists_a_directory_sees_it_before_or_after_and_never_in_between(tmp_path: Path) -> None:
    one, other = tmp_path / "new", tmp_path / "day=1"
    one.mkdir()
    other.mkdir()
    (one / "merged").touch()
    for number in range(8):
        (other / f"small-{number}").touch()
    seen: set[int] = set()
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            seen.add(len(os.listdir(other)))

    thread = threading.Thread(target=look)
    thread.start()
    for _ in range(2000):
        exchange(str(one), str(other))
    done.set()
    thread.join()
    assert seen <= {1, 8}


def rows_of(disk: Disk) -> Counter[str]:
    """As `seen`, of files with more than one row."""
    rows: Counter[str] = Counter()
    for entry in disk.under(TARGET):
        rows.update(disk.read(f"{TARGET}/{entry.path}").decode().split("!")[:-1])
    return rows


def compact(disk: Disk) -> None:
    """As the driver's task does it, with Spark's part played by this."""
    plan = plan_of()
    merging = Merging(disk, disk, layout_on(plan), "orders")
    merging.settle()
    directory_on(disk, plan).settle()
    for merge in merging.merges(2, 1000):
        merging.settle()
        content = b"".join(disk.read(f"{TARGET}/{name}") for name in merge.names)
        disk.write(f"{merging.staging}/part-00000-5b0f-c000.zstd.parquet", content)
        disk.write(f"{merging.staging}/_SUCCESS", b"")
        done = merging.replace(merge, content.count(b"!"))
        assert (done.files_before, done.files_after) == (len(merge.files), 1)


def test_a_batch_that_was_cut_off_is_completed_before_its_files_are_merged() -> None:
    disk = Disk()
    for number in range(2):
        write(disk, directory_on(disk, plan_of()), number, {"": 3})
    disk.steps_left = 3 * 3 + 1 + 1 + 1  # staging, the manifest, one of three renames
    with pytest.raises(Crash):
        write(disk, directory_on(disk, plan_of()), 2, {"": 3})
    disk.steps_left = None
    assert sum(seen(disk).values()) == 7
    compact(disk)
    expected = sum((rows_in(number, {"": 3}) for number in range(3)), Counter[str]())
    assert rows_of(disk) == expected
    assert directory_on(disk, plan_of()).finished(batch_of(2)) is not None
    assert rows_of(disk) == expected
