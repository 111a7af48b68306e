"""The target directory of a file sink, without Spark: names of new files, and files to remove."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable
from typing import NamedTuple
from uuid import uuid4

import msgspec

from kafkad_etl.driver.paths import Entry, Files, join, parent_and_name
from kafkad_etl.driver.sinks.files.manifest import Manifest, Manifests, complete, redone, roll_back
from kafkad_etl.driver.terms import BatchId, JobFailed, Written
from kafkad_etl.facts import MANIFESTS, hidden
from kafkad_etl.job import Job
from kafkad_etl.job import Sink as Settings
from kafkad_etl.messages import Failed, Plan

ENDING = re.compile(r"[-.]c\d{3}(\..+)$|(\.[^.]+)$")


class Layout(NamedTuple):
    """The directories of one job and owner."""

    target: str
    staging: str
    manifests: str

    @classmethod
    def of(cls, target: str, plan: Plan) -> Layout:
        """The layout. A run in mode batch must not clear away what one with a checkpoint has to complete."""
        parent, name = parent_and_name(target)
        batch_mode = plan.mode == "batch"
        owner = f"batch {plan.owner}" if batch_mode else plan.owner
        staging = join(parent, f".{name}-etl-staging/{plan.job.name}-{zlib.crc32(owner.encode()):08x}")
        kept_at = staging if batch_mode or not plan.checkpoint else plan.checkpoint
        return cls(target, staging, join(kept_at, MANIFESTS))


class TargetDirectory:
    def __init__(self, files: Files, layout: Layout, manifests: Manifests, plan: Plan) -> None:
        self._files = files
        self._layout = layout
        self._manifests = manifests
        self._plan = plan
        self._once = plan.mode == "batch"
        self._run = uuid4().hex[:8] if self._once else plan.checkpoint_id[:8]

    def there(self) -> list[Entry]:
        return visible(self._files.under(self._layout.target))

    def finished(self, batch: BatchId) -> Written | None:
        return None if self._once else self._manifests.finished(batch)

    def staging(self, batch: BatchId) -> str:
        """The batch's staging directory, cleared of what an earlier attempt left."""
        staging = self._staging(batch)
        self._files.remove(staging)
        return staging

    def _staging(self, batch: BatchId) -> str:
        return join(self._layout.staging, f"{batch.number:09d}")

    def appear(self, batch: BatchId, rows: int) -> Written:
        """Makes the staged files visible. Rows without files are in none that can be seen from here."""
        staging = self._staging(batch)
        staged = visible(self._files.under(staging)) if rows else []
        if rows and not staged:
            raise JobFailed(not_shared(f"batch {batch.number} has {rows} rows, and none of its files is in {staging}"))
        manifest = Manifest(
            batch=batch.number,
            start=batch.start,
            end=batch.end,
            source=source_of(self._plan.job),
            target=self._layout.target,
            staging=staging,
            moves=named(staged, f"{self._plan.job.name}-{self._run}-{batch.number:09d}"),
            removes=replaced(self._plan.job.sink, staged, self.there),
            rows=rows,
            bytes=sum(entry.size for entry in staged),
        )
        if manifest.moves or manifest.removes:
            self._files.sync(staging, [entry.path for entry in staged])
            self._manifests.publish(manifest)
            self._manifests.prune(batch.number)
        self._clear(batch)
        return manifest.written

    def _clear(self, batch: BatchId) -> None:
        self._files.remove(self._layout.staging if self._once else self._staging(batch))

    def settle(self) -> str:
        """Completes earlier batches before files in the target are merged."""
        if self._once:
            return self.settle_cut_off(redo=False)
        self._manifests.settle()
        return ""

    def settle_cut_off(self, *, redo: bool = True) -> str:
        """Mode batch: settles what an interrupted earlier run left. Returns a warning if its files stay."""
        manifest = self._manifests.newest() if self._once else None
        if manifest is None:
            return ""
        reading = self._plan.reading
        start, end = (reading.start, reading.end) if reading else ({}, {})
        if redo and not manifest.removes and redone(manifest, start, end, source_of(self._plan.job)):
            roll_back(self._files, manifest)
            warning = ""
        else:
            complete(self._files, manifest)
            warning = cut_off(manifest)
        self._manifests.forget(manifest.batch)
        return warning


def visible(entries: Iterable[Entry]) -> list[Entry]:
    return [entry for entry in entries if not hidden(entry.path)]


def named(staged: list[Entry], prefix: str) -> list[tuple[str, str]]:
    """Pairs of staged names and unique final names."""
    moves = []
    for number, entry in enumerate(staged):
        directory, _, name = entry.path.rpartition("/")
        ending = ENDING.search(name)
        final = f"{prefix}-{number:04d}{(ending[1] or ending[2]) if ending else ''}"
        moves.append((entry.path, f"{directory}/{final}" if directory else final))
    return moves


def replaced(settings: Settings, staged: list[Entry], there: Callable[[], list[Entry]]) -> list[str]:
    """Files in the target that the staged ones replace."""
    if settings.mode == "overwrite":
        return [entry.path for entry in there()]
    if settings.mode == "overwrite_partitions":
        partitions = {entry.path.rpartition("/")[0] for entry in staged}
        return [entry.path for entry in there() if entry.path.rpartition("/")[0] in partitions]
    return []


def source_of(job: Job) -> str:
    return f"{zlib.crc32(msgspec.json.encode(job.source)):08x}"


def not_shared(text: str) -> Failed:
    return Failed(
        kind="sink",
        text=text,
        hints=[
            "executors on other machines write a path without a scheme to their own disks",
            "sink.path: hdfs://…, s3a://…, or a directory that is shared by all machines, at the same path",
        ],
    )


def cut_off(manifest: Manifest) -> str:
    return (
        f"an earlier run was interrupted after it had written {manifest.rows} rows ({len(manifest.moves)} "
        "files), and this "
        f"run does not read all of them again; its files in {manifest.target} have been completed"
    )
