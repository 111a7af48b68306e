from __future__ import annotations

import pytest

from kafkad_etl.driver.batches.offset_log import (
    BatchRange,
    PlannedBatch,
    PlannedWithout,
    initial,
    planned,
    planned_without,
    range_of,
    sync,
    take_back,
    without,
)
from tests.spark.driver.sinks.disk import Crash, Disk

FIRST = b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n{"orders":{"1":200,"0":199}}'
SECOND = b'v1\n{"batchWatermarkMs":5000,"batchTimestampMs":2,"conf":{}}\n{"orders":{"1":400,"0":399}}'
THIRD = b'v1\n{"batchWatermarkMs":9000,"batchTimestampMs":3,"conf":{}}\n{"orders":{"1":401,"0":399,"2":7}}'
BEGIN = b'\x00v1\n{"orders":{"0":10,"1":0}}'


def _disk(**files: bytes) -> Disk:
    disk = Disk()
    disk.files = {f"/cp/{name.replace('_', '/')}": content for name, content in files.items()}
    return disk


def test_a_batch_lies_between_its_own_offsets_and_those_before() -> None:
    disk = _disk(offsets_0=FIRST, offsets_1=SECOND, offsets_2=THIRD, sources_0_0=BEGIN)
    first, second = {"orders": {0: 199, 1: 200}}, {"orders": {0: 399, 1: 400}}
    assert range_of(disk, "/cp", 0) == BatchRange({"orders": {0: 10, 1: 0}}, first, 0, 1)
    assert range_of(disk, "/cp", 1) == BatchRange(first, second, 0, 2)
    assert range_of(disk, "/cp", 2) == BatchRange(second, {"orders": {0: 399, 1: 401, 2: 7}}, 5000, 3)


def test_sources_of_files_have_no_offsets() -> None:
    assert planned(b'v1\n{"batchWatermarkMs":3}\n{"logOffset":4}') == PlannedBatch({}, 3, 0)
    assert planned(b'v1\n{"batchWatermarkMs":3}\n-') == PlannedBatch({}, 3, 0)
    assert initial(BEGIN) == {"orders": {0: 10, 1: 0}}


def test_a_power_failure_in_a_batch_finds_its_plan_and_the_commit_before_it() -> None:
    disk = _disk(metadata=b"{}", offsets_0=FIRST, sources_0_0=BEGIN)
    sync(disk, "/cp", 0)
    for name, content in {"commits/0": b"v1\n{}", "offsets/1": SECOND, "commits/1": b"v1\n{}"}.items():
        disk.spill(f"/cp/{name}", content)
    sync(disk, "/cp", 1)
    disk.lose_power()
    kept = {"metadata", "offsets/0", "sources/0/0", "commits/0", "offsets/1"}
    assert set(disk.files) == {f"/cp/{name}" for name in kept}
    sync(disk, "/cp", 1)


def test_a_batch_misses_the_topics_that_it_begins_with_and_does_not_end_with() -> None:
    batch = BatchRange({"a": {0: 1}, "b": {0: 5}, "c": {0: 7}}, {"a": {0: 1}, "new": {0: 2}}, 0, 1)
    assert without(batch, []) == ["b", "c"]
    assert without(batch, ["c"]) == ["b"]


def test_only_the_plan_of_a_batch_that_is_without_topics_and_not_committed_is_taken_back() -> None:
    plan = b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":4,"conf":{}}\n{"refunds":{"0":3}}'
    done, crc = b"v1\n{}", b"crc"
    whole = {"offsets/0": FIRST, "offsets/.0.crc": crc, "commits/0": done, "sources/0/0": BEGIN}
    assert planned_without(_disk(), "/cp", []) is None
    assert planned_without(_disk(**{**whole, "offsets/1": SECOND}), "/cp", []) is None
    assert planned_without(_disk(**{**whole, "offsets/1": plan, "commits/1": done}), "/cp", []) is None
    disk = _disk(**{**whole, "offsets/1": plan, "offsets/.1.crc": crc})
    assert planned_without(disk, "/cp", ["orders"]) is None
    assert planned_without(disk, "/cp", []) == PlannedWithout(1, ["orders"])
    assert take_back(disk, "/cp", PlannedWithout(1, ["orders"]), lambda number, offsets: False)
    assert disk.files == _disk(**whole).files
    assert planned_without(_disk(offsets_0=plan, sources_0_0=BEGIN), "/cp", []) == PlannedWithout(0, ["orders"])


def test_the_plan_of_a_batch_that_a_sink_has_finished_stays_wherever_a_run_was_killed() -> None:
    plan = b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":4,"conf":{}}\n{"refunds":{"0":3}}'
    whole = {"offsets/0": FIRST, "commits/0": b"v1\n{}", "offsets/1": plan, "offsets/.1.crc": b"crc"}
    asked = []

    def is_finished(number: int, offsets: BatchRange) -> bool:
        asked.append((number, offsets))
        return True

    disk = _disk(**whole)
    assert not take_back(disk, "/cp", PlannedWithout(1, ["orders"]), is_finished)
    assert disk.files == _disk(**whole).files
    assert asked == [(1, BatchRange({"orders": {0: 199, 1: 200}}, {"refunds": {0: 3}}, 0, 4))]
    disk.steps_left = 1
    with pytest.raises(Crash):
        take_back(disk, "/cp", PlannedWithout(1, ["orders"]), lambda number, offsets: False)
    assert planned_without(disk, "/cp", []) == PlannedWithout(1, ["orders"]), "the sink is asked again"
