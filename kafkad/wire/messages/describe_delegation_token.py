from __future__ import annotations

from kafkad.wire.schema import Request, array, bytes_, int16, int32, int64, message, nested, string


@nested
class DescribeDelegationTokenOwner:
    principal_type: str = string()
    principal_name: str = string()


@message(key=41, versions="0-3", flexible="2+")
class DescribeDelegationTokenRequest(Request["DescribeDelegationTokenResponse"]):
    """Asks for the tokens of some owners, or of all."""

    owners: list[DescribeDelegationTokenOwner] | None = array(DescribeDelegationTokenOwner, nullable="0+")


@nested
class DescribedDelegationTokenRenewer:
    principal_type: str = string()
    principal_name: str = string()


@nested
class DescribedDelegationToken:
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp: int = int64()
    expiry_timestamp: int = int64()
    max_timestamp: int = int64()
    token_id: str = string()
    hmac: bytes = bytes_()
    renewers: list[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer)


@message(key=41, versions="0-3", flexible="2+")
class DescribeDelegationTokenResponse:
    """Tokens, their owners and who may renew them."""

    error_code: int = int16()
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken)
    throttle_time_ms: int = int32()
