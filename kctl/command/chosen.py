"""The topics and brokers that a command is about, as the cluster has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkad.errors import ErrorCode
from kctl.command.choosing import Choice, all_unknown, pattern_hint
from kctl.errors import KctlError, failure

if TYPE_CHECKING:
    from kctl.reach.session import Session, Topic


def chosen_topics(
    session: Session, chosen: Choice, *, internal: bool = True
) -> tuple[dict[str, Topic], list[KctlError]]:
    """Topics of a Metadata response by name, in order, and what is wrong with the names that were given. Without any
    choice all of them, Kafka's own only if `internal`."""
    if chosen.literal:
        return _named(session, chosen)
    every = {topic.name: topic for topic in sorted(session.metadata(), key=lambda topic: topic.name)}
    names, errors = chosen.of([name for name, topic in every.items() if internal or chosen or not topic.is_internal])
    errors += [_failure(every[name], chosen) for name in names if every[name].error_code]
    return {name: every[name] for name in names if not every[name].error_code}, errors


def _named(session: Session, chosen: Choice) -> tuple[dict[str, Topic], list[KctlError]]:
    found = {topic.name: topic for topic in session.metadata(chosen.names)}
    topics = {name: found[name] for name in chosen.names if name in found and not found[name].error_code}
    wrong = [name for name in chosen.names if name not in topics]
    refused = {
        name: _failure(found[name], chosen)
        for name in wrong
        if name in found and found[name].error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    missing = [name for name in wrong if name not in refused]
    every = all_unknown(
        "topic", missing, lambda: [topic.name for topic in session.metadata()], takes_patterns=chosen.takes_patterns
    )
    errors = refused | every
    return topics, [errors[name] for name in wrong]


def _failure(topic: Topic, chosen: Choice) -> KctlError:
    hints = pattern_hint(topic.name) if chosen.takes_patterns else ()
    return failure(topic.error_code, f'topic "{topic.name}"', hints=hints)


def chosen_brokers(session: Session, ids: tuple[int, ...]) -> list[int]:
    """These, or all. KctlError names those that are not there."""
    there = list(session.cluster.brokers)
    if not set(ids) <= set(there):
        raise session.no_broker(ids)
    return list(dict.fromkeys(ids)) or there
