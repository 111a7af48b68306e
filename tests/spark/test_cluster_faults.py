"""Faults of a cluster while a job runs, with real Spark: each story is one run or two, since they are dear."""

from __future__ import annotations

import contextlib
import json
import queue
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl, until
from tests.oracle.kafka import Kafka, free_port, missing
from tests.spark.conftest import SparkReady

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]

SECONDS = 240
"""For Spark to start, or to end a batch, on a machine that does other things too."""

JOB = """
version: 1
name: copy
kafka: {{bootstrap: [{bootstrap}]}}
source: {{topics: [orders], rows_per_batch: 1000}}
value: {{format: json, schema: id BIGINT, bad_rows: {{action: dead_letter, topic: orders-bad}}}}
transform: {{sql: SELECT id FROM source}}
sink: {{type: topic, topic: {{topic: orders-out, create: {{partitions: 2}}}}}}
run: {{mode: continuous, every: 1s, listen: "127.0.0.1:{listen}"}}
spark: {{master: "local[1]", driver_memory: 700m}}
"""


@pytest.fixture(params=["kafkad", pytest.param("kafka", marks=pytest.mark.long)])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KafkadProcess | Kafka]:
    settings = {"auto.create.topics.enable": "false"}
    if request.param == "kafkad":
        with KafkadProcess(tmp_path / "kafkad", settings) as process:
            yield process
        return
    if why := missing("3.9"):
        pytest.skip(why)
    with Kafka("3.9", heap="384m", settings=settings) as kafka:
        yield kafka


class Story:
    """A job on a cluster of its own, and what can be done to them."""

    def __init__(self, cluster: KafkadProcess | Kafka, kctl: Kctl, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory
        self.listen = free_port()
        self._kctl = kctl
        (directory / "job.yaml").write_text(JOB.format(bootstrap=cluster.bootstrap, listen=self.listen))
        for topic in ("orders", "orders-bad"):
            self.kctl("topics", "create", topic, "-p", "1", "-y")

    def kctl(self, *arguments: object) -> str:
        ran = self._kctl("-b", self.cluster.bootstrap, *arguments)
        assert ran.code == 0, ran
        return ran.out

    def etl(self, *arguments: object) -> Any:
        return self._kctl("etl", *arguments)

    def write(self, first: int, count: int, *, partition: int = 0) -> None:
        lines = self.directory / "lines"
        lines.write_text("".join(f'{{"id": {number}}}\n' for number in range(first, first + count)))
        self.kctl("produce", "orders", "--partition", partition, "--file", lines)

    def restart(self) -> None:
        """Until the broker, which is there before its topics are, leads them again."""
        self.cluster.restart()
        until(lambda: "orders\n" in self.kctl("topics", "list", "-o", "name"), "orders is there", 60)
        until(lambda: self._kctl("-b", self.cluster.bootstrap, "topics", "offsets", "orders").code == 0, "a leader", 60)

    def creates_again(self) -> bool:
        """Kafka deletes a topic's files a while after it has said that the topic is gone."""
        return bool(self._kctl("-b", self.cluster.bootstrap, "topics", "create", "orders", "-p", "2", "-y").code == 0)

    def written(self) -> Counter[int]:
        text = self.kctl("consume", "orders-out", "--from", "earliest", "--to", "latest", "-f", "%v\\n")
        return Counter(json.loads(line)["id"] for line in text.splitlines())


@pytest.fixture
def story(
    cluster: KafkadProcess | Kafka, kctl: Kctl, spark_ready: SparkReady, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Story:
    monkeypatch.setenv("KAFKAD_ETL_STATE", str(tmp_path / "state"))
    return Story(cluster, kctl, tmp_path)


class Running:
    """`kctl etl run` in a process of its own, and what it says as JSON lines."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", "kctl", "etl", "run", "job.yaml", "-o", "json", *arguments]
        self.error = directory / "run.err"
        with self.error.open("w") as error:
            self.process = subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, stderr=error, text=True)
        self.events: list[dict[str, Any]] = []
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        for _ in range(20):  # the first one waits for a batch; two at once would be one
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(2)
        self.process.wait(20)
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def until(self, wanted: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        while True:
            try:
                event = json.loads(self._lines.get(timeout=SECONDS))
            except queue.Empty:
                raise AssertionError(f"never: {what}; {self.events[-3:]} {self.error.read_text()}") from None
            self.events.append(event)
            if wanted(event):
                return event
            assert event["type"] not in ("failed", "error", "summary"), (what, event)

    def until_read(self, partition: int, end: int) -> None:
        def there(event: dict[str, Any]) -> bool:
            return bool(event["type"] == "batch" and event["end"]["orders"].get(str(partition), 0) >= end)

        self.until(there, f"orders-{partition} read up to {end}")

    def ends(self) -> int:
        return self.process.wait(SECONDS)


def test_a_job_that_sees_it_all(story: Story) -> None:
    story.write(0, 500)
    with Running(story.directory) as run:
        run.until_read(0, 500)

        second = story.etl("run", "job.yaml")
        assert second.code == 7
        assert f"another run of this job is in progress: process {run.process.pid} on " in second.err

        story.kctl("topics", "add-partitions", "orders", "--partitions", "2", "-y")
        story.write(500, 100, partition=1)
        run.until_read(1, 100)

        story.restart()
        story.write(600, 100)
        run.until_read(0, 600)

        with urllib.request.urlopen(f"http://127.0.0.1:{story.listen}/metrics") as answer:
            assert 'kafkad_etl_lag{job="copy",topic="orders",partition="1"} 0' in answer.read().decode().splitlines()
        run.process.send_signal(signal.SIGINT)
        assert run.ends() == 130
        summary = run.until(lambda event: event["type"] == "summary", "the summary")
    assert summary["offsets"]["orders"] == {"0": {"start": 0, "end": 600}, "1": {"start": 0, "end": 100}}
    assert (summary["rows_read"], summary["bad"], summary["outcome"]) == (700, 0, "interrupted")
    assert set(story.written()) == set(range(700))
    (lag,) = json.loads(story.kctl("groups", "lag", "etl-copy", "-o", "json"))["items"]
    assert (lag["lag"], lag["partitions"]) == (0, 2)
    _then_records_are_deleted(story)


def _then_records_are_deleted(story: Story) -> None:
    """Between two runs: 50 that nobody has read."""
    story.write(700, 100)
    story.kctl("topics", "truncate", "orders", "--partitions", "0", "--before", "650", "-y")
    arguments = ("run", "job.yaml", "--mode", "available-now")
    refused = story.etl(*arguments)
    assert refused.code == 6
    assert "orders-0: 50 records (600-649) deleted before they were read" in refused.err
    done = story.etl(*arguments, "--accept-data-loss")
    assert done.code == 0, done
    assert "orders-0: 50 records (600-649) deleted before they were read; continuing without them" in done.err
    assert "done: 50 rows read, 50 written" in done.err
    assert done.err.count("  lost: orders-0: 50 records") == 1, "one gap is counted once"
    assert set(story.written()) == set(range(700)) | set(range(750, 800))

    story.kctl("topics", "delete", "orders", "-y", "--undo-dir", story.directory)
    until(lambda: "orders\n" not in story.kctl("topics", "list", "-o", "name"), "orders is gone")
    assert story.etl(*arguments).code == 3
    until(story.creates_again, "orders is there again", 60)
    again = story.etl(*arguments)
    assert again.code == 7
    assert 'topic "orders" was deleted and recreated' in again.err


@pytest.mark.long
def test_a_topic_deleted_in_the_middle_is_named(story: Story) -> None:
    story.write(0, 10)
    with Running(story.directory) as run:
        run.until_read(0, 10)
        story.kctl("topics", "delete", "orders", "-y", "--undo-dir", story.directory)
        deleted = time.monotonic()
        assert run.ends() == 3
        assert time.monotonic() - deleted < 40, "Spark's own patience is longer"
    assert "topic orders was deleted while the job was running" in run.error.read_text()


@pytest.mark.long
@pytest.mark.parametrize("cluster", ["kafkad"], indirect=True)
def test_records_deleted_before_the_next_batch_are_counted(story: Story) -> None:
    story.write(0, 10)
    with Running(story.directory, "--set", "run.every=20s", "--set", "source.on_data_loss=continue") as run:
        run.until_read(0, 10)
        story.write(10, 100)
        story.kctl("topics", "truncate", "orders", "--partitions", "0", "--before", "60", "-y")
        run.until_read(0, 110)
        lost = run.until(lambda event: event["type"] == "lost", "what was lost")
        assert (lost["first"], lost["end"], lost["certain"]) == (10, 60, True)
        run.process.send_signal(signal.SIGINT)
        assert run.ends() == 130
        summary = run.until(lambda event: event["type"] == "summary", "the summary")
    assert (summary["rows_read"], summary["lost"]) == (60, 50)
    assert set(story.written()) == set(range(10)) | set(range(60, 110))
