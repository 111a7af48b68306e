"""DescribeUserScramCredentials, 0: which users can log in with SCRAM. Nothing of their passwords is in the answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kafkad.api.context import Context, Request
from kafkad.api.in_order import in_order
from kafkad.cluster.entities import EntityConfigs
from kafkad.errors import ErrorCode, shortened
from kafkad.model import Entity
from kafkad.security.scram import NUMBERED, ScramCredential
from kafkad.turns import Pieces
from kafkad.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from kafkad.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsResult as Result

_AT_ONCE = 64


def handle(
    context: Context, request: Request, message: DescribeUserScramCredentialsRequest
) -> Pieces[DescribeUserScramCredentialsResponse]:
    """All users are asked for by none."""
    entities = context.configs.entities
    results = []
    if message.users:
        for name, times in Counter([user.name for user in message.users]).items():
            results.append(_result(name, entities.of(Entity(user=name)), times))
            yield
    else:
        for name in (yield from in_order((yield from _users(entities)), str)):
            found = entities.of(Entity(user=name))
            if found.keys() & NUMBERED.values():
                results.append(_result(name, found, 1))
            yield
    return DescribeUserScramCredentialsResponse(error_message="", results=results)


def _users(entities: EntityConfigs) -> Pieces[list[str]]:
    """Those that have any settings."""
    users = []
    for number, entity in enumerate(list(entities.all), 1):
        if not number % _AT_ONCE:
            yield
        if isinstance(entity.user, str) and entity.client is None:
            users.append(entity.user)
    return users


def _result(name: str, overrides: Mapping[str, str], times: int) -> Result:
    if not name:
        return _refused(name, ErrorCode.RESOURCE_NOT_FOUND, "Username must not be empty")
    if times > 1:
        text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return _refused(name, ErrorCode.DUPLICATE_RESOURCE, text)
    there = {number: overrides[mechanism] for number, mechanism in NUMBERED.items() if mechanism in overrides}
    if not there:
        text = f"Attempt to describe a user credential that does not exist: {name}"
        return _refused(name, ErrorCode.RESOURCE_NOT_FOUND, text)
    try:
        infos = [
            CredentialInfo(mechanism=number, iterations=ScramCredential.parse(text).iterations)
            for number, text in there.items()
        ]
    except ValueError as error:
        return _refused(name, ErrorCode.UNKNOWN_SERVER_ERROR, f"what is stored for {name} is {error}")
    return Result(user=name, error_message="", credential_infos=infos)


def _refused(name: str, code: ErrorCode, text: str) -> Result:
    return Result(user=name, error_code=code, error_message=shortened(text))
