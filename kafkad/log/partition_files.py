"""Which files Kafka and kafkad make in the directory of a partition. Whatever else is in there is somebody's own."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kafkad.log.checkpoint import PARTITION_METADATA
from kafkad.log.epochs import FILE_NAME as EPOCHS
from kafkad.log.indexed import LOG
from kafkad.log.names import base_of

MOVED = "kafkad-moved"
"""A file put into a replica before its finished copy in another log directory takes its place. Until the copy has its
name it says nothing: a start that finds no other replica removes it. Before it comes an empty file with a number behind
this name: where all replicas of a partition are marked, the start takes the one that was marked last. All is name, for
there may be no room for more on the disk that a replica moves away from."""
_OF_A_SEGMENT = re.compile(r"\d{20}\.(log|index|timeindex|txnindex|snapshot)(\.(cleaned|deleted|swap|tmp))*", re.ASCII)
_MARK = re.compile(re.escape(MOVED) + r"\.(\d{1,19})", re.ASCII)
_OF_THE_PARTITION = frozenset({PARTITION_METADATA, EPOCHS, MOVED})


def is_made_here(name: str) -> bool:
    """True of a file's name that only Kafka and kafkad give."""
    numbered = _OF_A_SEGMENT.fullmatch(name) or _MARK.fullmatch(name)
    return numbered is not None or name.removesuffix(".tmp") in _OF_THE_PARTITION


def last_mark(names: Iterable[str]) -> int:
    """The highest number of the files that a replica has beside MOVED; 0 for none, as earlier releases have left it."""
    return max((int(found[1]) for found in map(_MARK.fullmatch, names) if found), default=0)


def hold_a_partition(names: Iterable[str]) -> bool:
    """True if a directory with these names is a partition's: one has an id, or a segment, from the first moment on."""
    return any(name == PARTITION_METADATA or (name.endswith(LOG) and base_of(name) is not None) for name in names)
