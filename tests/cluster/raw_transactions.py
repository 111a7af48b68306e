"""A transactional producer without timers of its own: it asks again at once, whoever coordinates or leads by then."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from kafkad.errors import ErrorCode
from kafkad.wire.records import Record, build_batch
from tests.txn.raw import Raw

T = TypeVar("T")
_PAUSE_S = 0.01
_TIMEOUT_S = 1.0
_AGAIN = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


class Aborted(Exception):
    """The transaction could not go on, and its producer begins anew."""


class _Again(Exception):
    pass


def _check(code: int) -> None:
    if code in _AGAIN:
        raise _Again(ErrorCode(code).name)
    if code:
        raise Aborted(ErrorCode(code).name)


class RawTransactions:
    """`transact` returns when all is answered, however often that takes asking."""

    def __init__(self, ports: Mapping[int, int], name: str, topic: str, partitions: Sequence[int]) -> None:
        self._ports = ports
        self._name = name
        self._topic = topic
        self._partitions = partitions
        self._connections: dict[int, Raw] = {}
        self._coordinator: int | None = None
        self._leaders: dict[int, int] = {}
        self._topic_id = b""
        answer = self._until_done(self._begin)
        self._ids = answer.producer_id, answer.producer_epoch

    def close(self) -> None:
        for raw in self._connections.values():
            raw.close()

    def transact(self, value: str, commit: bool) -> None:
        """A record in each partition."""
        for partition in self._partitions:
            self._until_done(lambda partition=partition: self._produce(partition, value.encode()))
        answer = self._until_done(lambda: self._end(commit))
        self._ids = answer.producer_id, answer.producer_epoch

    def _until_done(self, ask: Callable[[], T]) -> T:
        while True:
            try:
                return ask()
            except (_Again, OSError):
                self._coordinator = None
                self._leaders = {}
                time.sleep(_PAUSE_S)

    def _begin(self) -> Any:
        answer = self._at_coordinator(lambda raw: raw.init(self._name, wait=False))
        _check(answer.error_code)
        return answer

    def _produce(self, partition: int, value: bytes) -> None:
        """The batch that is sent again is the same."""
        if partition not in self._leaders:
            self._look_up()
        producer_id, epoch = self._ids
        ids = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": 0}
        batch = bytes(build_batch([Record(0, 1_700_000_000_000, None, value)], **ids, transactional=True))

        def send(raw: Raw) -> tuple[int, int]:
            raw.ids[self._topic] = self._topic_id
            [answer] = raw.produce(self._name, {(self._topic, partition): batch}, version=12).values()
            return answer

        _check(self._at(self._leaders[partition], send)[0])

    def _end(self, commit: bool) -> Any:
        answer = self._at_coordinator(lambda raw: raw.end(self._name, *self._ids, commit, version=5))
        _check(answer.error_code)
        return answer

    def _at_coordinator(self, ask: Callable[[Raw], T]) -> T:
        if self._coordinator is None:
            asked = {"key_type": 1, "coordinator_keys": [self._name]}
            [found] = self._at_any(lambda raw: raw.ask("FindCoordinator", 4, asked)).coordinators
            _check(found.error_code)
            self._coordinator = found.node_id
        return self._at(self._coordinator, ask)

    def _look_up(self) -> None:
        found = self._at_any(lambda raw: raw.ask("Metadata", 12, {"topics": [{"name": self._topic}]})).topics[0]
        _check(found.error_code)
        self._topic_id = bytes(found.topic_id)
        for partition in found.partitions:
            if partition.leader_id < 0:
                raise _Again
            self._leaders[partition.partition_index] = partition.leader_id

    def _at_any(self, ask: Callable[[Raw], T]) -> T:
        for broker in self._ports:
            with contextlib.suppress(OSError):
                return self._at(broker, ask)
        raise _Again

    def _at(self, broker: int, ask: Callable[[Raw], T]) -> T:
        try:
            raw = self._connections.get(broker)
            if raw is None:
                raw = self._connections[broker] = Raw(self._ports[broker], timeout=_TIMEOUT_S)
            return ask(raw)
        except OSError:
            gone = self._connections.pop(broker, None)
            if gone is not None:
                gone.close()
            raise
