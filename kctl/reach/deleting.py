"""DeleteTopics, as brokers of every release take it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafkad.errors import ErrorCode
from kctl.errors import KctlError, failure

if TYPE_CHECKING:
    from kctl.reach.session import Session

_FIRST_WITH_STATES = 6
"""From this version of DeleteTopics on (Kafka 2.8), topics are no plain names."""


def delete_topics(session: Session, names: Sequence[str]) -> dict[str, KctlError]:
    """Deletes them; the topics that the broker refuses, and why."""
    from kafkad.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

    asked = DeleteTopicsRequest(timeout_ms=session.broker_timeout_ms)
    if (session.version_of(DeleteTopicsRequest, session.controller) or 0) >= _FIRST_WITH_STATES:
        asked.topics = [DeleteTopicState(name=name) for name in names]
    else:
        asked.topic_names = list(names)
    answer = session.ask_controller(asked, lambda answer: (result.error_code for result in answer.responses))
    return {
        r.name: failure(r.error_code, f'topic "{r.name}"', r.error_message or _why(r.error_code))
        for r in answer.responses
        if r.name and r.error_code
    }


def _why(code: int) -> str | None:
    return "the broker has delete.topic.enable=false" if code == ErrorCode.TOPIC_DELETION_DISABLED else None
