"""The quotas that there are, which entities each may be set for, and what its value may be."""

from __future__ import annotations

from enum import StrEnum
from math import isfinite
from typing import Final

from kafkad.errors import ErrorCode, KafkaError
from kafkad.model import Entity


class Quota(StrEnum):
    """By the names under which they are set and stored."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    MUTATION = "controller_mutation_rate"
    CONNECTION = "connection_creation_rate"


OF_USERS_AND_CLIENTS: Final = (Quota.PRODUCE, Quota.FETCH, Quota.REQUEST, Quota.MUTATION)
OF_ADDRESSES: Final = (Quota.CONNECTION,)

_LONG, _INT = 2**63 - 1, 2**31 - 1
_MOST: Final = {Quota.PRODUCE: _LONG, Quota.FETCH: _LONG, Quota.CONNECTION: _INT}
"""Whole numbers are no more than this; the others need not be whole."""
_TYPES: Final = {_LONG: "LONG", _INT: "INT", None: "DOUBLE"}
_ALMOST_WHOLE: Final = 1e-6


def quotas_of(entity: Entity) -> tuple[Quota, ...]:
    return OF_USERS_AND_CLIENTS if entity.ip is None else OF_ADDRESSES


def quota_of(entity: Entity, key: str) -> Quota:
    """Raises INVALID_REQUEST if there is no such quota, or none for this entity."""
    if key not in quotas_of(entity):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid configuration key {key}")
    return Quota(key)


def text_of(quota: Quota, value: float) -> str:
    """The value as it is stored. Raises INVALID_REQUEST for one that the quota cannot have.

    Byte rates of 0 are refused: Kafka takes them, and then does not throttle at all. So are negative percentages, which
    Kafka takes too. 2^63 is what a request has for the largest whole number of 64 bits.
    """
    most = _MOST.get(quota)
    if not isfinite(value):
        raise _refused(quota, most)
    if most is None:
        if value < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Configuration {quota} must be 0 or more")
        return repr(value)
    whole = round(value)
    if abs(value - whole) > _ALMOST_WHOLE or not 0 <= value <= float(most):
        raise _refused(quota, most)
    if whole == 0 and quota in (Quota.PRODUCE, Quota.FETCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Configuration {quota} must be 1 or more")
    return str(min(whole, most))


def _refused(quota: Quota, most: int | None) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"Configuration {quota} must be a {_TYPES[most]} value")
