"""Shared parts of the measurements: a topic that is deleted at their end, payloads, and the display of results."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kafkad.errors import ErrorCode
from kctl.command.verb import answer
from kctl.errors import Exit, KctlError, failure
from kctl.reach.session import Session
from kctl.records.delivery import confirm_protected, one_topic
from kctl.records.interrupts import Interrupts
from kctl.records.perf.measuring import Latencies
from kctl.texts.output import Column, note

_POOL = 1 << 20
_LETTERS = bytes(ord("A") + byte % 26 for byte in range(256))
_HISTOGRAM_WIDTH = 40


@contextmanager
def stage(session: Session, topic: str | None, partitions: int, replication: int) -> Iterator[str]:
    """The topic to measure with: the named one, which stays, or a new one, which does not."""
    if session.settings.dry_run:
        raise KctlError("perf has no --dry-run: it measures real records", exit_code=Exit.USAGE)
    confirm_protected(session, f"Topic {topic}" if topic else "A topic of its own")
    if topic:
        one_topic(session, topic)
        yield topic
        return
    name = f"kctl-perf-{os.urandom(4).hex()}"
    _create(session, name, partitions, replication)
    try:
        yield name
    finally:
        _delete(session, name)


def _create(session: Session, name: str, partitions: int, replication: int) -> None:
    from kafkad.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest

    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replication)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=int(session.settings.timeout * 1000))
    (made,) = session.ask_controller(request, lambda answer: [one.error_code for one in answer.topics]).topics
    if made.error_code:
        raise failure(made.error_code, f'topic "{name}" cannot be created', made.error_message)
    if not session.wait_until(lambda: _has_leaders(session, name, partitions)):
        raise KctlError(f'topic "{name}" has partitions without a leader', exit_code=Exit.UNREACHABLE)


def _has_leaders(session: Session, name: str, partitions: int) -> bool:
    (topic,) = session.metadata([name])
    return len([part for part in topic.partitions if part.leader_id >= 0]) == partitions


def _delete(session: Session, name: str) -> None:
    from kctl.reach.deleting import delete_topics

    try:
        refused = delete_topics(session, [name]).get(name)
    except KctlError as error:
        refused = error
    if refused is not None and refused.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name:
        note(session.settings, f'topic "{name}" could not be removed: {refused.with_code}')


class Payloads:
    """Values of one size, random letters, no two the same in a row."""

    def __init__(self, size: int) -> None:
        self._size = size
        length = max(_POOL, 2 * size)
        self._pool = os.urandom(length).translate(_LETTERS)
        self._at = 0

    def next(self) -> bytes:
        self._at = (self._at + 7919) % (len(self._pool) - self._size + 1)
        return self._pool[self._at : self._at + self._size]


def show(
    session: Session,
    columns: Sequence[Column],
    row: dict[str, Any],
    text: str,
    errors: Sequence[KctlError] = (),
    latencies: Latencies | None = None,
) -> int:
    """A sentence for people, with a histogram on a terminal; the numbers for programs."""

    def lines() -> Iterator[str]:
        yield text
        if latencies is not None and len(latencies) and sys.stdout.isatty():
            yield from latencies.histogram(_HISTOGRAM_WIDTH)

    return answer(session, columns, [row], errors, text=lines)


def exit_code(interrupts: Interrupts, code: int) -> int:
    """The exit code; call it after `show`. After Ctrl-C it also prints that the numbers end there."""
    if not interrupts.asked:
        return code
    print("interrupted: these are the numbers until then", file=sys.stderr)
    return Exit.INTERRUPTED
