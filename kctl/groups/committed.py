"""Committed offsets: OffsetFetch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kctl.errors import KctlError, failure

if TYPE_CHECKING:
    from kafkad.wire.messages.offset_fetch import (
        OffsetFetchRequest,
        OffsetFetchResponse,
        OffsetFetchResponseTopic,
        OffsetFetchResponseTopics,
    )
    from kctl.reach.session import Session

_SEVERAL_FROM = 8
"""The version of OffsetFetch in which one request asks for several groups."""
_NO_SUCH_GROUP = ErrorCode.GROUP_ID_NOT_FOUND


class Commit(NamedTuple):
    offset: int
    metadata: str = ""


Commits = dict[TopicPartition, Commit]


def committed(session: Session, groups: Iterable[str]) -> dict[str, Commits | KctlError]:
    """The commits of each group; none for a group that does not exist."""
    names = list(dict.fromkeys(groups))
    if all((_version(session, broker) or 0) >= _SEVERAL_FROM for broker in _places(session, names)):
        return session.ask_coordinators(names, _request, _read)
    return _one_by_one(session, names)


def _places(session: Session, names: list[str]) -> set[int]:
    return {place for place in session.coordinators(names).values() if not isinstance(place, KctlError)}


def _version(session: Session, broker: int) -> int | None:
    from kafkad.wire.messages.offset_fetch import OffsetFetchRequest

    try:
        return session.version_of(OffsetFetchRequest, broker)
    except KctlError:  # it is down: whoever asks it will say so
        return _SEVERAL_FROM


def _request(names: list[str]) -> OffsetFetchRequest:
    from kafkad.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in names])


def _read(response: OffsetFetchResponse) -> Iterator[tuple[str, int, Commits]]:
    for group in response.groups:
        code = 0 if group.error_code == _NO_SUCH_GROUP else group.error_code
        yield group.group_id, code, _commits(group.topics)


def _one_by_one(session: Session, names: list[str]) -> dict[str, Commits | KctlError]:
    """Before Kafka 3.0: a request for each group, all of them on their way before the first answer is read."""
    from kafkad.wire.messages.offset_fetch import OffsetFetchRequest

    found: dict[str, Commits | KctlError] = {}
    asked: list[tuple[int | None, OffsetFetchRequest]] = []
    waiting = []
    for name, place in session.coordinators(names).items():
        if isinstance(place, KctlError):
            found[name] = place
        else:
            asked.append((place, OffsetFetchRequest(group_id=name, topics=None)))
            waiting.append(name)
    for name, answer in zip(waiting, session.call_many(asked), strict=True):
        if isinstance(answer, KctlError):
            found[name] = answer
        elif answer.error_code and answer.error_code != _NO_SUCH_GROUP:
            found[name] = failure(answer.error_code, f'group "{name}"')
        else:
            found[name] = _commits(answer.topics)
    return {name: found[name] for name in names}


def _commits(topics: Iterable[OffsetFetchResponseTopic | OffsetFetchResponseTopics]) -> Commits:
    found = {}
    for topic in topics:
        name = topic.name
        for partition in topic.partitions:
            if partition.committed_offset >= 0 and not partition.error_code:
                where = TopicPartition(name, partition.partition_index)
                found[where] = Commit(partition.committed_offset, partition.metadata or "")
    return found
