"""Builds spark-submit's command line and environment. Pure, and shown by `kctl etl plan`.

Neither contains secrets, since others can see them, but for keys that libraries of object stores look for in the
environment. Settings whose values contain a secret reach the driver in the Plan, and it sets them before Spark starts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from msgspec.structs import replace

import kafkad_etl
from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.facts import is_of_session, is_s3_key, spark_conf
from kafkad_etl.job import Job, Scalar
from kafkad_etl.machine import class_archive
from kafkad_etl.machine.environment import Environment, spark_configuration, tool_variables
from kafkad_etl.machine.java import quoted
from kafkad_etl.messages import Plan

DRIVER = Path(kafkad_etl.__file__).parent / "driver" / "main.py"
_FLAGS = {"--verbose", "-v", "--supervise"}
_MOST_SHUFFLE_PARTITIONS = 8
_DELTA_PARTITIONS = "spark.databricks.delta.snapshotPartitions"
"""Tasks that read the state of a table of Delta, with every batch anew: 50 unless something else is said, each of which
makes code of its own."""
_JARS = "spark.jars"
_FEW_ROWS, _FEW_BATCHES = 200_000, 30
BRIEF = "-XX:TieredStopAtLevel=1"
"""Java's option for a JVM that exits before optimised compilation pays off, which takes half of a short run's CPU
time."""
COLLECTOR = "-XX:+UseParallelGC"
"""Java's option for the garbage collector that batches take least CPU time with: a tenth less than with G1, which
Java takes by itself for shorter pauses."""
_MAY_SAY_COLLECTOR = re.compile(r"-XX:\+Use\w*GC\b|--properties-file")
_JAVA_OPTIONS = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
"""Variables by which users give Java options."""
_READ = re.compile(
    r"(?:AWS|AZURE|GOOGLE|HADOOP|HDFS|JAVA|JDK|KRB5|KUBERNETES|LC|PYSPARK|PYTHON|SPARK|YARN)_\w+|_JAVA_OPTIONS"
    r"|PYTHON(?:PATH|HOME|HASHSEED|UNBUFFERED|DONTWRITEBYTECODE)|KRB5CCNAME"
    r"|LD_LIBRARY_PATH|TMPDIR|TZ|HOME|LANG|LOGNAME|PATH|USER"
)
"""Variables that Spark, Java and their libraries look for."""
_LEAST_SECRET = 8
"""Characters by which a secret is known in other variables: many have a shorter value by chance."""
_KCTLS = "KCTL_"
"""Of kctl's variables, among which is its login; a job's is in the Plan."""
_ONLY_AT_START = ("spark.driver.", "spark.jars", "spark.submit.", "spark.master")
"""Settings that only count before the driver's program runs."""

LOG4J2 = """status = error
rootLogger.level = warn
rootLogger.appenderRef.all.ref = all
logger.yarn.name = org.apache.spark.deploy.yarn.Client
logger.yarn.level = info
appender.all.type = Console
appender.all.name = all
appender.all.target = SYSTEM_ERR
appender.all.layout.type = PatternLayout
appender.all.layout.pattern = %d{yyyy-MM-dd HH:mm:ss.SSS} %p %c{1}: %m%n%ex
"""
"""Logging configuration. Standard error is the log file. Spark's default would log too much; how an application
waits in YARN is worth logging."""


class Options(NamedTuple):
    """The spark-submit options given after `--`."""

    words: tuple[str, ...] = ()
    master: str = ""
    conf: Mapping[str, str] = {}
    """Spark settings by name."""
    jars: str = ""


NO_OPTIONS = Options()


def options_of(words: Sequence[str]) -> Options:
    """Parses the options, refusing any that would submit something other than the job or run it elsewhere."""
    master, mode, jars = "", "", ""
    conf = {}
    for name, value in _pairs(words):
        if name.startswith("spark."):
            conf[name] = value
        if name in ("--master", "spark.master"):
            master = value
        elif name in ("--deploy-mode", "spark.submit.deployMode"):
            mode = value
        elif name == "--jars":
            jars = value
        elif name in ("--class", "--kill", "--status"):
            raise _misplaced(f"{name} does not apply to jobs")
        elif is_s3_key(name):
            raise EtlError(
                f"{name} would be visible on the command line",
                EtlExit.USAGE,
                hints=("export AWS_ACCESS_KEY_ID=… AWS_SECRET_ACCESS_KEY=…",),
            )
    if mode not in ("", "client"):
        raise EtlError(
            f"deploy mode {mode} is not supported: progress, the consumer group and Ctrl-C need the driver on "
            "this machine",
            EtlExit.USAGE,
            hints=("remove it: executors run in the cluster anyway",),
        )
    return Options(tuple(words), master, conf, jars)


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Options with their values, and the settings of --conf under their own names."""
    rest = list(words)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if not name.startswith("-"):
            raise _misplaced(f'"{name}" is not a spark-submit option; the job file goes before --')
        if name not in _FLAGS and not equals:
            if not rest:
                raise _misplaced(f"{name} needs a value")
            value = rest.pop(0)
        if name in ("--conf", "-c"):
            name, _, value = value.partition("=")
        yield name, value


def _misplaced(what: str) -> EtlError:
    return EtlError(
        what, EtlExit.USAGE, hints=("only spark-submit options may follow --, such as -- --queue night --conf a=b",)
    )


def is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def cores(master: str) -> int:
    """The number of cores of a local master."""
    match = re.fullmatch(r"local\[(\d+|\*)(?:,\s*\d+)?\]", master)
    if match is None:
        return 1
    return os.cpu_count() or 1 if match[1] == "*" else int(match[1])


def application(jobs: Sequence[Job]) -> Job:
    """What Spark is told on its command line when it starts: of a single job everything, of several what is common to
    them. Settings of SQL reach their sessions later. Tasks of jobs take turns, so that none waits for another's end."""
    first, *others = jobs
    if not others:
        return first
    conf = {name: value for name, value in first.spark.conf.items() if not is_of_session(name)}
    spark = replace(first.spark, conf={"spark.scheduler.mode": "FAIR"} | conf)
    return replace(first, name="+".join(job.name for job in jobs), spark=spark)


def settings(job: Job, master: str) -> dict[str, Scalar]:
    """Spark settings: our defaults, overridden by the job's."""
    ours: dict[str, Scalar] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
    }
    if is_local(master):
        partitions = min(cores(master), _MOST_SHUFFLE_PARTITIONS)
        ours["spark.sql.shuffle.partitions"] = partitions
        ours[_DELTA_PARTITIONS] = partitions
        ours["spark.driver.host"] = "127.0.0.1"
        ours["spark.driver.bindAddress"] = "127.0.0.1"
    return ours | spark_conf(job)


def command(
    environment: Environment,
    job: Job,
    master: str,
    options: Options,
    sockets: Sequence[str],
    secrets: Iterable[str] = (),
) -> list[str]:
    words = [str(environment.spark_home / "bin" / "spark-submit"), "--master", master, "--deploy-mode", "client"]
    words += ["--name", job.name, "--driver-memory", job.spark.driver_memory]
    words += ["--executor-memory", job.spark.executor_memory]
    known = [secret for secret in secrets if secret]
    for name, value in settings(job, master).items():
        if not any(secret in str(value) for secret in known):
            words += ["--conf", f"{name}={_text(value)}"]
        elif name.startswith(_ONLY_AT_START):
            raise EtlError(
                f"spark.conf {name} contains a secret, which would be visible on the command line", EtlExit.USAGE
            )
    words += options.words
    if jars := _jars(environment, job, master, options):
        words += ["--jars", jars]  # after any other: the last one counts
    return [*words, str(DRIVER), *sockets]


def _jars(environment: Environment, job: Job, master: str, options: Options) -> str:
    """Ours, and those that Spark would take without ours: of its option, which counts before its setting."""
    theirs = options.jars or options.conf.get(_JARS) or str(job.spark.conf.get(_JARS, ""))
    return joined(",", *(jar_url(jar, master) for jar in environment.jars), theirs)


def jar_url(jar: str, master: str) -> str:
    """The jar as a URL. On a local master nothing needs to be copied, as long as the path has nothing to be encoded:
    Spark then takes what it has decoded for a URL."""
    if not is_local(master) or "://" in jar:
        return jar
    return f"local:{jar}" if quote(jar) == jar else Path(jar).absolute().as_uri()


def _text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def is_brief(plan: Plan) -> bool:
    """True if a JVM on this machine will exit before optimised compilation pays off."""
    if plan.task == "test":
        return True
    reading = plan.reading
    if reading is None or plan.mode == "continuous":
        return False
    offsets = (
        last - reading.start.get(topic, {}).get(partition, 0)
        for topic, partitions in reading.end.items()
        for partition, last in partitions.items()
    )
    rows = sum(offsets)
    batches = 1 if plan.mode == "batch" else rows / plan.job.source.rows_per_batch
    return rows <= _FEW_ROWS and batches <= _FEW_BATCHES


def java_options(
    plans: Sequence[Plan], master: str, options: Options, environ: Mapping[str, str], spark_home: Path
) -> str:
    """Those for the JVM of these jobs on this machine. The user's own come later, and count; but Java refuses to start
    with two collectors."""
    if not is_local(master):
        return ""
    given = [environ.get(name, "") for name in _JAVA_OPTIONS]
    given += [*options.words, *(str(value) for plan in plans for value in plan.job.spark.conf.values())]
    theirs = any(map(_MAY_SAY_COLLECTOR.search, [*given, spark_configuration(environ, spark_home)]))
    return joined(" ", BRIEF if all(map(is_brief, plans)) else "", "" if theirs else COLLECTOR)


def variables(
    environment: Environment,
    master: str,
    directory: Path,
    environ: Mapping[str, str],
    java_options: str = "",
    secrets: Iterable[str] = (),
    secret_variables: Collection[str] = (),
) -> dict[str, str]:
    """Environment variables for spark-submit. `directory` is the run's private directory, `secret_variables` are those
    that jobs have secrets from."""
    known = {secret for secret in secrets if len(secret) >= _LEAST_SECRET}
    theirs = {
        name: value
        for name, value in environ.items()
        if _READ.fullmatch(name) or not (name in secret_variables or value in known or name.startswith(_KCTLS))
    }
    ours = {
        **tool_variables(environment),
        "PYTHONPATH": joined(":", str(DRIVER.parents[2]), environ.get("PYTHONPATH", "")),
        "PYTHONSAFEPATH": "1",  # the driver's modules are those of its package, not of its directory
        "TMPDIR": str(directory),
        "SPARK_LOCAL_DIRS": str(directory),
        "SPARK_SUBMIT_OPTS": joined(
            " ",
            java_options,  # before the user's own: the last one counts
            class_archive.taking(environment.archive) if environment.archive else "",
            environ.get("SPARK_SUBMIT_OPTS", ""),
            f"-Dlog4j2.configurationFile={(directory / 'log4j2.properties').as_uri()}",
            quoted(f"-Djava.io.tmpdir={directory}"),
        ),
    }
    if is_local(master):
        ours["SPARK_LOCAL_IP"] = "127.0.0.1"  # a host name that does not resolve would stop Spark
    return theirs | ours


def joined(separator: str, *parts: str) -> str:
    return separator.join(part for part in parts if part)
