"""Reads nodes of the metadata store that others may have written by hand. What cannot be read is named."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from kafkad.meta.store import Unreadable

log = logging.getLogger(__name__)

T = TypeVar("T")

UNREADABLE = (ValueError, TypeError, AttributeError, LookupError, OverflowError)
"""What is raised where a node is decoded that has not what belongs there."""


def readable(path: str, decode: Callable[[], T]) -> T | None:
    """None if the text of the node at `path` is not what belongs there: for those that can be left out."""
    try:
        return decode()
    except UNREADABLE as e:
        log.error("%s in the metadata store cannot be read, and is ignored until it is mended: %s", path, e)
        return None


def required(path: str, decode: Callable[[], T]) -> T:
    """Unreadable if the text of the node at `path` is not what belongs there: for those that must not be guessed."""
    try:
        return decode()
    except UNREADABLE as e:
        raise Unreadable(path, f"cannot be read: {e}") from e
