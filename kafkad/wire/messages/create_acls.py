from __future__ import annotations

from kafkad.wire.schema import Request, array, int8, int16, int32, message, nested, string


@nested
class AclCreation:
    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8("1+", default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@message(key=30, versions="0-3", flexible="2+")
class CreateAclsRequest(Request["CreateAclsResponse"]):
    """ACLs to create."""

    creations: list[AclCreation] = array(AclCreation)


@nested
class AclCreationResult:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@message(key=30, versions="0-3", flexible="2+")
class CreateAclsResponse:
    """The result for each ACL, in the order of the request."""

    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)
