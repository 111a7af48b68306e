"""Jobs whose executors are pods: Spark's own driver and executors, with an API server that is played."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkad_etl.errors import EtlExit
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl
from tests.spark.conftest import SparkReady
from tests.spark.kubernetes import Kubernetes
from tests.spark.test_kills import processes
from tests.spark.test_shipped_jobs import JOBS, lines, rows

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(300)]

IMAGE = "spark.kubernetes.container.image=spark:4.0.0"
SMALL = ["--set", "spark.driver_memory=700m", "--set", "spark.executor_memory=512m"]

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def kubernetes(spark_ready: SparkReady, tmp_path: Path) -> Iterator[Kubernetes]:
    with Kubernetes(tmp_path / "pods", spark_ready.home, spark_ready.java_home) as api:
        yield api


@pytest.fixture
def run(kubernetes: Kubernetes, broker: KafkadProcess, on_broker: Kctl, tmp_path: Path) -> Run:
    """topic-to-parquet, with a thousand rows that wait for it."""
    (tmp_path / "lines").write_text("".join(f"{value}\n" for value in lines(1000)))
    topic = tmp_path.name.replace("_", "-")
    assert on_broker("topics", "create", topic, "--partitions", 2, "--yes").code == 0
    assert on_broker("produce", topic, "--file", tmp_path / "lines", "--partitioner", "round-robin").code == 0

    def call(*settings: str) -> tuple[int, str]:
        words = [sys.executable, "-m", "kctl", "etl", "run", str(JOBS / "topic-to-parquet.yaml")]
        words += ["--master", kubernetes.url, *SMALL]
        words += ["--var", f"topic={topic}", "--var", f"path={tmp_path}/lake", "--"]
        words += [word for setting in settings for word in ("--conf", setting)]
        environ = {**os.environ, "KCTL_BOOTSTRAP": broker.bootstrap, "TMPDIR": str(tmp_path)}
        done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=200, check=False)
        return done.returncode, done.stdout + done.stderr

    return call


def test_pods_run_the_job_and_go_away_with_it(run: Run, kubernetes: Kubernetes, tmp_path: Path) -> None:
    polled = "spark.kubernetes.executor.enableApiWatcher=false", "spark.kubernetes.executor.apiPollingInterval=1s"
    code, said = run(IMAGE, *polled, "spark.executor.instances=1", "spark.kubernetes.allocation.batch.delay=200ms")
    assert (code, "1,000 rows read, 1,000 written" in said) == (EtlExit.DONE, True), said
    assert rows(f"SELECT count(*), count(DISTINCT id) FROM '{tmp_path}/lake/*/*.parquet'") == [(1000, 1000)]
    (pod,) = kubernetes.seen
    (container,) = pod["spec"]["containers"]
    assert container["image"] == "spark:4.0.0"
    assert list((tmp_path / "pods").glob("*/**/spark-sql-kafka-*.jar")), "the connector went to the executor"
    assert kubernetes.pods == {} and kubernetes.ended(30)


@pytest.mark.long
def test_what_kubernetes_refuses_is_said(run: Run, kubernetes: Kubernetes, tmp_path: Path) -> None:
    kubernetes.refuses = True
    code, said = run(IMAGE)
    assert code == EtlExit.FAILED, said
    assert "/api/v1/namespaces/default/pods" in said and "Message: Forbidden" in said
    assert processes(tmp_path) == {}
