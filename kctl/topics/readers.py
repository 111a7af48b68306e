"""The groups that read a topic, and their lag."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kctl.errors import KctlError
from kctl.groups.group_lag import GroupLag, every_group, lags_of_groups
from kctl.groups.other_protocols import with_other_protocols
from kctl.groups.partition_lag import PartitionLag, total

if TYPE_CHECKING:
    from kctl.reach.session import Session


class Reader(NamedTuple):
    group: str
    state: str
    type: str
    lag: int | None
    members: int

    def __str__(self) -> str:
        lag = "" if self.lag is None else f" lag {self.lag:,}"
        return f"{self.group} {self.state}{lag}"


Readers = dict[str, list[Reader]]


class Reading(NamedTuple):
    """Who reads topics. `errors` hid some groups; so may `silent`, for which they were not listed."""

    readers: Readers
    errors: list[KctlError]
    silent: list[KctlError]


def reading_of(session: Session, topics: Iterable[str]) -> Reading:
    """The groups that have a position in, are assigned or subscribe to each topic."""
    silent: list[KctlError] = []
    try:
        chosen = every_group(session)
        silent += chosen.silent
        group_lags, errors = lags_of_groups(session, chosen)
        group_lags, unknown = with_other_protocols(session, group_lags)
    except KctlError as error:
        return Reading({}, [error], silent)
    return Reading(sorted_out(group_lags, set(topics)), [*errors, *unknown], silent)


def sorted_out(group_lags: Mapping[str, GroupLag], topics: set[str]) -> Readers:
    found: Readers = {}
    for group_lag in group_lags.values():
        for topic, reader in _reads(group_lag, topics):
            found.setdefault(topic, []).append(reader)
    return found


def _reads(group_lag: GroupLag, topics: set[str]) -> Iterator[tuple[str, Reader]]:
    group = group_lag.group
    by_topic: dict[str, list[PartitionLag]] = {}
    for lag in group_lag.lags:
        by_topic.setdefault(lag.where.topic, []).append(lag)
    for topic in topics & group_lag.topics:
        yield topic, Reader(group.name, group.state, group.type, total(by_topic.get(topic, ())).lag, len(group.members))
