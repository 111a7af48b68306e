"""An outage of three brokers, behind which those with replicas of partition 0 of `a` come back lacking records."""

from __future__ import annotations

import shutil
from pathlib import Path

from kafkad.controller.elect_leaders import ElectionKind
from kafkad.errors import ErrorCode
from kafkad.meta.znodes import Config, ConfigChange, Partition
from kafkad.model import PartitionState
from kafkad.names import TopicPartition
from kafkad.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.broker_parts.several import Broker, Brokers

A0 = TopicPartition("a", 0)
VALUES = (b"one", b"two", b"three", b"four")


def all_down(brokers: Brokers, *replicas: int, isr: tuple[int, ...], **configs: str) -> None:
    """`a` had the values on all replicas when all brokers stopped; 3 is back."""
    brokers.meet()
    brokers.create("a", replicas, **configs)
    for value in VALUES:
        assert brokers.ended(brokers[replicas[0]].produce(A0, value)).error_code == ErrorCode.NONE
    brokers.until(lambda: all(brokers[r].partition(A0).high_watermark == len(VALUES) for r in replicas), advance_ms=10)
    brokers.leave(1, 2, 3)
    say_in_sync(brokers, *isr)
    brokers.start(3)


def say_in_sync(brokers: Brokers, *isr: int) -> None:
    """The store has the first one as the leader."""
    session = brokers.store.session()
    data, stat = brokers.run(session.get(Partition.path(*A0)))
    before = Partition.decode(data, stat.version)
    after = PartitionState(
        leader=isr[0], leader_epoch=before.leader_epoch + 1, isr=isr, controller_epoch=before.controller_epoch
    )
    brokers.run(session.set(Partition.path(*A0), Partition.encode(after)))


def anyone(brokers: Brokers) -> Broker:
    return brokers[max(brokers.running)]


def state(brokers: Brokers) -> PartitionState:
    data, stat = brokers.run(anyone(brokers).session.get(Partition.path(*A0)))
    return Partition.decode(data, stat.version)


def end(brokers: Brokers, broker: int) -> int:
    return brokers[broker].partition(A0).log.end_offset


def leads(brokers: Brokers, broker: int) -> bool:
    found = brokers[broker].parts.replicas.find(*A0)
    return found is not None and found.is_leader


def elect_unclean(brokers: Brokers) -> None:
    asked = [TopicPartitions(topic="a", partitions=[0])]
    request = ElectLeadersRequest(election_type=ElectionKind.UNCLEAN, topic_partitions=asked, timeout_ms=5_000)
    controller = anyone(brokers).parts.controller.controller_id
    assert controller is not None
    answer = brokers.ended(brokers[controller].ask(request))
    assert answer.replica_election_results[0].partition_result[0].error_code == ErrorCode.NONE


def allow_unclean(brokers: Brokers) -> None:
    entity = Config.entity_path(Config.TOPICS, "a")
    session = anyone(brokers).session
    brokers.run(session.set(Config.path(entity), Config.encode({"unclean.leader.election.enable": "true"})))
    brokers.run(session.create(ConfigChange.PREFIX, ConfigChange.encode(entity), sequential=True))


def replace(directory: Path) -> None:
    """As docs/cluster.md says: the disk is a new one, and has nothing but the ids."""
    properties = (directory / "meta.properties").read_text()
    shutil.rmtree(directory)
    directory.mkdir()
    (directory / "meta.properties").write_text(properties)
