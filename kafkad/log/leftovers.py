"""Clears away leftovers of a crash in a partition's directory before the log is loaded.

`.deleted` files wait for their removal, `.cleaned` ones are an unfinished product of the cleaner: both go. A `.swap`
set is a finished one: the segments it replaces go, and it takes their place; unless a `.cleaned` with a smaller or the
same base exists, for then the swap had not been complete either, and the segments to be replaced are all still there.
"""

from __future__ import annotations

from kafkad.log.batches import walk
from kafkad.log.compaction import CLEANED
from kafkad.log.files import Files
from kafkad.log.names import LARGEST_BASE, base_of
from kafkad.log.swap import DELETED, SWAP
from kafkad.wire.records import BASE_OFFSET, LAST_OFFSET_DELTA

_MARKS = (DELETED, CLEANED, SWAP)


def clear(files: Files, directory: str, names: list[str]) -> list[str]:
    """Finish what was left; the names that are there afterwards."""
    if not [name for name in names if name.endswith(_MARKS)]:
        return names
    cleaned = [base for name in names if name.endswith(CLEANED) and (base := base_of(name)) is not None]
    unfinished = min(cleaned, default=LARGEST_BASE + 1)
    swaps = [name for name in names if name.endswith(SWAP) and (base := base_of(name)) is not None]
    void = [name for name in swaps if (base_of(name) or 0) >= unfinished]
    # Those first: as long as a `.cleaned` is there, the next start knows that they are void.
    for name in (*void, *[name for name in names if name.endswith((DELETED, CLEANED)) and base_of(name) is not None]):
        files.unlink(f"{directory}/{name}")
    swaps = [name for name in swaps if name not in void]
    if swaps:
        _complete(files, directory, swaps)
    return files.list_files(directory)


def _complete(files: Files, directory: str, swaps: list[str]) -> None:
    """Completes a swap; a crash may end it: old segments go first, while the `.log.swap` names them; then the log."""
    first, end = _range(files, directory, swaps)
    for name in files.list_files(directory):
        base = base_of(name)
        if base is not None and first <= base < end and not name.endswith(SWAP):
            files.unlink(f"{directory}/{name}")
    for name in sorted(swaps, key=lambda name: not name.endswith(".log" + SWAP)):
        files.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}")


def _range(files: Files, directory: str, swaps: list[str]) -> tuple[int, int]:
    """The offsets that the finished segments cover."""
    logs = [name for name in swaps if name.endswith(".log" + SWAP)]
    first, end = 2**63 - 1, 0
    for name in logs:
        base = base_of(name) or 0
        first, end = min(first, base), max(end, base + 1)
        file = files.open_log_file(f"{directory}/{name}")
        for _, header in walk(files.pread, file.fd, 0, file.size):
            end = max(end, header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1)
    return first, end
