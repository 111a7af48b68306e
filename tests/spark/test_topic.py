from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any, Self

import pytest

from kafkad_etl import topic
from kafkad_etl.errors import EtlError
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl
from tests.spark.conftest import SparkReady

PROGRAMS = Path(__file__).parents[2] / "spark/programs"


class Builder:
    """What `spark.read` and `rows.write` have in common."""

    def __init__(self) -> None:
        self.kind = ""
        self.given: dict[str, str] = {}

    def format(self, kind: str) -> Self:
        self.kind = kind
        return self

    def option(self, name: str, value: str) -> Self:
        return self.options(**{name: value})

    def options(self, **given: Any) -> Self:
        self.given |= given
        return self


@pytest.fixture(autouse=True)
def cluster(broker: KafkadProcess, kctl: Kctl, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of `kctl etl submit`, with the topics orders and totals."""
    monkeypatch.setenv("KCTL_BOOTSTRAP", broker.bootstrap)
    monkeypatch.setenv("KCTL_CLIENT_ID", "daily")
    for name in ("orders", "totals"):
        kctl("topics", "create", name, "--partitions", "1", "--yes")


def test_a_reader_and_a_writer(broker: KafkadProcess) -> None:
    address = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "kafka.client.id": "daily",
        "kafka.security.protocol": "PLAINTEXT",
    }
    assert topic.options() == address
    read = topic.reader(Builder(), "orders", "totals").option("startingOffsets", "latest")
    assert read.kind == "kafka"
    assert read.given == address | {
        "subscribe": "orders,totals",
        "kafka.isolation.level": "read_committed",
        "kafka.max.poll.records": "20000",
        "startingOffsets": "latest",
    }
    written = topic.writer(Builder(), "totals")
    assert (written.kind, written.given["topic"]) == ("kafka", "totals")
    assert written.given["kafka.compression.type"] == "lz4"


def test_a_topic_that_is_not_there() -> None:
    """Spark's writer would create it."""
    for configure in (topic.reader, topic.writer):
        with pytest.raises(EtlError, match=r"^topic 'ordrs' does not exist on 127") as caught:
            configure(Builder(), "ordrs")
        assert caught.value.__notes__ == ['did you mean "orders"?']


def test_a_cluster_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KCTL_BOOTSTRAP", "127.0.0.1:1")
    with pytest.raises(EtlError, match=r"^no broker is responding at 127\.0\.0\.1:1"):
        topic.reader(Builder(), "orders")


@pytest.mark.spark
@pytest.mark.slow
def test_the_shipped_program(kctl: Kctl, broker: KafkadProcess, spark_ready: SparkReady, tmp_path: Path) -> None:
    lines = [f'{{"id": {n}, "amount": {n}.5, "at": "2026-11-0{1 + n % 2}T12:00:00Z"}}' for n in range(4)]
    for line in (*lines, "not JSON"):
        assert kctl("produce", "orders", "--value", line).code == 0
    submit = [sys.executable, "-m", "kctl", "-b", broker.bootstrap, "etl", "submit", "--driver-memory", "600m"]
    program = [str(PROGRAMS / "daily_totals.py"), "--", "--from", "orders", "--to", "totals"]
    ran = subprocess.run([*submit, *program], capture_output=True, text=True, check=False, timeout=110)
    assert (ran.returncode, ran.stdout) == (0, "2 days\n"), ran.stderr
    totals = kctl("consume", "totals", "-o", "json").out
    assert '"day\\":\\"2026-11-01\\",\\"orders\\":2,\\"amount\\":3.00' in totals


READS_WHAT_CAME_ALONG = """\
from pathlib import Path

from pyspark import SparkFiles
from pyspark.sql import SparkSession

from brought import greeting

spark = SparkSession.builder.getOrCreate()


def told(name):
    word, end = Path(SparkFiles.get("env"), "word.txt"), Path(SparkFiles.get("f.txt"))
    return greeting(name) + word.read_text() + end.read_text()


print(*spark.sparkContext.parallelize(["a", "b"]).map(told).collect())
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.slow
def test_files_that_come_along(broker: KafkadProcess, spark_ready: SparkReady, tmp_path: Path) -> None:
    """Modules by path, an archive by URL, a file by a setting: where the program runs, they are."""
    (tmp_path / "program.py").write_text(READS_WHAT_CAME_ALONG)
    (tmp_path / "f.txt").write_text("!")
    (tmp_path / "word.txt").write_text(" there")
    with zipfile.ZipFile(tmp_path / "lib.zip", "w") as lib:
        lib.writestr("brought.py", "def greeting(name):\n    return f'hello {name}'\n")
    with tarfile.open(tmp_path / "made.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "word.txt", "word.txt")
    submit = [sys.executable, "-m", "kctl", "-b", broker.bootstrap, "etl", "submit", "--driver-memory", "600m"]
    along = ["--py-files", "lib.zip", "--archives", f"{(tmp_path / 'made.tar.gz').as_uri()}#env"]
    words = [*submit, "program.py", *along, "--conf", "spark.files=f.txt"]
    ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=110, cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "hello a there! hello b there!\n"), ran.stderr
