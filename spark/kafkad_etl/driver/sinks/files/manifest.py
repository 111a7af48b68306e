"""Makes the files of a batch appear in a directory that others may read at any time.

1. Spark writes the batch to staging, a directory next to the target that no glob of the target matches.
2. A manifest records the final name of each staged file, and which old files to remove. Once it exists, the batch
   counts as written: whatever crashes after that, its files will reach the target.
3. Each staged file is renamed, complete, to its final name; then the old files and staging are removed.

On local disks each step is synced before the next, so a power failure is like any other crash.

A batch that is repeated after a crash finds its manifest and completes step 3; without a manifest, readers have seen
none of it, and it is written again. So no reader of the target ever sees part of a file, or a row twice.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct

from kafkad_etl.driver.paths import Files, join
from kafkad_etl.driver.terms import BatchId, JobFailed, Written
from kafkad_etl.job import Offsets
from kafkad_etl.messages import Failed

KEPT = 100
"""Number of manifests kept, the same as Spark keeps of its own logs."""


class Manifest(Struct, frozen=True, kw_only=True):
    version: Literal[1] = 1
    batch: int
    start: Offsets = {}
    end: Offsets = {}
    source: str = ""
    """Identifies what was read where there are no offsets."""
    target: str
    staging: str
    moves: list[tuple[str, str]]
    """Pairs of a name in staging and its name in the target."""
    removes: list[str] = []
    """Names in the target."""
    rows: int
    bytes: int

    @property
    def written(self) -> Written:
        return Written(self.rows, len(self.moves), self.bytes)


class Step(NamedTuple):
    do: Literal["rename", "remove"]
    path: str
    to: str = ""


def steps(manifest: Manifest, staged: Set[str], there: Set[str]) -> list[Step]:
    """The remaining steps. `staged` and `there` are the names that exist in staging and the final names that exist in
    the target.

    A name in both was copied by a file system that cannot rename, on which copies appear complete.
    """
    lost = [final for name, final in manifest.moves if name not in staged and final not in there]
    if lost:
        raise JobFailed(_lost(manifest, lost))
    renames = [
        Step("rename", join(manifest.staging, name), join(manifest.target, final))
        for name, final in manifest.moves
        if final not in there
    ]
    removals = [Step("remove", join(manifest.target, name)) for name in manifest.removes]
    return [*renames, *removals, Step("remove", manifest.staging)]


def complete(files: Files, manifest: Manifest) -> None:
    staged = {entry.path for entry in files.under(manifest.staging)}
    there = {final for _, final in manifest.moves if files.exists(join(manifest.target, final))}
    left = steps(manifest, staged, there)
    for step in left:
        if step.do == "rename":
            files.rename(step.path, step.to)
    files.sync(manifest.target, [final for _, final in manifest.moves])
    for step in left:
        if step.do == "remove":
            files.remove(step.path)
    for directory in directories_of(manifest.removes):
        path = join(manifest.target, directory)
        if not files.under(path):
            files.remove(path)
        else:
            files.sync(path)
    if manifest.removes:
        files.sync(manifest.target)


def roll_back(files: Files, manifest: Manifest) -> None:
    for _, final in manifest.moves:
        files.remove(join(manifest.target, final))
    files.remove(manifest.staging)


def directories_of(names: list[str]) -> list[str]:
    """Directories below the target, deepest first."""
    found = set()
    for name in names:
        parts = name.split("/")[:-1]
        found |= {"/".join(parts[:depth]) for depth in range(1, len(parts) + 1)}
    return sorted(found, key=lambda directory: (-directory.count("/"), directory))


def redone(manifest: Manifest, start: Offsets, end: Offsets, source: str) -> bool:
    """True if a reader of this range reads again everything that the manifest's batch has read."""
    if not manifest.end:
        return manifest.source == source

    def again(topic: str, partition: int, first: int, last: int) -> bool:
        if first == last:
            return True
        ends = end.get(topic, {}).get(partition)
        starts = start.get(topic, {}).get(partition)
        return starts is not None and ends is not None and starts <= first and last <= ends

    return all(
        again(topic, partition, manifest.start.get(topic, {}).get(partition, 0), last)
        for topic, partitions in manifest.end.items()
        for partition, last in partitions.items()
    )


class Manifests:
    """The manifests of one checkpoint: files `<batch>.json` in one directory."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory

    def path(self, batch: int) -> str:
        return join(self._directory, f"{batch}.json")

    def find(self, batch: int) -> Manifest | None:
        path = self.path(batch)
        if not self._files.exists(path):
            return None
        return msgspec.json.decode(self._files.read(path), type=Manifest)

    def newest(self) -> Manifest | None:
        names = (entry.path.removesuffix(".json") for entry in self._files.under(self._directory))
        batches = [int(name) for name in names if name.isdecimal()]
        return self.find(max(batches)) if batches else None

    def publish(self, manifest: Manifest) -> None:
        self._files.write(self.path(manifest.batch), msgspec.json.encode(manifest))
        complete(self._files, manifest)

    def finished(self, batch: BatchId) -> Written | None:
        """The result of a batch written by an earlier run, after completing it; None if there is none."""
        manifest = self.find(batch.number)
        if manifest is None:
            return None
        if (manifest.start, manifest.end) != (batch.start, batch.end):
            raise JobFailed(_other_offsets(self.path(batch.number), manifest, batch))
        if not self._files.exists(self._settled(batch.number)):
            complete(self._files, manifest)
        return manifest.written

    def settle(self) -> None:
        """Completes the newest batch before files in the target are merged, and marks it so that nobody misses its
        files."""
        manifest = self.newest()
        if manifest is not None and not self._files.exists(self._settled(manifest.batch)):
            complete(self._files, manifest)
            self._files.write(self._settled(manifest.batch), b"")

    def prune(self, batch: int) -> None:
        """Removes the manifest of a batch that is long past."""
        if batch >= KEPT:
            self.forget(batch - KEPT)

    def forget(self, batch: int) -> None:
        self._files.remove(self.path(batch))
        self._files.remove(self._settled(batch))

    def _settled(self, batch: int) -> str:
        return join(self._directory, f"{batch}.settled")


def _lost(manifest: Manifest, lost: list[str]) -> Failed:
    return Failed(
        kind="sink",
        text=f"{len(lost)} of the {len(manifest.moves)} files of batch {manifest.batch} are neither in "
        f"{manifest.staging} nor in {manifest.target}: {lost[0]}",
        hints=["they were removed before the batch was completed; --reset-checkpoint reads everything again"],
    )


def _other_offsets(path: str, manifest: Manifest, batch: BatchId) -> Failed:
    return Failed(
        kind="checkpoint",
        text=f"batch {batch.number} was written to the sink with other offsets than Spark's checkpoint now has: "
        f"{path} says up to {manifest.end}, the checkpoint up to {batch.end}",
        hints=["the checkpoint was restored or edited; --reset-checkpoint starts a new one"],
    )
