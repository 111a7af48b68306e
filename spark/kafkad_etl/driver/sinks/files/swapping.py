"""Replaces small files by a merged one, atomically, in a directory that others may read at any time.

1. A second directory is built next to the target, with the merged file and hard links to all files that stay.
2. A note records its contents. The two directories exchange names in one system call: a reader that lists the directory
   sees either the small files or the merged one.
3. Files that others have added in the meantime are moved to the new directory, and the old one is removed.

Whatever crashes, readers see each row once; the next run or merge completes step 3. This requires a local disk and a
directory without subdirectories; otherwise see `merging`.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from kafkad_etl.driver.paths import Files, join


class Swap(Struct, frozen=True, kw_only=True):
    version: int = 1
    directory: str
    beside: str
    """The directory to exchange it with."""
    merged: list[str]
    """Names that only the new directory has."""
    known: list[str]
    """Names that the old directory had."""


class Swaps:
    """The swaps of one job, of which at most one is in progress."""

    def __init__(self, files: Files, note_files: Files, note: str, beside: str) -> None:
        self._files = files
        self._note_files = note_files
        self._note = note
        self._beside = beside

    def settle(self) -> None:
        """Completes what a dead process left unfinished."""
        if self._note_files.exists(self._note):
            self._finish(msgspec.json.decode(self._note_files.read(self._note), type=Swap))
        self._files.remove(self._beside)

    def swap(self, directory: str, staged: dict[str, str], replaced: set[str]) -> bool:
        """Swaps in merged files. `staged` maps their paths to their names in the directory. Returns False, with
        nothing changed, if that is impossible here."""
        with self._files.exclusive(directory):
            known = self._files.only_files(directory)
            if known is None:
                return False
            swap = Swap(directory=directory, beside=self._beside, merged=sorted(staged.values()), known=known)
            try:
                self._build(swap, staged, [name for name in known if name not in replaced])
                self._note_files.write(self._note, msgspec.json.encode(swap))
                self._files.exchange(self._beside, directory)
            except OSError:
                self._undo(swap, staged)
                return False
            self._finish(swap)
            return True

    def _build(self, swap: Swap, staged: dict[str, str], kept: list[str]) -> None:
        for path, name in staged.items():
            self._files.rename(path, join(swap.beside, name))
        for name in kept:
            self._files.link(join(swap.directory, name), join(swap.beside, name))
        self._files.sync(swap.beside, swap.merged)

    def _undo(self, swap: Swap, staged: dict[str, str]) -> None:
        self._note_files.remove(self._note)
        for path, name in staged.items():
            if not self._files.exists(path):
                self._files.rename(join(swap.beside, name), path)
        self._files.remove(swap.beside)

    def _finish(self, swap: Swap) -> None:
        if self._files.exists(join(swap.directory, swap.merged[0])):
            self._files.sync(swap.directory)
            self._files.sync(swap.beside)
            for name in self._files.only_files(swap.beside) or ():
                if name not in swap.known:
                    self._files.rename(join(swap.beside, name), join(swap.directory, name))
        self._files.remove(swap.beside)
        self._note_files.remove(self._note)
