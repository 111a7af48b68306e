from __future__ import annotations

from kafkad.wire.schema import Request, array, boolean, int16, int32, int64, message, nested, string


@message(key=18, versions="0-4", flexible="3+")
class ApiVersionsRequest(Request["ApiVersionsResponse"]):
    """The first request of most connections: which APIs, in which versions?"""

    client_software_name: str = string("3+", ignorable=True)
    client_software_version: str = string("3+", ignorable=True)


@nested
class ApiVersion:
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


@nested
class SupportedFeatureKey:
    name: str = string("3+")
    min_version: int = int16("3+")
    max_version: int = int16("3+")


@nested
class FinalizedFeatureKey:
    name: str = string("3+")
    max_version_level: int = int16("3+")
    min_version_level: int = int16("3+")


@message(key=18, versions="0-4", flexible="3+")
class ApiVersionsResponse:
    """The version ranges and features of the broker; its header is v0 in all versions."""

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0, ignorable=True)
    finalized_features_epoch: int = int64("3+", default=-1, tag=1, ignorable=True)  # -1: unknown
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2, ignorable=True)
    zk_migration_ready: bool = boolean("3+", tag=3, ignorable=True)
