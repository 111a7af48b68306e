"""Which files Kafka and kafkad make in the directory of a partition. Whatever else is in there is somebody's own."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kafkad.log.checkpoint import PARTITION_METADATA
from kafkad.log.compaction import CLEANED
from kafkad.log.epochs import FILE_NAME as EPOCHS
from kafkad.log.indexed import LOG
from kafkad.log.marks import is_of_mark
from kafkad.log.names import base_of
from kafkad.log.segment import SUFFIXES
from kafkad.log.snapshots import SUFFIX as SNAPSHOT
from kafkad.log.swap import DELETED, SWAP

_KINDS = "|".join(map(re.escape, (*SUFFIXES, SNAPSHOT)))
_STATES = "|".join(map(re.escape, (DELETED, CLEANED, SWAP, ".tmp")))
_OF_A_SEGMENT = re.compile(rf"\d{{20}}({_KINDS})({_STATES})*", re.ASCII)
_OF_THE_PARTITION = frozenset({PARTITION_METADATA, EPOCHS})


def is_of_kafka(name: str) -> bool:
    """True of a file's name that only Kafka and kafkad give."""
    is_of_log = _OF_A_SEGMENT.fullmatch(name) is not None or name.removesuffix(".tmp") in _OF_THE_PARTITION
    return is_of_log or is_of_mark(name)


def hold_a_partition(names: Iterable[str]) -> bool:
    """True if a directory with these names is a partition's: one has an id, or a segment, from the first moment on."""
    return any(name == PARTITION_METADATA or is_segment(name) for name in names)


def is_segment(name: str) -> bool:
    return name.endswith(LOG) and base_of(name) is not None
