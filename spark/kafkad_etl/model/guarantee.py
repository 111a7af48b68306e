"""The delivery guarantee of a job, as reported by validate, plan and run. Pure."""

from __future__ import annotations

from typing import NamedTuple

from kafkad_etl.facts import FILES, TABLES, is_elsewhere, is_streaming
from kafkad_etl.job import Job

_UNSAFE = {
    "0": "acks: 0 waits for no broker",
    "1": "with acks: 1, what the leader has not yet copied to others is gone if it fails",
}
"""What makes a row count as written too early, by `sink.topic.acks`."""


class Guarantee(NamedTuple):
    level: str
    """exactly once, at least once, rows may be lost, or nothing kept."""
    text: str

    def __str__(self) -> str:
        return f"{self.level}: {self.text}"


def guarantee(job: Job) -> Guarantee:
    level, text = _streaming(job) if is_streaming(job) else _batch(job)
    if job.sink.topic is not None and job.sink.topic.acks != "all":
        level, text = "rows may be lost", f"{_UNSAFE[job.sink.topic.acks]}; {text}"
    return Guarantee(level, "; ".join((text, *_limits(job))))


def _streaming(job: Job) -> tuple[str, str]:
    sink = job.sink
    if sink.type in FILES:
        if job.run.output == "complete":
            return "exactly once", "each batch replaces all files"
        return "exactly once", "an interrupted batch is completed or rewritten under the same file names"
    if sink.type == "delta":
        return "exactly once", "the table's log records which batches it has"
    if sink.type == "iceberg":
        return "exactly once", "the table's snapshots record which batches it has"
    if sink.type == "jdbc":
        return "exactly once", "rows and the batch's offsets are written in one transaction"
    if sink.type == "topic" and sink.topic is not None and sink.topic.delivery == "exactly-once":
        return (
            "exactly once",
            "a batch's rows and its number are written in one transaction, for read_committed readers",
        )
    if sink.type == "topic":
        return "at least once", _twice(job)
    return _nothing_kept(sink.type)


def _twice(job: Job) -> str:
    text = "an interrupted batch is written again in full"
    if job.sink.topic is not None and job.sink.topic.source_header:
        return f"{text}; readers can detect duplicates by the header `source`"
    return f"{text}; with `source_header` or a key, readers can skip duplicates"


def _batch(job: Job) -> tuple[str, str]:
    sink = job.sink
    if sink.type in ("console", "none"):
        return _nothing_kept(sink.type)
    if sink.type in (*FILES, *TABLES) and sink.mode != "upsert":
        if sink.mode == "append":
            return "at least once", "every run adds all its rows; `sink.mode` overwrite would replace them"
        if sink.mode == "error":
            return "exactly once", f"a second run stops because {'files' if sink.type in FILES else 'rows'} exist"
        what = "the partitions it has rows for" if sink.mode == "overwrite_partitions" else "what was there"
        return "exactly once", f"each run replaces {what}"
    if sink.mode == "upsert" or (sink.jdbc is not None and sink.jdbc.mode == "upsert"):
        return "exactly once", "a second run replaces rows with equal keys"
    return "at least once", "every run writes all its rows"


def _nothing_kept(kind: str) -> tuple[str, str]:
    return "nothing kept", "rows are shown" if kind == "console" else "rows are counted"


def _limits(job: Job) -> list[str]:
    """Limits of the guarantee that the job file asks for."""
    limits = []
    if job.sink.type in FILES and job.sink.mode.startswith("overwrite"):
        limits.append(
            "while files are replaced, and after a kill until the next run, readers see both old and new files"
        )
    if job.sink.type in FILES and job.sink.compact.after == "run" and is_elsewhere(job.sink.path):
        limits.append("while small files are merged, and after a kill until the next run, readers see rows twice")
    if job.sink.mode == "overwrite_partitions" and is_streaming(job):
        limits.append("each batch replaces the partitions it has rows for")
    if job.source.files is not None and is_streaming(job):
        limits.append("files that a merge makes while the job runs are read as new ones")
    if job.source.on_data_loss == "continue":
        limits.append("records deleted before they were read are counted and skipped")
    if job.source.isolation == "read_uncommitted":
        limits.append("records of aborted transactions are read as well")
    if job.value.bad_rows.action == "drop":
        limits.append("rows that cannot be parsed are counted and dropped")
    if job.value.bad_rows.action == "dead_letter":
        limits.append("dead letters are written at least once")
    if job.transform.watermark is not None and is_streaming(job):
        limits.append(f"rows more than {job.transform.watermark.delay} late are counted and dropped")
    return limits
