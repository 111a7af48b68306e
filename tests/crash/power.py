"""A power cut: the disk as it may be found afterwards, out of what a process was seen to do (see recorder/).

What an fsync that had ended is about is there. Of the rest any part may be: of a file's writes each one, a piece of
it, zeros in its place or nothing; of the names in a directory those that were changed first, in their order, which is
what file systems with a journal keep. Different files and directories know nothing of each other.
"""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

RECORDER = Path(__file__).with_name("recorder")
Event = tuple[Any, ...]
_SECTOR = 512


def recorded(path: Path) -> list[Event]:
    data = path.read_bytes()
    events, at = [], 0
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        events.append(pickle.loads(data[at + 4 : at + 4 + length]))
        at += 4 + length
    return events


def note(path: Path, *event: Any) -> None:
    """Put an event of the test's own among those of the process: what it was told, and when."""
    data = pickle.dumps(event)
    with path.open("ab", buffering=0) as file:
        file.write(struct.pack(">I", len(data)) + data)


class _Node:
    """A file or a directory: its changes in order, of which the first `durable` ones are on the disk."""

    def __init__(self) -> None:
        self.changes: list[Event] = []
        self.durable = 0


class _Directory(_Node):
    def __init__(self) -> None:
        super().__init__()
        self.names: dict[str, _Node] = {}

    def change(self, *change: Any) -> None:
        self.changes.append(change)
        _rename_in(self.names, change)


class Disk:
    """Played back up to the end of `events`, and then whatever is handed to `play`; `image` writes what a power cut at
    that moment leaves."""

    def __init__(self, root: Path, events: Sequence[Event]) -> None:
        self._root_path = str(root)
        self._root = _Directory()
        self._inodes: dict[int, _Node] = {}
        self._syncs: dict[object, tuple[_Node, int]] = {}
        self._play: dict[str, Callable[..., None]] = {
            "create": self._create,
            "mkdir": self._mkdir,
            "rename": self._rename,
            "remove": self._remove,
            "write": lambda inode, *write: self._inodes[inode].changes.append(write),
            "truncate": lambda inode, length: self._inodes[inode].changes.append((length, None)),
            "sync": self._sync,
            "synced": self._synced,
        }
        for event in events:
            self.play(*event)

    def play(self, kind: str, *rest: Any) -> None:
        if kind in self._play:
            self._play[kind](*rest)

    def _parent(self, path: str) -> tuple[_Directory, str]:
        *way, name = os.path.relpath(path, self._root_path).split("/")
        at: _Node = self._root
        for step in way:
            assert isinstance(at, _Directory)
            at = at.names[step]
        assert isinstance(at, _Directory)
        return at, name

    def _create(self, path: str, inode: int) -> None:
        parent, name = self._parent(path)
        self._inodes[inode] = _Node()
        parent.change(name, self._inodes[inode])

    def _mkdir(self, path: str, inode: int) -> None:
        parent, name = self._parent(path)
        self._inodes[inode] = _Directory()
        parent.change(name, self._inodes[inode])

    def _rename(self, source: str, target: str) -> None:
        parent, name = self._parent(source)
        other, new = self._parent(target)
        assert parent is other, f"{source} -> {target}"
        parent.change(new, parent.names[name], name)

    def _remove(self, path: str) -> None:
        parent, name = self._parent(path)
        parent.change(name, None)

    def _sync(self, number: object, inode: int) -> None:
        node = self._inodes.get(inode, self._root)
        self._syncs[number] = node, len(node.changes)

    def _synced(self, number: object) -> None:
        node, upto = self._syncs.pop(number)
        node.durable = max(node.durable, upto)

    def forget_history(self, inode: int) -> None:
        """Of a file that is on the disk as it is only that is of interest."""
        node = self._inodes.get(inode)
        if node is not None and not isinstance(node, _Directory) and node.durable == len(node.changes):
            node.changes = [(0, _content(node, Random(0), 1.0))]
            node.durable = 1

    def image(self, target: Path, chance: Random, kept: float) -> None:
        """Into a new directory. `kept` is the share of what was not synced that the disk has all the same."""
        _write(self._root, target, chance, kept)


def _write(directory: _Directory, target: Path, chance: Random, kept: float) -> None:
    target.mkdir()
    names: dict[str, _Node] = {}
    pending = len(directory.changes) - directory.durable
    for change in directory.changes[: directory.durable + sum(_share(pending, chance, kept))]:
        _rename_in(names, change)
    for name, node in names.items():
        if isinstance(node, _Directory):
            _write(node, target / name, chance, kept)
        else:
            (target / name).write_bytes(_content(node, chance, kept))


def _share(pending: int, chance: Random, kept: float) -> Iterator[bool]:
    """As many as come before the first that the disk does not have."""
    for _ in range(pending):
        if chance.random() >= kept:
            return
        yield True


def _rename_in(names: dict[str, _Node], change: Event) -> None:
    name, node, *old = change
    for each in old:
        names.pop(each, None)
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


def _content(file: _Node, chance: Random, kept: float) -> bytes:
    content = bytearray()
    for number, (at, data) in enumerate(file.changes):
        if number >= file.durable:
            if chance.random() >= kept:
                continue
            data = _torn(data, chance) if kept < 1 else data
        if data is None:
            del content[at:]
            content += bytes(at - len(content))
        else:
            content += bytes(max(at - len(content), 0))
            content[at : at + len(data)] = data
    return bytes(content)


def _torn(data: bytes | None, chance: Random) -> bytes | None:
    if data is None:
        return None
    way = chance.randrange(4)
    if way == 0:
        return bytes(len(data))
    if way == 1:
        return data[: chance.randrange(len(data) + 1)]
    if way == 2:
        sectors = [data[at : at + _SECTOR] for at in range(0, len(data), _SECTOR)]
        return b"".join(sector if chance.random() < 0.5 else bytes(len(sector)) for sector in sectors)
    return data
