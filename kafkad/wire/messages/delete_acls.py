from __future__ import annotations

from kafkad.wire.schema import Request, array, int8, int16, int32, message, nested, string


@nested
class DeleteAclsFilter:
    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


@message(key=31, versions="0-3", flexible="2+")
class DeleteAclsRequest(Request["DeleteAclsResponse"]):
    """Filters: every ACL that matches one of them goes."""

    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)


@nested
class DeleteAclsMatchingAcl:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8("1+", default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@nested
class DeleteAclsFilterResult:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)


@message(key=31, versions="0-3", flexible="2+")
class DeleteAclsResponse:
    """The ACLs that each filter deleted."""

    throttle_time_ms: int = int32()
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)
