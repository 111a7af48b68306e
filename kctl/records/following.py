"""Finds partitions added to followed topics, and new topics that match a pattern."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from kafkad.names import TopicPartition
from kctl.command.choosing import Choice
from kctl.command.chosen import chosen_topics
from kctl.errors import Exit, KctlError
from kctl.reach.session import Session
from kctl.records.bounds import FOR_EVER, Span
from kctl.records.offset_ranges import Range, partitions_to_read, spans

LOOK_SECONDS = 5.0
"""Greatest age of metadata. Java's consumers allow 5 minutes (metadata.max.age.ms): too long for somebody watching."""


class Growth:
    """The followed topics as they are now, by name. `look` may be called often: it asks the cluster now and then."""

    def __init__(
        self,
        session: Session,
        chosen: Choice,
        topics: Mapping[str, Any],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.topics = dict(topics)
        self._session = session
        self._chosen = chosen
        self._clock = clock
        self._there_before = {
            TopicPartition(name, part.partition_index) for name, topic in topics.items() for part in topic.partitions
        }
        self._next = clock() + LOOK_SECONDS

    @property
    def counts(self) -> dict[str, int]:
        """The number of partitions of each topic."""
        return {name: len(topic.partitions) for name, topic in self.topics.items()}

    def look(self, besides: Mapping[str, int] = MappingProxyType({})) -> bool:
        """True if topics or partitions have come since the last look; `besides` are topics that matter too, with the
        partitions they had. What is deleted stays: its reader says so."""
        if self._clock() < self._next:
            return False
        self._next = self._clock() + LOOK_SECONDS
        try:
            found, _ = chosen_topics(self._session, self._chosen)
            others = self._session.metadata(sorted(besides)) if besides else ()
        except KctlError:  # nobody answers: whoever reads has the same trouble, and tells it
            return False
        grown = {
            name: topic
            for name, topic in found.items()
            if name not in self.topics or len(topic.partitions) > len(self.topics[name].partitions)
        }
        self.topics |= grown
        return bool(grown) or any(len(topic.partitions) > besides[topic.name] for topic in others)

    def is_new(self, where: TopicPartition) -> bool:
        """It came while the topics were followed: nobody here has seen any of it."""
        return where not in self._there_before


Found = tuple[dict[TopicPartition, Span], dict[TopicPartition, KctlError]]


class Unreached:
    """Followed partitions whose offsets nobody could tell at first; they are in `failed` for as long. Called again and
    again: what is to be read of those that can be read by now."""

    def __init__(
        self,
        find: Callable[[list[TopicPartition]], Found],
        failed: dict[TopicPartition, KctlError],
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._find = find
        self._failed = failed
        self._tell = tell
        self._clock = clock
        self._left: set[TopicPartition] = set()
        self._next = 0.0

    def look_for(self, partitions: Iterable[TopicPartition]) -> None:
        """From now on for those of these that have failed, and may come back."""
        before, self._left = self._left, set()
        for where in partitions:
            error = self._failed.get(where)
            if error is not None and error.exit_code is Exit.UNREACHABLE:
                self._left.add(where)
                if where not in before:
                    self._tell(f"{where} cannot be read, and is tried again: {error.what}")
        self._next = self._clock() + LOOK_SECONDS

    def __call__(self) -> Mapping[TopicPartition, Span]:
        if not self._left or self._clock() < self._next:
            return {}
        self._next = self._clock() + LOOK_SECONDS
        try:
            found, _ = self._find(sorted(self._left))
        except KctlError:  # nobody answers: whoever reads has the same trouble, and tells it
            return {}
        for where in found:
            self._failed.pop(where, None)
            self._left.discard(where)
            self._tell(f"{where} is read now")
        return found


class Additions:
    """Called again and again: what is to be read since the last time, new partitions from their beginning."""

    def __init__(
        self,
        session: Session,
        growth: Growth,
        limits: Range,
        partitions: Iterable[TopicPartition],
        key: str | None = None,
    ) -> None:
        """`partitions` are being read already; with `key`, those in which it may be now are read as well."""
        self._session = session
        self._growth = growth
        self._limits = limits
        self._key = key
        self._known = set(partitions)

    def __call__(self) -> Mapping[TopicPartition, Span]:
        if not self._growth.look():
            return {}
        wanted = set(partitions_to_read(self._growth.topics, None, self._key)) - self._known
        new = {where: Span(0, FOR_EVER) for where in wanted if self._growth.is_new(where)}
        if moved := wanted - new.keys():  # the key belongs to another partition now
            found, _ = spans(self._session, moved, self._limits)
            new |= found
        self._known |= new.keys()
        return new
