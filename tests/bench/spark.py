"""Spark's Kafka connector on kafkad beside real Kafka 3.9, and what jobs cost beside the same work without kctl.

    python -m tests.bench.spark [--only NAME] [--rows N] [--rounds N]

    start              what `kctl etl run` adds to spark-submit
    front              CPU time of progress and consumer group, beside that of the batches
    parquet            JSON to Parquet, beside a PySpark program that does the same
    second-job         how much longer it takes until queries run, with a second job in the same Spark
    cases              `kctl etl test` of ten cases
    strict             CPU time of JSON in mode strict, beside mode lenient
    upsert             rows into a table of Iceberg, beside a MERGE written by hand
    connector-count    the connector reads records; it writes Parquet of them; it writes records
    connector-parquet
    connector-write

`--only` runs those whose name begins with NAME. The connector gets N records (2,000,000), jobs, tables and writers half
of them. What is compared takes turns, so that what else the machine does falls on both; of some rounds the quickest
counts. Exits 1 when a figure is not what it has to be.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import kafkad_etl
from kafkad_etl.driver import java_names
from kafkad_etl.driver.session import session_settings
from kafkad_etl.driver.sinks import sink_of
from kafkad_etl.driver.terms import BatchId
from kafkad_etl.job import Job, Sink, Source, Spark
from kafkad_etl.machine import environment, jars
from kafkad_etl.machine.cache import cache_directory
from kafkad_etl.machine.download import fetched
from kafkad_etl.machine.environment import Environment, tool_variables
from kafkad_etl.process.submitting import NO_OPTIONS, command, settings
from tests.bench.compared import KAFKA, KAFKAD, ONE_BROKER, Promise
from tests.bench.figures import Figure
from tests.bench.measured import prepare
from tests.broker import KafkadProcess
from tests.oracle import kafka as oracle
from tests.spark.driver.rows import plan_of

MASTER = "local[2]"
HEAP = "1g"
PARTITIONS = 4
SETTINGS = {**ONE_BROKER, "num.partitions": str(PARTITIONS)}
RECORD_BYTES = 100
SCHEMA = "id BIGINT, amount DECIMAL(12,2), at TIMESTAMP, customer STRING"
BATCHES = 10
JOB = Job(
    version=1,
    name="bench",
    source=Source(topics=("bench",)),
    sink=Sink(type="none"),
    spark=Spark(master=MASTER, driver_memory=HEAP),
)
"""What spark-submit is told of all jobs and programs here."""
CASES = ("json-clean-to-topic", "topic-to-parquet", "avro-to-csv", "exactly-once-by-stored-offset", "windowed-counts")
"""Jobs that come along, which have ten cases."""
LEFT_BEHIND = (".etl", "checkpoint", "out")
"""What runs make in their directory."""
NOTHING = """
import sys
from pyspark.sql import SparkSession
bootstrap, topic = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "latest"}
stream = spark.readStream.format("kafka").options(**options).load().writeStream
stream = stream.foreachBatch(lambda rows, batch: rows.write.format("noop").mode("append").save())
stream.option("checkpointLocation", "checkpoint").trigger(availableNow=True).start().awaitTermination()
spark.stop()
"""
TO_PARQUET = """
import sys
from pyspark.sql import SparkSession
from pyspark.sql.functions import from_json
bootstrap, topic, schema, batch = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
options |= {"kafka.isolation.level": "read_committed", "kafka.max.poll.records": "20000", "maxOffsetsPerTrigger": batch}
records = spark.readStream.format("kafka").options(**options).load()
parsed = from_json(records.value.cast("string"), schema, {"mode": "FAILFAST"})
stream = records.select(parsed.alias("row")).select("row.*").writeStream.format("parquet").option("path", "out")
stream = stream.option("compression", "zstd").option("checkpointLocation", "checkpoint")
stream.trigger(availableNow=True).start().awaitTermination()
spark.stop()
"""
MERGE = """
MERGE INTO {table} AS t
USING (
    SELECT id, name, amount
    FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY _offset DESC) AS place FROM batch)
    WHERE place = 1
) AS s
ON t.id = s.id
WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
"""


class Line(NamedTuple):
    text: str
    kept: bool


class Bench:
    """A scratch directory; brokers and a Spark, each of which is there from when it is first asked for."""

    def __init__(self, directory: Path, stack: contextlib.ExitStack, rows: int, rounds: int) -> None:
        self.directory = directory
        self.rows = rows
        self.half = rows // 2
        self.rounds = rounds
        self._stack = stack

    @cached_property
    def kafkad(self) -> str:
        """Its bootstrap."""
        return self._stack.enter_context(KafkadProcess(self.directory / "kafkad", SETTINGS)).bootstrap

    @cached_property
    def kafka(self) -> str:
        return self._stack.enter_context(oracle.Kafka("3.9", settings=SETTINGS)).bootstrap

    @cached_property
    def environment(self) -> Environment:
        return environment.find(JOB)

    @cached_property
    def spark(self) -> Any:
        """With this process as its driver, for the connector and for tables of Iceberg."""
        from pyspark.sql import SparkSession

        java_names.remember()  # as the driver of jobs does
        found = self.environment
        iceberg = fetched(jars.set_of("iceberg", found.version), cache_directory(os.environ) / "jars", os.environ)
        words = ",".join(f"local:{jar}" for jar in (*found.jars, *iceberg))
        os.environ["JAVA_HOME"] = str(found.java.home)
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--master {MASTER} --driver-memory {HEAP} --jars {words} pyspark-shell"
        builder = SparkSession.builder.config("spark.log.level", "ERROR")
        for name, value in settings(JOB, MASTER).items():
            builder = builder.config(name, str(value))
        spark = builder.getOrCreate()
        self._stack.callback(spark.stop)
        return spark

    def topic(self, bootstrap: str, rows: int) -> str:
        """One with so many records of JSON, filled when it is first asked for."""
        name = f"rows-{rows}"
        lines = self.directory / name
        if not lines.exists():
            lines.write_text("".join(f"{record(number)}\n" for number in range(rows)))
        filled = self.directory / f"{name}-{bootstrap}"
        if not filled.exists():
            kctl = [sys.executable, "-m", "kctl", "-b", bootstrap, "-q"]
            for words in (["topics", "create", name, "-p", str(PARTITIONS), "-y"], ["produce", name, "--file", lines]):
                subprocess.run([*kctl, *map(str, words)], check=True, stdout=subprocess.DEVNULL)
            filled.touch()
        return name


def record(number: int) -> str:
    begin = f'{{"id": {number}, "amount": {number}.50, "at": "2026-11-01T12:00:00Z", "customer": "c'
    return f'{begin:x<{RECORD_BYTES - 2}}"}}'


def quickest(
    bench: Bench, works: Mapping[str, Callable[[], object]], before: Callable[[], object] = lambda: None
) -> dict[str, float]:
    """Seconds by name; the first round, in which the JVM learns the work, does not count. `before` is done before each,
    and does not count either."""
    least = dict.fromkeys(works, float("inf"))
    for attempt in range(bench.rounds + 1):
        for name, work in works.items():
            before()
            begin = time.monotonic()
            work()
            if attempt:
                least[name] = min(least[name], time.monotonic() - begin)
    return least


# --- jobs, beside programs that do the same by themselves


class Spent(NamedTuple):
    seconds: float
    cpu: float
    """Of all processes, in seconds."""


def spent(words: Sequence[str], directory: Path, environ: Mapping[str, str] | None = None) -> Spent:
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(words, cwd=directory, env=environ, capture_output=True, text=True, check=False)
    seconds, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr[-2000:]}"
    return Spent(seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def in_turn(bench: Bench, *works: Callable[[], Spent]) -> list[Spent]:
    """The least that each has taken, in a directory without traces of others."""
    found: list[list[Spent]] = [[] for _ in works]
    for _ in range(bench.rounds):
        for work, mine in zip(works, found, strict=True):
            tidy(bench)
            mine.append(work())
    return [Spent(min(each.seconds for each in mine), min(each.cpu for each in mine)) for mine in found]


def tidy(bench: Bench) -> None:
    for name in LEFT_BEHIND:
        shutil.rmtree(bench.directory / name, ignore_errors=True)


def job_file(bench: Bench, name: str, source: Mapping[str, object], **blocks: object) -> Path:
    """A job, into nothing unless the blocks say otherwise."""
    about = {"version": 1, "name": name, "kafka": {"bootstrap": [bench.kafkad]}, "source": source}
    rest = {"sink": {"type": "none"}, "spark": {"master": MASTER, "driver_memory": HEAP}}
    path = bench.directory / f"{name}.yaml"
    path.write_text(json.dumps(about | rest | blocks))  # which is YAML as well
    return path


def kctl_etl(*words: object) -> list[str]:
    return [sys.executable, "-m", "kctl", "etl", *map(str, words)]


def job(bench: Bench, path: Path) -> Callable[[], Spent]:
    return partial(spent, kctl_etl("run", path, "-y", "-q"), bench.directory)


def by_hand(bench: Bench, program: str, *arguments: str) -> Callable[[], Spent]:
    """Hands a program to spark-submit, as its writer would: with the settings and jars that jobs have, but without what
    `kctl etl` tells Java."""
    path = bench.directory / "by_hand.py"
    path.write_text(program)
    environ = {**os.environ, **tool_variables(bench.environment), "SPARK_LOCAL_IP": "127.0.0.1"}
    *words, _ = command(bench.environment, JOB, MASTER, NO_OPTIONS, [])  # all but the driver
    return partial(spent, [*words, str(path), *arguments], bench.directory, environ)


def more(of: float, than: float) -> float:
    return (of / than - 1) * 100


def line(name: str, value: float, limit: float, unit: str) -> Line:
    figure = Figure(name, value, limit, unit)
    return Line(str(figure), figure.good)


def start(bench: Bench) -> Iterator[Line]:
    """By all of a job that has nothing to read, to a program that does the same without us."""
    topic = bench.topic(bench.kafkad, bench.half)
    ours = job(bench, job_file(bench, "nothing", {"topics": [topic], "start": "latest"}))
    plain, mine = in_turn(bench, by_hand(bench, NOTHING, bench.kafkad, topic), ours)
    yield line(f"kctl etl run adds to spark-submit ({plain.seconds:.1f} s)", mine.seconds - plain.seconds, 1.5, "s")


def front(bench: Bench) -> Iterator[Line]:
    """CPU time of what follows a job, beside the batches: bars, the consumer group, events."""
    topic = bench.topic(bench.kafkad, bench.rows)
    path = job_file(bench, "all", {"topics": [topic], "rows_per_batch": -(-bench.rows // BATCHES)})
    tidy(bench)
    checkpoint = bench.directory / ".etl" / "all"
    with subprocess.Popen(
        kctl_etl("run", path, "-o", "rich"), cwd=bench.directory, stderr=subprocess.DEVNULL
    ) as running:
        begin = at_file(running, checkpoint / "offsets" / "0")
        end = at_file(running, checkpoint / "commits" / str(BATCHES - 2))
        assert running.wait() == 0
    share = (end.cpu - begin.cpu) / (end.clock - begin.clock)
    yield line("progress and consumer group, of the time of batches", share * 100, 2, "%")


class Instant(NamedTuple):
    clock: float
    cpu: float


def at_file(running: subprocess.Popen[bytes], path: Path) -> Instant:
    """The time and CPU time at which the file appeared."""
    while not path.exists():
        assert running.poll() is None, f"the run ended before {path.name}"
        time.sleep(0.02)
    fields = Path(f"/proc/{running.pid}/stat").read_text().rpartition(")")[2].split()
    return Instant(time.monotonic(), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))


def parquet(bench: Bench) -> Iterator[Line]:
    import duckdb

    def whole(work: Callable[[], Spent]) -> Spent:
        found = work()
        query = f"SELECT count(*), count(id), count(customer) FROM '{bench.directory}/out/*.parquet'"
        assert duckdb.sql(query).fetchall() == [(bench.half,) * 3]
        return found

    topic = bench.topic(bench.kafkad, bench.half)
    value = {"format": "json", "schema": SCHEMA, "mode": "lenient"}
    sink = {"type": "parquet", "path": "out"}
    ours = job(bench, job_file(bench, "to-parquet", {"topics": [topic]}, value=value, sink=sink))
    theirs = by_hand(bench, TO_PARQUET, bench.kafkad, topic, SCHEMA, str(JOB.source.rows_per_batch))
    plain, mine = in_turn(bench, partial(whole, theirs), partial(whole, ours))
    for name, of, than in (("time", mine.seconds, plain.seconds), ("CPU time", mine.cpu, plain.cpu)):
        yield line(f"{bench.half:,} rows to Parquet, {name} over {than:.1f} s by hand", more(of, than), 5, "%")


def second_job(bench: Bench) -> Iterator[Line]:
    source = {"topics": [bench.topic(bench.kafkad, bench.half)], "start": "latest"}
    paths = [job_file(bench, f"nothing-{number}", source) for number in range(2)]
    one, two = in_turn(bench, *(partial(until_queries, bench, paths[:count]) for count in (1, 2)))
    yield line(f"queries of two jobs run after that of one ({one.seconds:.1f} s)", two.seconds - one.seconds, 2, "s")


def until_queries(bench: Bench, paths: Sequence[Path]) -> Spent:
    """The time from the command until the queries of all jobs run."""
    begin, waiting = time.monotonic(), len(paths)
    with subprocess.Popen(
        kctl_etl("run", *paths, "-y", "-o", "json"), cwd=bench.directory, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        seconds = 0.0
        for event in map(json.loads, running.stdout):
            waiting -= event["type"] == "query"
            seconds = seconds or (0.0 if waiting else time.monotonic() - begin)
        assert running.wait() == 0
    return Spent(seconds, 0)


def cases(bench: Bench) -> Iterator[Line]:
    jobs = Path(kafkad_etl.__file__).parents[1] / "jobs"
    words = kctl_etl("test", *(jobs / f"{name}.yaml" for name in CASES), "--master", MASTER)
    (taken,) = in_turn(bench, partial(spent, words, bench.directory))
    yield line("kctl etl test of ten cases", taken.seconds, 25, "s")


def strict(bench: Bench) -> Iterator[Line]:
    source = {"topics": [bench.topic(bench.kafkad, bench.half)]}
    formats = {mode: {"format": "json", "schema": SCHEMA, "mode": mode} for mode in ("lenient", "strict")}
    works = [job(bench, job_file(bench, mode, source, value=value)) for mode, value in formats.items()]
    lenient, ours = in_turn(bench, *works)
    name = f"{bench.half:,} rows of strict JSON, CPU over {lenient.cpu:.1f} s lenient"
    yield line(name, more(ours.cpu, lenient.cpu), 15, "%")


# --- tables, and the connector, in this process


def upsert(bench: Bench) -> Iterator[Line]:
    """The batch has a row for half of those that the table has, and as many new ones."""
    rows, spark, table = bench.half, bench.spark, "lake.shop.orders"
    iceberg = {"table": "shop.orders", "catalog": {"name": "lake"}}
    place = {"type": "iceberg", "path": str(bench.directory / "lake"), "iceberg": iceberg}
    plan = plan_of({"sink": {**place, "mode": "upsert", "keys": ["id"]}}, mode="available-now")
    for name, value in session_settings(plan.job.sink).items():
        spark.conf.set(name, value)
    file = str(bench.directory / "batch")
    orders(spark, rows // 2, rows).selectExpr("*", "id AS _offset").write.parquet(file)
    sink, batch = sink_of(spark, plan, print), BatchId(0, "bench", {}, {})
    sink.prepare(spark.read.parquet(file).dtypes)

    def fill() -> None:
        spark.sql(f"DROP TABLE {table} PURGE")
        orders(spark, 0, rows).writeTo(table).using("iceberg").create()

    def ours() -> None:
        assert (sink.finished(batch) or sink.write(spark.read.parquet(file), batch)).rows == rows

    def theirs() -> None:
        spark.read.parquet(file).createOrReplaceTempView("batch")
        spark.sql(MERGE.format(table=table))

    taken = quickest(bench, {"by hand": theirs, "upsert": ours}, before=fill)
    name = f"{rows:,} rows upserted, time over {taken['by hand']:.1f} s by hand"
    yield line(name, more(taken["upsert"], taken["by hand"]), 10, "%")


def orders(spark: Any, first: int, count: int) -> Any:
    columns = ("id", "concat('name ', id % 1000) AS name", "CAST(id % 100000 AS DECIMAL(12,2)) AS amount")
    return spark.range(first, first + count, 1, PARTITIONS).selectExpr(*columns)


def connector(bench: Bench, name: str, rows: int, work: Callable[[Bench, str], object]) -> Iterator[Line]:
    sides = {KAFKAD: bench.kafkad, KAFKA: bench.kafka}
    for bootstrap in sides.values():
        bench.topic(bootstrap, bench.rows)
    taken = quickest(bench, {side: partial(work, bench, bootstrap) for side, bootstrap in sides.items()})
    speed = {side: rows / seconds / 1000 for side, seconds in taken.items()}
    promise = Promise(name=name, unit="k/s", at_least=True, ratio=1.0)
    yield Line(*promise.line(speed[KAFKAD], speed[KAFKA]))


def records(bench: Bench, bootstrap: str) -> Any:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": bench.topic(bootstrap, bench.rows)}
    options |= {"kafka.max.poll.records": "20000", "endingOffsets": "latest"}
    return bench.spark.read.format("kafka").options(**options).load()


def connector_count(bench: Bench) -> Iterator[Line]:
    """Of the values' bytes, which have to be fetched for it."""

    def count(bench: Bench, bootstrap: str) -> None:
        (total,) = records(bench, bootstrap).selectExpr("sum(length(value))").first()
        assert total == bench.rows * RECORD_BYTES, f"{total} bytes of {bench.rows} records"

    yield from connector(bench, f"read {bench.rows:,} records, count", bench.rows, count)


def connector_parquet(bench: Bench) -> Iterator[Line]:
    def to_parquet(bench: Bench, bootstrap: str) -> None:
        rows = records(bench, bootstrap).selectExpr(
            "CAST(value AS STRING) AS value", "partition", "offset", "timestamp"
        )
        rows.write.mode("overwrite").parquet(str(bench.directory / "out"))

    yield from connector(bench, f"read {bench.rows:,} records, write Parquet", bench.rows, to_parquet)


def connector_write(bench: Bench) -> Iterator[Line]:
    def write(bench: Bench, bootstrap: str) -> None:
        made = bench.spark.range(0, bench.half, 1, PARTITIONS)
        values = made.selectExpr(f"lpad(CAST(id AS STRING), {RECORD_BYTES}, 'x') AS value")
        options = {"kafka.bootstrap.servers": bootstrap, "topic": "written", "kafka.linger.ms": "20"}
        values.write.format("kafka").options(**options, **{"kafka.batch.size": "131072"}).save()

    yield from connector(bench, f"write {bench.half:,} records", bench.half, write)


MEASUREMENTS = (
    *(start, front, parquet, second_job, cases, strict),  # before this process has a JVM
    *(upsert, connector_count, connector_parquet, connector_write),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAME", default="", help="only those whose name begins with NAME")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    names = {measure.__name__.replace("_", "-"): measure for measure in MEASUREMENTS}
    chosen = [measure for name, measure in names.items() if name.startswith(options.only)]
    if not chosen:
        parser.error(f"--only is one of {', '.join(names)}, or how some of them begin")
    prepare()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a user's second start finds the bytecode of the first
    missed = 0
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-spark-")))
        bench = Bench(scratch, stack, options.rows, options.rounds)
        for measure in chosen:
            for told in measure(bench):
                print(told.text, flush=True)
                missed += not told.kept
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
