"""What clients are told when the metadata store did not do what they asked for."""

from __future__ import annotations

from kafkad.errors import METADATA_STORE, ErrorCode, KafkaError
from kafkad.meta.store import BadPath, MetaError, SessionExpired, TooLarge
from kafkad.meta.znodes import Config

_SHOWN = 100


def storage_refused(error: MetaError) -> KafkaError:
    """The error for clients when the metadata store does not write, or holds what cannot be read."""
    if isinstance(error, BadPath):
        text = f"{METADATA_STORE} takes no node with this name, which is too long, or . or ..: {error.path[:_SHOWN]}"
        return KafkaError(ErrorCode.INVALID_REQUEST, text)
    if isinstance(error, TooLarge) and error.path.startswith(Config.path("")):
        return KafkaError(ErrorCode.INVALID_CONFIG, f"These settings are too large for the metadata store: {error}")
    if isinstance(error, SessionExpired):
        text = f"This broker has lost its session and registers again; try again: {error}"
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, text)
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{METADATA_STORE} cannot be changed: {error}")
