from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafkad_etl.machine import jars
from tests.kctl.conftest import Kctl


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A repository with four small jars, which are all that is locked. The cache is the test's own."""
    from hashlib import sha256

    repository = tmp_path / "repository"
    names = ("connector", "avro", "driver", "table")
    contents = {f"org.example:{name}:1": name.encode() * 10 for name in names}
    lock = jars.Lock(
        connector={"4.0.0": ["org.example:connector:1"]},
        avro={"4.0.0": ["org.example:avro:1"]},
        protobuf={},
        jdbc={"sqlite": ["org.example:driver:1"]},
        sets={"4.0.0": {"iceberg": ["org.example:table:1"]}},
        jars={name: jars.Locked(len(content), sha256(content).hexdigest()) for name, content in contents.items()},
    )
    monkeypatch.setattr(jars, "lock", lambda: lock)
    for jar in jars.jars_of(contents):
        path = repository / jar.path
        path.parent.mkdir(parents=True)
        path.write_bytes(contents[jar.coordinate])
    monkeypatch.delenv("KAFKAD_ETL_CACHE", raising=False)
    return repository


def test_fetch_and_verify(kctl: Kctl, locked: Path, tmp_path: Path) -> None:
    ran = kctl("etl", "jars", "verify", "--spark", "4.0.0", "-o", "csv", "--columns", "jar,state")
    assert ran.code == 4
    assert ran.out.splitlines()[1] == "org.example:connector:1,missing"
    ran = kctl("etl", "jars", "fetch", "--spark", "4.0.0", "--repo", locked)
    assert ran.code == 0
    assert ran.err == f"3 jars downloaded (190 B): {tmp_path}/cache/kafkad-etl/jars\n"
    ran = kctl("etl", "jars", "fetch", "--spark", "4.0.0", "--repo", "http://127.0.0.1:1")
    assert (ran.code, ran.err) == (0, f"all jars were already there: {tmp_path}/cache/kafkad-etl/jars\n")
    assert kctl("etl", "jars", "verify", "--spark", "4.0.0").code == 0


def test_a_set_is_fetched_on_request(kctl: Kctl, locked: Path, tmp_path: Path) -> None:
    words = ["--spark", "4.0.0", "--repo", locked, "--with", "iceberg"]
    ran = kctl("etl", "jars", "fetch", *words)
    assert ran.err.startswith("4 jars downloaded")
    verify = ["etl", "jars", "verify", "--spark", "4.0.0"]
    assert kctl(*verify, "--with", "iceberg").code == 0
    (tmp_path / "cache/kafkad-etl/jars/org/example/table/1/table-1.jar").unlink()
    assert [kctl(*verify).code, kctl(*verify, "--with", "iceberg").code] == [0, 4]


def test_jars_for_a_machine_without_a_network(
    kctl: Kctl, locked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kctl("etl", "jars", "fetch", "--spark", "4.0.0", "--repo", locked, "--to", tmp_path / "stick").code == 0
    monkeypatch.setenv("KAFKAD_MAVEN_REPO", str(tmp_path / "stick"))
    assert kctl("etl", "jars", "fetch", "--spark", "4.0.0").code == 0
    listed = json.loads(kctl("etl", "jars", "list", "--spark", "4.0.0", "-o", "json").out)
    assert [row["state"] for row in listed["items"]] == ["ok", "ok", "ok"]


def test_a_version_that_is_not_locked(kctl: Kctl) -> None:
    ran = kctl("etl", "jars", "list", "--spark", "3.5.0")
    assert ran.code == 4
    assert "the Kafka connector for PySpark 3.5.0 has no locked checksums" in ran.err
    assert "supported: pip install pyspark==4.0.0" in ran.err


def test_the_jars_of_a_spark_submit_by_hand(kctl: Kctl, locked: Path, tmp_path: Path) -> None:
    words = ["--spark", "4.0.0", "--repo", locked, "--to", tmp_path / "here", "--with", "iceberg"]
    ran = kctl("etl", "jars", "path", *words)
    names = ("connector", "avro", "table")
    paths = [tmp_path / f"here/org/example/{name}/1/{name}-1.jar" for name in names]
    assert (ran.code, ran.out) == (0, ",".join(map(str, paths)) + "\n")
    assert all(path.is_file() for path in paths)
