"""Chooses small files to merge and replaces them, without Spark.

Only files that the job itself has written, by their names, are touched. The merged file replaces them atomically where
possible: see `swapping`. Elsewhere (file systems other than local disks, directories with subdirectories) it appears
first, and then the replaced files are removed, by a manifest as for batches: in between, readers see rows twice, also
after a crash, until the next run or merge completes it. In both cases a reader may miss a file that it was about to
open.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple
from uuid import uuid4

from kafkad_etl.driver.paths import Entry, Files, join, parent_and_name
from kafkad_etl.driver.sinks.files.directory import Layout, visible
from kafkad_etl.driver.sinks.files.manifest import Manifest, Manifests, complete
from kafkad_etl.driver.sinks.files.swapping import Swaps
from kafkad_etl.facts import MERGES
from kafkad_etl.messages import Compacted

ENDING = re.compile(r"-\d{4}(\..+)$")


class Merge(NamedTuple):
    directory: str
    """Relative to the target; empty for the target itself."""
    files: tuple[Entry, ...]

    @property
    def names(self) -> list[str]:
        return [entry.path for entry in self.files]

    @property
    def bytes(self) -> int:
        return sum(entry.size for entry in self.files)


def merges(entries: Iterable[Entry], job: str, min_files: int, target_bytes: int) -> list[Merge]:
    """Groups of small files to merge, in directories with at least `min_files` of them: each large enough for one
    file, the oldest first."""
    ours = re.compile(rf"{re.escape(job)}-[0-9a-f]{{8}}-(\d{{9}}|merged)-\d{{4}}\.[^/]+")
    small: dict[str, list[Entry]] = {}
    for entry in visible(entries):
        directory, _, name = entry.path.rpartition("/")
        if ours.fullmatch(name) and entry.size < target_bytes:
            small.setdefault(directory, []).append(entry)
    found = []
    for directory, files in sorted(small.items()):
        if len(files) >= min_files:
            found += [Merge(directory, group) for group in _groups(files, target_bytes) if len(group) > 1]
    return found


def _groups(files: list[Entry], target_bytes: int) -> list[tuple[Entry, ...]]:
    groups: list[list[Entry]] = [[]]
    for entry in files:
        if groups[-1] and sum(it.size for it in groups[-1]) + entry.size > target_bytes:
            groups.append([])
        groups[-1].append(entry)
    return [tuple(group) for group in groups]


class Merging:
    """Merges the files of one job."""

    def __init__(self, files: Files, manifest_files: Files, layout: Layout, job: str) -> None:
        self._files = files
        self._layout = layout
        self._job = job
        notes = join(parent_and_name(layout.manifests)[0], MERGES)
        self._manifests = Manifests(manifest_files, notes)
        self._swaps = Swaps(files, manifest_files, join(notes, "swap.json"), join(layout.staging, "swap"))
        self.staging = join(layout.staging, "merging")
        self.was_seen = False
        """True if readers could see rows twice, because a directory could not be exchanged atomically."""

    def settle(self) -> None:
        """Completes what a dead process left unfinished."""
        self._swaps.settle()
        manifest = self._manifests.newest()
        if manifest is not None:
            complete(self._files, manifest)
            self._manifests.forget(manifest.batch)
        self._files.remove(self.staging)

    def merges(self, min_files: int, target_bytes: int) -> list[Merge]:
        return merges(self._files.under(self._layout.target), self._job, min_files, target_bytes)

    def written(self) -> list[Entry]:
        """The merged files in staging."""
        return visible(self._files.under(self.staging))

    def replace(self, merge: Merge, rows: int) -> Compacted:
        staged = self.written()
        ending = ENDING.search(parent_and_name(merge.names[0])[1])
        prefix = f"{self._job}-{uuid4().hex[:8]}-merged"
        names = {
            entry.path: f"{prefix}-{number:04d}{ending[1] if ending else ''}" for number, entry in enumerate(staged)
        }
        paths = {join(self.staging, path): name for path, name in names.items()}
        replaced = {parent_and_name(name)[1] for name in merge.names}
        if not self._swaps.swap(join(self._layout.target, merge.directory), paths, replaced):
            self.was_seen = True
            self._one_after_another(merge, names, rows, sum(entry.size for entry in staged))
        self._files.remove(self.staging)
        return Compacted(
            directory=merge.directory,
            rows=rows,
            files_before=len(merge.files),
            files_after=len(staged),
            bytes_before=merge.bytes,
            bytes_after=sum(entry.size for entry in staged),
        )

    def _one_after_another(self, merge: Merge, names: dict[str, str], rows: int, size: int) -> None:
        manifest = Manifest(
            batch=0,
            target=self._layout.target,
            staging=self.staging,
            moves=[(path, join(merge.directory, name) if merge.directory else name) for path, name in names.items()],
            removes=merge.names,
            rows=rows,
            bytes=size,
        )
        self._files.sync(self.staging, list(names))
        self._manifests.publish(manifest)
        self._manifests.forget(0)
