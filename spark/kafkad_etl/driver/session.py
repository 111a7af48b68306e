"""The Spark sessions of jobs. Most settings are passed on spark-submit's command line."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from kafkad_etl.driver.sinks.lake import delta, iceberg
from kafkad_etl.facts import CATALOG, REDACTED, is_of_session, redaction
from kafkad_etl.job import Scalar, Sink
from kafkad_etl.messages import Plan, Started

RECENT_PROGRESS = "1000"
"""Number of progress reports Spark keeps until they are read; short batches may come faster than we poll."""

_EXTENSIONS = "spark.sql.extensions"


def sessions_of(plans: Sequence[Plan]) -> list[Any]:
    """A session for each job. Several jobs share a Spark: settings of SQL are those of their own sessions."""
    if len(plans) == 1:
        plan = plans[0]
        only = {**session_settings(plan.job.sink), **plan.job.spark.conf}
        return [_first(only, only)]
    settings = [{**session_settings(plan.job.sink), **plan.job.spark.conf} for plan in plans]
    common = {
        name: value
        for each in settings
        for name, value in each.items()
        if not is_of_session(name) and not name.startswith(CATALOG)
    }
    extensions = dict.fromkeys(
        word for each in settings for word in str(each.get(_EXTENSIONS, "")).split(",") if word
    )  # of Delta, for instance: sessions without its tables do not mind
    spark = _first(common | ({_EXTENSIONS: ",".join(extensions)} if extensions else {}), chain(*settings))
    return [configured(spark.newSession(), each) for each in settings]


def activate(session: Any, pool: str) -> None:
    """Makes it the session of this thread, whose tasks are in a pool of their own: pools take turns."""
    session._get_j_spark_session_class(session._jvm).setActiveSession(session._jsparkSession)
    session.sparkContext.setLocalProperty("spark.scheduler.pool", pool)


def _first(settings: Mapping[str, Scalar], names: Iterable[str]) -> Any:
    """Spark's first session. It adds settings that contain secrets, which spark-submit's command line does not have.
    `names` are those of all settings of the jobs: what Spark shows leaves out each that is not on it."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    SparkContext._ensure_initialized()  # else SparkConf would not know spark-submit's words
    given = SparkConf()
    hidden = {name for name in names if not given.contains(name)}
    builder = SparkSession.builder.config("spark.sql.streaming.numRecentProgressUpdates", RECENT_PROGRESS)
    builder = builder.config(REDACTED, redaction(given.get(REDACTED, ""), hidden))
    for name, value in settings.items():
        if not given.contains(name):
            builder = builder.config(name, _text(value))
    spark = builder.getOrCreate()
    _write_no_checksums(spark)
    return spark


def _write_no_checksums(spark: Any) -> None:
    """Beside files on this machine's disks: the sinks rename what Spark writes, and would leave them behind."""
    local = spark._jvm.org.apache.hadoop.fs.FileSystem.getLocal(spark._jsc.hadoopConfiguration())
    local.setWriteChecksum(False)


def session_settings(sink: Sink) -> dict[str, str]:
    """Settings that the sink's tables need."""
    if sink.type == "iceberg":
        return iceberg.session_settings(sink)
    return delta.SETTINGS if sink.type == "delta" else {}


def configured(session: Any, conf: Mapping[str, Scalar]) -> Any:
    """A further session of the same Spark, with those of a job's settings that may change while Spark runs."""
    for name, value in conf.items():
        if session.conf.isModifiable(name) or name.startswith(CATALOG):
            session.conf.set(name, _text(value))
    return session


def _text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def started(spark: Any) -> Started:
    return Started(application=spark.sparkContext.applicationId, spark=spark.version, pid=os.getpid())
