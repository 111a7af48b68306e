"""Reads nodes of the metadata store that others may have written by hand. What cannot be read is named and left out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")


def readable(path: str, decode: Callable[[], T]) -> T | None:
    """None if the text of the node at `path` is not what belongs there."""
    try:
        return decode()
    except (ValueError, TypeError, AttributeError) as e:
        log.error("%s in the metadata store cannot be read, and is ignored until it is mended: %s", path, e)
        return None
