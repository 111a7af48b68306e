"""Finalized features (KIP-584). None can be finalized in ZooKeeper mode, so there are only those that Kafka left; the
level of transactions follows from the brokers that are there (`cluster/features`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from kafkad.cluster.features import TRANSACTION_VERSION
from kafkad.controller.active import ActiveController
from kafkad.errors import ErrorCode, Guard, KafkaError, unguarded
from kafkad.meta.readable import required
from kafkad.meta.store import Set
from kafkad.meta.znodes import Features


class UpgradeType(IntEnum):
    """As UpdateFeatures numbers them."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A change of a feature to `level`; a level below 1 with a downgrade removes the feature."""

    name: str
    level: int
    upgrade: UpgradeType = UpgradeType.UPGRADE


async def update(
    active: ActiveController, updates: Sequence[FeatureUpdate], *, validate_only: bool, guard: Guard = unguarded
) -> dict[str, KafkaError | None]:
    """The result for each feature. Those without error were written together, unless this was only a validation. Of a
    feature that is named twice the last update counts."""
    data, stat = await active.store.get(Features.path())
    guard()
    finalized = required(Features.path(), lambda: Features.decode(data))
    outcomes = {feature.name: _objection(feature, finalized.levels) for feature in updates}
    removed = {name for name, error in outcomes.items() if error is None}
    levels = {name: level for name, level in finalized.levels.items() if name not in removed}
    if levels != finalized.levels and not validate_only:
        await active.write([Set(Features.path(), Features(levels).encode(), stat.version)])
    return outcomes


def _objection(feature: FeatureUpdate, levels: Mapping[str, int]) -> KafkaError | None:
    """Only the removal of a feature that is there is possible where none can be finalized."""
    existing = levels.get(feature.name)
    removal = feature.level < 1 and feature.upgrade not in (UpgradeType.UNKNOWN, UpgradeType.UPGRADE)
    if removal and existing is not None:
        return None
    return KafkaError(ErrorCode.INVALID_REQUEST, _reason(feature, existing, removal))


def _reason(feature: FeatureUpdate, existing: int | None, removal: bool) -> str:
    if not feature.name:
        return "The name of a feature is empty"
    if feature.upgrade is UpgradeType.UNKNOWN:
        return "The kind of upgrade is unknown"
    if removal:
        return "The feature is not finalized and so cannot be removed"
    if feature.level < 1:
        return f"The level {feature.level} removes the feature, which needs a downgrade"
    if existing is not None and feature.level == existing:
        return f"The feature has the level {existing} already"
    if existing is not None and feature.level < existing and feature.upgrade is UpgradeType.UPGRADE:
        return f"The level {feature.level} is lower than {existing}, which needs a downgrade"
    if existing is not None and feature.level > existing and feature.upgrade is not UpgradeType.UPGRADE:
        return f"The level {feature.level} is higher than {existing}, which is no downgrade"
    if feature.name == TRANSACTION_VERSION:
        return "The level follows from the brokers that are there, and from their kafkad.transaction.version"
    return "Could not apply finalized feature update because the provided feature is not supported."
