from __future__ import annotations

from kafkad.wire.schema import Request, array, bytes_, int8, int16, int32, message, nested, string


@nested
class ScramCredentialDeletion:
    name: str = string()
    mechanism: int = int8()


@nested
class ScramCredentialUpsertion:
    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = bytes_()
    salted_password: bytes = bytes_()  # never the password itself


@message(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest(Request["AlterUserScramCredentialsResponse"]):
    """Removes and adds SCRAM credentials."""

    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


@nested
class AlterUserScramCredentialsResult:
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@message(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsResponse:
    """The result for each user."""

    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
