"""Jars from a repository on this machine, which returned as real ones do when they do not work."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.job import Format, IcebergSink, JdbcSink, Job, Lookup, Run, Sink, Source, Spark, TopicSink, Transform
from kafkad_etl.machine import environment, jars
from kafkad_etl.machine.download import CENTRAL, fetched, repository_url
from kafkad_etl.machine.jars import Jar
from kafkad_etl.machine.spark_home import SparkHome

CONTENT = b"a jar" * 100_000
JAR = Jar("org.example:thing:1.0", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
PATH = "org/example/thing/1.0/thing-1.0.jar"


class Repository(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.content = CONTENT
        self.length = len(CONTENT)
        self.status = 200
        self.moved_to = ""
        self.asked: list[tuple[str, str]] = []
        """The paths that were requested, with the Authorization header of each request."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/maven"


class Answering(BaseHTTPRequestHandler):
    server: Repository

    def do_GET(self) -> None:
        repository = self.server
        repository.asked.append((self.path, self.headers.get("Authorization", "")))
        self.send_response(302 if repository.moved_to else repository.status)
        if repository.moved_to:
            self.send_header("Location", repository.moved_to)
        self.send_header("Content-Length", "0" if repository.moved_to else str(repository.length))
        self.end_headers()
        if not repository.moved_to:
            self.wfile.write(repository.content)

    def log_message(self, *arguments: object) -> None:
        pass  # not among the tests' output


@pytest.fixture
def repository() -> Iterator[Repository]:
    with Repository() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def no_netrc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def fetch(tmp_path: Path, url: str) -> Path:
    (path,) = fetched([JAR], tmp_path / "jars", os.environ, url)
    return path


def refused(tmp_path: Path, url: str) -> EtlError:
    with pytest.raises(EtlError) as raised:
        fetch(tmp_path, url)
    assert raised.value.exit_code == EtlExit.ENVIRONMENT
    assert [path for path in (tmp_path / "jars").rglob("*") if path.is_file()] == []
    return raised.value


def test_a_jar_is_fetched_once(repository: Repository, tmp_path: Path) -> None:
    path = fetch(tmp_path, repository.url)
    assert path == tmp_path / "jars" / PATH
    assert path.read_bytes() == CONTENT
    assert fetch(tmp_path, "http://127.0.0.1:1") == path
    assert repository.asked == [(f"/maven/{PATH}", "")]


def test_a_cache_is_a_repository_for_a_machine_without_a_network(repository: Repository, tmp_path: Path) -> None:
    fetch(tmp_path, repository.url)
    (path,) = fetched([JAR], tmp_path / "elsewhere", os.environ, str(tmp_path / "jars"))
    assert path.read_bytes() == CONTENT
    error = refused(tmp_path / "third", str(tmp_path / "nothing"))
    assert f"file://{tmp_path}/nothing/{PATH} cannot be reached" in error.what


def test_which_repository_is_asked() -> None:
    assert repository_url({}) == CENTRAL
    assert repository_url({"KAFKAD_MAVEN_REPO": "https://nexus/maven/"}) == "https://nexus/maven"
    assert repository_url({"KAFKAD_MAVEN_REPO": "https://nexus"}, "/mnt/jars") == "file:///mnt/jars"


def test_what_is_not_the_locked_jar_is_not_kept(repository: Repository, tmp_path: Path) -> None:
    repository.content = CONTENT[:-1] + b"!"
    error = refused(tmp_path, repository.url)
    found = hashlib.sha256(repository.content).hexdigest()
    assert error.what == (
        f"{repository.url}/{PATH} does not match the locked checksum of org.example:thing:1.0: "
        f"its SHA-256 is {found}, expected {JAR.sha256}"
    )
    repository.content, repository.length = CONTENT + b"more", JAR.bytes + 4
    assert "it is too long" in refused(tmp_path, repository.url).what


@pytest.mark.parametrize("length", [JAR.bytes, 1000], ids=["the connection breaks", "the answer is short"])
def test_half_a_file_is_not_kept(repository: Repository, tmp_path: Path, length: int) -> None:
    repository.content, repository.length = CONTENT[:1000], length
    error = refused(tmp_path, repository.url)
    assert error.what == (
        f"{repository.url}/{PATH} ends after 1,000 of 500,000 bytes: org.example:thing:1.0 is not in the cache"
    )


def test_a_repository_without_the_jar_and_none_at_all(repository: Repository, tmp_path: Path) -> None:
    repository.status = 404
    error = refused(tmp_path, repository.url)
    assert (
        error.what == f"{repository.url}/{PATH} returned HTTP 404 Not Found: org.example:thing:1.0 is not in the cache"
    )
    assert "KAFKAD_MAVEN_REPO" in error.hints[0]
    assert "jars fetch --to DIR" in error.hints[1]
    assert "Connection refused" in refused(tmp_path, "http://127.0.0.1:1").what


def test_who_asks_is_in_netrc_or_the_url_and_no_other_server_learns_it(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login anna password secret\n")
    (tmp_path / ".netrc").chmod(0o600)
    fetch(tmp_path / "a", repository.url)
    assert repository.asked.pop()[1] == "Basic YW5uYTpzZWNyZXQ="
    fetch(tmp_path / "b", repository.url.replace("//", "//otto:p%40ss@"))
    assert repository.asked.pop()[1] == "Basic b3R0bzpwQHNz"
    with Repository() as other:
        thread = threading.Thread(target=other.serve_forever, args=(0.01,))
        thread.start()
        repository.moved_to = f"{other.url}/there"
        fetch(tmp_path / "c", repository.url)
        other.shutdown()
        thread.join()
    assert other.asked == [("/maven/there", "")]
    repository.moved_to, repository.status = "", 401
    error = refused(tmp_path / "d", repository.url.replace("//", "//otto:p%40ss@"))
    assert "HTTP 401" in error.what
    assert "p%40ss" not in error.what


def test_a_proxy_is_asked_unless_the_host_needs_none(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", repository.url)
    fetch(tmp_path / "a", "http://maven.example.invalid/maven")
    assert repository.asked == [(f"http://maven.example.invalid/maven/{PATH}", "")]
    monkeypatch.setenv("no_proxy", "maven.example.invalid")
    assert "cannot be reached" in refused(tmp_path / "b", "http://maven.example.invalid/maven").what


def test_a_jar_that_was_changed_is_refused(repository: Repository, tmp_path: Path) -> None:
    path = fetch(tmp_path, repository.url)
    path.write_bytes(CONTENT[:100])
    with pytest.raises(EtlError, match="has 100 bytes instead of 500,000") as raised:
        fetch(tmp_path, repository.url)
    assert "delete it" in raised.value.hints[0]
    path.write_bytes(CONTENT[:-1] + b"?")
    with pytest.raises(EtlError, match=r"has SHA-256 .* instead of"):
        fetch(tmp_path, repository.url)


def test_a_cache_that_cannot_be_written_is_named(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "jars").write_text("a file")
    with pytest.raises(EtlError, match=r"jars/org/example.*: Not a directory") as raised:
        fetch(tmp_path, repository.url)
    assert "KAFKAD_ETL_CACHE" in raised.value.hints[0]


def a_job(**blocks: object) -> Job:
    first: dict[str, object] = {"source": Source(topics=("x",)), "sink": Sink(type="none")}
    return Job(version=1, name="try", **(first | blocks))  # type: ignore[arg-type]


def names(job: Job) -> list[str]:
    return [jar.coordinate.split(":")[1] for jar in jars.needed(job, "4.0.0")]


CONNECTOR = ["spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13", "kafka-clients", "commons-pool2"]


@pytest.mark.parametrize(
    ("job", "more"),
    [
        (a_job(), []),
        (a_job(value=Format(format="avro")), ["spark-avro_2.13"]),
        (a_job(value=Format(format="protobuf")), ["protobuf-java"]),
        (a_job(sink=Sink(type="topic", topic=TopicSink(topic="y", format="avro"))), ["spark-avro_2.13"]),
        (a_job(sink=Sink(type="jdbc", jdbc=JdbcSink(url="jdbc:sqlite:a.db", table="t"))), ["sqlite-jdbc"]),
        (a_job(sink=Sink(type="jdbc", jdbc=JdbcSink(url="jdbc:sqlite:a", table="t", driver_jar="a.jar"))), []),
        (
            a_job(
                transform=Transform(
                    lookups={"u": Lookup(format="jdbc", options={"url": "jdbc:postgresql://h/d", "dbtable": "t"})}
                )
            ),
            ["postgresql"],
        ),
    ],
)
def test_a_job_gets_the_jars_that_it_needs(job: Job, more: list[str]) -> None:
    assert names(job) == CONNECTOR + more


def test_a_job_may_leave_them_to_spark() -> None:
    assert names(a_job(spark=Spark(conf={"spark.jars.packages": "org.example:thing:1.0"}))) == []


def test_sets_are_asked_for_by_name(tmp_path: Path) -> None:
    table = Sink(type="iceberg", path="/lake", iceberg=IcebergSink(table="shop.orders"))
    (error,) = jars.missing_sets(jars.sets_needed(a_job(sink=table)), "4.0.0", tmp_path)
    coordinate = "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0"
    assert error.what == f"sink.type: the jars of iceberg are not in the cache: {coordinate} is missing"
    assert error.hints == ("kctl etl jars fetch --with iceberg (47 MB, once)",)
    assert error.exit_code == EtlExit.ENVIRONMENT
    for spark in (Spark(jars=("/own/iceberg-spark.jar",)), Spark(conf={"spark.jars.packages": "org.example:x:1"})):
        assert jars.sets_needed(a_job(sink=table, spark=spark)) == {}
    assert jars.sets_needed(a_job()) == {}


def test_paths_in_an_object_store_ask_for_its_jars(tmp_path: Path) -> None:
    files = Sink(type="parquet", path="s3a://lake/orders")
    assert jars.sets_needed(a_job(sink=files)) == {"s3a": "sink.path"}
    assert jars.sets_needed(a_job(sink=files, run=Run(checkpoint="s3a://lake/c"))) == {"s3a": "run.checkpoint"}
    assert jars.sets_needed(a_job(sink=files, spark=Spark(jars=("/own/hadoop-aws-3.4.1.jar",)))) == {}
    assert jars.sets_needed(a_job(sink=files, spark=Spark(conf={"spark.hadoop.fs.s3a.impl": "own.Store"}))) == {}
    spark = SparkHome(tmp_path, "4.0.0")
    assert environment.sets_needed(a_job(sink=files), spark, {}) == {"s3a": "sink.path"}
    assert environment.sets_needed(a_job(sink=files), spark, {"SPARK_DIST_CLASSPATH": "/opt/*"}) == {}
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "hadoop-aws-3.4.1.jar").touch()
    assert environment.sets_needed(a_job(sink=files), spark, {}) == {}


def test_a_jar_is_read_again_once_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "a.jar"
    path.write_bytes(b"right")
    jar = jars.Jar("a:a:1", 5, hashlib.sha256(b"right").hexdigest())
    assert jars.fault(jar, path) == ""
    (tmp_path / "new").write_bytes(b"wrong")
    (tmp_path / "new").rename(path)
    assert jars.fault(jar, path).startswith("has SHA-256")


def test_versions_that_are_not_locked_are_refused() -> None:
    with pytest.raises(EtlError, match=r"PySpark 4\.2\.0") as raised:
        jars.needed(a_job(), "4.2.0")
    assert raised.value.exit_code == EtlExit.ENVIRONMENT
    assert raised.value.hints[0] == "supported: pip install pyspark==4.0.0"


def test_every_coordinate_of_the_lock_is_locked() -> None:
    lock = jars.lock()
    parts = (lock.connector, lock.avro, lock.protobuf, lock.jdbc, *lock.sets.values())
    named = {name for part in parts for names in part.values() for name in names}
    assert named == set(lock.jars)
    assert set(lock.avro) == set(lock.protobuf) == set(lock.connector) == set(lock.sets)
    assert all(len(jar.sha256) == 64 and jar.bytes > 0 for jar in lock.jars.values())
