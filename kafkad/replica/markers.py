"""Ends of transactions: appends the markers that a transaction's coordinator asks for to the partitions led here.

An answer says that the marker is committed. Where a coordinator keeps its state, as that of groups, the marker goes
through its shard, which applies what the transaction decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from kafkad.clock import Clock
from kafkad.errors import ErrorCode, KafkaError, StorageError
from kafkad.log.producers import Origin
from kafkad.log.validate import stamp
from kafkad.names import TopicPartition
from kafkad.replica.manager import ReplicaManager
from kafkad.replica.partition import Partition
from kafkad.wire.control import ControlRecord, build_marker
from kafkad.wire.records import BATCH_HEADER

Codes = list[list[ErrorCode]]
"""For each marker, and for each of its partitions."""
OnEnd = Callable[[KafkaError | None], None]


class Marker(NamedTuple):
    """The end of one transaction, to be told to some of its partitions. The epoch is that of the record that decided
    it, `version` the transaction version."""

    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    version: int
    partitions: Sequence[TopicPartition]


EndInShard = Callable[[int, Marker, OnEnd], None]
"""Ends a transaction in one partition of a coordinator's topic."""


def append_marker(partition: Partition, marker: Marker, now_ms: int) -> None:
    """To a partition that is led here; KafkaError for a marker that is late."""
    if not partition.commits_at_once:
        partition.check_acks_all()
    log = partition.log
    log.producers.check_marker(marker.producer_id, marker.producer_epoch, marker.version)
    batch = build_marker(
        ControlRecord(marker.commit, marker.coordinator_epoch),
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        timestamp=now_ms,
    )
    with memoryview(batch) as view:
        header = stamp(view, 0, len(batch), BATCH_HEADER.unpack_from(batch), log.config, now_ms)
        partition.append(view, 0, len(batch), header, Origin.COORDINATOR)
    log.producers.committed_until(partition.high_watermark)
    log.producers.ended(marker.producer_id, marker.producer_epoch, marker.version)


class Markers:
    """`in_shards` are the topics of coordinators that run here."""

    def __init__(self, replicas: ReplicaManager, clock: Clock, in_shards: Mapping[str, EndInShard]) -> None:
        self._replicas = replicas
        self._clock = clock
        self._in_shards = in_shards

    def append(self, markers: Sequence[Marker], done: Callable[[Codes], None]) -> None:
        """HOT. Append all; `done` is called once, when each is committed or refused: before this returns, if nothing
        has to be waited for."""
        ending = _Ending([[ErrorCode.NONE] * len(marker.partitions) for marker in markers], done)
        for number, marker in enumerate(markers):
            for place, tp in enumerate(marker.partitions):
                self._end(tp, marker, partial(ending.settle, number, place))
        ending.begun()

    def _end(self, tp: TopicPartition, marker: Marker, on_end: OnEnd) -> None:
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            on_end(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a marker without producer id or epoch"))
            return
        topic, index = tp
        try:
            partition = self._replicas.leader(topic, index)
            in_shard = self._in_shards.get(topic)
            if in_shard is not None:
                in_shard(index, marker, on_end)
                return
            append_marker(partition, marker, self._clock.now_ms())
        except KafkaError as error:
            if isinstance(error, StorageError):
                self._replicas.directory_failed(error)
            on_end(error)
            return
        partition.when_committed(partition.log.end_offset, on_end)


class _Ending:
    """One call of `Markers.append` under way."""

    __slots__ = ("_codes", "_done", "_waiting")

    def __init__(self, codes: Codes, done: Callable[[Codes], None]) -> None:
        self._codes = codes
        self._done = done
        self._waiting = sum(map(len, codes)) + 1

    def settle(self, number: int, place: int, error: KafkaError | None) -> None:
        if error is not None:
            self._codes[number][place] = error.code
        self.begun()

    def begun(self) -> None:
        """All have been asked for."""
        self._waiting -= 1
        if not self._waiting:
            self._done(self._codes)
