from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from kafkad.names import TopicPartition
from kafkad.wire.records import Record
from kafkad_etl.errors import EtlExit
from kafkad_etl.tasks.last_records import chosen
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def topic(on_broker: Kctl) -> str:
    """With six records."""
    name = f"last-records-{time.monotonic_ns()}"
    assert on_broker("topics", "create", name, "-p", "2", "-y").code == 0
    for number in range(6):
        value = ("--value", f"v{number}", "--key", f"k{number}", "--partition", number % 2)
        assert on_broker("produce", name, *value).code == 0
    return name


@pytest.fixture
def job(broker: KafkadProcess, topic: str, tmp_path: Path) -> Path:
    """Of that topic, whose records its schema does not fit."""
    path = tmp_path / "job.yaml"
    path.write_text(
        f"{{version: 1, name: last, kafka: {{bootstrap: ['{broker.bootstrap}']}}, source: {{topics: [{topic}]}},"
        " value: {format: json, schema: 'id BIGINT'}, sink: {type: none}}"
    )
    return path


def test_the_last_records_of_all_partitions_need_no_java(
    kctl: Kctl, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("JAVA_HOME", "")
    ran = kctl("etl", "preview", job, "--no-transform", "--limit", "3", "-o", "json")
    assert ran.code == 0, ran
    rows = json.loads(ran.out)["items"]
    assert [(row["_partition"], row["_key"], row["value"]) for row in rows] == [
        ("1", "k3", "v3"),
        ("0", "k4", "v4"),
        ("1", "k5", "v5"),
    ]
    first = kctl("etl", "preview", job, "--no-transform", "--limit", "1", "--from", "earliest", "-o", "json")
    assert json.loads(first.out)["items"][0]["value"] == "v0"


def test_a_record_with_a_time_that_no_calendar_has_is_shown(kctl: Kctl, on_broker: Kctl, topic: str, job: Path) -> None:
    assert on_broker("produce", topic, "--value", "x", "--timestamp", str(2**63 - 1)).code == 0
    ran = kctl("etl", "preview", job, "--no-transform", "--limit", "1", "-o", "json")
    assert ran.code == 0, ran
    assert json.loads(ran.out)["items"][0]["_timestamp"] == "9223372036854775807 ms"


def test_files_have_no_records(kctl: Kctl, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        "{version: 1, name: f, source: {files: {format: parquet, path: ., schema: 'a INT'}}, sink: {type: none}}"
    )
    ran = kctl("etl", "preview", path, "--no-transform")
    assert ran.code == EtlExit.USAGE
    assert "source.files reads files, which have no records to show" in ran.err


def test_records_of_all_partitions_are_in_the_order_of_time() -> None:
    found = [(where, Record(0, time, None, b"", ())) for where, time in ((A, 1), (A, 4), (B, 2), (B, 3))]
    assert [record.timestamp for _, record in chosen(found, 2, "latest")] == [3, 4]
    assert [record.timestamp for _, record in chosen(found, 3, "earliest")] == [1, 2, 3]
