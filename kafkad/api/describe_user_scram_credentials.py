"""DescribeUserScramCredentials, 0: which users can log in with SCRAM. Nothing of their passwords is in the answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kafkad.api.context import Context, Request
from kafkad.errors import ErrorCode
from kafkad.model import Entity
from kafkad.security.scram import NUMBERED, ScramCredential
from kafkad.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from kafkad.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsResult as Result


def handle(
    context: Context, request: Request, message: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """All users are asked for by none."""
    entities = context.configs.entities
    if message.users:
        asked = Counter(user.name for user in message.users)
        results = [_result(name, entities.of(Entity(user=name)), times) for name, times in asked.items()]
    else:
        users = {e.user: found for e, found in entities.all.items() if isinstance(e.user, str) and e.client is None}
        results = [_result(name, found, 1) for name, found in sorted(users.items()) if found.keys() & NUMBERED.values()]
    return DescribeUserScramCredentialsResponse(error_message="", results=results)


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
    return Result(user=name, error_code=code, error_message=text)
