"""The resources that have settings, and the parts that requests changing them share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from enum import IntEnum
from typing import Protocol, TypeVar

from kafkad.api.context import Context, Request
from kafkad.controller.configs import ResourceKind
from kafkad.errors import ErrorCode, KafkaError
from kafkad.security.authorizer import CLUSTER_NAME, REFUSALS, Operation
from kafkad.security.authorizer import ResourceType as Secured
from kafkad.turns import Turns


class ResourceType(IntEnum):
    """Types of resources, by their number in requests."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


_SECURED: dict[int, Secured] = {ResourceType.TOPIC: Secured.TOPIC, ResourceType.GROUP: Secured.GROUP}
_REFUSALS = frozenset(code for code, _ in REFUSALS.values())


class Resource(Protocol):
    """The same in AlterConfigs and IncrementalAlterConfigs."""

    resource_type: int
    resource_name: str


R = TypeVar("R", bound=Resource)
A = TypeVar("A")


def stored_kind(resource_type: int) -> ResourceKind:
    """The kind of a resource with settings in the metadata store; INVALID_REQUEST for all others."""
    try:
        return ResourceKind(resource_type)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}") from None


def check_right(request: Request, operation: Operation, resource_type: int, name: str) -> None:
    """To describe or alter settings: of a topic and a group each by itself, of everything else with the cluster's."""
    kind = _SECURED.get(resource_type)
    if kind is None:
        request.check(operation, Secured.CLUSTER, CLUSTER_NAME)
    else:
        request.check(operation, kind, name)


async def alter_each(
    context: Context,
    request: Request,
    resources: Sequence[R],
    alter: Callable[[R], Awaitable[None]],
    answer: Callable[..., A],
) -> list[A]:
    """An answer for each; when this returns, this broker goes by the new settings."""
    times = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    answers = []
    turns = Turns()
    for resource in resources:
        await turns.give_way()
        code, message = ErrorCode.NONE, None
        try:
            check_right(request, Operation.ALTER_CONFIGS, resource.resource_type, resource.resource_name)
            if times[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the request names this resource more than once")
            await alter(resource)
        except KafkaError as error:
            code = error.code
            message = None if code in _REFUSALS else error.message
        answers.append(
            answer(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    await context.configs.catch_up_if_possible()
    return answers
