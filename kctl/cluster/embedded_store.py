"""The metadata of a kafkad without ZooKeeper, read from its journal on this machine. The broker may be running."""

from __future__ import annotations

import os
from collections.abc import Iterable

from kafkad.meta.journal import JournalError, read
from kafkad.meta.tree import Node, Tree
from kafkad.names import METADATA_FILE
from kctl.cluster.nodes import StoredNode
from kctl.errors import Exit, KctlError


class EmbeddedReader:
    def __init__(self, directory: str) -> None:
        """A reader of the journal in this directory, or of the journal itself."""
        path = os.path.join(directory, METADATA_FILE) if os.path.isdir(directory) else directory
        self._tree = Tree()
        try:
            read(path, self._tree.replay)
        except FileNotFoundError:
            hint = (
                f"it has no {METADATA_FILE}: give kafkad.metadata.dir of the broker, or else the first of its log.dirs"
            )
            raise KctlError(
                f"{directory} is not where kafkad keeps metadata", exit_code=Exit.NOT_FOUND, hints=(hint,)
            ) from None
        except JournalError as error:
            raise KctlError(str(error), exit_code=Exit.FINDINGS) from None

    def node(self, path: str) -> StoredNode | None:
        found: Node | None = self._tree.find(path)
        if found is None:
            return None
        return StoredNode(found.data, len(found.children or ()), found.version, found.owner != 0)

    def children(self, path: str) -> list[str] | None:
        found: Node | None = self._tree.find(path)
        return None if found is None else sorted(found.children or ())


def first_with_journal(directories: Iterable[str]) -> str | None:
    """The first of the directories that holds a journal on this machine."""
    return next((place for place in directories if os.path.exists(os.path.join(place, METADATA_FILE))), None)
