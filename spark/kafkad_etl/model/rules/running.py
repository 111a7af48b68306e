"""Rules for `run`, `spark` and `checks`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kafkad_etl.facts import duration_ms, has_s3_paths, heap_bytes, is_streaming, paths_of
from kafkad_etl.job import S3, Job, Spark
from kafkad_etl.model.document import Mistake
from kafkad_etl.model.rules.clients import is_address
from kafkad_etl.model.rules.rows import duration

_MASTER = re.compile(r"local(\[(\*|0*[1-9]\d{0,8})(,\s*\d{1,9})?\])?|yarn|(spark|k8s)://.+")
_OWN_KEYS = {
    "spark.master": "spark.master",
    "spark.app.name": "name",
    "spark.driver.memory": "spark.driver_memory",
    "spark.executor.memory": "spark.executor_memory",
}
"""Settings that spark-submit takes from options of its own, and the keys that give it these."""
_MEMORY = re.compile(r"[0-9]{1,9}[kmgt]b?", re.IGNORECASE)
"""The JVM wants a unit."""
_LEAST_HEAP = 450 << 20
"""Spark refuses a smaller one: it wants half as much again as the 300 MB that it sets aside."""


def mistakes(job: Job) -> Iterator[Mistake]:
    run = job.run
    yield from duration(run.every, "run.every")
    yield from duration(run.retries.backoff, "run.retries.backoff")
    if _is_set(run.every) and run.mode != "continuous":
        yield Mistake("run.every", f"mode {run.mode} does not wait between batches", ("use mode: continuous",))
    yield from _stop_after(job)
    if run.listen and not is_address(run.listen):
        yield Mistake("run.listen", f'"{run.listen}" is not host:port', ("127.0.0.1:9464",))
    yield from _spark(job.spark)
    yield from _s3(job)
    for index, check in enumerate(job.checks):
        if isinstance(check.expect, list | dict):
            yield Mistake(f"checks.{index}.expect", "must be a single value", ("a check's SELECT returns one",))


def _stop_after(job: Job) -> Iterator[Mistake]:
    stop = job.run.stop_after
    yield from duration(stop.time, "run.stop_after.time")
    yield from duration(stop.idle, "run.stop_after.idle")
    if not is_streaming(job) and (stop.rows or _is_set(stop.time) or _is_set(stop.idle)):
        yield Mistake("run.stop_after", "mode batch stops at `source.end`", ("remove it",))
    elif job.run.mode == "available-now" and _is_set(stop.idle):
        yield Mistake("run.stop_after.idle", "mode available-now stops by itself", ("remove it",))


def _is_set(text: str) -> bool:
    try:
        return duration_ms(text) > 0
    except ValueError:
        return False  # told by `duration`


def _s3(job: Job) -> Iterator[Mistake]:
    for key, path in paths_of(job):
        if path.startswith(("s3://", "s3n://")):
            yield Mistake(
                key, f"Spark's scheme for S3 is s3a, not {path.partition(':')[0]}", (f"s3a:{path.partition(':')[2]}",)
            )
    if job.s3 != S3() and not has_s3_paths(job):
        yield Mistake("s3", "no path of this job begins with s3a://", ("remove the block",))
    if job.s3.endpoint and not re.fullmatch(r"https?://[^/]+/?", job.s3.endpoint):
        yield Mistake("s3.endpoint", f'"{job.s3.endpoint}" is not the URL of an object store', ("https://host:9000",))
    if not job.s3.path_style and not job.s3.endpoint:
        yield Mistake("s3.path_style", "only with an `endpoint`", ("remove it",))


def _spark(spark: Spark) -> Iterator[Mistake]:
    if not _MASTER.fullmatch(spark.master):
        yield Mistake(
            "spark.master", f'"{spark.master}" is not a Spark master', ("local[*], yarn, k8s://…, spark://…",)
        )
    for name in ("driver_memory", "executor_memory"):
        size, hint = getattr(spark, name), "use a value such as 700m or 4g"
        if not _MEMORY.fullmatch(size):
            yield Mistake(f"spark.{name}", f'"{size}" is not a size', (hint,))
        elif heap_bytes(size) < _LEAST_HEAP:
            yield Mistake(f"spark.{name}", "Spark needs at least 450m", (hint,))
    yield from _conf(spark)


def _conf(spark: Spark) -> Iterator[Mistake]:
    for name in spark.conf:
        if not name.startswith("spark."):
            yield Mistake(f"spark.conf.{name}", "Spark's settings start with spark.", (f"write spark.{name}",))
        if name in _OWN_KEYS:
            hint = f"set {_OWN_KEYS[name]} of the job itself"
            yield Mistake(f"spark.conf.{name}", "has a key of its own, and no effect here", (hint,))
    for who in ("driver", "executor"):
        for name in (f"spark.{who}.extraJavaOptions", f"spark.{who}.defaultJavaOptions"):
            if "-Xmx" in str(spark.conf.get(name, "")):
                hint = f"spark.{who}_memory: 4g"
                yield Mistake(f"spark.conf.{name}", "Spark refuses -Xmx: it sets the heap's size itself", (hint,))
    if spark.conf.get("spark.submit.deployMode") == "cluster":
        yield Mistake(
            "spark.conf.spark.submit.deployMode",
            "the driver must run on kctl's machine, where the checkpoint is guarded and progress is shown",
            ("remove it: executors run in the cluster anyway",),
        )
