"""All brokers go down, and the replica that is to lead comes back without the tail of its log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkad.controller.elect_leaders import ElectionKind
from kafkad.errors import ErrorCode, KafkaError
from kafkad.log.checkpoint import CLEAN_SHUTDOWN, HIGH_WATERMARKS, RECOVERY_POINTS, read_offsets
from kafkad.log.files import Files
from kafkad.meta.znodes import Config, ConfigChange, Partition
from kafkad.model import PartitionState
from kafkad.names import TopicPartition
from kafkad.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.broker_parts.several import MEMORY, Brokers

A0 = TopicPartition("a", 0)
VALUES = (b"one", b"two", b"three", b"four")
KEPT = 2


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    brokers = Brokers(tmp_path, MEMORY, "auto.leader.rebalance.enable=false")
    brokers.start(1, 2, 3)
    yield brokers
    brokers.stop()


def all_down(
    brokers: Brokers, tmp_path: Path, *replicas: int, damaged: tuple[int, ...], isr: tuple[int, ...], **configs: str
) -> None:
    """`a` had four records on all replicas when all brokers stopped; 3, which has none, is back."""
    brokers.meet()
    brokers.create("a", replicas, **configs)
    for value in VALUES:
        assert brokers.ended(brokers[replicas[0]].produce(A0, value)).error_code == ErrorCode.NONE
    brokers.until(lambda: all(brokers[r].partition(A0).high_watermark == len(VALUES) for r in replicas), advance_ms=10)
    size = brokers[1].partition(A0).log.size // len(VALUES)
    brokers.leave(1, 2, 3)
    for broker in damaged:
        cut(tmp_path / str(broker), KEPT * size)
    session = brokers.store.session()
    data, stat = brokers.run(session.get(Partition.path(*A0)))
    state = Partition.decode(data, stat.version)
    before = PartitionState(
        leader=isr[0], leader_epoch=state.leader_epoch + 1, isr=isr, controller_epoch=state.controller_epoch
    )
    brokers.run(session.set(Partition.path(*A0), Partition.encode(before)))
    brokers.start(3)


def cut(directory: Path, size: int) -> None:
    """As after a power cut: the end of the log had not been written out, nor the marker of a clean stop."""
    [log] = (directory / "a-0").glob("*.log")
    with log.open("r+b") as file:
        file.truncate(size)
    (directory / CLEAN_SHUTDOWN).unlink()
    (directory / RECOVERY_POINTS).write_text("0\n0\n")
    for snapshot in (directory / "a-0").glob("*.snapshot"):
        snapshot.unlink()


def state(brokers: Brokers) -> PartitionState:
    data, stat = brokers.run(brokers[3].session.get(Partition.path(*A0)))
    return Partition.decode(data, stat.version)


def end(brokers: Brokers, broker: int) -> int:
    return brokers[broker].partition(A0).log.end_offset


def leads(brokers: Brokers, broker: int) -> bool:
    found = brokers[broker].parts.replicas.find(*A0)
    return found is not None and found.is_leader


def idle(brokers: Brokers, ms: int = 2_000) -> None:
    until = brokers.clock.monotonic_ms() + ms
    brokers.until(lambda: brokers.clock.monotonic_ms() >= until, advance_ms=10)


def test_it_leads_only_after_it_has_caught_up(brokers: Brokers, tmp_path: Path) -> None:
    """By Kafka's rules the first one up leads, and the others cut off what it has lost."""
    all_down(brokers, tmp_path, 1, 2, damaged=(1,), isr=(1, 2))
    brokers.start(1)
    idle(brokers)
    assert (state(brokers).leader, state(brokers).isr) == (-1, (2,))
    assert end(brokers, 1) == KEPT
    brokers.start(2)
    brokers.until(lambda: state(brokers).leader == 2, advance_ms=10)
    brokers.until(lambda: set(state(brokers).isr) == {1, 2}, advance_ms=10)
    assert end(brokers, 1) == end(brokers, 2) == len(VALUES)
    brokers.leave(2)
    brokers.until(lambda: state(brokers).leader == 1, advance_ms=10)
    brokers.until(lambda: leads(brokers, 1), advance_ms=10)


def test_it_does_not_forget_by_starting_again(brokers: Brokers, tmp_path: Path) -> None:
    all_down(brokers, tmp_path, 1, 2, damaged=(1,), isr=(1, 2))
    brokers.start(1)
    idle(brokers, 12_000)  # checkpoints are written
    brokers.leave(1)
    assert read_offsets(str(tmp_path / "1" / HIGH_WATERMARKS), Files())[A0] == len(VALUES)
    brokers.start(1)
    idle(brokers)
    assert (state(brokers).leader, state(brokers).isr) == (-1, (2,))


def test_the_last_one_in_sync_leads_when_any_leader_is_allowed(brokers: Brokers, tmp_path: Path) -> None:
    all_down(brokers, tmp_path, 1, 2, damaged=(1,), isr=(1,))
    brokers.start(1)
    idle(brokers)
    assert (state(brokers).leader, state(brokers).isr) == (-1, (1,))
    set_unclean(brokers)
    brokers.until(lambda: state(brokers).leader == 1, advance_ms=10)
    brokers.until(lambda: leads(brokers, 1), advance_ms=10)
    assert end(brokers, 1) == KEPT


def set_unclean(brokers: Brokers) -> None:
    entity = Config.entity_path(Config.TOPICS, "a")
    session = brokers[3].session
    brokers.run(session.set(Config.path(entity), Config.encode({"unclean.leader.election.enable": "true"})))
    brokers.run(session.create(ConfigChange.PREFIX, ConfigChange.encode(entity), sequential=True))


def ask_for_it(brokers: Brokers) -> None:
    asked = [TopicPartitions(topic="a", partitions=[0])]
    request = ElectLeadersRequest(election_type=ElectionKind.UNCLEAN, topic_partitions=asked, timeout_ms=5_000)
    answer = brokers.ended(brokers[3].ask(request))
    assert answer.replica_election_results[0].partition_result[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("allow", [set_unclean, ask_for_it])
def test_the_last_one_in_sync_leads_before_one_that_is_far_behind(
    brokers: Brokers, tmp_path: Path, allow: Callable[[Brokers], None]
) -> None:
    """Which would have it cut off all that it alone has."""
    all_down(brokers, tmp_path, 1, 2, damaged=(1,), isr=(1,))
    [log] = (tmp_path / "2" / "a-0").glob("*.log")
    cut(tmp_path / "2", log.stat().st_size // len(VALUES))
    (tmp_path / "2" / HIGH_WATERMARKS).unlink()
    brokers.start(1, 2)
    idle(brokers)
    assert (state(brokers).leader, state(brokers).isr) == (-1, (1,))
    assert (end(brokers, 1), end(brokers, 2)) == (KEPT, 1)
    allow(brokers)
    brokers.until(lambda: set(state(brokers).isr) == {1, 2}, advance_ms=10)
    assert leads(brokers, 1)
    assert end(brokers, 1) == end(brokers, 2) == KEPT


def test_the_only_replica_leads(brokers: Brokers, tmp_path: Path) -> None:
    all_down(brokers, tmp_path, 1, damaged=(1,), isr=(1,))
    brokers.start(1)
    brokers.until(lambda: leads(brokers, 1), advance_ms=10)
    assert end(brokers, 1) == KEPT


SMALL_SEGMENTS = {"segment.bytes": "160"}


def lose_the_end_of_a_segment(directory: Path) -> None:
    """The disk had taken the later segments, and not the end of this one."""
    first, second, *_ = sorted((directory / "a-0").glob("*.log"))
    with first.open("r+b") as file:
        file.truncate(first.stat().st_size // 2)
    assert second.stat().st_size
    (directory / CLEAN_SHUTDOWN).unlink()
    (directory / RECOVERY_POINTS).write_text("0\n0\n")


def lose_what_was_flushed(directory: Path) -> None:
    """The last segment is shorter than what is known to have been on the disk; nothing is known of its watermark."""
    last = max((directory / "a-0").glob("*.log"))
    with last.open("r+b") as file:
        file.truncate(0)
    (directory / CLEAN_SHUTDOWN).unlink()
    (directory / HIGH_WATERMARKS).unlink()


@pytest.mark.parametrize("lose", [lose_the_end_of_a_segment, lose_what_was_flushed])
def test_what_the_disk_lost_of_a_file_is_fetched_again_before_it_leads(
    brokers: Brokers, tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    all_down(brokers, tmp_path, 1, 2, damaged=(), isr=(1, 2), **SMALL_SEGMENTS)
    lose(tmp_path / "1")
    before = whole(tmp_path, 2)
    brokers.start(1)
    idle(brokers)
    assert (state(brokers).leader, state(brokers).isr) == (-1, (2,))
    brokers.start(2)
    brokers.until(lambda: set(state(brokers).isr) == {1, 2}, advance_ms=10)
    assert state(brokers).leader == 2
    assert whole(tmp_path, 1) == whole(tmp_path, 2) == before
    assert list(brokers[1].parts.platform.logs.damages.kept()) == []


def whole(tmp_path: Path, broker: int) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((tmp_path / str(broker) / "a-0").glob("*.log")))


def test_the_only_replica_serves_what_is_left_and_refuses_what_is_lost(brokers: Brokers, tmp_path: Path) -> None:
    all_down(brokers, tmp_path, 1, damaged=(), isr=(1,), **SMALL_SEGMENTS)
    lose_the_end_of_a_segment(tmp_path / "1")
    brokers.start(1)
    brokers.until(lambda: leads(brokers, 1), advance_ms=10)
    partition = brokers[1].partition(A0)
    [(_, hole)] = partition.log.damage
    with pytest.raises(KafkaError) as refused:
        partition.read(hole.first, 1, len(VALUES), True)
    assert refused.value.code == ErrorCode.CORRUPT_MESSAGE
    assert partition.read(hole.next, 1, len(VALUES), True) is not None
    assert end(brokers, 1) == len(VALUES)


def test_without_a_loss_the_first_one_up_leads(brokers: Brokers, tmp_path: Path) -> None:
    all_down(brokers, tmp_path, 1, 2, damaged=(), isr=(1, 2))
    brokers.start(1)
    brokers.until(lambda: leads(brokers, 1), advance_ms=10)
    assert state(brokers).isr == (1,)
