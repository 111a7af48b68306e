"""Which groups read a topic, and how far behind they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kctl.command.choosing import Choice
from kctl.errors import KctlError
from kctl.groups.looking import Look, chosen_groups, look_at
from kctl.groups.partition_lag import total

if TYPE_CHECKING:
    from kctl.reach.session import Session


class Reader(NamedTuple):
    group: str
    state: str
    lag: int | None
    members: int

    def __str__(self) -> str:
        lag = "" if self.lag is None else f" lag {self.lag:,}"
        return f"{self.group} {self.state}{lag}"


Readers = dict[str, list[Reader]]


def readers_of(session: Session, topics: Iterable[str]) -> tuple[Readers, list[KctlError]]:
    """Of each topic the groups that have committed, are assigned or subscribe to it; and what kept us from knowing."""
    try:
        looks, errors = look_at(session, chosen_groups(session, Choice("group", (), (), ())))
    except KctlError as error:
        return {}, [error]
    return sorted_out(looks, set(topics)), errors


def sorted_out(looks: Mapping[str, Look], topics: set[str]) -> Readers:
    found: Readers = {}
    for look in looks.values():
        for topic, reader in _reads(look, topics):
            found.setdefault(topic, []).append(reader)
    return found


def _reads(look: Look, topics: set[str]) -> Iterator[tuple[str, Reader]]:
    group = look.group
    for topic in topics & look.topics:
        lag = total(lag for lag in look.lags if lag.where.topic == topic).lag
        yield topic, Reader(group.name, group.state, lag, len(group.members))
