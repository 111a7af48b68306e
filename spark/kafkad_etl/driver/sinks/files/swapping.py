"""How a merged file takes the place of small ones in a directory that others read at any time: at once.

1. Beside the target a second directory is made: with the merged file, and with all files that stay, under a second name
   of theirs (hard links).
2. A note says what is in it. The two directories change names, in one step of the system: who lists the directory sees
   either the small files or the merged one.
3. Files that somebody else put there meanwhile go over to the new directory; the old one goes.

Whatever crashes, readers see each row once; what is left of step 3 the next run does, or the next merge. It needs a
local disk, and a directory with files only: where that is not so, see `merging`.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from kafkad_etl.driver.paths import Files, join


class Swap(Struct, frozen=True, kw_only=True):
    version: int = 1
    directory: str
    beside: str
    """What changes names with it."""
    merged: list[str]
    """Names that only the new directory has."""
    known: list[str]
    """Names that the old one had."""


class Swaps:
    """Of one job: at most one is on its way."""

    def __init__(self, files: Files, note_files: Files, note: str, beside: str) -> None:
        self._files = files
        self._note_files = note_files
        self._note = note
        self._beside = beside

    def settle(self) -> None:
        """What a process that is gone has left half done."""
        if self._note_files.exists(self._note):
            self._finish(msgspec.json.decode(self._note_files.read(self._note), type=Swap))
        self._files.remove(self._beside)

    def swap(self, directory: str, staged: dict[str, str], replaced: set[str]) -> bool:
        """`staged`: paths of merged files to their names in the directory. False: it cannot be done here, and nothing
        has changed."""
        with self._files.alone(directory):
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
        self._files.keep(swap.beside, swap.merged)

    def _undo(self, swap: Swap, staged: dict[str, str]) -> None:
        self._note_files.remove(self._note)
        for path, name in staged.items():
            if not self._files.exists(path):
                self._files.rename(join(swap.beside, name), path)
        self._files.remove(swap.beside)

    def _finish(self, swap: Swap) -> None:
        if self._files.exists(join(swap.directory, swap.merged[0])):
            self._files.keep(swap.directory)
            self._files.keep(swap.beside)
            for name in self._files.only_files(swap.beside) or ():
                if name not in swap.known:
                    self._files.rename(join(swap.beside, name), join(swap.directory, name))
        self._files.remove(swap.beside)
        self._note_files.remove(self._note)
