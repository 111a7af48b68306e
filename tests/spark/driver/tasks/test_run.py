"""Batches of stateless jobs, from a topic to a sink in memory."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kafkad_etl.driver.source import framing
from kafkad_etl.driver.tasks import run as running
from kafkad_etl.driver.tasks.preview import preview
from kafkad_etl.driver.tasks.run import edges_of, run
from kafkad_etl.driver.terms import BatchId, JobFailed, Written
from kafkad_etl.messages import Batch, Event, Failed, Plan, Query, Reading, Retrying, Rows, Stop, Tasks, Warned
from tests.broker import KafkadProcess
from tests.spark import schema_registry
from tests.spark.driver.rows import IN_PROCESS, Front, Kept, added, live_plan, produced

pytestmark = IN_PROCESS

ROWS = 1200
BAD = {7: b'{"id": "x"}', 808: b"nonsense", 1100: None}
JSON = {"format": "json", "schema": "id BIGINT, name STRING"}


@pytest.fixture(scope="module")
def topic(broker: KafkadProcess) -> str:
    """Three of its rows could not be parsed; each name occurs twice."""
    records = []
    for at in range(ROWS):
        value = BAD.get(at, json.dumps({"id": at, "name": f"n{at // 2}"}).encode())
        records.append((at % 2, str(at).encode(), value))
    produced(broker.bootstrap, "run", records, partitions=2)
    return "run"


def _failed(spark: Any, plan: Any, sink: Kept) -> Failed:
    with pytest.raises(JobFailed) as error:
        run(spark, plan, Front(), edges_of(spark, plan, sink))
    return error.value.failed


def test_bad_rows_become_dead_letters_and_the_rest_is_written(
    spark: Any, broker: KafkadProcess, topic: str, tmp_path: Path
) -> None:
    produced(broker.bootstrap, "run.dlq", [], partitions=1)
    blocks = {
        "value": JSON | {"bad_rows": {"action": "dead_letter", "topic": "run.dlq"}},
        "transform": {"steps": [{"name": "even", "sql": "SELECT * FROM source WHERE id % 2 = 0"},
                                {"name": "named", "sql": "SELECT id, concat(name, '!') AS n FROM even"}]},
        "checks": [{"sql": "SELECT count(*) FROM out WHERE id % 2 = 1", "expect": 0},
                   {"sql": "SELECT max(id) < 500 FROM out", "expect": True, "on_fail": "warn"}],
    }  # fmt: skip
    front, sink = Front(), Kept()
    plan = live_plan(broker.bootstrap, topic, 2, blocks, tmp_path / "checkpoint")
    assert run(spark, plan, front, edges_of(spark, plan, sink)) == "done"
    assert front.of(Query)[0].columns == [("id", "bigint"), ("n", "string")]
    batches = front.of(Batch)
    assert [batch.batch for batch in batches] == [0, 1, 2]
    assert sum(batch.rows_read for batch in batches) == ROWS
    assert [sum(batch.bad for batch in batches), sum(batch.rows_written for batch in batches)] == [3, len(sink.rows)]
    assert sorted(row.id for row in sink.rows) == [at for at in range(0, ROWS, 2) if at not in BAD]
    assert (batches[0].start, batches[-1].end) == ({"run": {0: 0, 1: 0}}, {"run": {0: 600, 1: 600}})
    assert all(batch.latest == {"run": {0: 600, 1: 600}} for batch in batches)
    assert len(front.of(Warned)) == 2 and front.of(Tasks)
    letters = _letters(broker.bootstrap)
    assert [letter[:2] for letter in letters] == [(str(at).encode(), value) for at, value in BAD.items()]
    assert letters[0][2] == {
        "error": '\'"x"\' is not BIGINT', "column": "id", "job": "a", "topic": "run", "partition": "1", "offset": "3",
        "timestamp": letters[0][2]["timestamp"],
    }  # fmt: skip
    again = Front()
    assert run(spark, plan, again, edges_of(spark, plan, sink)) == "done"
    assert again.of(Batch) == []


def _letters(bootstrap: str) -> list[tuple[Any, Any, dict[str, str]]]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "letters"})
    consumer.assign([TopicPartition("run.dlq", 0, 0)])
    found = consumer.consume(3, timeout=20)
    consumer.close()
    letters = [(it.key(), it.value(), {name: text.decode() for name, text in it.headers()}) for it in found]
    return sorted(letters, key=lambda letter: int(letter[0]))


def test_a_query_that_cannot_start_is_not_said_to_run(
    spark: Any, broker: KafkadProcess, topic: str, tmp_path: Path
) -> None:
    front, sink = Front(), Kept()
    (tmp_path / "file").touch()
    plan = live_plan(broker.bootstrap, topic, 2, {"value": JSON}, tmp_path / "file" / "checkpoint")
    with pytest.raises(JobFailed):
        run(spark, plan, front, edges_of(spark, plan, sink))
    assert front.of(Query) == []


def test_all_rows_that_were_read_are_counted_though_a_check_reads_only_some(
    spark: Any, broker: KafkadProcess, topic: str, tmp_path: Path
) -> None:
    blocks = {
        "value": JSON | {"bad_rows": {"action": "drop"}},
        "checks": [{"sql": "SELECT id >= 0 FROM out LIMIT 1", "expect": True}],
    }
    front, sink = Front(), Kept()
    plan = live_plan(broker.bootstrap, topic, 2, blocks, tmp_path / "checkpoint")
    assert run(spark, plan, front, edges_of(spark, plan, sink)) == "done"
    batches = front.of(Batch)
    assert [sum(batch.rows_read for batch in batches), sum(batch.bad for batch in batches)] == [ROWS, 3]
    assert sum(batch.rows_written for batch in batches) == len(sink.rows) == ROWS - 3


def test_bad_rows_stop_a_job_before_anything_of_their_batch_is_written(
    spark: Any, broker: KafkadProcess, topic: str, tmp_path: Path
) -> None:
    sink = Kept()
    plan = live_plan(broker.bootstrap, topic, 2, {"value": JSON}, tmp_path / "checkpoint")
    failed = _failed(spark, plan, sink)
    assert failed.kind == "bad-rows" and sink.rows == []
    assert failed.text == "1 of 500 rows could not be parsed\n  run-1 at offset 3: id: '\"x\"' is not BIGINT"
    some = JSON | {"bad_rows": {"action": "drop", "max": 1}}
    failed = _failed(spark, live_plan(broker.bootstrap, topic, 2, {"value": some}, tmp_path / "checkpoint"), sink)
    assert "2 of 1,000 rows could not be parsed, more than bad_rows.max allows (1)" in failed.text
    assert list(sink.batches) == [0]


def test_one_batch_deduplicates_and_counts_what_it_left_out(
    spark: Any, broker: KafkadProcess, topic: str, tmp_path: Path
) -> None:
    blocks = {
        "run": {"mode": "batch"},
        "value": JSON | {"bad_rows": {"action": "drop"}},
        "transform": {"deduplicate": {"keys": ["name"]}},
        "sink": {"type": "none"},
    }
    front, sink = Front(), Kept()
    plan = live_plan(broker.bootstrap, topic, 2, blocks, tmp_path / "checkpoint")
    assert run(spark, plan, front, edges_of(spark, plan, sink)) == "done"
    (batch,) = front.of(Batch)
    assert (batch.rows_read, batch.bad, batch.rows_written, batch.duplicates) == (1200, 3, 600, 597)
    assert sink.rows[0].__fields__ == ["id", "name"]
    assert not (tmp_path / "checkpoint").exists()


def test_raw_rows_are_counted_while_they_pass_in_one_job_of_spark(
    spark: Any, broker: KafkadProcess, topic: str, tmp_path: Path
) -> None:
    front, sink = Front(), Kept()
    blocks = {
        "run": {"mode": "batch"},
        "transform": {"sql": "SELECT value AS credit_limit FROM source WHERE _offset < 10"},
    }
    plan = live_plan(broker.bootstrap, topic, 2, blocks, tmp_path / "checkpoint")
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup(plan.job.name))
    assert run(spark, plan, front, edges_of(spark, plan, sink)) == "done"
    (batch,) = front.of(Batch)
    assert (batch.rows_read, batch.rows_written) == (1200, 20)
    assert len(set(tracker.getJobIdsForGroup(plan.job.name)) - before) == 1


def test_a_stop_and_a_limit_end_a_run_after_a_whole_batch(
    spark: Any, broker: KafkadProcess, topic: str, tmp_path: Path
) -> None:
    blocks = {"run": {"mode": "continuous", "stop_after": {"idle": "1s"}}}
    front, sink = Front(stop_at=0), Kept()
    plan = live_plan(broker.bootstrap, topic, 2, blocks, tmp_path / "checkpoint")
    assert run(spark, plan, front, edges_of(spark, plan, sink)) == "stopped"
    told = {batch.batch for batch in front.of(Batch)}
    assert 0 in told and len(told) <= 2
    limited, rest = Front(), Kept()
    plan = live_plan(broker.bootstrap, topic, 2, blocks, tmp_path / "checkpoint", limit=100)
    assert run(spark, plan, limited, edges_of(spark, plan, rest)) == "limit"
    assert len(limited.of(Batch)) == 1
    idle, last = Front(), Lasting()
    plan = live_plan(broker.bootstrap, topic, 2, blocks, tmp_path / "checkpoint")
    assert run(spark, plan, idle, edges_of(spark, plan, last)) == "limit"
    assert last.renewed > 0
    written = [batch for each in (front, limited, idle) for batch in each.of(Batch)]
    assert sum(batch.rows_written for batch in written) == ROWS
    assert [batch.batch for batch in written] == [0, 1, 2][-len(written) :]


class Lasting(Kept):
    """Counts how often it was to renew what it leaves elsewhere."""

    renewed = 0

    def renew(self) -> None:
        self.renewed += 1


class Uncommitted(Kept):
    """Leaves no room for Spark's note that batch 0 is committed, the first time. `meanwhile` happens in each batch."""

    def __init__(self, checkpoint: Path, meanwhile: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.note = checkpoint / "commits/0"
        self._meanwhile = meanwhile

    def write(self, rows: Any, batch: BatchId) -> Written:
        if batch.number in self.batches:
            self.note.rmdir()
        else:
            self.note.mkdir(parents=True)
        self._meanwhile()
        return super().write(rows, batch)


class Stopping:
    """A front that asks for a stop while a batch is written, which goes on once the run knows."""

    def __init__(self) -> None:
        self._asked, self._known = threading.Event(), threading.Event()

    def ask(self) -> None:
        self._asked.set()
        assert self._known.wait(30)

    @property
    def stop(self) -> Stop | None:
        if not self._asked.is_set():
            return None
        if threading.current_thread() is threading.main_thread():
            self._known.set()
        return Stop()

    def send(self, event: Event) -> None:
        """Is not interested."""


def test_a_batch_that_cannot_be_committed_is_a_failure_also_of_a_run_that_is_to_stop(
    spark: Any, broker: KafkadProcess, topic: str, tmp_path: Path
) -> None:
    front = Stopping()
    sink = Uncommitted(tmp_path, front.ask)
    plan = live_plan(broker.bootstrap, topic, 2, {}, tmp_path)
    with pytest.raises(JobFailed) as error:
        run(spark, plan, front, edges_of(spark, plan, sink))
    assert error.value.failed.kind == "checkpoint"


def test_rows_of_a_batch_that_was_not_committed_are_not_counted_for_the_limit(
    spark: Any, broker: KafkadProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "failure_of", lambda _: Failed(kind="spark", text="a disk is away", retriable=True))
    front, sink = Front(), Uncommitted(tmp_path)
    plan = live_plan(broker.bootstrap, topic, 2, {"run": {"retries": {"backoff": "1ms"}}}, tmp_path, limit=100)
    assert run(spark, plan, front, edges_of(spark, plan, sink)) == "limit"
    assert [batch.batch for batch in front.of(Batch)] == [0]
    assert sink.note.is_file()


def test_what_may_pass_is_tried_again_from_the_checkpoint_and_the_rest_is_not(
    spark: Any, broker: KafkadProcess, topic: str, tmp_path: Path
) -> None:
    blocks = {"run": {"mode": "available-now", "retries": {"max": 2, "backoff": "100ms"}}}
    busy = [JobFailed(Failed(kind="sink", text="busy", retriable=True)) for _ in range(2)]
    front, sink = Front(), Kept(*busy)
    plan = live_plan(broker.bootstrap, topic, 2, blocks, tmp_path / "a")
    assert run(spark, plan, front, edges_of(spark, plan, sink)) == "done"
    assert front.of(Retrying) == [
        Retrying(text="busy", seconds=0.1, attempt=1, most=2),
        Retrying(text="busy", seconds=0.2, attempt=2, most=2),
    ]
    assert len(sink.rows) == ROWS
    broken = Kept(JobFailed(Failed(kind="sink", text="broken")))
    assert _failed(spark, live_plan(broker.bootstrap, topic, 2, blocks, tmp_path / "b"), broken).text == "broken"


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_that_is_not_seen_for_a_while_is_not_read_again_from_its_start(
    spark: Any, broker: KafkadProcess, tmp_path: Path, fails: bool
) -> None:
    kept, unseen = names = [f"seen-{fails}-{name}" for name in "ab"]
    for name in names:
        produced(broker.bootstrap, name, [(0, None, b"1")] * 5, partitions=1)
    plan = _pattern_plan(broker.bootstrap, names, f"seen-{fails}-.", tmp_path, fails=fails)
    front, sink = Front(), Kept()
    assert run(spark, plan, front, edges_of(spark, plan, sink)) == "done"
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([unseen])[unseen].result(20)
    for _ in range(2):
        failed = _failed(spark, plan, sink)
        assert (failed.kind, failed.retriable) == ("topic", True)
        assert f"Spark does not see topic {unseen} any more" in failed.text
    assert list(sink.batches) == [0]
    produced(broker.bootstrap, unseen, [(0, None, b"1")] * 5, partitions=1)
    assert run(spark, plan, front, edges_of(spark, plan, sink)) == "done"
    assert front.of(Batch)[-1].end[unseen] == {0: 5}
    assert len(sink.rows) == 10
    admin.delete_topics([unseen])[unseen].result(20)
    without = _without(plan, unseen)
    assert run(spark, without, front, edges_of(spark, without, sink)) == "done"
    assert list(front.of(Batch)[-1].end) == [kept]


class Numbered(Kept):
    """Knows the batches that it has by their numbers."""

    def finished(self, batch: BatchId) -> Written | None:
        return Written(len(self.batches[batch.number])) if batch.number in self.batches else None


def test_a_batch_that_was_written_without_a_topic_and_not_committed_keeps_its_plan(
    spark: Any, broker: KafkadProcess, tmp_path: Path
) -> None:
    kept, unseen = names = [f"written-{name}" for name in "ab"]
    for name in names:
        produced(broker.bootstrap, name, [(0, None, b"1")] * 5, partitions=1)
    plan = _pattern_plan(broker.bootstrap, names, "written-.", tmp_path, fails=False)
    sink = Numbered()
    assert run(spark, plan, Front(), edges_of(spark, plan, sink)) == "done"
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([unseen])[unseen].result(20)
    added(broker.bootstrap, kept, [(0, None, b"2")] * 2)
    without = _without(plan, unseen)
    assert run(spark, without, Front(), edges_of(spark, without, sink)) == "done"
    for name in ("commits/1", "commits/.1.crc"):  # as if it had been killed before
        (tmp_path / name).unlink()
    produced(broker.bootstrap, unseen, [(0, None, b"1")] * 6, partitions=1)
    added(broker.bootstrap, kept, [(0, None, b"3")] * 2)
    front = Front()
    assert run(spark, plan, front, edges_of(spark, plan, sink)) == "done"
    replayed, last = front.of(Batch)
    assert (replayed.batch, replayed.end, replayed.replayed) == (1, {kept: {0: 7}}, True)
    assert (last.batch, last.end) == (2, {kept: {0: 9}, unseen: {0: 6}})
    assert [row.value for row in sink.batches[2]].count(b"3") == 2
    assert f"batch 1 was planned and written without topic {unseen}" in front.of(Warned)[0].text


def test_a_planned_batch_is_repeated_though_a_topic_is_there_that_it_does_not_know(
    spark: Any, broker: KafkadProcess, tmp_path: Path
) -> None:
    known, new = (f"planned-{name}" for name in "ab")
    produced(broker.bootstrap, known, [(0, None, b"1")] * 5, partitions=1)
    plan = _pattern_plan(broker.bootstrap, [known], "planned-.", tmp_path, fails=True)
    sink = Numbered()
    assert run(spark, plan, Front(), edges_of(spark, plan, sink)) == "done"
    for name in ("commits/0", "commits/.0.crc"):  # as if it had been killed before
        (tmp_path / name).unlink()
    produced(broker.bootstrap, new, [(0, None, b"1")] * 6, partitions=1)
    front = Front()
    assert run(spark, plan, front, edges_of(spark, plan, sink)) == "done"
    assert [batch.end for batch in front.of(Batch)] == [{known: {0: 5}}, {known: {0: 5}, new: {0: 6}}]


def _pattern_plan(bootstrap: str, names: list[str], pattern: str, checkpoint: Path, *, fails: bool) -> Plan:
    """Of a job that reads topics of a pattern."""
    blocks = {"source": {"pattern": pattern}, "run": {"mode": "available-now", "retries": {"max": 0}}}
    reading = Reading(
        client={"bootstrap.servers": bootstrap},
        how="subscribePattern",
        what=f"^{pattern}$",
        start={name: {0: 0} for name in names},
        end={},
        fail_on_data_loss=fails,
    )
    return replace(live_plan(bootstrap, names[0], 1, blocks, checkpoint), reading=reading)


def _without(plan: Plan, deleted: str) -> Plan:
    """The same after the loss of a topic was accepted."""
    assert plan.reading is not None
    return replace(plan, reading=replace(plan.reading, deleted=[deleted], fail_on_data_loss=False))


def test_a_stateful_job_that_meets_new_schemas_goes_on_without_a_failure(
    spark: Any, broker: KafkadProcess, tmp_path: Path
) -> None:
    with schema_registry.running() as registry:
        first, second = (registry.add("learned-value", {"title": title}, "JSON") for title in "ab")
        framed = [framing.prefix(number) + b'{"id": %d}' % number for number in (first, second)]
        produced(broker.bootstrap, "learned", [(0, None, value) for value in framed], partitions=1)
        blocks = {
            "source": {"topics": ["learned"], "rows_per_batch": 1},
            "value": {"format": "json", "schema": "id INT", "registry": {"url": registry.url}},
            "transform": {
                "watermark": {"column": "_timestamp", "delay": "1 minute"},
                "deduplicate": {"keys": ["id"], "within": "1 minute"},
            },
            "run": {"mode": "available-now", "retries": {"max": 0}},
        }
        front, sink = Front(), Kept()
        plan = live_plan(broker.bootstrap, "learned", 1, blocks, tmp_path)
        assert run(spark, plan, front, edges_of(spark, plan, sink)) == "done"
    assert sorted(row.id for row in sink.rows) == [first, second]
    assert (sum(batch.bad for batch in front.of(Batch)), front.of(Retrying)) == (0, [])


def test_sql_that_is_wrong_is_found_before_anything_is_read(
    spark: Any, broker: KafkadProcess, topic: str, tmp_path: Path
) -> None:
    steps = [{"name": "one", "sql": "SELECT id FROM source"}, {"name": "two", "sql": "SELECT id,\n  nam FROM one"}]
    blocks = {"value": JSON, "transform": {"steps": steps}}
    failed = _failed(spark, live_plan(broker.bootstrap, topic, 2, blocks, tmp_path / "checkpoint"), Kept())
    assert (failed.kind, failed.step, failed.line, failed.column) == ("sql", "two", 2, 3)
    assert "`nam` cannot be resolved. Did you mean one of the following? [`id`]" in failed.text
    blocks["transform"] = {"sql": "SELECT name, count(*) FROM source GROUP BY name"}
    blocks["run"] = {"mode": "available-now", "output": "append"}
    blocks["transform"]["watermark"] = {"column": "_timestamp", "delay": "1 minute"}
    failed = _failed(spark, live_plan(broker.bootstrap, topic, 2, blocks, tmp_path / "checkpoint"), Kept())
    assert failed.kind == "sql" and "append" in failed.text.lower()


def test_a_preview_shows_rows_and_what_is_bad_and_writes_nothing(
    spark: Any, broker: KafkadProcess, topic: str, tmp_path: Path
) -> None:
    front = Front()
    blocks = {"run": {"mode": "batch"}, "value": JSON, "transform": {"sql": "SELECT name FROM source ORDER BY id"}}
    plan = live_plan(broker.bootstrap, topic, 2, blocks, tmp_path / "checkpoint", limit=2)
    assert preview(spark, plan, front) == "done"
    assert front.of(Rows) == [Rows(["name"], [["n0"], ["n0"]])]
    assert "3 of 1,200 rows could not be parsed" in front.of(Warned)[0].text
    assert list(tmp_path.iterdir()) == []
