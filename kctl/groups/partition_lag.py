"""The lag of a group on each of its partitions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kctl.errors import KctlError
from kctl.groups.committed import Commits
from kctl.groups.group import Group, Member

DELETED, NO_COMMIT, OUT_OF_REACH, UNREAD = "deleted", "no commit", "no leader", "nobody reads it"
BEYOND = "committed beyond the end"
"""Of records that were lost, of a topic that was deleted and made again, or of another cluster."""


class Range(NamedTuple):
    """A partition's log start (only read where nothing is committed) and end; and its last stable offset, where there
    may be something to read (None: not asked)."""

    start: int
    end: int
    stable: int | None = None


Ranges = Mapping[TopicPartition, Range | KctlError]


class PartitionLag(NamedTuple):
    """`lag` counts what a reader of committed records can get: it ends at `stable`, where the first open transaction
    begins. Where nothing is committed, all records count; None where the end is not known."""

    where: TopicPartition
    committed: int | None
    end: int | None
    lag: int | None
    member: Member | None = None
    note: str = ""
    metadata: str = ""
    stable: int | None = None

    @property
    def reach(self) -> int | None:
        """How far its readers get. Who has committed more than is stable, reads uncommitted records."""
        reads_all = self.stable is None or (self.committed is not None and self.committed > self.stable)
        return self.end if reads_all else self.stable

    @property
    def is_unknown(self) -> bool:
        return self.lag is None and self.note not in (DELETED, UNREAD)

    @property
    def next(self) -> int | None:
        """The offset that is read next."""
        return None if self.reach is None or self.lag is None else self.reach - self.lag


def partition_lags(group: Group, commits: Commits, ranges: Ranges) -> list[PartitionLag]:
    """The lag of every partition that the group has committed or assigned, in order."""
    owners = {where: member for member in group.members for where in member.assigned}
    return [
        _lag(where, commits, ranges.get(where), owners.get(where)) for where in sorted(commits.keys() | owners.keys())
    ]


def _lag(
    where: TopicPartition, commits: Commits, there: Range | KctlError | None, owner: Member | None
) -> PartitionLag:
    commit = commits.get(where)
    offset, metadata = (commit.offset, commit.metadata) if commit else (None, "")
    if there is None or isinstance(there, KctlError):
        return PartitionLag(where, offset, None, None, owner, _why(there), metadata)
    begin = there.start if offset is None else offset
    note = NO_COMMIT if offset is None else BEYOND if offset > there.end else ""
    found = PartitionLag(where, offset, there.end, None, owner, note, metadata, there.stable)
    # Commits are read before the ends: no commit is beyond the end because it is younger.
    return found._replace(lag=max((found.reach or 0) - begin, 0))


def _why(error: KctlError | None) -> str:
    if error is None or error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name:
        return DELETED
    return OUT_OF_REACH if error.code == ErrorCode.LEADER_NOT_AVAILABLE.name else error.what


def by_member(lags: Iterable[PartitionLag]) -> dict[str, list[PartitionLag]]:
    """Those that are assigned, by the id of the member."""
    found: dict[str, list[PartitionLag]] = {}
    for lag in lags:
        if lag.member is not None:
            found.setdefault(lag.member.id, []).append(lag)
    return found


class Total(NamedTuple):
    lag: int | None
    """None if it is not known of a partition."""
    at_least: int
    partitions: int
    lagging: int
    uncommitted: int
    unknown: int


def total(lags: Iterable[PartitionLag]) -> Total:
    lag = partitions = lagging = uncommitted = unknown = 0
    for partition in lags:
        partitions += 1
        uncommitted += partition.note == NO_COMMIT
        if partition.lag is None:
            unknown += partition.is_unknown
        else:
            lag += partition.lag
            lagging += partition.lag > 0
    return Total(None if unknown else lag, lag, partitions, lagging, uncommitted, unknown)
