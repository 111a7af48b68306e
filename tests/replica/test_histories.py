"""Random histories of three replicas: appends, fetches and answers that come late, elections, changes of the ISR.

A controller elects only who is in sync. Brokers hear of it in any order and any time later, so that two may take
themselves for the leader. Whatever happens, an acknowledged record is where the next leader finds it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkad.config import LogConfig
from kafkad.errors import KafkaError
from kafkad.log.files import Files
from kafkad.log.log import Log
from kafkad.metrics import TopicProbe
from kafkad.model import BrokerInfo
from kafkad.names import TopicPartition
from kafkad.replica.durable import Durable
from kafkad.replica.isr import LagLimits
from kafkad.replica.leading import IsrChange
from kafkad.replica.partition import Partition, ReplicaParts, Role
from kafkad.replica.waits import Waits
from kafkad.timers import Timers
from kafkad.wire.records import BATCH_HEADER, Record, build_batch, iter_batches, iter_records
from tests.fakes import FakeClock, HeldDisk
from tests.log.consistency import check

TP = TopicPartition("t", 0)
BROKERS = (1, 2, 3)
LAG_MS = 1_000


@dataclass(frozen=True)
class Answer:
    """A leader's answer to a follower, and the epoch in which it was asked."""

    epoch: int
    records: bytes
    high_watermark: int
    diverging: tuple[int, int] | None


class Replica:
    def __init__(self, cluster: Cluster, broker: int, directory: str, min_isr: int) -> None:
        self.broker = broker
        self.cluster = cluster
        config = LogConfig(min_insync_replicas=min_isr)
        os.mkdir(f"{directory}/{broker}")
        self.log = Log.open(f"{directory}/{broker}/t-0", config, Files(), cluster.clock, topic_partition=TP)
        parts = ReplicaParts(
            broker_id=broker,
            clock=cluster.clock,
            waits=Waits(Timers(), cluster.clock, lambda call: None),
            durable=cast(Durable, HeldDisk()),
            lag=LagLimits(LAG_MS),
            on_isr_change=self._ask,
        )
        parts.metadata.brokers.update({id_: BrokerInfo(id=id_, endpoints=()) for id_ in BROKERS})
        self.partition = Partition(TP, self.log, parts, TopicProbe(), 0)
        self.roles: list[Role] = []
        """That the controller has sent and it has not heard."""
        self.answers: list[Answer] = []
        self.watermark = 0

    def _ask(self, partition: Partition, change: IsrChange) -> bool:
        self.cluster.changes.append((self, change))
        return True

    def values(self) -> dict[int, bytes | None]:
        data = b"".join(Path(segment.path(".log")).read_bytes() for segment in self.log.segments)
        view = memoryview(data)
        return {r.offset: r.value for at, header in iter_batches(view) for r in iter_records(view, at, header)}


class Cluster:
    def __init__(self, directory: str, min_isr: int) -> None:
        self.clock = FakeClock()
        self.changes: list[tuple[Replica, IsrChange]] = []
        self.written: list[tuple[Replica, Role]] = []
        self.replicas = {broker: Replica(self, broker, directory, min_isr) for broker in BROKERS}
        self.state = Role(leader=1, leader_epoch=0, partition_epoch=0, isr=BROKERS, replicas=BROKERS)
        self.acknowledged: dict[int, bytes] = {}
        self.refused = 0
        self.appended = 0
        self._send()
        for replica in self.replicas.values():
            self.hear(replica)

    def _send(self) -> None:
        for replica in self.replicas.values():
            replica.roles.append(self.state)

    # -- what may happen

    def append(self, replica: Replica) -> None:
        partition = replica.partition
        try:
            partition.check_leader(-1)
            partition.check_acks_all()
        except KafkaError:
            return
        self.appended += 1
        value = b"%d of %d" % (self.appended, replica.broker)
        batch = memoryview(build_batch([Record(0, 1_000, None, value)]))
        base = partition.append(batch, 0, len(batch), BATCH_HEADER.unpack_from(batch))
        partition.when_committed(base + 1, lambda error: self._answered(base, value, error))

    def _answered(self, offset: int, value: bytes, error: KafkaError | None) -> None:
        if error is not None:
            self.refused += 1
            return
        assert offset not in self.acknowledged
        self.acknowledged[offset] = value
        for broker in self.state.isr:
            assert self.replicas[broker].values().get(offset) == value, f"answered before {broker} had {offset}"

    def ask(self, replica: Replica) -> None:
        """Fetch from the leader that the follower knows of."""
        following = replica.partition.following
        if following is None:
            return
        leader = self.replicas[replica.partition.role.leader].partition
        offset, last_epoch, start = following.position
        try:
            leader.check_leader(replica.partition.leader_epoch)
            leader.check_replica(replica.broker, replica.partition.leader_epoch)
        except KafkaError:
            return
        diverging = None
        if last_epoch >= 0:
            epoch, end = leader.log.epochs.end_offset_for(last_epoch, leader.log.end_offset)
            diverging = (epoch, end) if epoch < last_epoch or end < offset else None
        records = b""
        if diverging is None:
            leader.fetched_by(replica.broker, offset, start)
            found = leader.read(offset, 1 << 20, leader.log.end_offset, True)
            if found is not None:
                records = os.pread(found.file.fd, found.length, found.position)
        replica.answers.append(Answer(replica.partition.leader_epoch, records, leader.high_watermark, diverging))

    def take(self, replica: Replica) -> None:
        """The answer to the last fetch arrives; it is of no use to who has heard of another leader meanwhile."""
        if not replica.answers:
            return
        answer = replica.answers.pop()
        replica.answers.clear()
        following = replica.partition.following
        if following is None or answer.epoch != replica.partition.leader_epoch:
            return
        if answer.diverging is not None:
            following.truncate_to(following.parting(*answer.diverging))
        elif not answer.records or _base(answer.records) >= replica.log.end_offset:
            following.append(memoryview(answer.records), answer.high_watermark, 0)

    def fetch(self, replica: Replica) -> None:
        self.ask(replica)
        self.take(replica)

    def lose(self, replica: Replica) -> None:
        replica.answers.clear()

    def elect(self, replica: Replica) -> None:
        if replica.broker in self.state.isr:
            epoch, version = self.state.leader_epoch + 1, self.state.partition_epoch + 1
            self.state = replace(self.state, leader=replica.broker, leader_epoch=epoch, partition_epoch=version)
            self._send()

    def hear(self, replica: Replica) -> None:
        """Of the controller's latest word; what came before it is refused by its epoch."""
        if replica.roles:
            role = replica.roles[-1]
            replica.roles.clear()
            replica.partition.become(role)

    def write(self, _: Replica) -> None:
        """The controller gets to the next change of the ISR that a leader asks for."""
        if not self.changes:
            return
        leader, change = self.changes.pop(0)
        state = self.state
        if (change.leader_epoch, change.partition_epoch) == (state.leader_epoch, state.partition_epoch):
            self.state = replace(state, partition_epoch=state.partition_epoch + 1, isr=change.isr)
            self.written.append((leader, self.state))
        # else it stays pending: the leader is about to hear of another state

    def confirm(self, _: Replica) -> None:
        if self.written:
            leader, state = self.written.pop(0)
            leader.partition.isr_altered(state.isr, state.leader_epoch, state.partition_epoch)

    def wait(self, _: Replica) -> None:
        self.clock.advance(LAG_MS // 2)

    def expel(self, replica: Replica) -> None:
        replica.partition.expel_laggards()

    # -- what must hold

    def check(self) -> None:
        leader = self.replicas[self.state.leader]
        for replica in self.replicas.values():
            watermark = replica.partition.high_watermark
            assert watermark >= replica.watermark, f"the high watermark of {replica.broker} went back"
            replica.watermark = watermark
            assert watermark <= replica.log.end_offset
        if leader.partition.is_leader and leader.partition.leader_epoch == self.state.leader_epoch:
            for broker in self.state.isr:
                assert leader.partition.high_watermark <= self.replicas[broker].log.end_offset

    def settle(self) -> None:
        """Everything arrives: all replicas become equal, and have what was acknowledged."""
        for replica in self.replicas.values():
            self.hear(replica)
        for _ in range(30):
            for replica in self.replicas.values():
                self.lose(replica)
                self.fetch(replica)
                self.write(replica)
                self.confirm(replica)
            self.check()
        contents = [replica.values() for replica in self.replicas.values()]
        assert contents[0] == contents[1] == contents[2]
        assert {offset: contents[0].get(offset) for offset in self.acknowledged} == self.acknowledged

    def close(self) -> None:
        for replica in self.replicas.values():
            replica.log.close()
            assert not check(replica.log.directory)


def _base(records: bytes) -> int:
    return int.from_bytes(records[:8], "big")


STEPS: list[Callable[[Cluster, Replica], None]] = [
    Cluster.append,
    Cluster.append,
    Cluster.fetch,
    Cluster.fetch,
    Cluster.fetch,
    Cluster.ask,
    Cluster.take,
    Cluster.lose,
    Cluster.elect,
    Cluster.hear,
    Cluster.hear,
    Cluster.write,
    Cluster.confirm,
    Cluster.wait,
    Cluster.expel,
]
HISTORIES = st.lists(st.tuples(st.integers(0, len(STEPS) - 1), st.sampled_from(BROKERS)), min_size=20, max_size=150)


def run(history: list[tuple[int, int]], min_isr: int) -> Cluster:
    with TemporaryDirectory() as directory:
        cluster = Cluster(directory, min_isr)
        try:
            for step, broker in history:
                STEPS[step](cluster, cluster.replicas[broker])
                cluster.check()
            cluster.settle()
        finally:
            cluster.close()
        return cluster


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(history=HISTORIES, min_isr=st.sampled_from([1, 2]))
def test_what_is_acknowledged_is_with_all_that_are_in_sync(history: list[tuple[int, int]], min_isr: int) -> None:
    run(history, min_isr)


@pytest.mark.long
@pytest.mark.timeout(600)
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(history=HISTORIES, min_isr=st.sampled_from([1, 2, 3]))
def test_many_histories(history: list[tuple[int, int]], min_isr: int) -> None:
    run(history, min_isr)
