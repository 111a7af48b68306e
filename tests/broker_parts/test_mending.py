"""A bit of an old segment has flipped on one broker: nobody is served it, nobody loses anything, and it is mended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkad.controller.elect_leaders import ElectionKind
from kafkad.errors import ErrorCode, KafkaError
from kafkad.log.checkpoint import CLEAN_SHUTDOWN, RECOVERY_POINTS
from kafkad.log.mending import verify_batch
from kafkad.meta.znodes import Partition
from kafkad.model import PartitionState
from kafkad.names import TopicPartition
from tests.broker_parts.several import MEMORY, Brokers

A0 = TopicPartition("a", 0)
VALUES = [b"value %d" % number for number in range(8)]


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    brokers = Brokers(tmp_path, MEMORY, "auto.leader.rebalance.enable=false", "log.segment.bytes=160")
    brokers.start(1, 2, 3)
    brokers.meet()
    brokers.create("a", (1, 2))
    for value in VALUES:
        assert brokers.ended(brokers[1].produce(A0, value)).error_code == ErrorCode.NONE
    brokers.until(lambda: all(end(brokers, broker) == len(VALUES) for broker in (1, 2)), advance_ms=10)
    assert len(brokers[1].partition(A0).log.segments) > 3
    yield brokers
    brokers.stop()


def end(brokers: Brokers, broker: int) -> int:
    return brokers[broker].partition(A0).log.end_offset


def state(brokers: Brokers) -> PartitionState:
    data, stat = brokers.run(brokers[3].session.get(Partition.path(*A0)))
    return Partition.decode(data, stat.version)


def flip(directory: Path) -> None:
    """In the second batch of an old segment; with an unclean stop, after which segments are read."""
    segment = sorted((directory / "a-0").glob("*.log"))[1]
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    (directory / CLEAN_SHUTDOWN).unlink()
    (directory / RECOVERY_POINTS).write_text("0\n0\n")


def flip_at_once(directory: Path) -> None:
    segment = sorted((directory / "a-0").glob("*.log"))[1]
    with segment.open("r+b") as file:
        file.seek(-1, 2)
        last = file.read(1)[0]
        file.seek(-1, 2)
        file.write(bytes([last ^ 1]))


def contents(tmp_path: Path, broker: int) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (tmp_path / str(broker) / "a-0").glob("*.log")}


def damaged(brokers: Brokers, broker: int) -> bool:
    partition = brokers[broker].parts.replicas.find(*A0)
    return partition is None or partition.log.is_damaged


def is_whole_again(brokers: Brokers, tmp_path: Path) -> None:
    brokers.until(lambda: not damaged(brokers, 1), advance_ms=50)
    brokers.until(lambda: set(state(brokers).isr) == {1, 2}, advance_ms=50)
    assert list(brokers[1].parts.platform.logs.damages.kept()) == []
    assert contents(tmp_path, 1) == contents(tmp_path, 2)
    partition = brokers[1].partition(A0)
    for offset in range(len(VALUES)):
        assert partition.read(offset, 1, len(VALUES), True) is not None
    assert end(brokers, 1) == end(brokers, 2) == len(VALUES)


def test_a_follower_mends_its_log_from_the_leader(brokers: Brokers, tmp_path: Path) -> None:
    brokers.leave(1)
    flip(tmp_path / "1")
    brokers.start(1)
    brokers.until(lambda: brokers[1].parts.replicas.find(*A0) is not None, advance_ms=10)
    partition = brokers[1].partition(A0)
    [(_, hole)] = partition.log.damage
    with pytest.raises(KafkaError) as refused:
        partition.read(hole.first, 1, len(VALUES), True)
    assert refused.value.code == ErrorCode.CORRUPT_MESSAGE
    is_whole_again(brokers, tmp_path)
    assert state(brokers).leader == 2


def test_a_leader_gives_way_and_mends_its_log_then(brokers: Brokers, tmp_path: Path) -> None:
    brokers.leave(2)
    brokers.leave(1)
    flip(tmp_path / "1")
    brokers.start(1)
    brokers.until(lambda: state(brokers).leader == 1, advance_ms=10)
    brokers.until(lambda: not damaged_unknown(brokers), advance_ms=10)
    assert damaged(brokers, 1), "nobody else is there"
    brokers.start(2)
    is_whole_again(brokers, tmp_path)
    assert state(brokers).leader == 2


def damaged_unknown(brokers: Brokers) -> bool:
    return brokers[1].parts.replicas.find(*A0) is None


def test_a_damaged_replica_does_not_begin_as_leader_while_others_are_in_sync(brokers: Brokers, tmp_path: Path) -> None:
    brokers.leave(1)
    before = state(brokers)
    flip(tmp_path / "1")
    written = PartitionState(
        leader=1,
        leader_epoch=before.leader_epoch + 1,
        isr=(1, 2),
        controller_epoch=before.controller_epoch,
    )
    brokers.leave(2, 3)
    session = brokers.store.session()
    brokers.run(session.set(Partition.path(*A0), Partition.encode(written)))
    brokers.start(3)
    brokers.start(2)
    brokers.start(1)
    is_whole_again(brokers, tmp_path)


def test_a_leader_notices_that_a_follower_cannot_take_a_batch(brokers: Brokers, tmp_path: Path) -> None:
    """The bit flips while the brokers run: nobody reads old segments before a new replica copies them."""
    flip_at_once(tmp_path / "1")
    moved = brokers.controller.parts.controller.alter_partition_reassignments({A0: (1, 2, 3)})
    assert brokers.ended(moved) == {A0: None}
    brokers.until(lambda: state(brokers).leader == 2, advance_ms=50)
    brokers.until(lambda: set(state(brokers).isr) == {1, 2, 3}, advance_ms=50)
    brokers.until(lambda: not damaged(brokers, 1), advance_ms=50)
    assert contents(tmp_path, 1) == contents(tmp_path, 2) == contents(tmp_path, 3)


def test_a_leader_gives_way_again_when_it_is_damaged_again(brokers: Brokers, tmp_path: Path) -> None:
    for _ in range(2):
        log = brokers[1].partition(A0).log
        flip_at_once(tmp_path / "1")
        verify_batch(log, log.segments[2].base - 1)
        assert log.is_damaged
        is_whole_again(brokers, tmp_path)
        assert state(brokers).leader == 2
        home = brokers.controller.parts.controller.elect_leaders(ElectionKind.PREFERRED, [A0], timeout_ms=5_000)
        brokers.ended(home)
        brokers.until(lambda: brokers[1].partition(A0).is_leader, advance_ms=50)


def test_a_replica_that_cannot_be_mended_does_not_lead_again(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Readers would find the damage there, although others have the records."""
    monkeypatch.setattr("kafkad.replica.mending.LARGEST", 0)
    log = brokers[1].partition(A0).log
    flip_at_once(tmp_path / "1")
    verify_batch(log, log.segments[2].base - 1)
    brokers.until(lambda: state(brokers).leader == 2, advance_ms=50)
    brokers.until(lambda: set(state(brokers).isr) == {1, 2}, advance_ms=50)
    before = state(brokers)
    controller = brokers.controller.parts.controller
    brokers.ended(controller.elect_leaders(ElectionKind.PREFERRED, [A0], timeout_ms=5_000))
    led = set()

    def led_elsewhere() -> bool:
        led.add(brokers[1].partition(A0).is_leader)
        return set(state(brokers).isr) == {1, 2} and state(brokers).leader == 2

    brokers.until(led_elsewhere, advance_ms=50)
    assert led == {False}
    assert damaged(brokers, 1)
    assert state(brokers).leader_epoch == before.leader_epoch + 2, "1 was elected and has refused"


def damage_both(brokers: Brokers, tmp_path: Path) -> None:
    for broker in (1, 2):
        log = brokers[broker].partition(A0).log
        flip_at_once(tmp_path / str(broker))
        verify_batch(log, log.segments[2].base - 1)
        assert log.is_damaged


def test_the_leadership_does_not_go_round_where_all_have_the_same_damage(brokers: Brokers, tmp_path: Path) -> None:
    damage_both(brokers, tmp_path)
    before = state(brokers).leader_epoch
    brokers.work_for(120_000)
    assert damaged(brokers, 1)
    assert damaged(brokers, 2)
    assert 0 < state(brokers).leader_epoch - before <= 8


def test_a_damaged_leader_gives_way_only_when_it_is_time(brokers: Brokers, tmp_path: Path) -> None:
    """The controller may ask for another partition on that broker, or a topic's setting."""
    damage_both(brokers, tmp_path)
    brokers.work_for(45_000)
    before = state(brokers)
    brokers[before.leader].parts.replicas.ask_for_leader_and_isr()
    brokers.work_for(5_000)
    assert state(brokers) == before


def test_a_replica_that_was_damaged_in_the_same_place_is_asked_again(brokers: Brokers, tmp_path: Path) -> None:
    """It may have been restored from a copy."""
    whole = contents(tmp_path, 2)
    damage_both(brokers, tmp_path)
    brokers.work_for(45_000)
    brokers.leave(2)
    for name, data in whole.items():
        (tmp_path / "2" / "a-0" / name).write_bytes(data)
    brokers.start(2)
    is_whole_again(brokers, tmp_path)
