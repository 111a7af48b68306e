"""DescribeConfigs, 0 to 4: every setting of a topic, a broker or its loggers, with what it would fall back to."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from kafkad import loggers
from kafkad.api.config_resources import ResourceType, check_own_broker, check_right
from kafkad.api.context import Context, Request
from kafkad.config import Source
from kafkad.config.describe import (
    ConfigRow,
    describe_broker,
    describe_cluster_default,
    describe_state,
    describe_topic,
)
from kafkad.controller.topics import check_name
from kafkad.errors import ErrorCode, KafkaError
from kafkad.security.authorizer import Operation
from kafkad.turns import Pieces, each
from kafkad.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

CONTROLLER_EPOCH, ABSENT_BROKERS = "kafkad.controller.epoch", "kafkad.absent.brokers"
_LAST_WITH_IS_DEFAULT = 0


def handle(context: Context, request: Request, message: DescribeConfigsRequest) -> Pieces[DescribeConfigsResponse]:
    """A resource that is named twice is answered once, for the keys that it is named with last, as in Kafka."""
    resources = {(resource.resource_type, resource.resource_name): resource for resource in message.resources}
    yield
    describe = partial(_described, context, request, message)
    return DescribeConfigsResponse(results=(yield from each(describe, resources.values())))


def _described(
    context: Context, request: Request, message: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    """No keys, or an empty list of them, means all; keys that are no settings are left out."""
    result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
    wanted = frozenset(resource.configuration_keys or ())
    try:
        check_right(request, Operation.DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name)
        for setting in _settings(context, message, resource):
            if not wanted or setting.name in wanted:
                setting.is_default = setting.is_default and request.version <= _LAST_WITH_IS_DEFAULT
                result.configs.append(setting)
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message or ""
    return result


def _settings(
    context: Context, message: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> Iterator[DescribeConfigsResourceResult]:
    kind, name = resource.resource_type, resource.resource_name
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
            rows += describe_state(_state(context), resource.configuration_keys or ())
        for row in rows:
            yield _setting(row, message.include_synonyms, message.include_documentation)


def _rows(context: Context, kind: int, name: str) -> list[ConfigRow]:
    if kind == ResourceType.TOPIC:
        check_name(name)
        if name not in context.replicas.metadata.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return describe_topic(context.config, context.configs.topic(name))
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
