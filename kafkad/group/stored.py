"""Offsets of groups in the metadata store, where version 0 of OffsetCommit and OffsetFetch keeps them."""

from __future__ import annotations

import logging

from kafkad.errors import ErrorCode
from kafkad.group.committing import Fetched, OffsetToCommit, metadata_fits
from kafkad.group.offsets import Position
from kafkad.meta.consumer_znodes import ConsumerOffset
from kafkad.meta.store import MetaError, MetaStore, NoNode, put

log = logging.getLogger(__name__)


class StoredOffsets:
    """No broker coordinates these groups: any client may write."""

    def __init__(self, store: MetaStore, max_metadata_size: int) -> None:
        self._store = store
        self._max_metadata_size = max_metadata_size

    async def commit(self, group: str, asked: OffsetToCommit) -> ErrorCode:
        """The metadata that came along is not kept, as in Kafka; there is no place for it."""
        if asked.metadata and not metadata_fits(asked.metadata, self._max_metadata_size):
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        try:
            path = ConsumerOffset.path(group, asked.topic, asked.partition)
            await put(self._store, path, ConsumerOffset.encode(asked.offset))
        except (MetaError, ValueError) as error:
            log.warning("an offset of group %s could not be stored: %s", group, error)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return ErrorCode.NONE

    async def fetch(self, group: str, position: Position) -> Fetched:
        try:
            data, _ = await self._store.get(ConsumerOffset.path(group, *position))
            return Fetched(position, ConsumerOffset.decode(data))
        except NoNode:
            return Fetched(position, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        except (MetaError, ValueError) as error:
            log.warning("an offset of group %s cannot be read: %s", group, error)
            return Fetched(position, error=ErrorCode.UNKNOWN_SERVER_ERROR)
