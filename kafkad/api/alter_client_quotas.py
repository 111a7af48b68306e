"""AlterClientQuotas, 0 and 1: sets and removes quotas of users, clients and addresses."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping

from kafkad.api.context import Context, Request
from kafkad.api.quota_entities import Parts, entity_of, parts_named
from kafkad.errors import ErrorCode, KafkaError
from kafkad.model import Entity
from kafkad.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from kafkad.security.quotas.keys import quota_of, quotas_of, text_of
from kafkad.turns import Turns
from kafkad.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    RequestEntryData,
    ResponseEntryData,
)


async def handle(context: Context, request: Request, message: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    """When this returns, this broker goes by the new quotas. Entries of one entity have one answer: an error if any.
    The right to change them may go between two entries."""
    results: dict[Parts, KafkaError | None] = {}
    turns = Turns()
    for entry in message.entries:
        await turns.give_way()
        error = None
        try:
            request.check(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME)
            await _alter(context, entry, message.validate_only)
        except KafkaError as refusal:
            error = refusal.with_traceback(None)
        results[parts_named(entry)] = results.get(parts_named(entry)) or error
    await context.configs.catch_up_if_possible()
    return _response(results)


def refused(request: Request, message: AlterClientQuotasRequest, error: KafkaError) -> AlterClientQuotasResponse:
    return _response(dict.fromkeys(map(parts_named, message.entries), error))


async def _alter(context: Context, entry: RequestEntryData, validate_only: bool) -> None:
    entity = entity_of(parts_named(entry))
    if isinstance(entity.ip, str):
        await _check_resolves(entity.ip)
    changes = _changes(entity, entry)
    if not validate_only:
        await context.entity_alterer.change(entity, lambda before: _changed(before, changes))


def _changes(entity: Entity, entry: RequestEntryData) -> dict[str, str | None]:
    """New values by key, None for what is removed. The last of two equal keys counts. What is no quota of the entity is
    not there to be removed, as to Kafka; and its credentials stay."""
    changes: dict[str, str | None] = {}
    for op in entry.ops:
        if not op.remove:
            quota = quota_of(entity, op.key)
            changes[quota.value] = text_of(quota, op.value)
        elif op.key in quotas_of(entity):
            changes[op.key] = None
    return changes


def _changed(before: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    merged = {**before, **changes}
    return {key: value for key, value in merged.items() if value is not None}


async def _check_resolves(host: str) -> None:
    try:
        await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{host} is not a valid IP or resolvable host.") from None


def _response(results: Mapping[Parts, KafkaError | None]) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[
            ResponseEntryData(
                error_code=ErrorCode.NONE if error is None else error.code,
                error_message=None if error is None else error.message,
                entity=[EntityData(entity_type=type_, entity_name=name) for type_, name in parts],
            )
            for parts, error in results.items()
        ]
    )
