from __future__ import annotations

import pytest

from kafkad_etl.facts import duration_ms, is_stateful
from kafkad_etl.model.guarantee import guarantee
from tests.spark.model.jobs import loaded

CSV = "sink={type: csv, path: /a}"
HDFS = "sink={type: csv, path: 'hdfs:///a', compact: {after: run}}"
ICEBERG = "sink={type: iceberg, path: /a, iceberg: {table: shop.orders}}"
JDBC = "sink={type: jdbc, jdbc: {url: 'jdbc:sqlite:a', table: t}}"
UPSERT = "sink={type: jdbc, jdbc: {url: 'jdbc:sqlite:a', table: t, mode: upsert, keys: [id]}}"
EXACTLY = "sink={type: topic, topic: {topic: out, delivery: exactly-once}}"
TOPIC = "sink={type: topic, topic: {topic: out, source_header: true}}"
BATCH = "run.mode=batch"
WATERMARK = "transform.watermark={column: ts, delay: 10 minutes}"
FILES = "source={files: {format: parquet, path: in, schema: id BIGINT}}"


@pytest.mark.parametrize(
    ("sets", "level", "part"),
    [
        ([CSV], "exactly once", "under the same file names"),
        ([CSV, BATCH], "at least once", "every run adds all its rows"),
        ([CSV, BATCH, "sink.mode=overwrite"], "exactly once", "each run replaces what was there"),
        (
            [CSV, BATCH, "sink.mode=overwrite"],
            "exactly once",
            "after a kill until the next run, readers see both old",
        ),
        (
            [HDFS],
            "exactly once",
            "while small files are merged, and after a kill until the next run, readers see",
        ),
        ([CSV, BATCH, "sink.mode=error"], "exactly once", "stops"),
        ([CSV, "sink.mode=overwrite", "run.output=complete"], "exactly once", "each batch replaces all files"),
        ([ICEBERG], "exactly once", "the table's snapshots record which batches it has"),
        ([ICEBERG, BATCH], "at least once", "every run adds all its rows"),
        (
            [ICEBERG, BATCH, "sink.mode=upsert", "sink.keys=[id]"],
            "exactly once",
            "a second run replaces rows with equal",
        ),
        (
            [ICEBERG, "sink.mode=overwrite_partitions", "sink.partition_by=[day]"],
            "exactly once",
            "each batch replaces the partitions it has rows for",
        ),
        ([ICEBERG, BATCH, "sink.mode=error"], "exactly once", "a second run stops because rows exist"),
        ([JDBC], "exactly once", "in one transaction"),
        ([JDBC, BATCH], "at least once", "every run writes all its rows"),
        ([UPSERT, BATCH], "exactly once", "equal keys"),
        ([TOPIC], "at least once", "readers can detect duplicates by the header `source`"),
        ([TOPIC, BATCH], "at least once", "every run writes all its rows"),
        ([TOPIC, "sink.topic.acks=1"], "rows may be lost", "what the leader has not yet copied to others is gone"),
        ([TOPIC, "sink.topic.acks=0", BATCH], "rows may be lost", "acks: 0 waits for no broker; every run writes all"),
        ([EXACTLY], "exactly once", "a batch's rows and its number are written in one transaction"),
        (["sink.type=console"], "nothing kept", "rows are shown"),
        ([CSV, "source.on_data_loss=continue"], "exactly once", "deleted before they were read are counted"),
        ([FILES, CSV], "exactly once", "files that a merge makes while the job runs are read as new ones"),
        ([CSV, WATERMARK], "exactly once", "rows more than 10 minutes late are counted and dropped"),
        ([CSV, "source.isolation=read_uncommitted"], "exactly once", "aborted transactions are read as well"),
    ],
)
def test_guarantee(sets: list[str], level: str, part: str) -> None:
    found = guarantee(loaded(sets=sets).job)
    assert found.level == level
    assert part in found.text


@pytest.mark.parametrize(
    ("sets", "stateful"),
    [
        ([], False),
        (["transform.deduplicate={keys: [id]}"], False),
        ([WATERMARK], True),
        ([WATERMARK, BATCH], False),
        (["run.output=complete"], True),
    ],
)
def test_is_stateful(sets: list[str], stateful: bool) -> None:
    assert is_stateful(loaded(sets=sets).job) is stateful


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0s", 0),
        ("10 minutes", 600_000),
        ("1h30m", 5_400_000),
        ("1 hour 30 minutes", 5_400_000),
        ("250ms", 250),
        ("7d", 604_800_000),
    ],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "10", "soon", "10 parsecs", "-1h", "1.5h", "1h x"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        duration_ms(text)


def test_on_a_local_disk_merging_takes_nothing_from_the_promise() -> None:
    assert "merged" not in guarantee(loaded(sets=["sink={type: csv, path: /a, compact: {after: run}}"]).job).text
