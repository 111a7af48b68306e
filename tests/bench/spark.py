"""Spark's Kafka connector on kafkad beside real Kafka 3.9, and what jobs cost beside plain spark-submit.

    python -m tests.bench.spark [--only TEXT] [--rows N] [--rounds N]

Both brokers run at once, and Spark asks them in turn, so that what else the machine does falls on both. Of some rounds
the quickest counts. Exits 1 when a figure is not what it has to be.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kafkad_etl.job import Job, Sink, Source, Spark
from kafkad_etl.machine import environment
from kafkad_etl.machine.environment import Environment
from kafkad_etl.process.submitting import NO_OPTIONS, command, variables
from tests.bench.compared import KAFKA, KAFKAD, ONE_BROKER, Promise
from tests.bench.figures import Figure
from tests.bench.measured import prepare
from tests.broker import KafkadProcess
from tests.oracle import kafka as oracle

MASTER = "local[2]"
HEAP = "1g"
PARTITIONS = 4
TOPIC = "bench"
RECORD_BYTES = 100
BATCHES = 10
EMPTY_JOB = """version: 1
name: NAME
kafka: {bootstrap: [BOOTSTRAP]}
source: {topics: [TOPIC], start: START, rows_per_batch: ROWS}
sink: {type: none}
spark: {master: "local[2]", driver_memory: 1g}
"""
PLAIN = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
options = {"kafka.bootstrap.servers": sys.argv[1], "subscribe": sys.argv[2], "startingOffsets": "latest"}
stream = spark.readStream.format("kafka").options(**options).load().writeStream
stream = stream.foreachBatch(lambda rows, batch: rows.write.format("noop").mode("append").save())
stream.option("checkpointLocation", sys.argv[3]).trigger(availableNow=True).start().awaitTermination()
spark.stop()
"""

Sides = dict[str, str]
"""Name to bootstrap."""


class Bench(NamedTuple):
    directory: Path
    sides: Sides
    rows: int
    rounds: int


def quickest(bench: Bench, work: Callable[[str, str], object]) -> dict[str, float]:
    """Seconds by side; the first round, in which the JVM learns the work, does not count."""
    least = dict.fromkeys(bench.sides, float("inf"))
    for attempt in range(bench.rounds + 1):
        for side, bootstrap in bench.sides.items():
            begin = time.monotonic()
            work(side, bootstrap)
            if attempt:
                least[side] = min(least[side], time.monotonic() - begin)
    return least


# --- the connector


def session(found: Environment) -> Any:
    """Spark with this process as its driver."""
    from pyspark.sql import SparkSession

    os.environ["JAVA_HOME"] = str(found.java.home)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    jars = ",".join(f"local:{jar}" for jar in found.jars)
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--master {MASTER} --driver-memory {HEAP} --jars {jars} pyspark-shell"
    builder = SparkSession.builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    return builder.config("spark.log.level", "ERROR").getOrCreate()


def read(spark: Any, bootstrap: str) -> Any:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC, "kafka.max.poll.records": "20000"}
    return spark.read.format("kafka").options(**options, endingOffsets="latest").load()


def count(spark: Any, bootstrap: str, rows: int) -> None:
    """Of the values' bytes, which have to be fetched for it."""
    (total,) = read(spark, bootstrap).selectExpr("sum(length(value))").first()
    assert total == rows * RECORD_BYTES, f"{total} bytes of {rows} records"


def to_parquet(spark: Any, bootstrap: str, directory: Path) -> None:
    rows = read(spark, bootstrap).selectExpr("CAST(value AS STRING) AS value", "partition", "offset", "timestamp")
    rows.write.mode("overwrite").parquet(str(directory))


def write(spark: Any, bootstrap: str, topic: str, rows: int) -> None:
    values = spark.range(0, rows, 1, PARTITIONS).selectExpr(f"lpad(CAST(id AS STRING), {RECORD_BYTES}, 'x') AS value")
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "kafka.linger.ms": "20"}
    values.write.format("kafka").options(**options, **{"kafka.batch.size": "131072"}).save()


def connector(bench: Bench, found: Environment, only: str) -> Iterator[tuple[str, bool]]:
    spark = session(found)
    half = bench.rows // 2
    for bootstrap in bench.sides.values():
        write(spark, bootstrap, TOPIC, half)
        write(spark, bootstrap, TOPIC, bench.rows - half)
    works: dict[str, tuple[int, Callable[[str, str], object]]] = {
        f"read {bench.rows:,} records, count": (bench.rows, lambda _, at: count(spark, at, bench.rows)),
        f"read {bench.rows:,} records, write Parquet": (
            bench.rows,
            lambda side, at: to_parquet(spark, at, bench.directory / "parquet" / side),
        ),
        f"write {half:,} records": (half, lambda _, at: write(spark, at, "written", half)),
    }
    for name, (rows, work) in works.items():
        if only in name:
            spent = quickest(bench, work)
            speed = {side: rows / seconds / 1000 for side, seconds in spent.items()}
            promise = Promise(name=name, unit="k/s", at_least=True, ratio=1.0)
            yield promise.line(speed[KAFKAD], speed[KAFKA])
    spark.stop()


# --- jobs beside plain spark-submit


def job_file(bench: Bench, name: str, start: str) -> Path:
    path = bench.directory / f"{name}.yaml"
    text = EMPTY_JOB.replace("NAME", name).replace("BOOTSTRAP", bench.sides[KAFKAD]).replace("TOPIC", TOPIC)
    path.write_text(text.replace("START", start).replace("ROWS", str(-(-bench.rows // BATCHES))))
    return path


def kctl_run(path: Path) -> list[str]:
    return [sys.executable, "-m", "kctl", "etl", "run", str(path), "--reset-checkpoint", "-y", "-q"]


def seconds_of(words: list[str], directory: Path, environ: dict[str, str]) -> float:
    begin = time.monotonic()
    done = subprocess.run(words, cwd=directory, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr[-2000:]}"
    return time.monotonic() - begin


def added(bench: Bench, found: Environment, job: Job) -> Figure:
    """By all of a job that has nothing to read, to a program that does the same without us."""
    program = bench.directory / "plain.py"
    program.write_text(PLAIN)
    environ = variables(found, MASTER, bench.directory, dict(os.environ))
    (bench.directory / "log4j2.properties").write_text("rootLogger.level = off\n")
    checkpoint = bench.directory / "plain-checkpoint"
    *words, _ = command(found, job, MASTER, NO_OPTIONS, [])  # all but the driver
    plain = [*words, str(program), bench.sides[KAFKAD], TOPIC, str(checkpoint)]
    ours = kctl_run(job_file(bench, "nothing", "latest"))
    least = [float("inf"), float("inf")]
    for _ in range(bench.rounds):
        shutil.rmtree(checkpoint, ignore_errors=True)
        least[0] = min(least[0], seconds_of(plain, bench.directory, environ))
        least[1] = min(least[1], seconds_of(ours, bench.directory, dict(os.environ)))
    return Figure(f"kctl etl run adds to spark-submit ({least[0]:.1f} s)", least[1] - least[0], 1.5, "s")


def share_of_front(bench: Bench) -> Figure:
    """CPU time of what follows a job, beside the batches: bars, the consumer group, events."""
    path = job_file(bench, "all", "earliest")
    words = [sys.executable, "-m", "kctl", "etl", "run", str(path), "--reset-checkpoint", "-o", "rich"]
    checkpoint = bench.directory / ".etl" / "all"
    shutil.rmtree(checkpoint, ignore_errors=True)
    with subprocess.Popen(words, cwd=bench.directory, stderr=subprocess.DEVNULL) as front:
        begin = at_file(front, checkpoint / "offsets" / "0")
        end = at_file(front, checkpoint / "commits" / str(BATCHES - 2))
        assert front.wait() == 0
    share = (end.cpu - begin.cpu) / (end.clock - begin.clock)
    return Figure("progress and consumer group, of the time of batches", share * 100, 2, "%")


class Instant(NamedTuple):
    clock: float
    cpu: float


def at_file(front: subprocess.Popen[bytes], path: Path) -> Instant:
    """The time and CPU time at which the file appeared."""
    while not path.exists():
        assert front.poll() is None, f"the run ended before {path.name}"
        time.sleep(0.02)
    fields = Path(f"/proc/{front.pid}/stat").read_text().rpartition(")")[2].split()
    return Instant(time.monotonic(), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only figures whose name holds this text")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    prepare()
    job = Job(
        version=1,
        name="bench",
        source=Source(topics=(TOPIC,)),
        sink=Sink(type="none"),
        spark=Spark(master=MASTER, driver_memory=HEAP),
    )
    found = environment.find(job)
    missed = 0
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-spark-")))
        settings = {**ONE_BROKER, "num.partitions": str(PARTITIONS)}
        mine = stack.enter_context(KafkadProcess(scratch / "kafkad", settings))
        theirs = stack.enter_context(oracle.Kafka("3.9", settings=settings))
        bench = Bench(scratch, {KAFKAD: mine.bootstrap, KAFKA: theirs.bootstrap}, options.rows, options.rounds)
        for line, kept in connector(bench, found, options.only):
            print(line, flush=True)
            missed += not kept
        for figure in (added(bench, found, job), share_of_front(bench)):
            print(figure, flush=True)
            missed += not figure.good
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
