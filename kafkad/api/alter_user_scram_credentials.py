"""AlterUserScramCredentials, 0: sets and deletes the SCRAM passwords of users, of which only keys come here."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial

from kafkad.api.context import Context, Request
from kafkad.errors import ErrorCode, KafkaError
from kafkad.model import Entity
from kafkad.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from kafkad.security.scram import FEWEST_ITERATIONS, HASHES, MOST_ITERATIONS, NUMBERED, ScramCredential
from kafkad.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kafkad.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsResult as Result

Change = ScramCredentialDeletion | ScramCredentialUpsertion


async def handle(
    context: Context, request: Request, message: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """All changes of a user are made, or none. When this returns, this broker goes by them. The right to make them may
    go between two users."""
    results = []
    for user, changes in changes_by_user(message).items():
        result = Result(user=user, error_message="")
        try:
            request.check(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
            check(changes)
            await context.entity_alterer.change(Entity(user=user), partial(changed, changes))
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    await context.configs.catch_up_if_possible()
    return AlterUserScramCredentialsResponse(results=results)


def refused(
    request: Request, message: AlterUserScramCredentialsRequest, error: KafkaError
) -> AlterUserScramCredentialsResponse:
    results = [Result(user=user, error_code=error.code, error_message=None) for user in changes_by_user(message)]
    return AlterUserScramCredentialsResponse(results=results)


def changes_by_user(message: AlterUserScramCredentialsRequest) -> dict[str, list[Change]]:
    users: dict[str, list[Change]] = {}
    every: list[Change] = [*message.deletions, *message.upsertions]
    for change in every:
        users.setdefault(change.name, []).append(change)
    return users


def check(changes: list[Change]) -> None:
    """Raises KafkaError for what is wrong with it whatever the user has."""
    for change in changes:
        if not change.name:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
        if change.mechanism not in NUMBERED:
            raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
        if isinstance(change, ScramCredentialUpsertion):
            _check_strength(change)
    if len({change.mechanism for change in changes}) < len(changes):
        text = "A user credential cannot be altered twice in the same request"
        raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, text)


def _check_strength(change: ScramCredentialUpsertion) -> None:
    size = hashlib.new(HASHES[NUMBERED[change.mechanism]]).digest_size
    problem = None
    if change.iterations < FEWEST_ITERATIONS:
        problem = "Too few iterations"
    elif change.iterations > MOST_ITERATIONS:
        problem = "Too many iterations"
    elif len(change.salted_password) != size:
        problem = f"The salted password has {len(change.salted_password)} bytes, not {size}"
    if problem is not None:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, problem)


def changed(changes: list[Change], before: Mapping[str, str]) -> dict[str, str]:
    """All that a user has after that; its quotas stay. Raises KafkaError."""
    after = dict(before)
    for change in changes:
        mechanism = NUMBERED[change.mechanism]
        if isinstance(change, ScramCredentialUpsertion):
            salted, salt = bytes(change.salted_password), bytes(change.salt)
            after[mechanism] = ScramCredential.of(HASHES[mechanism], salted, salt, change.iterations).text
        elif after.pop(mechanism, None) is None:
            text = "Attempt to delete a user credential that does not exist"
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, text)
    return after
