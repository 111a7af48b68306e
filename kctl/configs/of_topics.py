"""The settings of many topics. Most topics of a cluster have the same ones: each kind is decoded once."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafkad.wire.frames import read_response_header
from kafkad.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from kafkad.wire.primitives import MalformedError, get_compact_count, get_nullable_compact_string
from kafkad.wire.schema import array, message, read
from kctl.configs.resources import TOPIC, Entry, Resource, described, entry
from kctl.errors import KctlError, failure

if TYPE_CHECKING:
    from kctl.reach.session import Session

_API, _VERSION = 32, 4
_KINDS = 64
"""Number of different sets of settings that are kept for comparison."""


class TopicSettings(NamedTuple):
    of: dict[str, list[Entry]]
    """Topics with the same settings share a list."""
    errors: list[KctlError]


@message(key=-1, versions="4", flexible="4+")
class _Settings:
    """The end of what DescribeConfigs v4 says of one resource."""

    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


class _Kind(NamedTuple):
    raw: bytes
    entries: list[Entry]


class _Result(NamedTuple):
    name: str
    code: int
    message: str | None
    entries: list[Entry]


def topic_settings(session: Session, topics: Iterable[str], keys: Sequence[str] | None = None) -> TopicSettings:
    """The settings of each topic (only those with these names); topics that no longer exist are errors."""
    names = list(topics)
    if not names:
        return TopicSettings({}, [])
    connection = session.connection()
    if connection.version_of(DescribeConfigsRequest) != _VERSION:
        found, errors = described(session, [Resource("topic", name) for name in names], keys)
        return TopicSettings({resource.name: entries for resource, entries in found.items()}, errors)
    wanted = None if keys is None else list(keys)
    resources = [
        DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=wanted) for name in names
    ]
    try:
        connection.tell(DescribeConfigsRequest(resources=resources))
        frame = connection.receive_frame(time.monotonic() + session.settings.timeout, "DescribeConfigs")
        results = list(read_results(frame, read_response_header(_API, _VERSION, frame)[1]))
    except KctlError as error:
        return TopicSettings({}, [error])
    except (MalformedError, IndexError) as error:
        return TopicSettings({}, [KctlError(f"the answer to DescribeConfigs is malformed: {error}")])
    refused = {result.code: result for result in results if result.code}
    return TopicSettings(
        {result.name: result.entries for result in results if not result.code},
        [failure(code, f'settings of topic "{result.name}"', result.message) for code, result in refused.items()],
    )


def read_results(frame: bytes, at: int) -> Iterator[_Result]:
    """The results in the body of a version 4 response at `at`."""
    count, at = get_compact_count(frame, at + 4)
    known: list[_Kind] = []
    for _ in range(count):
        code = int.from_bytes(frame[at : at + 2], "big", signed=True)
        message, at = get_nullable_compact_string(frame, at + 2)
        name, at = get_nullable_compact_string(frame, at + 1)
        kind = next((kind for kind in known if frame.startswith(kind.raw, at)), None)
        if kind is None:
            settings, end = read(_Settings, _VERSION, frame, at)
            kind = _Kind(frame[at:end], sorted(map(entry, settings.configs)))
            known = [kind, *known[: _KINDS - 1]]
        at += len(kind.raw)
        yield _Result(name or "", code, message, kind.entries)
