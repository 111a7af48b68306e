"""Jobs that `kctl etl run` refuses before or as Spark starts, with a simulated Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkad_etl.errors import EtlExit
from kafkad_etl.machine.hadoop import VARIABLES
from tests.broker import KafkadProcess
from tests.spark.tasks.runs import HELLO, WORK, Run


def test_where_prometheus_cannot_be_listened_for_nothing_is_started(
    run: Run, tmp_path: Path, broker: KafkadProcess
) -> None:
    ran = run(f"open({str(tmp_path / 'started')!r}, 'w')", "--set", f"run.listen=127.0.0.1:{broker.port}")
    assert ran.code == EtlExit.USAGE
    assert "run.listen: cannot listen on" in ran.err
    assert not (tmp_path / "started").exists()


def test_a_cluster_that_is_not_there_is_told_before_spark_starts(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    begins = f"open({str(tmp_path / 'started')!r}, 'w')"
    ran = run(begins, "--", "--master", "yarn", "--deploy-mode", "client")
    assert ran.code == EtlExit.ENVIRONMENT
    assert "error: master yarn needs HADOOP_CONF_DIR or YARN_CONF_DIR, and neither is set" in ran.err
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    ran = run(begins, "--", "--master", "yarn", "--conf", "spark.hadoop.yarn.resourcemanager.address=127.0.0.1:1")
    assert ran.code == EtlExit.CLUSTER
    assert "error: YARN's ResourceManager is not responding at 127.0.0.1:1: Connection refused" in ran.err
    ran = run(begins, "--master", "yarn", "--", "--deploy-mode", "cluster")
    assert (ran.code, "deploy mode cluster is not supported" in ran.err) == (EtlExit.USAGE, True)
    for master in ("spark://127.0.0.1:1", "k8s://https://127.0.0.1:1"):
        assert run(begins, "--master", master).code == EtlExit.CLUSTER
    assert not (tmp_path / "started").exists()


def test_sql_that_is_wrong_is_named_by_its_line(run: Run) -> None:
    failed = 'Failed(kind="sql", text="no such column", step="sql", line=1, column=8)'
    ran = run(f"{WORK}channel.send({failed}); channel.close()", "--set", "transform.sql=SELECT f(value) FROM source")
    assert ran.code == EtlExit.USAGE
    assert "--set transform.sql:1:8: no such column" in ran.err


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("transform.sql", "SELECT nix FROM source", '--set transform.sql:1:8: there is no column "nix"'),
        ("transform.sql", "SELECT value FORM source", '--set transform.sql:1:19: ends too early, after "source"'),
        ("key", "{format: json, schema: id BIGNT}", '--set key.schema: cannot be parsed near "BIGNT"'),
        ("sink", "{type: json, path: /proc/lake}", "sink.path: /proc is not writable"),
        ("sink", "{type: json, path: 'abfss://c@a.net/orders'}", "sink.path: abfss:// needs a jar"),
    ],
)
def test_what_is_certainly_wrong_is_told_before_spark_starts_and_nothing_else(
    run: Run, tmp_path: Path, key: str, value: str, told: str
) -> None:
    ran = run(f"open({str(tmp_path / 'started')!r}, 'w')", "--set", f"{key}={value}")
    assert ran.code in (EtlExit.USAGE, EtlExit.CLUSTER, EtlExit.ENVIRONMENT)
    assert ran.err.startswith("error: ")
    assert told in ran.err
    assert "guarantee" not in ran.err and "rows read" not in ran.err
    assert not (tmp_path / "started").exists()


def test_spark_decides_on_sql_that_is_trusted(run: Run) -> None:
    ran = run(
        WORK + 'channel.send(Ended("done")); channel.close()',
        "--trust-sql",
        "--set",
        "transform.sql=SELECT a FORM source",
    )
    assert (ran.code, ran.err.splitlines()[0]) == (
        EtlExit.DONE,
        'warning: --set transform.sql:1:15: ends too early, after "source"',
    )


def test_what_spark_finds_before_it_reads_is_told_without_a_summary(run: Run) -> None:
    failed = 'Failed(kind="sql", text="no such function", trace="at Some.scala")'
    ran = run(f"{HELLO}channel.send({failed}); channel.close()")
    assert (ran.code, ran.err.splitlines()[0]) == (EtlExit.USAGE, "error: no such function (USAGE)")
    ran = run(f"{WORK}channel.send({failed}); channel.close()", "-o", "json")
    assert "Some.scala" not in ran.out + ran.err
