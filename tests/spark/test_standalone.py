"""A shipped job on executors of a standalone cluster: a master and a worker of the installed Spark, on loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl
from tests.oracle.kafka import Server, free_port
from tests.spark.conftest import SparkReady
from tests.spark.test_shipped_jobs import JOBS, lines, rows

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600)]

SECONDS = 240


class Standalone(NamedTuple):
    url: str
    work: Path
    """The worker's directory: in it each application has one, with one for each executor."""


@pytest.fixture
def standalone(spark_ready: SparkReady, tmp_path: Path) -> Iterator[Standalone]:
    places = [f"JAVA_HOME={spark_ready.java_home}", f"SPARK_HOME={spark_ready.home}"]
    daemon = ["env", *places, "SPARK_LOCAL_IP=127.0.0.1", "SPARK_DAEMON_MEMORY=256m"]
    daemon.append(str(spark_ready.home / "bin" / "spark-class"))
    found = Standalone(f"spark://127.0.0.1:{free_port()}", tmp_path / "work")
    with ExitStack() as stack:
        for name, *words in (
            ("master.Master",),
            ("worker.Worker", "--cores", "2", "--memory", "1g", "--work-dir", str(found.work), found.url),
        ):
            port = int(found.url.rpartition(":")[2]) if name.startswith("master") else free_port()
            listening = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
            server = Server([*daemon, f"org.apache.spark.deploy.{name}", *listening, *words], port)
            stack.callback(server.stop)
            server.wait_ready()
        yield found


def test_a_job_runs_on_executors_until_it_is_interrupted(
    standalone: Standalone, broker: KafkadProcess, on_broker: Kctl, tmp_path: Path
) -> None:
    def fill(*values: str) -> None:
        (tmp_path / "lines").write_text("".join(f"{value}\n" for value in values))
        ran = on_broker("produce", "standalone", "--file", tmp_path / "lines", "--partitioner", "round-robin")
        assert ran.code == 0, ran

    assert on_broker("topics", "create", "standalone", "--partitions", 2, "--yes").code == 0
    fill(*lines(1000))
    words = [sys.executable, "-m", "kctl", "etl", "run", str(JOBS / "topic-to-parquet.yaml"), "-o", "json"]
    words += ["--master", standalone.url, "--set", "spark.driver_memory=700m", "--set", "spark.executor_memory=512m"]
    words += ["--var", "topic=standalone", "--var", f"path={tmp_path}/lake", "--mode", "continuous"]
    environment = {**os.environ, "KCTL_BOOTSTRAP": broker.bootstrap}
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        events = map(json.loads, process.stdout)
        read = accumulate(event["rows_read"] for event in events if event["type"] == "batch")
        try:
            assert 1000 in read
            fill(*lines(500, first=1000, day=2), "no JSON")
            assert 1501 in read
            process.send_signal(signal.SIGINT)
            summary = next(event for event in events if event["type"] == "summary")
            assert (summary["rows_read"], summary["bad"], summary["outcome"]) == (1501, 1, "interrupted")
            assert process.wait(SECONDS) == 130
        finally:
            process.kill()

    found = rows(f"SELECT count(*), count(DISTINCT id), count(DISTINCT day) FROM '{tmp_path}/lake/*/*.parquet'")
    assert found == [(1500, 1500, 2)]
    (application,) = standalone.work.glob("app-*")
    assert list(application.glob("*/spark-sql-kafka-*.jar")), "the connector went to the executor"
    assert not list(tmp_path.glob("**/_temporary"))
