from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.machine import hadoop, spark_home
from kafkad_etl.machine.spark_home import SparkHome
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl, Ran

JOB = """version: 1
name: try
kafka: {bootstrap: [BOOTSTRAP]}
source: {topics: [orders]}
sink: {type: none}
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java and a PySpark; the jars are not there."""
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("")
    (home / "bin" / "java").chmod(0o755)
    (home / "release").write_text('JAVA_VERSION="17.0.15"\nMODULES="java.base jdk.incubator.vector"\n')
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("KAFKAD_ETL_CACHE", str(tmp_path / "empty"))
    monkeypatch.setattr(spark_home, "find", lambda: SparkHome(tmp_path / "pyspark", "4.0.0"))
    return tmp_path


def found(ran: Ran) -> dict[str, dict[str, str]]:
    return {row["check"]: row for row in json.loads(ran.out)["items"]}


def test_each_thing_is_named_and_what_is_missing_is_no_end(kctl: Kctl, machine: Path) -> None:
    ran = kctl("etl", "doctor", "-o", "json")
    checks = found(ran)
    assert ran.code == EtlExit.ENVIRONMENT
    assert [(name, row["state"]) for name, row in checks.items()][:4] == [
        ("pyspark", "ok"),
        ("java", "ok"),
        ("archive", "ok"),
        ("jars", "error"),
    ]
    assert checks["archive"]["what"].endswith("JAVA_HOME has no archive of its own classes")
    assert checks["room"]["state"] != "error"
    assert checks["java"]["what"] == f"17.0.15 from JAVA_HOME, {machine}/jdk"
    assert checks["jars"]["what"].startswith("4 of 4: org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0 is missing")
    assert checks["jars"]["fix"] == "kctl etl jars fetch (9.9 MB)"


def test_an_archive_of_classes_is_missed(kctl: Kctl, machine: Path) -> None:
    base = machine / "jdk" / "lib" / "server" / "classes.jsa"
    base.parent.mkdir(parents=True)
    base.touch()
    assert found(kctl("etl", "doctor", "-o", "json"))["archive"]["fix"] == "kctl etl jars archive"


def test_without_pyspark_the_rest_is_looked_at(kctl: Kctl, machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> SparkHome:
        raise EtlError("PySpark is not installed", EtlExit.ENVIRONMENT, hints=("pip install it",))

    monkeypatch.setattr(spark_home, "find", missing)
    checks = found(kctl("etl", "doctor", "-o", "json"))
    assert (checks["pyspark"]["state"], checks["pyspark"]["fix"]) == ("error", "pip install it")
    assert checks["java"]["state"] == "ok"


def test_the_cluster_of_a_job_is_asked(kctl: Kctl, machine: Path, broker: KafkadProcess) -> None:
    (machine / "job.yaml").write_text(JOB.replace("BOOTSTRAP", broker.bootstrap))
    checks = found(kctl("etl", "doctor", machine / "job.yaml", "-o", "json"))
    assert checks["cluster"]["state"] == "ok"
    assert checks["cluster"]["what"].endswith(f" at {broker.bootstrap}, 1 broker")
    checks = found(kctl("-b", "127.0.0.1:1", "etl", "doctor", "-o", "json"))
    assert checks["cluster"]["state"] == "error"
    assert checks["cluster"]["what"] == "no broker is responding at 127.0.0.1:1"


def test_what_only_the_job_needs(kctl: Kctl, machine: Path, broker: KafkadProcess) -> None:
    spark = "spark: {jars: [mine.jar], driver_memory: 9000g}\n"
    (machine / "job.yaml").write_text(JOB.replace("BOOTSTRAP", broker.bootstrap) + spark)
    checks = found(kctl("etl", "doctor", machine / "job.yaml", "-o", "json"))
    assert checks["jars"]["what"] == "no such file, named by the job: mine.jar"
    assert "driver_memory 9000g needs" in checks["room"]["what"]


def test_what_is_known_of_hadoop(kctl: Kctl, machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in hadoop.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    (machine / "job.yaml").write_text(JOB.replace("BOOTSTRAP", "127.0.0.1:1"))
    job = ("etl", "doctor", machine / "job.yaml", "-o", "json")
    on_yarn = (*job, "--set", "spark.master=yarn")
    assert "hadoop" not in found(kctl(*job))
    assert found(kctl(*on_yarn))["hadoop"]["state"] == "error"
    monkeypatch.setenv("HADOOP_CONF_DIR", str(machine))
    (machine / "yarn-site.xml").write_text(
        "<configuration><property><name>yarn.resourcemanager.address</name><value>127.0.0.1:1</value></property>"
        "</configuration>"
    )
    assert found(kctl(*job))["hadoop"]["what"] == (
        f"YARN: 127.0.0.1:1; fs.defaultFS: not set; by {machine}/yarn-site.xml"
    )
    what = found(kctl(*on_yarn))["hadoop"]["what"]
    assert what == "YARN's ResourceManager is not responding at 127.0.0.1:1: Connection refused"
