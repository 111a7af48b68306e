"""A follower's side of a fetch session (KIP-227): what it asks one leader for, and what the answers mean.

Pure: requests and answers are values, nothing is sent here. Partitions are named by their topic's id, as in Fetch 13
and later. A full request names all of them, and an incremental one those whose place has changed since the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from kafkad.errors import ErrorCode
from kafkad.model import NO_EPOCH
from kafkad.names import TopicId
from kafkad.wire.follower_fetch import FollowerFetch
from kafkad.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)

_LAST_EPOCH = 0x7FFF_FFFF


class Key(NamedTuple):
    """A partition as leader and follower name it."""

    topic_id: TopicId
    partition: int


class Place(NamedTuple):
    """The place of a partition's log from which its follower goes on."""

    leader_epoch: int
    offset: int
    last_epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """The settings of Kafka that a fetch carries."""

    wait_max_ms: int = 500
    """replica.fetch.wait.max.ms"""
    min_bytes: int = 1
    """replica.fetch.min.bytes"""
    response_max_bytes: int = 10_485_760
    """replica.fetch.response.max.bytes"""
    partition_max_bytes: int = 1_048_576
    """replica.fetch.max.bytes"""


class Meaning(Enum):
    """What follows from a leader's answer about one partition."""

    RECORDS = auto()
    """Append them, if there are any, and take the leader's high watermark and the start of its log."""
    DIVERGED = auto()
    """Truncate to where the two histories part, and ask again."""
    OUT_OF_RANGE = auto()
    """Ask where the leader's log begins and ends."""
    FENCED = auto()
    """The leader is in a later epoch: a LeaderAndIsr will follow, until then there is nothing to ask."""
    LATER = auto()
    """Ask again after the back-off: the two know different states of the cluster, or the leader has a problem."""


_MEANINGS: dict[int, Meaning] = {
    ErrorCode.OFFSET_OUT_OF_RANGE: Meaning.OUT_OF_RANGE,
    ErrorCode.FENCED_LEADER_EPOCH: Meaning.FENCED,
}
PASSING = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors that pass when leader and follower have heard the same from the controller."""


def meaning(data: PartitionData) -> Meaning:
    if data.error_code:
        return _MEANINGS.get(data.error_code, Meaning.LATER)
    return Meaning.DIVERGED if data.diverging_epoch.epoch >= 0 else Meaning.RECORDS


class FetchSession:
    """The session with one leader. One request at a time: `request`, then `answered` or `lost`."""

    def __init__(self, replica_id: int, replica_epoch: Callable[[], int] = lambda: NO_EPOCH) -> None:
        """`replica_epoch` is that of this broker's registration, which may be another by the next request."""
        self._replica_id = replica_id
        self._replica_epoch = replica_epoch
        self._id = 0
        self._epoch = 0
        """Of the next request; 0 asks for a new session."""
        self._places: dict[Key, Place] = {}
        self._changed: dict[Key, None] = {}
        """Partitions that the leader has to be told of with the next request."""
        self._held: dict[Key, None] = {}
        """Partitions that the leader's session has."""
        self._doubted: dict[Key, None] = {}
        """Partitions that the leader is told of with the next request though it has been."""

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: Key) -> bool:
        return key in self._places

    def want(self, key: Key, place: Place) -> None:
        """The last one that got something comes last, so that a leader which has too much for one answer begins with
        the others."""
        if self._places.get(key) != place:
            self._places.pop(key, None)
            self._places[key] = place
            self._changed.pop(key, None)
            self._changed[key] = None

    def forget(self, key: Key) -> None:
        if self._places.pop(key, None) is not None:
            self._changed[key] = None

    def doubt(self, key: Key) -> None:
        """The leader may believe that this partition is at an earlier place than it was told of here."""
        self._doubted[key] = None

    def request(self, limits: FetchLimits) -> FetchRequest | FollowerFetch:
        if self._doubted:
            self._changed.update((key, None) for key in self._doubted if key in self._places)
            self._doubted = {}
        if self._epoch and len(self._changed) == 1:
            [key] = self._changed
            place = self._places.get(key)
            if place is not None:
                self._changed = {}
                self._held[key] = None
                return self._of_one(key, place, limits)
        if self._epoch == 0:
            self._held = dict.fromkeys(self._places)
            named, gone = list(self._places), []
        else:
            named = [key for key in self._changed if key in self._places]
            gone = [key for key in self._changed if key not in self._places and key in self._held]
            for key in gone:
                del self._held[key]
            self._held.update(dict.fromkeys(named))
        self._changed = {}
        return FetchRequest(
            replica_state=ReplicaState(replica_id=self._replica_id, replica_epoch=self._replica_epoch()),
            max_wait_ms=limits.wait_max_ms,
            min_bytes=limits.min_bytes,
            max_bytes=limits.response_max_bytes,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=[
                FetchTopic(
                    topic_id=topic_id,
                    partitions=[_asked(key, self._places[key], limits.partition_max_bytes) for key in keys],
                )
                for topic_id, keys in _by_topic(named)
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic_id=topic_id, partitions=[key.partition for key in keys])
                for topic_id, keys in _by_topic(gone)
            ],
        )

    def _of_one(self, key: Key, place: Place, limits: FetchLimits) -> FollowerFetch:
        topic_id, partition = key
        leader_epoch, offset, last_epoch, start_offset = place
        return FollowerFetch(
            self._replica_id,
            limits.wait_max_ms,
            limits.min_bytes,
            limits.response_max_bytes,
            self._id,
            self._epoch,
            topic_id,
            partition,
            leader_epoch,
            offset,
            last_epoch,
            start_offset,
            limits.partition_max_bytes,
            self._replica_epoch(),
        )

    def answered_alone(self, request: FollowerFetch) -> Key | None:
        """The answer to this request is about its partition alone, of which it has records or none: as `answered`, the
        partition if that is still wanted."""
        self._go_on()
        key = Key(request.topic_id, request.partition)
        if key not in self._changed:
            return key
        if key in self._places:
            self._begin_again(self._id)
        return None

    def answered(self, response: FetchResponse) -> Iterator[tuple[Key, PartitionData]]:
        """The answers that concern what is still wanted of the leader; none if the session has to begin again.

        To be read one by one: an answer may make others obsolete. Of one that is not looked at, or says that the logs
        diverge, the high watermark is not taken, and the leader does not repeat it: the session begins again.
        """
        if response.error_code:
            self._begin_again(0 if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND else self._id)
        elif response.session_id == 0 or (self._epoch and response.session_id != self._id):
            self._begin_again(0)
        else:
            self._id = response.session_id
            self._go_on()
        missed = False
        for topic in response.responses:
            for data in topic.partitions:
                key = Key(topic.topic_id, data.partition_index)
                if key not in self._places:
                    continue
                missed |= key not in self._held or key in self._changed or meaning(data) is Meaning.DIVERGED
                if key in self._held and key not in self._changed:
                    yield key, data
        if missed:
            self._begin_again(self._id)

    def lost(self) -> None:
        """There was no answer: what the leader's session has is not known."""
        self._begin_again(self._id)

    def _go_on(self) -> None:
        self._epoch = self._epoch + 1 if self._epoch < _LAST_EPOCH else 1

    def _begin_again(self, last_id: int) -> None:
        """A first request that names the last session ends it."""
        self._id, self._epoch = last_id, 0


def _by_topic(keys: list[Key]) -> Iterable[tuple[TopicId, list[Key]]]:
    topics: dict[TopicId, list[Key]] = {}
    for key in keys:
        topics.setdefault(key.topic_id, []).append(key)
    return topics.items()


def _asked(key: Key, place: Place, max_bytes: int) -> FetchPartition:
    return FetchPartition(
        partition=key.partition,
        current_leader_epoch=place.leader_epoch,
        fetch_offset=place.offset,
        last_fetched_epoch=place.last_epoch,
        log_start_offset=place.start_offset,
        partition_max_bytes=max_bytes,
    )
