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
from kafkad.log.producers import COORDINATOR
from kafkad.log.validate import stamp
from kafkad.names import TopicPartition
from kafkad.replica.manager import ReplicaManager
from kafkad.replica.partition import Partition
from kafkad.turns import Jobs, Pieces
from kafkad.wire.control import ControlRecord, build_marker
from kafkad.wire.records import BATCH_HEADER, HEADER_SIZE, Header

_NO_ERROR = ErrorCode.NONE
_NOT_YET = ErrorCode.REQUEST_TIMED_OUT
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


class MarkerBatch:
    """A marker as it is written, once for all of its partitions."""

    __slots__ = ("_data", "_header", "_marker", "_now_ms", "_record", "_size")

    def __init__(self, marker: Marker, now_ms: int) -> None:
        self._marker = marker
        self._now_ms = now_ms
        self._record = ControlRecord(marker.commit, marker.coordinator_epoch)
        batch = build_marker(
            self._record,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp=now_ms,
        )
        self._data = memoryview(batch)
        self._size = len(batch)
        self._header: Header = BATCH_HEADER.unpack(self._data[:HEADER_SIZE])

    def append(self, partition: Partition) -> None:
        """HOT. To a partition that is led here; KafkaError for a marker that is late."""
        if not partition.commits_at_once:
            partition.check_acks_all()
        log, data = partition.log, self._data
        producers = log.producers
        producer_id, epoch, _, _, version, _ = self._marker
        producers.check_marker(producer_id, epoch, version)
        header = self._header = stamp(data, 0, self._size, self._header, log.config, self._now_ms)
        partition.append(data, 0, self._size, header, COORDINATOR, self._record)
        producers.committed_until(partition.high_watermark)
        producers.ended(producer_id, epoch, version)


_AT_ONCE = 50
"""Markers that are written without giving way to other work."""


class Markers:
    """`in_shards` are the topics of coordinators that run here."""

    def __init__(self, replicas: ReplicaManager, clock: Clock, in_shards: Mapping[str, EndInShard], jobs: Jobs) -> None:
        self._replicas = replicas
        self._clock = clock
        self._in_shards = in_shards
        self._jobs = jobs
        self._queued = 0
        """Calls whose markers are appended in pieces, and those behind them."""
        self._closed = False

    def close(self) -> None:
        """Nothing more is written; who waits for that is not answered."""
        self._closed = True

    def append(self, markers: Sequence[Marker], done: Callable[[Codes], None]) -> Codes:
        """HOT. Append all; `done` is called once, when each is committed or refused: before this returns, if they are
        few and nothing has to be waited for. Returns the codes as they come: REQUEST_TIMED_OUT until one is known.

        One call after the other: a marker that came behind its repetition could end the next transaction of its
        producer."""
        codes = [[_NOT_YET] * len(marker.partitions) for marker in markers]
        ending = _Ending(codes, done)
        if self._queued or sum(map(len, codes)) > _AT_ONCE:
            self._queued += 1
            self._jobs.do(self._append_in_pieces(markers, codes, ending), alone=True)
            return codes
        for marker, of_marker in zip(markers, codes, strict=True):
            self._append_to(marker, 0, len(of_marker), of_marker, ending)
        ending.settled()
        return codes

    def _append_in_pieces(self, markers: Sequence[Marker], codes: Codes, ending: _Ending) -> Pieces[None]:
        try:
            for marker, of_marker in zip(markers, codes, strict=True):
                for at in range(0, len(of_marker), _AT_ONCE):
                    if self._closed:
                        return
                    self._append_to(marker, at, at + _AT_ONCE, of_marker, ending)
                    yield
        finally:
            self._queued -= 1
            if not self._closed:
                ending.settled()

    def _append_to(self, marker: Marker, begin: int, end: int, codes: list[ErrorCode], ending: _Ending) -> None:
        """To these of its partitions."""
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            codes[begin:end] = [ErrorCode.UNKNOWN_SERVER_ERROR] * len(codes[begin:end])
            return
        batch = MarkerBatch(marker, self._clock.now_ms())
        for place, (topic, index) in enumerate(marker.partitions[begin:end], begin):
            try:
                partition = self._replicas.leader(topic, index)
                in_shard = self._in_shards.get(topic)
                if in_shard is not None:
                    in_shard(index, marker, ending.waits_for(codes, place))
                    continue
                batch.append(partition)
            except KafkaError as error:
                if isinstance(error, StorageError):
                    self._replicas.directory_failed(error)
                codes[place] = error.code
                continue
            if partition.commits_at_once:
                codes[place] = _NO_ERROR
            else:
                partition.when_committed(partition.log.end_offset, ending.waits_for(codes, place))


class _Ending:
    """One call of `Markers.append` under way."""

    __slots__ = ("_codes", "_done", "_waiting")

    def __init__(self, codes: Codes, done: Callable[[Codes], None]) -> None:
        self._codes = codes
        self._done = done
        self._waiting = 1

    def waits_for(self, codes: list[ErrorCode], place: int) -> OnEnd:
        """To be called when it is known how this partition's marker has fared."""
        self._waiting += 1
        return partial(self._settle, codes, place)

    def _settle(self, codes: list[ErrorCode], place: int, error: KafkaError | None) -> None:
        codes[place] = _NO_ERROR if error is None else error.code
        self.settled()

    def settled(self) -> None:
        """One more that is not waited for, the last of them when all markers have been asked for."""
        self._waiting -= 1
        if not self._waiting:
            self._done(self._codes)
