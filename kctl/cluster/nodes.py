"""Nodes of a metadata store, and how they are read, wherever the store is."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class StoredNode(NamedTuple):
    """One node, as ZooKeeper tells it."""

    data: bytes
    children: int
    version: int
    ephemeral: bool


class MetadataStore(Protocol):
    """None: there is no such node."""

    def node(self, path: str) -> StoredNode | None: ...

    def children(self, path: str) -> list[str] | None: ...
