"""Sink `delta`: a Delta Lake table in a directory.

Exactly once: each commit carries the job's name, the checkpoint's id and the batch number, and Delta skips one it
already has. Mode batch has no such number: every run is a new one.
"""

from __future__ import annotations

from typing import Any

from kafkad_etl.driver.paths import HadoopFiles, join
from kafkad_etl.driver.terms import BatchId, DataFrame, JobFailed, Written
from kafkad_etl.messages import Failed, Plan

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""Settings that a session needs from the start for Delta."""
RECENT = 20


class DeltaSink:
    def __init__(self, spark: Any, plan: Plan) -> None:
        self._spark = spark
        self._plan = plan
        self._settings = plan.job.sink
        self._files = HadoopFiles(spark, plan.job.sink.path)
        self._path = self._files.absolute(plan.job.sink.path)

    def prepare(self, columns: list[tuple[str, str]]) -> None:
        try:
            self._spark._jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(
                SETTINGS["spark.sql.catalog.spark_catalog"]
            )
        except Exception as error:
            raise JobFailed(_no_delta(self._spark.version)) from error
        names = [name for name, _ in columns]
        unknown = [name for name in self._settings.partition_by if name not in names]
        if unknown:
            text = f"sink.partition_by names {unknown[0]}, which the result does not have: {', '.join(names)}"
            raise JobFailed(Failed(kind="schema", text=text))

    def finished(self, batch: BatchId) -> Written | None:
        return None if self._plan.mode == "batch" else self._committed(self._mark(batch))

    def write(self, rows: DataFrame, batch: BatchId) -> Written:
        mark = self._mark(batch)
        settings = self._settings
        writer = rows.write.format("delta").option("userMetadata", mark)
        if self._plan.mode != "batch":
            writer = writer.options(txnAppId=mark.rpartition("/")[0], txnVersion=batch.number)
        if settings.mode == "overwrite_partitions":
            writer = writer.option("partitionOverwriteMode", "dynamic")
        mode = "overwrite" if settings.mode.startswith("overwrite") else settings.mode
        writer.partitionBy(*settings.partition_by).options(**settings.options).mode(mode).save(self._path)
        return self._committed(mark) or Written(0)

    def _mark(self, batch: BatchId) -> str:
        return f"{self._plan.job.name}/{batch.checkpoint_id}/{batch.number}"

    def _committed(self, mark: str) -> Written | None:
        """The batch's result according to Delta's log."""
        if not self._files.exists(join(self._path, "_delta_log")):
            return None
        path = self._path.replace("`", "``")
        history = self._spark.sql(f"DESCRIBE HISTORY delta.`{path}` LIMIT {RECENT}")
        found = history.where(history.userMetadata == mark).select("operationMetrics").take(1)
        if not found:
            return None
        metrics = found[0][0]
        return Written(*(int(metrics.get(name, 0)) for name in ("numOutputRows", "numFiles", "numOutputBytes")))


def _no_delta(version: str) -> Failed:
    return Failed(
        kind="environment",
        text="sink.type is delta, but Delta Lake's jars are missing",
        hints=[
            "kctl etl jars fetch --with delta",
            f"or spark.conf: {{spark.jars.packages: …}} of the release for Spark {version}, which replaces our jars",
        ],
    )
