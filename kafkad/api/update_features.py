"""UpdateFeatures, 0 to 2: raise, lower or remove finalized features (KIP-584, KIP-1022)."""

from __future__ import annotations

from kafkad.api.context import Context, Request
from kafkad.controller.features import FeatureUpdate, UpgradeType
from kafkad.errors import ErrorCode, KafkaError, shortened
from kafkad.security.authorizer import Operation
from kafkad.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_FIRST_WITH_UPGRADE_TYPES = 1
_LAST_WITH_RESULTS = 1


async def handle(context: Context, request: Request, message: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    updates = [_update(update, request.version) for update in message.feature_updates]
    outcomes = await context.controller.update_features(
        updates, validate_only=message.validate_only, guard=request.on_cluster(Operation.ALTER)
    )
    if request.version > _LAST_WITH_RESULTS:
        return _summed_up(outcomes)
    results = []
    for feature, error in outcomes.items():
        result = UpdatableFeatureResult(feature=feature, error_message=None)
        if error is not None:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return UpdateFeaturesResponse(error_message=None, results=results)


def _update(update: FeatureUpdateKey, version: int) -> FeatureUpdate:
    kind = UpgradeType.UNKNOWN
    if version < _FIRST_WITH_UPGRADE_TYPES:
        kind = UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
    elif update.upgrade_type in list(UpgradeType):
        kind = UpgradeType(update.upgrade_type)
    return FeatureUpdate(name=update.feature, level=update.max_version_level, upgrade=kind)


def _summed_up(outcomes: dict[str, KafkaError | None]) -> UpdateFeaturesResponse:
    """A response with one error for all features, as from version 2 on."""
    for feature, error in outcomes.items():
        if error is not None:
            code = ErrorCode.INVALID_UPDATE_VERSION if error.code == ErrorCode.INVALID_REQUEST else error.code
            return UpdateFeaturesResponse(error_code=code, error_message=shortened(f"{feature}: {error.message}"))
    return UpdateFeaturesResponse(error_message=None)
