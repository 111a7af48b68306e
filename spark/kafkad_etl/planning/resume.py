"""Resolves where a run resumes: its checkpoint's progress and the record to write."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import uuid4

from msgspec.structs import replace

from kafkad_etl.checkpoint import checkpoints
from kafkad_etl.checkpoint.checkpoints import Checkpoint, Record, Standing
from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.facts import topics_text, without_login
from kafkad_etl.job import Job
from kafkad_etl.model.loading import MASK, masked
from kafkad_etl.planning.planned import RunOptions


class ResumePoint(NamedTuple):
    record: Record | None = None
    """The record to write; None if no progress is kept."""
    standing: Standing = Standing()
    is_new: bool = True
    """True if the checkpoint has no batch yet."""
    warnings: tuple[str, ...] = ()

    @property
    def checkpoint_id(self) -> str:
        return self.record.checkpoint_id if self.record else _new_id()


def resume_point(
    checkpoint: Checkpoint, job: Job, asked: RunOptions, ids: Mapping[str, str], now: float
) -> ResumePoint:
    """The point at which the job resumes. `ids` are its topics' ids. Raises EtlError CHECKPOINT if it may not use this
    checkpoint."""
    made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    plain = checkpoints.record_of(job, _new_id(), made, ids, asked.spark)
    if checkpoint.is_remote:
        plain = replace(plain, remote=checkpoint.path)
    fresh = _without_secrets(plain, asked.secrets)
    if asked.reset_checkpoint:
        _can_be_put_aside(checkpoint)
        return ResumePoint(fresh)
    warnings = [_not_looked_at(checkpoint)] if checkpoint.is_remote else []
    before, files = checkpoint.record(), checkpoint.files()
    same = _without_secrets(replace(plain, checkpoint_id=before.checkpoint_id), asked.secrets) if before else fresh
    before = before and _without_secrets(before, asked.secrets)
    checkpoints.guard(before, same, files, checkpoint.path)
    if before is None or not (files.is_begun or checkpoint.is_remote):
        return ResumePoint(same if _is_unused(before, job) else fresh, warnings=tuple(warnings))
    topics, spark = {**before.topics, **ids}, same.spark or before.spark
    kept = replace(same, made=before.made, topics=topics, spark=spark, seen=before.seen)
    standing = checkpoint.standing()
    if unknown := sorted(ids.keys() & standing.reached.keys() - before.topics.keys()):
        warnings.append(_without_ids(unknown))
    return ResumePoint(kept, standing, is_new=False, warnings=tuple(warnings))


def _is_unused(before: Record | None, job: Job) -> bool:
    """True if no query of the job has begun: no sink knows the record's id, and rights may have been granted on it.
    Spark's files do not tell it, which may have been removed since."""
    return before is not None and before.job == job.name and not before.begun


def _without_secrets(record: Record, secrets: frozenset[str]) -> Record:
    """The record as it may be written; earlier versions wrote logins and secrets too, and later ones **** alone."""
    facts = {key: without_login(text) for key, text in record.facts.items()}
    digests = record.digests or {
        key: checkpoints.digest_of(record.checkpoint_id, text) for key, text in facts.items() if MASK not in text
    }
    shown = {key: masked(text, secrets) for key, text in facts.items()}
    return replace(record, facts=shown, digests=digests, hash=checkpoints.hash_of(shown))


def _can_be_put_aside(checkpoint: Checkpoint) -> None:
    if checkpoint.is_remote:
        raise EtlError(
            f"{checkpoint.path} cannot be set aside from here",
            EtlExit.CHECKPOINT,
            hints=(f"move it with its file system's tools, and delete {checkpoint.directory}",),
        )


def _not_looked_at(checkpoint: Checkpoint) -> str:
    return (
        f"{checkpoint.path} cannot be read from here; its job and progress are taken from what runs on "
        f"this machine have recorded in {checkpoint.directory / checkpoints.RECORD}"
    )


def _without_ids(names: Sequence[str]) -> str:
    """A run of an earlier version, or one that was killed, has not recorded them."""
    return (
        f"{topics_text(names)}: no id was on record until now; if one was deleted and made again since it was last "
        "read, what is below the checkpoint's offsets is left out"
    )


def _new_id() -> str:
    return uuid4().hex
