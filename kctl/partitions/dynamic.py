"""Reading and writing the dynamic settings of brokers and topics that throttle.

A broker's are told and changed by that broker alone, so those of one that is down stay as they are, and unknown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kctl.errors import KctlError, failure
from kctl.partitions.throttling import BROKER, DIRECTORY_RATE, LISTS, RATES, TOPIC, Setting
from kctl.session import Session

_TYPES = {TOPIC: 2, BROKER: 4}
_KINDS = {number: kind for kind, number in _TYPES.items()}
_DYNAMIC_SOURCES = {1, 2}
"""Set at this topic, set at this broker: not from a file, nor from a default for all."""
_SET, _DELETE = 0, 1
_AT_ONCE = 500
"""Topics asked about in one request."""

Read = tuple[dict[Setting, str | None], list[KctlError]]


def read_settings(session: Session, settings: Iterable[Setting]) -> Read:
    """The value of each setting that could be read (None: not set), and what could not be asked."""
    from kafkad.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

    names: dict[tuple[str, str], list[str]] = defaultdict(list)
    for kind, owner, name in settings:
        names[kind, owner].append(name)

    def request(owners: list[tuple[str, str]]) -> Any:
        return DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=_TYPES[kind], resource_name=owner, configuration_keys=names[kind, owner]
                )
                for kind, owner in owners
            ]
        )

    values: dict[Setting, str | None] = {}
    errors = []
    for answer in _ask(session, list(names), request):
        if isinstance(answer, KctlError):
            errors.append(answer)
            continue
        for result in answer.results:
            kind, owner = _KINDS[result.resource_type], result.resource_name
            if result.error_code:
                errors.append(failure(result.error_code, f"settings of {kind} {owner}", result.error_message))
                continue
            set_there = {each.name: each.value for each in result.configs if each.config_source in _DYNAMIC_SOURCES}
            values |= {Setting(kind, owner, name): set_there.get(name) for name in names[kind, owner]}
    return values, errors


def write_settings(session: Session, values: Mapping[Setting, str | None]) -> list[KctlError]:
    """Sets them, or with None removes them; what was refused."""
    from kafkad.wire.messages.incremental_alter_configs import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
    )

    changes: dict[tuple[str, str], list[AlterableConfig]] = defaultdict(list)
    for (kind, owner, name), value in values.items():
        operation = _DELETE if value is None else _SET
        changes[kind, owner].append(AlterableConfig(name=name, config_operation=operation, value=value))

    def request(owners: list[tuple[str, str]]) -> Any:
        return IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(resource_type=_TYPES[kind], resource_name=owner, configs=changes[kind, owner])
                for kind, owner in owners
            ]
        )

    errors = []
    for answer in _ask(session, list(changes), request):
        if isinstance(answer, KctlError):
            errors.append(answer)
            continue
        for result in answer.responses:
            if result.error_code:
                what = f"{_KINDS[result.resource_type]} {result.resource_name}"
                errors.append(failure(result.error_code, what, result.error_message))
    return errors


def _ask(session: Session, owners: list[tuple[str, str]], request: Any) -> list[Any]:
    """Brokers each about itself, topics any broker."""
    topics = [owner for owner in owners if owner[0] == TOPIC]
    asked: list[tuple[int | None, Any]] = [
        (None, request(topics[at : at + _AT_ONCE])) for at in range(0, len(topics), _AT_ONCE)
    ]
    asked += [(int(owner[1]), request([owner])) for owner in owners if owner[0] == BROKER]
    return session.call_many(asked) if asked else []


def throttle_settings(brokers: Iterable[int], topics: Iterable[str]) -> Iterator[Setting]:
    """All that may slow down copies on these brokers and of these topics."""
    for broker in brokers:
        yield from (Setting(BROKER, str(broker), name) for name in (*RATES, DIRECTORY_RATE))
    for topic in topics:
        yield from (Setting(TOPIC, topic, name) for name in LISTS)
