from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from kafkad.names import TopicPartition
from kafkad_etl.cluster.losses import Gap
from kafkad_etl.messages import (
    Batch,
    Committed,
    Ended,
    Failed,
    OpenWindows,
    Plan,
    Query,
    Reading,
    Rows,
    Started,
    Tasks,
    Unsure,
    Warned,
)
from kafkad_etl.planning.planned import PartitionRange, PlannedRun
from kafkad_etl.reporting import How, Reporter, RunOutcome, reporter
from kafkad_etl.reporting.state import Span, advance, begin, rows_per_second, seconds_left
from kafkad_etl.reporting.text import offsets_text, summary
from tests.spark.jobs import job

Approved = Callable[[str, str], None]


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def planned() -> PlannedRun:
    start = {"orders": {0: 0, 1: 0}, "refunds": {0: 500}}
    reading = Reading(client={}, how="subscribe", what="orders,refunds", start=start, end={}, fail_on_data_loss=True)
    plan = Plan(task="run", job=job(), mode="available-now", reading=reading)
    reach = tuple(
        PartitionRange(TopicPartition(topic, p), first, end)
        for topic, p, first, end in (("orders", 0, 0, 600_000), ("orders", 1, 0, 400_000), ("refunds", 0, 500, 500))
    )
    lost = (Gap(TopicPartition("refunds", 0), 450, 500),)
    return PlannedRun(plan=plan, reach=reach, record_bytes={"orders": 97.0}, lost=lost)


def batch(number: int, **others: Any) -> Batch:
    ends = {"orders": {0: 60_000 * (number + 1), 1: 40_000 * (number + 1)}}
    starts = {"orders": {0: 60_000 * number, 1: 40_000 * number}}
    counts = {"rows_read": 100_000, "rows_written": 99_990, "bad": 3, "late": 7, "files": 2, "bytes_written": 4_000_000}
    return Batch(
        batch=number, start=starts, end=ends, seconds=9.5, watermark="2026-11-21T10:58:00Z", **(counts | others)
    )


def story(how: How, stream: io.StringIO, *, outcome: RunOutcome = "done") -> Reporter:
    """Two batches in twenty seconds, and a third that is on its way when the run ends."""
    clock = Clock()
    shown = reporter(how, planned(), stream, guarantee="exactly once: …", log="/state/logs/j.log", clock=clock)
    shown.event(Started(application="local-1", spark="4.0.0", pid=7))
    clock.now += 6
    shown.tick()
    shown.event(Query(columns=[("id", "bigint")]))
    shown.event(Tasks(batch=0, done=1, total=2))
    for number in (0, 1):
        clock.now += 10
        shown.event(batch(number, duplicates=number))
    shown.event(Warned("group g has members"))
    shown.event(Tasks(batch=2, done=1, total=8))
    clock.now += 10
    shown.tick()
    shown.event(OpenWindows(groups=3, first="2026-11-21T10:58:00Z", last="2026-11-21T11:00:00Z"))
    shown.event(Ended("done"))
    shown.close(outcome)
    return shown


def test_plain_lines_every_ten_seconds_and_a_summary(approved: Approved) -> None:
    stream = io.StringIO()
    story("plain", stream)
    approved("etl-run-plain", stream.getvalue())


def test_a_picture_on_a_terminal(approved: Approved) -> None:
    from rich.console import Console

    from kafkad_etl.reporting.live import picture

    stream = io.StringIO()
    state = begin(1000.0, planned().plan.reading.start, {"orders": {0: 600_000, 1: 400_000}}, {"orders": 97.0})  # type: ignore[union-attr]
    console = Console(file=stream, width=120, color_system=None)
    console.print(picture(state))
    now = 1000.0
    for event in (Query(columns=[]), batch(0), Tasks(batch=1, done=3, total=8)):
        now += 10
        state = advance(state, event, now)
    console.print(picture(state))
    approved("etl-run-rich", "".join(f"{line.rstrip()}\n" for line in stream.getvalue().splitlines()))


def test_the_reporter_for_terminals_leaves_warnings_and_the_summary_behind() -> None:
    stream = io.StringIO()
    story("rich", stream, outcome="stopped")
    text = stream.getvalue()
    assert "warning: group g has members" in text
    assert "stopped: 200,000 rows read, 199,980 written, 6 bad, 14 dropped late, 1 duplicates" in text


def test_json_lines_have_every_event_and_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    story("json", stream)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["type"] for line in lines] == [
        "started", "query", "tasks", "batch", "batch", "warned", "tasks", "open-windows", "ended", "summary",
    ]  # fmt: skip
    summary = lines[-1]
    assert (summary["rows_read"], summary["rows_written"], summary["late"], summary["bad"]) == (200_000, 199_980, 14, 6)
    assert summary["offsets"]["orders"] == {"0": {"start": 0, "end": 120_000}, "1": {"start": 0, "end": 80_000}}
    assert (summary["open_windows"], summary["lost"]) == (3, 50)
    assert stream.getvalue() == ""


def test_rows_are_a_table_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    shown = reporter("plain", planned(), stream, clock=Clock())
    shown.event(Rows(columns=["id", "name"], rows=[["1", "a"], ["22", None]]))
    assert capsys.readouterr().out == "id  name\n1   a\n22  -\n"


def test_a_partition_that_is_new_begins_where_its_first_batch_began() -> None:
    state = begin(0, {"t": {0: 5}}, {"t": {0: 9}})
    starts, ends, latest = {"t": {0: 5, 1: 0}}, {"t": {0: 9, 1: 4}}, {"t": {0: 9, 1: 6}}
    event = Batch(batch=0, start=starts, end=ends, latest=latest, rows_read=8, rows_written=8, seconds=1)
    assert advance(state, event, 1).spans == {"t": {0: Span(5, 9, 9), 1: Span(0, 4, 6)}}


def test_a_batch_that_comes_again_does_not_hide_what_is_behind_it() -> None:
    state = begin(0, {"t": {0: 0}}, {"t": {0: 380_000}})
    again = Batch(batch=0, end={"t": {0: 10_000}}, latest={"t": {0: 10_000}}, rows_read=1, rows_written=1, seconds=1)
    assert advance(state, again, 1).spans == {"t": {0: Span(0, 10_000, 380_000)}}
    assert advance(state, again, 1).lag == 370_000


def test_what_is_known_of_a_run_that_was_cut_off_is_in_its_summary(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    for how in ("plain", "json"):
        shown = reporter(how, planned(), stream, clock=Clock())  # type: ignore[arg-type]
        shown.event(Query(columns=[]))
        shown.event(Committed(batch=4, count=2, end={"orders": {0: 900}}))
        shown.event(Unsure(topic="out", rows=30_000))
        shown.close("interrupted")
    text = stream.getvalue()
    assert "orders: 0: 0-900" in text
    assert "2 more batches were committed while Spark was shutting down; their rows are not counted here" in text
    assert "up to 30,000 rows more in topic out, from a batch that was not committed and will be written again" in text
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (summary["batches_not_told"], summary["rows_perhaps_written"]) == (2, 30_000)


def test_rates_are_of_the_last_minute() -> None:
    state = begin(0, {"t": {0: 0}}, {"t": {0: 100_000}})
    assert rows_per_second(state, "t") is None and seconds_left(state, "t") is None
    for now, end in ((10, 100), (80, 10_000), (90, 20_000)):
        state = advance(state, Batch(batch=0, end={"t": {0: end}}, rows_read=1, rows_written=1, seconds=1), now)
    assert rows_per_second(state, "t") == 1000
    assert seconds_left(state, "t") == 80


def test_a_failure_is_remembered() -> None:
    failed = Failed(kind="spark", text="no")
    assert advance(begin(0, {}, {}), failed, 1).failed == failed


def test_many_partitions_are_not_all_named() -> None:
    assert offsets_text({p: Span(0, 5, 5) for p in range(14)}).endswith("11: 0-5  and 2 more partitions")
    assert offsets_text({}) == "no partitions"


@pytest.mark.parametrize(("count", "more"), [(1, ""), (20, ""), (21, "1 more warning"), (5000, "4,980 more warnings")])
def test_of_many_warnings_the_first_and_the_last_are_kept_and_the_others_counted(count: int, more: str) -> None:
    state = begin(0, {}, {})
    for number in range(count):
        state = advance(state, Warned(f"check 1 failed in batch {number}"), number)
        state = advance(state, Warned(f"check 1 failed in batch {number}"), number)
    lines = [line.strip() for line in summary(state, "done", 1)]
    told = [line for line in lines if line.startswith("warning: ")]
    kept = range(count) if count <= 20 else [*range(10), *range(count - 10, count)]
    assert told == [f"warning: check 1 failed in batch {number}" for number in kept]
    assert (f"{more}; the last ones were:" in lines) is bool(more)
