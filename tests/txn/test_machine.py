"""Carrying out what is decided about transactional ids: writes, waits, time-outs, loading."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kafkad.replica.markers import Marker
from kafkad.txn.records import Forgotten
from kafkad.txn.transaction import (
    COMPLETE,
    NO_PARTITIONS,
    AddPartitions,
    Answer,
    Cause,
    End,
    EndAndBump,
    InitProducer,
    State,
    Transaction,
)
from tests.fakes import turns
from tests.txn import golden
from tests.txn.life import COORDINATOR_EPOCH, WRITE_TIMEOUT_MS, Disk, Life, scenario

NONE, CONCURRENT = ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS
OK = [Answer(NONE)]
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


# Steps, each behind the one before


@scenario
async def test_nothing_of_a_step_is_written_before_the_step_ahead_of_it_is_committed() -> None:
    life = Life()
    producer = await life.new()
    assert life.add(producer, 0, 1) == OK
    life.hold = life.hold_markers = True
    answers = life.end(producer, True)
    assert life.known().state is State.ONGOING
    assert not life.markers
    life.commit()
    assert life.known().state is State.PREPARE_COMMIT
    [marker] = life.markers
    assert set(marker.partitions) == {T0, T1}
    assert (marker.producer_id, marker.producer_epoch, marker.commit) == (*producer, True)
    assert (marker.coordinator_epoch, marker.version) == (COORDINATOR_EPOCH, 0)
    life.write_markers()
    assert life.known().state is State.PREPARE_COMMIT
    assert not answers
    life.commit()
    assert life.known().state is State.COMPLETE_COMMIT
    assert answers == OK


@scenario
async def test_an_end_is_answered_while_its_markers_take_longer() -> None:
    life = Life()
    producer = await life.new()
    life.add(producer, 0)
    life.hold_markers = True
    answers = life.end(producer, False)
    life.advance(19)
    assert not answers
    life.advance(1)
    assert answers == OK
    life.write_markers()
    assert life.known().state is State.COMPLETE_ABORT
    assert answers == OK, "once"


@scenario
async def test_a_new_client_is_told_its_next_epoch_and_markers_carry_it() -> None:
    life = Life()
    producer_id, epoch = await life.new()
    life.add((producer_id, epoch), 0)
    assert life.end((producer_id, epoch), True, bump=True) == [Answer(NONE, producer_id, epoch + 1)]
    assert life.markers[-1].producer_epoch == epoch + 1
    assert life.markers[-1].version == 2


@scenario
async def test_the_end_of_the_epochs_takes_a_new_producer_id() -> None:
    life = Life()
    producer_id, _ = await life.new()
    life.machine.apply(life.known()._replace(epoch=32766))
    life.add((producer_id, 32766), 0)
    answers = life.end((producer_id, 32766), True, bump=True)
    await turns()
    assert answers == [Answer(NONE, life.next_id, 0)]
    assert (life.markers[-1].producer_id, life.markers[-1].producer_epoch) == (producer_id, 32767)
    assert life.end((producer_id, 32766), True, bump=True) == answers, "asked again"


@scenario
async def test_the_next_producer_id_may_be_used_as_soon_as_it_is_told() -> None:
    life = Life()
    producer_id, _ = await life.new()
    life.machine.apply(life.known()._replace(epoch=32766))
    life.add((producer_id, 32766), 0)
    life.hold_markers = True
    told = life.end((producer_id, 32766), True, bump=True)
    await turns()
    life.advance(20)
    assert told == [Answer(NONE, life.next_id, 0)]
    added = life.add((life.next_id, 0), 1)
    assert not added, "the markers are not written yet"
    life.write_markers()
    assert added == OK


@scenario
async def test_without_a_controller_there_is_no_new_producer() -> None:
    life = Life()
    life.no_ids = ErrorCode.NOT_CONTROLLER
    answers = life.ask(InitProducer("a", 1000))
    await turns()
    assert answers == [Answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
    life.no_ids = None
    await life.new()


@scenario
async def test_who_gets_no_producer_id_by_an_internal_error_is_told_and_holds_nobody_up() -> None:
    life = Life()
    life.no_ids = RuntimeError("a bug")
    answers = [life.ask(InitProducer("a", 1000)) for _ in range(2)]
    await turns()
    assert answers == [[Answer(ErrorCode.UNKNOWN_SERVER_ERROR)]] * 2
    life.no_ids = None
    await life.new()


# Waiting instead of asking again


@scenario
async def test_who_comes_while_markers_are_written_is_served_right_after() -> None:
    life = Life()
    producer = await life.new()
    life.add(producer, 0)
    life.hold_markers = True
    ended = life.end(producer, True)
    added, again = life.add(producer, 1), life.end(producer, True)
    taken_over = life.ask(InitProducer("a", 60_000))
    life.advance(50)
    assert not added
    life.hold_markers = False
    life.write_markers()
    assert ended == added == OK
    assert again == OK, "in the order they came: the next transaction is committed"
    assert taken_over == [Answer(NONE, producer[0], producer[1] + 1)]
    assert life.probe.held == 3


@scenario
async def test_who_waits_for_too_long_is_told_to_ask_again() -> None:
    life = Life()
    producer = await life.new()
    life.add(producer, 0)
    life.hold_markers = True
    life.end(producer, True)
    asked = life.add(producer, 1)
    fenced = life.add((producer[0], 7), 1)
    unknown = life.add((producer[0] + 1, 0), 1)
    life.advance(99)
    assert not asked
    life.advance(1)
    assert asked == [Answer(CONCURRENT)]
    assert fenced == [Answer(ErrorCode.PRODUCER_FENCED)], "it would be wrong at any time"
    assert unknown == [Answer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)]
    life.hold_markers = False
    life.write_markers()
    assert life.known().state is State.COMPLETE_COMMIT
    assert asked == [Answer(CONCURRENT)]


@scenario
async def test_one_write_at_a_time_for_an_id() -> None:
    life = Life()
    producer = await life.new()
    life.hold = True
    first, second, end = life.add(producer, 0), life.add(producer, 1), life.end(producer, True)
    other = life.ask(InitProducer("b", 1000), "b")
    await turns()
    for answered in range(1, 4):
        life.commit()
        assert [len(first), len(second)][: min(answered, 2)] == [1] * min(answered, 2)
    while not end:
        life.commit()
    assert first == second == end == OK
    assert other and other[0].error is NONE
    assert set(life.markers[-1].partitions) == {T0, T1}


@scenario
async def test_a_thousand_who_wait_are_served_without_running_out_of_stack() -> None:
    life = Life()
    producer = await life.new()
    life.hold = True
    answers = [life.add(producer, number % 3) for number in range(1000)]
    life.hold = False
    life.commit()
    assert all(answer == OK for answer in answers)


@scenario
async def test_an_internal_error_of_who_waits_does_not_keep_others_waiting() -> None:
    life = Life()
    producer = await life.new()
    life.hold = True
    life.add(producer, 0)

    def fail(answer: Answer) -> None:
        raise ValueError

    life.machine.ask("a", AddPartitions(*producer, [T0], 0), fail)
    with pytest.raises(ValueError):
        life.commit()
    life.hold = False
    assert life.add(producer, 1) == OK


@scenario
async def test_who_takes_over_waits_for_the_fenced_transaction() -> None:
    life = Life()
    producer_id, epoch = await life.new()
    life.add((producer_id, epoch), 0)
    life.hold_markers = True
    taken_over = life.ask(InitProducer("a", 60_000))
    life.advance(60)
    assert not taken_over
    assert life.known().epoch == epoch + 1, "fenced already"
    life.write_markers()
    assert taken_over == [Answer(NONE, producer_id, epoch + 2)]
    assert life.probe.ended == {Cause.FENCED: 1}


@scenario
async def test_a_verification_changes_nothing_and_waits_for_markers() -> None:
    life = Life()
    producer = await life.new()
    life.add(producer, 0)
    found: list[Any] = []
    life.machine.verify("a", *producer, [T0, T1], found.append)
    assert found.pop() == {T0: NONE, T1: ErrorCode.TRANSACTION_ABORTABLE}
    life.hold_markers = True
    life.end(producer, True)
    life.machine.verify("a", *producer, [T0], found.append)
    assert not found
    life.write_markers()
    assert found == [{T0: ErrorCode.TRANSACTION_ABORTABLE}]
    life.machine.verify("b", *producer, [T0], found.append)
    assert found[-1] is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@scenario
async def test_who_has_others_behind_it_is_sent_away_while_markers_are_written() -> None:
    life = Life()
    producer = await life.new()
    life.add(producer, 0)
    life.hold_markers = True
    life.end(producer, True)
    patient = life.add(producer, 1)
    assert life.add(producer, 1, waits_for_markers=False) == [Answer(CONCURRENT)]
    assert life.add((producer[0], 7), 1, waits_for_markers=False) == [Answer(ErrorCode.PRODUCER_FENCED)]
    found: list[Any] = []
    life.machine.verify("a", *producer, [T0], found.append, waits_for_markers=False)
    assert found == [CONCURRENT]
    life.write_markers()
    assert patient == OK


@scenario
async def test_who_has_others_behind_it_waits_for_records() -> None:
    """Of the partitions that are added to a transaction at several brokers, the first makes the others wait."""
    life = Life()
    producer = await life.new()
    life.hold = True
    added = [life.add(producer, number, waits_for_markers=False) for number in range(3)]
    assert added == [[], [], []]
    life.commit()
    life.commit()
    life.commit()
    assert added == [OK, OK, OK]
    life.hold_markers = True
    ended, behind = life.end(producer, True), [life.add(producer, 1), life.add(producer, 2, waits_for_markers=False)]
    assert not any(behind)
    life.commit()
    assert behind == [[], [Answer(CONCURRENT)]], "its end is decided, and the markers take longer"
    assert not ended


@scenario
async def test_who_has_others_behind_it_waits_for_its_own_record_no_longer_than_for_another() -> None:
    life = Life()
    producer = await life.new()
    life.hold = True
    added, again = life.add(producer, 0, waits_for_markers=False), life.add(producer, 0, waits_for_markers=False)
    life.advance(99)
    assert added == again == []
    life.advance(1)
    assert added == [Answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    assert again == [Answer(CONCURRENT)]
    life.commit()
    assert life.add(producer, 0, waits_for_markers=False) == OK


# Writes that fail


REFUSALS = [
    (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
    (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
]


@pytest.mark.parametrize(("said", "answered"), REFUSALS)
def test_a_refused_write_changes_nothing(said: ErrorCode, answered: ErrorCode) -> None:
    async def run() -> None:
        life = Life()
        producer = await life.new()
        life.add(producer, 0)
        before = life.known()
        life.refuse = said
        assert life.end(producer, True) == [Answer(answered)]
        assert life.add(producer, 1) == [Answer(answered)]
        assert life.known() is before
        life.refuse = None
        assert life.end(producer, True) == OK

    asyncio.run(run())


@pytest.mark.parametrize(
    ("said", "level"), [(ErrorCode.NOT_COORDINATOR, "INFO"), (ErrorCode.MESSAGE_TOO_LARGE, "WARNING")]
)
def test_a_partition_that_has_moved_is_no_trouble(
    said: ErrorCode, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def run() -> None:
        life = Life()
        producer = await life.new()
        life.hold = True
        life.add(producer, 0)
        life.fail(said)

    asyncio.run(run())
    [told] = [record for record in caplog.records if "could not record" in record.message]
    assert told.levelname == level
    assert ("until records are taken again" in told.message) == (level == "WARNING"), "here they never are"


@scenario
async def test_a_write_that_is_committed_in_spite_of_its_error_goes_on() -> None:
    life = Life()
    producer = await life.new()
    life.add(producer, 0)
    life.hold = True
    answers = life.end(producer, True)
    life.hold = False
    life.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE, applied=True)
    assert answers == [Answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    assert life.known().state is State.COMPLETE_COMMIT
    assert life.end(producer, True) == OK, "asked again"


@scenario
async def test_a_write_that_takes_too_long_is_answered_and_may_still_be_done() -> None:
    life = Life()
    producer = await life.new()
    life.add(producer, 0)
    life.hold = True
    answers = life.end(producer, True)
    life.advance(WRITE_TIMEOUT_MS - 1)
    assert answers == []
    life.advance(1)
    assert answers == [Answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    again = life.end(producer, True)
    life.advance(50)
    life.hold = False
    life.commit()
    assert len(answers) == 1
    assert again == OK
    assert life.known().state is State.COMPLETE_COMMIT


@scenario
async def test_who_gave_up_does_not_take_over_behind_the_fence() -> None:
    """It asks again by itself; nobody would know the epoch that it was given without having asked."""
    life = Life()
    producer_id, epoch = await life.new()
    life.add((producer_id, epoch), 0)
    life.hold = True
    answers = life.ask(InitProducer("a", 60_000))
    life.advance(WRITE_TIMEOUT_MS)
    assert answers == [Answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    life.hold = False
    life.commit()
    assert (life.known().state, life.known().epoch) == (State.COMPLETE_ABORT, epoch + 1)
    assert len(answers) == 1


@scenario
async def test_who_is_served_late_waits_for_its_write_and_is_answered_once() -> None:
    life = Life()
    producer = await life.new()
    life.add(producer, 0)
    life.hold_markers = True
    life.end(producer, True)
    added = life.add(producer, 1)
    life.advance(60)
    life.hold = True
    life.write_markers()
    life.commit()
    life.advance(100)
    assert added == []
    life.commit()
    assert added == OK
    life.advance(WRITE_TIMEOUT_MS)
    assert added == OK


@scenario
async def test_who_takes_over_is_held_from_when_the_fence_is_recorded() -> None:
    life = Life()
    life.add(await life.new(), 0)
    life.hold = life.hold_markers = True
    answers = life.ask(InitProducer("a", 60_000))
    life.advance(150)
    life.commit()
    life.advance(99)
    assert answers == []
    life.advance(1)
    assert answers == [Answer(CONCURRENT)]


@scenario
async def test_that_it_is_complete_is_written_until_it_is() -> None:
    life = Life()
    producer = await life.new()
    life.add(producer, 0)
    life.hold_markers = True
    answers = life.end(producer, True)
    life.refuse = ErrorCode.COORDINATOR_NOT_AVAILABLE
    life.write_markers()
    assert life.known().state is State.PREPARE_COMMIT
    assert life.machine.waits_to_complete == 1
    life.advance(3000)
    assert answers == OK
    life.refuse = None
    life.advance(1000)
    assert life.known().state is State.COMPLETE_COMMIT
    assert life.machine.waits_to_complete == 0
    assert len(life.markers) == 1


# Time


@scenario
async def test_a_transaction_is_aborted_exactly_when_its_time_is_over() -> None:
    life = Life()
    producer = await life.new(timeout_ms=1000)
    life.add(producer, 0)
    life.advance(600)
    life.add(producer, 1)
    life.advance(400)
    assert life.known().state is State.ONGOING, "more partitions do not prolong it, and it has its full time"
    life.advance(1)
    assert life.known().state is State.COMPLETE_ABORT
    assert life.known().epoch == producer[1] + 1
    assert life.probe.ended == {Cause.TIMED_OUT: 1}
    assert life.end(producer, True) == [Answer(ErrorCode.PRODUCER_FENCED)]


@scenario
async def test_a_time_of_day_that_was_behind_for_a_while_costs_one_time_out() -> None:
    life = Life()
    producer = await life.new(timeout_ms=1000)
    life.add(producer, 0)
    life.clock.jump(-3_600_000)
    life.advance(1001)
    assert life.known().state is State.ONGOING
    life.clock.jump(3_600_000)
    life.advance(1001)
    assert life.known().state is State.COMPLETE_ABORT


@scenario
async def test_a_time_of_day_that_was_ahead_when_the_time_out_was_due_costs_one_time_out() -> None:
    life = Life()
    producer = await life.new(timeout_ms=60_000)
    life.add(producer, 0)
    life.hold_later = True
    life.clock.jump(1_000)
    life.advance(60_000)
    life.advance(1)
    life.clock.jump(-2_000)
    life.turn()
    assert life.known().state is State.ONGOING
    life.advance(60_001)
    life.turn()
    assert life.known().state is State.COMPLETE_ABORT


@scenario
async def test_each_transaction_has_its_own_time() -> None:
    life = Life()
    producer = await life.new(timeout_ms=1000)
    for _ in range(5):
        life.add(producer, 0)
        life.advance(700)
        assert life.end(producer, True) == OK
    life.add(producer, 0)
    life.ask(InitProducer("a", 100))
    producer = life.known().producer_id, life.known().epoch
    life.add(producer, 0)
    life.advance(101)
    assert life.known().state is State.COMPLETE_ABORT, "a shorter time-out counts"


@scenario
async def test_a_time_out_that_cannot_be_written_is_tried_again() -> None:
    life = Life()
    producer = await life.new(timeout_ms=1000)
    life.add(producer, 0)
    life.refuse = ErrorCode.COORDINATOR_NOT_AVAILABLE
    life.advance(2000)
    assert life.known().state is State.ONGOING
    life.refuse = None
    life.advance(10_001)
    assert life.known().state is State.COMPLETE_ABORT
    assert life.known().epoch == producer[1] + 1


def test_time_outs_that_cannot_be_written_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """With thousands of ids whose records are refused for an hour, the log would fill the disk."""
    asyncio.run(_time_outs_that_are_refused(caplog))
    [again] = [record for record in caplog.records if "refused meanwhile" in record.message]
    assert 100 <= int(again.message.split("; ")[1].split()[0]) <= 140, "each was tried every ten seconds"


async def _time_outs_that_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    life = Life()
    for number in range(20):
        await life.new(f"t{number}", timeout_ms=1000)
    producers = [life.known(f"t{number}") for number in range(20)]
    for one in producers:
        life.ask(AddPartitions(one.producer_id, one.epoch, [T0], 0), one.id)
    caplog.clear()
    life.refuse = ErrorCode.COORDINATOR_NOT_AVAILABLE
    for _ in range(60):
        life.advance(1000)
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1
    life.refuse = None
    life.advance(10_001)
    assert all(life.known(one.id).state is State.COMPLETE_ABORT for one in producers)


@scenario
async def test_expired_ids_are_forgotten_and_others_are_not() -> None:
    life = Life()
    for number in range(250):
        await life.new(f"idle-{number}")
    life.advance(5000)
    await life.new("young")
    producer = await life.new("a")
    life.add(producer, 0)
    life.advance(5000)
    for _ in life.machine.forget_expired(10_000):
        pass
    assert set(life.machine.transactions) == {"young", "a"}
    again = Life(life.disk, clock=life.clock)
    assert set(again.machine.transactions) == {"young", "a"}


@scenario
async def test_an_id_that_is_used_while_others_are_forgotten_is_kept() -> None:
    life = Life()
    for number in range(100):
        await life.new(f"idle-{number}")
    producer = await life.new()
    life.advance(10_000)
    forgetting = life.machine.forget_expired(10_000)
    next(forgetting)
    assert life.add(producer, 0) == OK
    for _ in forgetting:
        pass
    assert set(life.machine.transactions) == {"a"}
    assert life.end(producer, True) == OK


@scenario
async def test_an_id_that_has_gone_while_others_are_forgotten_is_no_obstacle() -> None:
    life = Life()
    for number in range(101):
        await life.new(f"idle-{number}")
    forgetting = life.machine.forget_expired(0)
    next(forgetting)
    life.machine.apply(Forgotten("idle-100"))
    written = len(life.disk.records)
    for _ in forgetting:
        pass
    assert len(life.disk.records) == written


@scenario
async def test_looking_through_ids_that_are_in_use_gives_way_as_well() -> None:
    life = Life()
    for number in range(1000):
        life.machine.apply(Transaction(f"used-{number}", number, 0, 1000, State.EMPTY, NO_PARTITIONS, 2**62))
    assert len(list(life.machine.forget_expired(0))) >= 2


@scenario
async def test_what_is_asked_while_an_id_is_forgotten_comes_after_that() -> None:
    life = Life()
    producer = await life.new()
    life.hold = True
    for _ in life.machine.forget_expired(0):
        pass
    asked = life.add(producer, 0)
    life.hold = False
    life.commit()
    assert asked == [Answer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)]


# Loading, and going away


@scenario
async def test_who_still_waits_when_the_partition_moves_is_told_so() -> None:
    life = Life()
    producer = await life.new()
    life.add(producer, 0)
    life.hold_markers = True
    ended = life.end(producer, True)
    waits = life.add(producer, 1)
    life.machine.unloaded()
    assert waits == [Answer(ErrorCode.NOT_COORDINATOR)]
    assert ended == OK, "its end was recorded"
    life.write_markers()
    life.advance(100_000)
    assert len(life.disk.records) == 3, "nothing is written any more"


@scenario
async def test_a_new_coordinator_ends_what_is_prepared_and_lets_the_rest_go_on() -> None:
    life = Life()
    first, second = await life.new("a", 1000), await life.new("b", 1000)
    for name, producer in (("a", first), ("b", second)):
        life.ask(AddPartitions(*producer, [T0, T1], 0), name)
    life.hold_markers = True
    life.ask(EndAndBump(*first, False), "a")
    again = Life(life.disk, clock=life.clock)
    [marker] = again.markers
    assert marker == Marker(first[0], first[1] + 1, False, COORDINATOR_EPOCH, 2, marker.partitions)
    assert set(marker.partitions) == {T0, T1}, "to all: which of them have theirs is not known"
    assert again.known("a").state is State.COMPLETE_ABORT
    assert again.known("b").state is State.ONGOING
    again.advance(1001)
    assert again.known("b").state is State.COMPLETE_ABORT, "its time goes on where it was"


@scenario
async def test_a_damaged_record_keeps_only_its_own_id_from_being_used() -> None:
    life = Life()
    await life.new("a")
    producer = await life.new("b")
    key, _ = life.disk.records[0]
    disk = Disk()
    disk.records = [*life.disk.records, (key, b"\0\x09broken")]
    again = Life(disk)
    assert again.ask(InitProducer("a", 1000), "a") == [Answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    found: list[Any] = []
    again.machine.verify("a", *producer, [T0], found.append)
    assert found == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert again.ask(AddPartitions(*producer, [T0], 0), "b") == OK


@scenario
async def test_what_was_open_ahead_of_damage_is_not_known_unless_a_later_record_says() -> None:
    life = Life()
    producers = {name: await life.new(name, 1000) for name in ("open", "goes on", "prepared", "ended")}
    for name, producer in producers.items():
        life.ask(AddPartitions(*producer, [T0], 0), name)
    life.ask(End(*producers["ended"], True), "ended")
    life.hold_markers = True
    life.ask(End(*producers["prepared"], True), "prepared")
    there = len(life.disk.records)
    life.ask(AddPartitions(*producers["goes on"], [T1], 0), "goes on")
    life.disk.damaged_at = there
    again = Life(life.disk, clock=life.clock)
    assert again.ask(End(*producers["open"], True), "open") == [Answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    assert again.known("prepared").state is State.COMPLETE_COMMIT, "its end was decided"
    assert again.ask(End(*producers["goes on"], True), "goes on") == OK
    again.advance(2000)
    assert {marker.producer_id for marker in again.markers if not marker.commit} == set(), "nothing is aborted"


@scenario
async def test_very_many_ids_ahead_of_damage_are_gone_through_in_pieces_and_not_anew_for_each_damage() -> None:
    life = Life()
    await life.new("a")
    known = life.known("a")
    life.machine.transactions.update({f"id {n}": known._replace(id=f"id {n}") for n in range(2_000)})
    assert len(list(life.machine.missed("one"))) == 4
    first = dict(life.machine.transactions)
    assert len(list(life.machine.missed("another"))) == 4
    assert all(life.machine.transactions[name] is one for name, one in first.items())
    life.machine.unloaded()


@scenario
async def test_whoever_had_an_id_that_was_at_rest_ahead_of_damage_is_fenced() -> None:
    """It may have begun a transaction there, or another producer may have taken over."""
    life = Life()
    producers = {name: await life.new(name) for name in ("ended", "prepared", "new", "goes on")}
    for name in ("ended", "prepared"):
        life.ask(AddPartitions(*producers[name], [T0], 0), name)
    life.ask(End(*producers["ended"], True), "ended")
    life.hold_markers = True
    life.ask(End(*producers["prepared"], True), "prepared")
    life.disk.damaged_at = len(life.disk.records)
    life.ask(AddPartitions(*producers["goes on"], [T0], 0), "goes on")
    again = Life(life.disk, clock=life.clock)
    assert again.known("prepared").state is State.COMPLETE_COMMIT, "its end was decided"
    assert again.ask(End(*producers["goes on"], True), "goes on") == OK
    fenced = [Answer(ErrorCode.PRODUCER_FENCED)]
    for name in ("ended", "prepared", "new"):
        producer = producers[name]
        found: list[Any] = []
        again.machine.verify(name, *producer, [T0], found.append)
        assert found == [ErrorCode.PRODUCER_FENCED]
        for asked in (
            AddPartitions(*producer, [T0], 0),
            End(*producer, True),
            EndAndBump(*producer, True),
            EndAndBump(*producer, False),
            InitProducer(name, 1000, *producer),
        ):
            assert again.ask(asked, name) == fenced
        again.next_id += 100
        assert await again.new(name) == (again.next_id, 0)
        assert again.ask(End(*producer, True), name) == [Answer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)]


def test_the_log_says_once_whose_producers_are_fenced(caplog: pytest.LogCaptureFixture) -> None:
    async def load() -> None:
        life = Life()
        for name in "abc":
            await life.new(name)
        life.disk.damaged_at = len(life.disk.records) - 1
        Life(life.disk)

    asyncio.run(load())
    assert (
        caplog.text.count("nobody knows what 2 transactional ids, a among them, were used for at a damaged batch") == 1
    )


@scenario
async def test_no_epoch_is_taken_for_the_one_before_that_fences() -> None:
    life = Life()
    producer_id, _ = await life.new()
    record = life.known()._replace(epoch=32_766, state=State.COMPLETE_COMMIT, version=2)
    life.disk.records.append(life.machine.encode(record))
    life.disk.damaged_at = len(life.disk.records)
    again = Life(life.disk)
    assert again.end((producer_id, 32_766), True, bump=True) == [Answer(ErrorCode.PRODUCER_FENCED)]


@scenario
async def test_beside_a_kafka_3_9_records_are_written_in_its_version() -> None:
    for level, version in ((0, b"\0\0"), (1, b"\0\1"), (2, b"\0\1")):
        life = Life(level=level)
        await life.new()
        _, value = life.disk.records[-1]
        assert value is not None and value[:2] == version


# What Kafka wrote


def loaded(release: str, kind: str) -> Life:
    disk = Disk()
    disk.records = [(record.key or b"", record.value) for record in golden.records(release, kind)]
    return Life(disk)


STORY_STATES = {
    "g-empty": ("Empty", 0),
    "g-commit": ("CompleteCommit", 0),
    "g-abort": ("CompleteAbort", 0),
    "g-fenced": ("Empty", 2),
    "g-bump": ("Empty", 1),
    "g-timeout": ("CompleteAbort", 1),
    "g-offsets": ("CompleteAbort", 1),
    "g-nodata": ("CompleteCommit", 0),
    "g-nopart": ("CompleteAbort", 0),
    "g-ünïcode-€": ("Empty", 0),
    "g2-commit": ("CompleteCommit", 2),
    "g2-abort": ("CompleteAbort", 1),
    "g2-nothing": ("CompleteAbort", 1),
    "g2-fenced": ("Empty", 2),
    "g2-timeout": ("CompleteAbort", 1),
    "g2-offsets": ("CompleteCommit", 1),
    "g2-mixed": ("CompleteCommit", 1),
}
OPEN = {"g-open", "g2-open"}


@pytest.mark.parametrize("release", ["3.9", "4.3"])
def test_the_states_that_kafka_left_are_found(release: str) -> None:
    story = {name for name, _ in json.loads((golden.DIRECTORY / release / "story.json").read_text())}
    life = loaded(release, "main")
    found = {name: (known.state.label, known.epoch) for name, known in life.machine.transactions.items()}
    assert story == set(found)
    assert {name: found[name] for name in story - OPEN} == {name: STORY_STATES[name] for name in story - OPEN}
    assert not life.machine.damaged
    for name in story & OPEN:
        known = life.machine.transactions[name]
        assert known.state is State.ONGOING
        assert known.partitions == {TopicPartition("t", 2)}


@pytest.mark.parametrize("release", ["3.9", "4.3"])
def test_what_kafka_compacted_says_the_same(release: str) -> None:
    def states(kind: str) -> dict[str, Transaction]:
        return loaded(release, kind).machine.transactions

    before, after = states("main"), states("compacted")
    asked_since = {name for name in after if before.get(name) != after[name]}
    assert before.keys() <= after.keys()
    assert len(asked_since) <= 4
    assert states("expired").keys() <= OPEN | asked_since


@pytest.mark.parametrize(("release", "ids"), [("3.9", ["p-abort", "p-commit"]), ("4.3", ["g2-commit"])])
def test_what_kafka_left_prepared_is_ended(release: str, ids: list[str]) -> None:
    disk = Disk()
    disk.records = [(record.key or b"", record.value) for record in golden.records(release, "prepared")]
    life = Life(disk)
    by_id = {life.known(name).producer_id: name for name in ids}
    marked = {by_id[marker.producer_id]: marker for marker in life.markers if marker.producer_id in by_id}
    assert set(marked) == set(ids)
    for name, marker in marked.items():
        known = life.known(name)
        assert known.state in COMPLETE
        assert marker.commit == known.commits == name.endswith("commit")
        assert set(marker.partitions) == {T0, T1}
        assert marker.producer_epoch == known.epoch
        assert marker.version == (2 if release == "4.3" else 0)


# Added on the spot


@scenario
async def test_partitions_are_added_at_once_only_where_nothing_has_to_be_waited_for() -> None:
    life = Life()
    producer = await life.new()
    asked = AddPartitions(*producer, (T0,), 2)
    life.hold = True
    assert not life.machine.adds_at_once("a", asked)
    life.hold = False
    assert not life.disk.records[1:], "nothing was done"
    assert not life.machine.has("a", *producer, [T0])
    assert life.machine.adds_at_once("a", asked)
    assert life.machine.has("a", *producer, [T0])
    assert not life.machine.has("a", *producer, [T1])
    assert not life.machine.has("a", producer[0], producer[1] + 1, [T0])
    assert not life.machine.adds_at_once("a", AddPartitions(producer[0], producer[1] + 1, (T1,), 2))
    assert not life.machine.adds_at_once("unknown", asked)
    life.hold_markers = True
    life.end(producer, True)
    assert not life.machine.adds_at_once("a", asked), "its markers are on their way"
    assert not life.machine.has("a", *producer, [T0])
    life.write_markers()
    assert life.known().state is State.COMPLETE_COMMIT


# Another broker may coordinate by now


@scenario
async def test_what_is_only_remembered_is_told_when_this_broker_has_led_until_then() -> None:
    """Another coordinator may have begun the next transaction in the same epoch: it would be taken for committed."""
    life = Life()
    producer = await life.new()
    life.add(producer, 0)
    life.doubts = []
    assert life.end(producer, True) == OK, "what is written is committed, and so by the leader"
    assert not life.doubts
    repeated, fenced = life.end(producer, True), life.end((producer[0], producer[1] + 1), True)
    assert repeated == fenced == []
    for sure in life.doubts:
        sure(True)
    assert (repeated, fenced) == (OK, [Answer(ErrorCode.PRODUCER_FENCED)])
    life.doubts = []
    repeated, fenced = life.end(producer, True), life.end((producer[0], producer[1] + 1), True)
    life.machine.unloaded()
    for sure in life.doubts:
        sure(False)
    assert repeated == fenced == [Answer(ErrorCode.NOT_COORDINATOR)]


@scenario
async def test_a_leader_is_told_that_its_producer_is_refused_when_this_broker_has_led_until_then() -> None:
    """Another coordinator may have given the producer its epoch, or added the partition."""
    life = Life()
    producer = await life.new()
    life.add(producer, 0)
    life.doubts = []
    found: list[Any] = []
    life.machine.verify("a", *producer, [T0], found.append)
    assert found.pop() == {T0: NONE}, "what it lets in waits for the ISR"
    for _ in range(2):
        life.machine.verify("a", producer[0], producer[1] + 1, [T0], found.append)
        life.machine.verify("a", *producer, [T0, T1], found.append)
    assert not found
    for sure, leads in zip(life.doubts, (True, True, False, False), strict=True):
        sure(leads)
    refused = [ErrorCode.PRODUCER_FENCED, {T0: NONE, T1: ErrorCode.TRANSACTION_ABORTABLE}]
    assert found == [*refused, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR]
