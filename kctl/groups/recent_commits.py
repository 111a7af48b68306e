"""Recent commits of groups, from `__consumer_offsets`, of which each partition is read once for all groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkad.names import TopicPartition
from kctl.errors import KctlError
from kctl.groups.history import RECORDS, group_of, homes, records_between
from kctl.reach.offsets import LATEST, offsets_at

if TYPE_CHECKING:
    from kafkad.wire.records import Record
    from kctl.reach.session import Session


class Recent(NamedTuple):
    """`changed`: members came or went, so that a partition without a commit says nothing yet."""

    commits: frozenset[TopicPartition] = frozenset()
    changed: bool = False


def recent(session: Session, groups: Iterable[str], since_ms: int) -> dict[str, Recent]:
    """Of those groups of which it can be known: where more than `RECORDS` were written since, nobody reads them."""
    at_home: dict[TopicPartition, set[str]] = {}
    for group, home in homes(session, groups).items():
        at_home.setdefault(home, set()).add(group)
    begins = offsets_at(session, dict.fromkeys(at_home, since_ms))
    ends = offsets_at(session, dict.fromkeys(at_home, LATEST))
    found: dict[str, Recent] = {}
    for home, names in at_home.items():
        begin, end = begins[home], ends[home]
        if isinstance(begin, KctlError):
            raise begin
        if isinstance(end, KctlError):
            raise end
        first = begin.offset if begin.offset >= 0 else end.offset
        if end.offset - first <= RECORDS:
            found |= seen(names, records_between(session, home, first, end.offset))
    return found


def seen(groups: Iterable[str], records: Iterable[Record]) -> dict[str, Recent]:
    """The recent commits of these groups, from the records. Pure."""
    from kctl.segments.decoders import decode_offsets

    commits: dict[str, set[TopicPartition]] = {group: set() for group in groups}
    names = {group.encode() for group in commits}
    changed = set()
    for record in records:
        if group_of(record) not in names:
            continue  # most are of other groups, and not worth decoding
        decoded = decode_offsets(record)
        if decoded is None:
            continue
        if decoded.type != "commit":
            changed.add(decoded.subject)
        elif decoded.value is not None:
            key: Any = decoded.key
            commits[decoded.subject].add(TopicPartition(key.topic, key.partition))
    return {group: Recent(frozenset(partitions), group in changed) for group, partitions in commits.items()}
