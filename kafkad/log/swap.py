"""The file operations that put a cleaned segment into the place of those it was made from, in Kafka's order.

`offer` gives its complete files the suffix `.swap`. From the last of these renames on a crash leads to the new segment,
before it to the old ones: `leftovers` sees to that. Then the old files go, and `settle` takes the suffix away.
"""

from __future__ import annotations

import contextlib

from kafkad.log.compaction import CLEANED
from kafkad.log.files import Files
from kafkad.log.indexed import segment_path
from kafkad.log.segment import SUFFIXES
from kafkad.log.txnindex import SUFFIX as TXN_INDEX

SWAP, DELETED = ".swap", ".deleted"


def offer(files: Files, directory: str, base: int) -> None:
    """OSError when the disk refuses, or when one of the files is not there: then all of them are gone."""
    try:
        _rename(files, directory, base, CLEANED, SWAP)
    except OSError:
        discard(files, directory, base)
        raise


def settle(files: Files, directory: str, base: int) -> bool:
    """True if there is a transaction index among them."""
    return _rename(files, directory, base, SWAP, "")


def discard(files: Files, directory: str, base: int) -> None:
    """Remove what was made for nothing, as far as the disk lets us: the next start does the rest.

    What has the suffix `.swap` already goes first: as long as a `.cleaned` is there, a crash does not bring it back.
    """
    for ending in (SWAP, CLEANED):
        for suffix in SUFFIXES:
            with contextlib.suppress(OSError):
                files.unlink(segment_path(directory, base, suffix) + ending)


def discard_all(files: Files, directory: str) -> None:
    """Remove the files of an abandoned compaction. Thread-safe, as long as none runs there."""
    for name in files.list_files(directory):
        if name.endswith(CLEANED):
            files.unlink(f"{directory}/{name}")


def _rename(files: Files, directory: str, base: int, before: str, after: str) -> bool:
    """All files of a segment. There is a transaction index only if it says something: whether it was there."""
    for suffix in SUFFIXES:
        path = segment_path(directory, base, suffix)
        try:
            files.rename(path + before, path + after)
        except FileNotFoundError:
            if suffix != TXN_INDEX:
                raise
            return False
    return True
