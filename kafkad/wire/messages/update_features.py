from __future__ import annotations

from kafkad.wire.schema import Request, array, boolean, int8, int16, int32, message, nested, string


@nested
class FeatureUpdateKey:
    feature: str = string()
    max_version_level: int = int16()  # 0: remove the feature
    allow_downgrade: bool = boolean("0")
    upgrade_type: int = int8("1+", default=1)  # 1 upgrade, 2 safe downgrade, 3 unsafe downgrade


@message(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesRequest(Request["UpdateFeaturesResponse"]):
    """Raises or lowers finalized feature levels."""

    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean("1+")


@nested
class UpdatableFeatureResult:
    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@message(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesResponse:
    """True if the features were changed."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1", ignorable=True)
