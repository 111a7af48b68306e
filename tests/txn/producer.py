"""A transactional producer by raw requests: those of an old client, which keeps its epoch, or those of a new one."""

from __future__ import annotations

import time
from collections.abc import Mapping

from kafkad.errors import ErrorCode
from kafkad.wire.records import Record, build_batch
from tests.txn.raw import Raw, Tp


class Refused(Exception):
    """The broker could not do it: to be begun again."""


def expect_done(*codes: int) -> None:
    if any(codes):
        raise Refused(*map(ErrorCode, codes))


class RawProducer:
    def __init__(self, raw: Raw, name: str, *, new: bool) -> None:
        self.raw = raw
        self.name = name
        self.new = new
        """Transaction version 2; else the requests of version 0."""
        self.producer_id = self.epoch = -1
        self._sequences: dict[Tp, int] = {}

    def begin(self, timeout_ms: int = 60_000) -> None:
        """Take over: whoever had the id before is fenced."""
        answer = self.raw.init(self.name, timeout_ms)
        expect_done(answer.error_code)
        self._goes_on_as(answer.producer_id, answer.producer_epoch)

    def write(self, values: Mapping[Tp, bytes], group: str, offsets: Mapping[Tp, int]) -> None:
        """A record for each partition, and what the group is to go on behind."""
        raw, name, producer = self.raw, self.name, (self.producer_id, self.epoch)
        if not self.new:
            expect_done(*raw.add(name, *producer, list(values)).values())
        batches = {tp: self._batch(tp, value) for tp, value in values.items()}
        sent = raw.produce(name, batches, version=12 if self.new else 9)
        expect_done(*(error for error, _ in sent.values()))
        if not self.new:
            expect_done(raw.add_offsets(name, *producer, group))
        committed = raw.commit_offsets(name, *producer, group, dict(offsets), version=5 if self.new else 3)
        expect_done(*committed.values())

    def end(self, *, commit: bool) -> None:
        version = 5 if self.new else 3
        answer = self.raw.end(self.name, self.producer_id, self.epoch, commit, version, wait=True)
        expect_done(answer.error_code)
        if self.new:
            self._goes_on_as(answer.producer_id, answer.producer_epoch)

    def _goes_on_as(self, producer_id: int, epoch: int) -> None:
        self.producer_id, self.epoch = producer_id, epoch
        self._sequences.clear()

    def _batch(self, tp: Tp, value: bytes) -> bytes:
        sequence = self._sequences.get(tp, 0)
        self._sequences[tp] = sequence + 1
        record = Record(0, int(time.time() * 1000), b"", value)
        producer = {"producer_id": self.producer_id, "producer_epoch": self.epoch, "base_sequence": sequence}
        return bytes(build_batch([record], **producer, transactional=True))
