"""All brokers go down, and the replica that is to lead comes back without the tail of its log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kafkad.errors import ErrorCode, KafkaError
from kafkad.log.checkpoint import CLEAN_SHUTDOWN, HIGH_WATERMARKS, RECOVERY_POINTS, read_offsets
from kafkad.log.files import Files
from tests.broker_parts.outage import A0, VALUES, all_down, allow_unclean, elect_unclean, end, leads, state
from tests.broker_parts.several import Brokers

KEPT = 2


def cut(directory: Path, records: int) -> None:
    """As after a power cut: of the log, only so many records had been written out, and no marker of a clean stop."""
    [log] = (directory / "a-0").glob("*.log")
    with log.open("r+b") as file:
        file.truncate(records * log.stat().st_size // len(VALUES))
    (directory / CLEAN_SHUTDOWN).unlink()
    (directory / RECOVERY_POINTS).write_text("0\n0\n")
    for snapshot in (directory / "a-0").glob("*.snapshot"):
        snapshot.unlink()


def test_it_leads_only_after_it_has_caught_up(brokers: Brokers, tmp_path: Path) -> None:
    """By Kafka's rules the first one up leads, and the others cut off what it has lost."""
    all_down(brokers, 1, 2, isr=(1, 2))
    cut(tmp_path / "1", KEPT)
    brokers.start(1)
    brokers.work_for(2_000)
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
    all_down(brokers, 1, 2, isr=(1, 2))
    cut(tmp_path / "1", KEPT)
    brokers.start(1)
    brokers.work_for(12_000)  # checkpoints are written
    brokers.leave(1)
    assert read_offsets(str(tmp_path / "1" / HIGH_WATERMARKS), Files())[A0] == len(VALUES)
    brokers.start(1)
    brokers.work_for(2_000)
    assert (state(brokers).leader, state(brokers).isr) == (-1, (2,))


def test_the_last_one_in_sync_leads_when_any_leader_is_allowed(brokers: Brokers, tmp_path: Path) -> None:
    all_down(brokers, 1, 2, isr=(1,))
    cut(tmp_path / "1", KEPT)
    brokers.start(1)
    brokers.work_for(2_000)
    assert (state(brokers).leader, state(brokers).isr) == (-1, (1,))
    allow_unclean(brokers)
    brokers.until(lambda: state(brokers).leader == 1, advance_ms=10)
    brokers.until(lambda: leads(brokers, 1), advance_ms=10)
    assert end(brokers, 1) == KEPT


@pytest.mark.parametrize("allow", [allow_unclean, elect_unclean])
def test_the_last_one_in_sync_leads_before_one_that_is_far_behind(
    brokers: Brokers, tmp_path: Path, allow: Callable[[Brokers], None]
) -> None:
    """Which would have it cut off all that it alone has."""
    all_down(brokers, 1, 2, isr=(1,))
    cut(tmp_path / "1", KEPT)
    cut(tmp_path / "2", 1)
    (tmp_path / "2" / HIGH_WATERMARKS).unlink()
    brokers.start(1, 2)
    brokers.work_for(2_000)
    assert (state(brokers).leader, state(brokers).isr) == (-1, (1,))
    assert (end(brokers, 1), end(brokers, 2)) == (KEPT, 1)
    allow(brokers)
    brokers.until(lambda: set(state(brokers).isr) == {1, 2}, advance_ms=10)
    assert leads(brokers, 1)
    assert end(brokers, 1) == end(brokers, 2) == KEPT


def test_the_only_replica_leads(brokers: Brokers, tmp_path: Path) -> None:
    all_down(brokers, 1, isr=(1,))
    cut(tmp_path / "1", KEPT)
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
    all_down(brokers, 1, 2, isr=(1, 2), **SMALL_SEGMENTS)
    lose(tmp_path / "1")
    before = whole(tmp_path, 2)
    brokers.start(1)
    brokers.work_for(2_000)
    assert (state(brokers).leader, state(brokers).isr) == (-1, (2,))
    brokers.start(2)
    brokers.until(lambda: set(state(brokers).isr) == {1, 2}, advance_ms=10)
    assert state(brokers).leader == 2
    assert whole(tmp_path, 1) == whole(tmp_path, 2) == before
    assert list(brokers[1].parts.platform.logs.damages.kept()) == []


def test_one_that_leads_without_what_is_lost_does_so_again_after_a_restart(brokers: Brokers, tmp_path: Path) -> None:
    """The hole stays in its log, and nobody else has joined it."""
    all_down(brokers, 1, 2, isr=(1,), **SMALL_SEGMENTS)
    lose_the_end_of_a_segment(tmp_path / "1")
    brokers.start(1)
    brokers.work_for(2_000)
    assert state(brokers).leader == -1
    elect_unclean(brokers)
    brokers.until(lambda: leads(brokers, 1), advance_ms=10)
    brokers.leave(1)
    brokers.start(1)
    brokers.until(lambda: leads(brokers, 1), advance_ms=10)


def whole(tmp_path: Path, broker: int) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((tmp_path / str(broker) / "a-0").glob("*.log")))


def test_the_only_replica_serves_what_is_left_and_refuses_what_is_lost(brokers: Brokers, tmp_path: Path) -> None:
    all_down(brokers, 1, isr=(1,), **SMALL_SEGMENTS)
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
    all_down(brokers, 1, 2, isr=(1, 2))
    brokers.start(1)
    brokers.until(lambda: leads(brokers, 1), advance_ms=10)
    assert state(brokers).isr == (1,)
