from __future__ import annotations

from kafkad.wire.schema import Request, array, int8, int16, int32, message, nested, string


@nested
class UserName:
    name: str = string()


@message(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest(Request["DescribeUserScramCredentialsResponse"]):
    """Asks which SCRAM credentials users have; none named means all."""

    users: list[UserName] | None = array(UserName, nullable="0+")


@nested
class CredentialInfo:
    mechanism: int = int8()
    iterations: int = int32()


@nested
class DescribeUserScramCredentialsResult:
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


@message(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    """Mechanisms and iterations per user; never secrets."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
