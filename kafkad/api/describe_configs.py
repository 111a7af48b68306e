"""DescribeConfigs, 0 to 4: every setting of a topic, a broker or its loggers, with what it would fall back to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from kafkad import loggers
from kafkad.api.config_resources import ResourceType, check_right
from kafkad.api.context import Context, Request
from kafkad.config import Source
from kafkad.config.describe import (
    ConfigRow,
    describe_broker,
    describe_cluster_default,
    describe_state,
    describe_topic,
)
from kafkad.controller.configs import check_own_broker
from kafkad.controller.topics import check_name
from kafkad.errors import METADATA_STORE, ErrorCode, KafkaError
from kafkad.meta.store import OutOfReach
from kafkad.security.authorizer import Operation
from kafkad.security.authorizer import ResourceType as Secured
from kafkad.turns import Pieces
from kafkad.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from kafkad.wire.primitives import MAX_STRING

if TYPE_CHECKING:
    from kafkad.cluster.configs import Overrides

CONTROLLER_EPOCH, ABSENT_BROKERS = "kafkad.controller.epoch", "kafkad.absent.brokers"
_LAST_WITH_IS_DEFAULT = 0
_PATIENCE_MS = 3_000
_UNREAD = f"{METADATA_STORE} cannot be reached, and this broker holds no replica of the topic: ask one that does"

SettingsOf = Callable[[str], "Overrides"]
"""What a topic overrides. Raises KafkaError where that cannot be known."""
Answer = Pieces[DescribeConfigsResponse]
Settings = list[DescribeConfigsResourceResult]
Named = tuple[int, str]
"""The type and the name of a resource."""
Alike = tuple[frozenset[str], frozenset[tuple[str, str]]]
"""The keys that are asked for, and what a topic overrides."""


def handle(
    context: Context, request: Request, message: DescribeConfigsRequest
) -> Pieces[DescribeConfigsResponse | Coroutine[Any, Any, Answer]]:
    """A resource that is named twice is answered once, for all that it is named with."""
    asked: dict[Named, set[str]] = {}
    for resource in message.resources:
        _add_keys(asked, resource)
        yield
    describe = partial(_all_described, context, request, message, asked)
    elsewhere = []
    for kind, name in asked:
        if kind == ResourceType.TOPIC and _is_elsewhere(context, request, name):
            elsewhere.append(name)
        yield
    if elsewhere:
        return _when_read(context, elsewhere, describe)
    return (yield from describe(context.configs.topic))


def _add_keys(asked: dict[Named, set[str]], resource: DescribeConfigsResource) -> None:
    """Adds to what is asked of a resource: the keys of both, or all settings if either asks for all, by no keys."""
    named = resource.resource_type, resource.resource_name
    keys = set(resource.configuration_keys or ())
    before = asked.get(named)
    if before is None:
        asked[named] = keys
    elif before and keys:
        before |= keys
    else:
        before.clear()


def _is_elsewhere(context: Context, request: Request, topic: str) -> bool:
    """True if only other brokers hold the topic: what is known here of its settings may be old."""
    replicas = context.replicas
    may = request.allows(Operation.DESCRIBE_CONFIGS, Secured.TOPIC, topic)
    return may and topic in replicas.metadata.topics and not replicas.of_topic(topic)


async def _when_read(context: Context, topics: Sequence[str], describe: Callable[[SettingsOf], Answer]) -> Answer:
    """The rest of the work, with the settings of `topics`, which others hold."""
    configs, found = context.configs, await _read(context, topics)
    unread = frozenset(topics) - found.keys()

    def settings_of(topic: str) -> Overrides:
        if topic in unread:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, _UNREAD)
        return found[topic] if topic in found else configs.topic(topic)

    return describe(settings_of)


async def _read(context: Context, topics: Sequence[str]) -> Mapping[str, Overrides]:
    """Nothing where the store is out of reach: reads wait for it, and this one not for ever."""
    reading = asyncio.ensure_future(context.configs.read_topics(topics))
    late = context.timers.at(context.clock.monotonic_ms() + _PATIENCE_MS, lambda: _give_up(reading))
    try:
        await asyncio.wait([reading])
        return reading.result()
    except OutOfReach:
        return {}
    except asyncio.CancelledError:
        if not reading.cancelled():
            raise
        return {}
    finally:
        late.cancel()
        reading.cancel()


def _give_up(reading: asyncio.Future[Any]) -> None:
    reading.cancel()


def _all_described(
    context: Context,
    request: Request,
    message: DescribeConfigsRequest,
    asked: Mapping[Named, Collection[str]],
    settings_of: SettingsOf,
) -> Answer:
    """Thousands of topics override the same: what is `alike` is described once."""
    alike: dict[Alike, Settings] = {}
    results = []
    for named, keys in asked.items():
        described = yield from _described(context, request, message, settings_of, alike, named, frozenset(keys))
        results.append(described)
        yield
    return DescribeConfigsResponse(results=results)


def _described(
    context: Context,
    request: Request,
    message: DescribeConfigsRequest,
    settings_of: SettingsOf,
    alike: dict[Alike, Settings],
    named: Named,
    wanted: frozenset[str],
) -> Pieces[DescribeConfigsResult]:
    kind, name = named
    result = DescribeConfigsResult(resource_type=kind, resource_name=name)
    try:
        check_right(request, Operation.DESCRIBE_CONFIGS, kind, name)
        if kind == ResourceType.TOPIC:
            overrides = _overrides(context, settings_of, name)
            key = wanted, frozenset(overrides.items())
            if key not in alike:
                rows = describe_topic(context.config, overrides)
                alike[key] = yield from _chosen(request, wanted, _worded(message, rows))
            result.configs = alike[key]
        else:
            result.configs = yield from _chosen(request, wanted, _settings(context, message, named, wanted))
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message or ""
    return result


def _chosen(
    request: Request, wanted: frozenset[str], settings: Iterable[DescribeConfigsResourceResult]
) -> Pieces[Settings]:
    """No keys, or an empty list of them, means all; keys that are no settings are left out."""
    chosen = []
    for setting in settings:
        if not wanted or setting.name in wanted:
            _check_sayable(setting)
            setting.is_default = setting.is_default and request.version <= _LAST_WITH_IS_DEFAULT
            chosen.append(setting)
        yield
    return chosen


def _check_sayable(setting: DescribeConfigsResourceResult) -> None:
    """Raises INVALID_CONFIG for a value that no answer can hold, so that only what it belongs to goes without one."""
    size = len((setting.value or "").encode())
    if size > MAX_STRING:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{setting.name} has {size} bytes, and clients take at most {MAX_STRING}: set it to something shorter, or "
            "ask for other settings by name",
        )


def _settings(
    context: Context, message: DescribeConfigsRequest, named: Named, wanted: frozenset[str]
) -> Iterator[DescribeConfigsResourceResult]:
    """Those of anything but a topic."""
    kind, name = named
    if kind == ResourceType.BROKER_LOGGER:
        check_own_broker(context.broker_id, name)
        for logger, level in loggers.levels().items():
            yield DescribeConfigsResourceResult(
                name=logger,
                value=level,
                config_source=Source.DYNAMIC_BROKER_LOGGER_CONFIG,
                documentation=None,
            )
    else:
        rows = _rows(context, kind, name)
        if kind == ResourceType.BROKER and name:
            rows = chain(rows, describe_state(_state(context), wanted))
        yield from _worded(message, rows)


def _worded(message: DescribeConfigsRequest, rows: Iterable[ConfigRow]) -> Iterator[DescribeConfigsResourceResult]:
    for row in rows:
        yield _setting(row, message.include_synonyms, message.include_documentation)


def _overrides(context: Context, settings_of: SettingsOf, topic: str) -> Overrides:
    check_name(topic)
    if topic not in context.replicas.metadata.topics:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return settings_of(topic)


def _rows(context: Context, kind: int, name: str) -> Iterator[ConfigRow]:
    if kind == ResourceType.BROKER:
        if not name:
            return describe_cluster_default(context.config)
        check_own_broker(context.broker_id, name)
        return describe_broker(context.config)
    raise KafkaError(ErrorCode.INVALID_REQUEST, _nothing_kept(kind))


def _state(context: Context) -> dict[str, str]:
    replicas = context.replicas
    return {CONTROLLER_EPOCH: str(replicas.controller_epoch), ABSENT_BROKERS: replicas.absent.text}


def _nothing_kept(kind: int) -> str:
    if kind == ResourceType.GROUP:
        return "this broker keeps no settings of single groups: those of the broker named group.* hold for all groups"
    if kind == ResourceType.CLIENT_METRICS:
        return "this broker collects no metrics of clients: its own are at http.listener, under /metrics"
    return f"there are no settings for resource type {kind}: ask for those of topics (2), brokers (4) or loggers (8)"


def _setting(row: ConfigRow, with_synonyms: bool, with_documentation: bool) -> DescribeConfigsResourceResult:
    setting = DescribeConfigsResourceResult(
        name=row.name,
        value=row.value,
        read_only=row.read_only,
        is_default=row.is_default,
        config_source=row.source,
        is_sensitive=row.sensitive,
        config_type=row.type,
        documentation=row.doc if with_documentation else None,
    )
    if with_synonyms:
        setting.synonyms = [
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in row.synonyms
        ]
    return setting
