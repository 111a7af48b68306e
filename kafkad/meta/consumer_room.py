"""How much of the embedded store the nodes of old consumers may take: offsets of version 0, which any client adds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from kafkad.meta.consumer_znodes import GROUPS
from kafkad.meta.store import Change, Create, Delete, NoRoom, Operation, WatchEvent
from kafkad.meta.tree import Tree

MOST_BYTES: Final = 64 << 20
_NODE_BYTES: Final = 500
"""In memory, beside the path, which is in each snapshot."""
_KEPT_MS: Final = 7 * 24 * 3_600_000
_LOOKS_APART_MS: Final = 10_000
_LONG_APART_MS: Final = 600_000
_MOST_AT_ONCE: Final = 500
_BELOW: Final = f"{GROUPS}/"
_FULL: Final = (
    f"offsets of version 0 take {MOST_BYTES >> 20} MiB of the metadata store, and get no more until some are a week "
    "old: have consumers commit by version 1 of OffsetCommit or later"
)


class ConsumerRoom:
    """Follows the changes of a tree. When there is no room left, what nobody has written for a week makes some."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._bytes = sum(_size(path) for path, _ in tree.walk(GROUPS) if path != GROUPS)
        self._look_ms = 0
        """When to look for old nodes again."""

    def too_much(self, operations: Sequence[Operation]) -> NoRoom | None:
        """Why there is no room for new nodes among these. Those that are there can still be written."""
        if self._bytes < MOST_BYTES:
            return None
        new = (each.path for each in operations if isinstance(each, Create) and each.path.startswith(_BELOW))
        path = next(new, None)
        return None if path is None else NoRoom(path, _FULL)

    def idle(self, now_ms: int) -> Sequence[Delete]:
        """Deletions of some of the nodes that are old and have nothing below them. Where there were few it
        takes a while until they are looked for again: that goes through all."""
        if now_ms < self._look_ms:
            return ()
        old = (
            Delete(path)
            for path, node in self._tree.walk(GROUPS)
            if path != GROUPS and not node.children and node.mtime_ms <= now_ms - _KEPT_MS
        )
        deletions = list(islice(old, _MOST_AT_ONCE))
        if len(deletions) < _MOST_AT_ONCE:
            self._look_ms = now_ms + (_LOOKS_APART_MS if deletions else _LONG_APART_MS)
        return deletions

    def changed(self, events: Sequence[WatchEvent]) -> None:
        self._bytes += _growth(events)

    def changed_back(self, events: Sequence[WatchEvent]) -> None:
        self._bytes -= _growth(events)


def _growth(events: Sequence[WatchEvent]) -> int:
    grown = 0
    for event in events:
        if event.path.startswith(_BELOW):
            grown += _size(event.path) * ((event.change is Change.CREATED) - (event.change is Change.DELETED))
    return grown


def _size(path: str) -> int:
    return _NODE_BYTES + len(path)
