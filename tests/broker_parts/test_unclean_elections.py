"""Unclean elections among replicas of which some are on new disks, and have nothing."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from kafkad.controller.channel import RemoteChannel, Request, Response
from kafkad.controller.isr import Isr
from kafkad.errors import ErrorCode, KafkaError
from kafkad.log.names import current_name
from kafkad.meta.znodes import Broker as BrokerNode
from kafkad.model import NO_LEADER, PartitionState, WantedIsr
from kafkad.names import TopicPartition
from kafkad.net.client import LinkError
from kafkad.wire.messages.controlled_shutdown import ControlledShutdownRequest
from kafkad.wire.messages.fetch import FetchResponse
from kafkad.wire.messages.leader_and_isr import LeaderAndIsrRequest
from tests.broker_parts.outage import (
    A0,
    VALUES,
    all_down,
    allow_unclean,
    elect_unclean,
    end,
    leads,
    replace,
    state,
)
from tests.broker_parts.several import Brokers
from tests.one_broker import NoSync


def in_sync_has_nothing(brokers: Brokers, tmp_path: Path) -> None:
    """1, which alone is in sync, is on a new disk; 2 has all records. There is no leader."""
    all_down(brokers, 1, 2, isr=(1,))
    replace(tmp_path / "1")
    brokers.start(1, 2)
    brokers.work_for(2_000)
    assert state(brokers).leader == NO_LEADER


def losing_answers(monkeypatch: pytest.MonkeyPatch, leader: int, *, most: int = 1000) -> list[None]:
    """Of that broker, when it is made the leader of `a`: it has heard it, and the connection breaks. One item for each
    answer that was lost."""
    send = RemoteChannel.send
    lost: list[None] = []

    async def sent(channel: RemoteChannel, request: Request) -> Response:
        answer = await send(channel, request)
        if len(lost) < most and makes_leader(request, leader) and channel._link._ends[1] == leader:  # type: ignore[attr-defined]
            lost.append(None)
            raise LinkError("the connection broke")
        return answer

    monkeypatch.setattr(RemoteChannel, "send", sent)
    return lost


def makes_leader(request: Request, leader: int) -> bool:
    if not isinstance(request, LeaderAndIsrRequest):
        return False
    return any(
        made.leader == leader
        for topic in request.topic_states
        if topic.topic_name == A0.topic
        for made in topic.partition_states
    )


@pytest.mark.parametrize("allow", [elect_unclean, allow_unclean])
def test_what_only_the_one_in_sync_had_is_truncated_which_its_log_says(
    brokers: Brokers, caplog: pytest.LogCaptureFixture, allow: Callable[[Brokers], None]
) -> None:
    """The store says that the leader may lack records, until another replica is in sync with it."""
    caplog.set_level(logging.INFO, "kafkad")
    brokers.meet()
    brokers.create("a", (1, 2))
    assert brokers.ended(brokers[1].produce(A0, b"for both")).error_code == ErrorCode.NONE
    brokers.until(lambda: brokers[2].partition(A0).high_watermark == 1, advance_ms=10)
    brokers.leave(2)
    brokers.until(lambda: state(brokers).isr == (1,), advance_ms=10)
    assert brokers.ended(brokers[1].produce(A0, b"lost", b"lost too")).error_code == ErrorCode.NONE
    brokers.leave(1)
    brokers.start(2)
    brokers.work_for(2_000)
    assert (state(brokers).leader, state(brokers).isr, state(brokers).recovering) == (NO_LEADER, (1,), False)
    allow(brokers)
    brokers.until(lambda: leads(brokers, 2), advance_ms=10)
    assert (state(brokers).leader, state(brokers).isr, state(brokers).recovering) == (2, (2,), True)
    assert brokers.controller.parts.controller.unclean_elections == 1
    epoch = state(brokers).leader_epoch
    assert brokers.ended(brokers[2].produce(A0, b"kept")).error_code == ErrorCode.NONE
    brokers.start(1)
    brokers.until(lambda: set(state(brokers).isr) == {1, 2}, advance_ms=10)
    assert (state(brokers).leader, state(brokers).leader_epoch, state(brokers).recovering) == (2, epoch, False)
    assert end(brokers, 1) == end(brokers, 2) == 2
    [told] = [message for message in caplog.messages if message.startswith("truncated")]
    assert told.startswith("truncated a-0 from offset 3 to 1: its leader, broker 2, has epoch")
    assert [message for message in caplog.messages if message.startswith("unclean leader election: broker 2")]


@pytest.mark.parametrize("allow", [elect_unclean, allow_unclean])
@pytest.mark.parametrize("isr", [(1, 2), (1,), (2,)])
def test_where_all_that_are_there_have_nothing_one_leads(
    brokers: Brokers, tmp_path: Path, isr: tuple[int, ...], allow: Callable[[Brokers], None]
) -> None:
    """Each refuses for the sake of the other one, until the controller says that both have."""
    all_down(brokers, 1, 2, isr=isr)
    replace(tmp_path / "1")
    replace(tmp_path / "2")
    brokers.start(1, 2)
    brokers.work_for(2_000)
    assert state(brokers).leader == NO_LEADER
    allow(brokers)
    brokers.until(lambda: set(state(brokers).isr) == {1, 2}, advance_ms=10)
    assert leads(brokers, 1) or leads(brokers, 2)
    assert end(brokers, 1) == end(brokers, 2) == 0


def test_one_that_has_nothing_refuses_as_well_when_it_is_told_twice(
    brokers: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_sync_has_nothing(brokers, tmp_path)
    lost = losing_answers(monkeypatch, 1, most=1)
    elect_unclean(brokers)
    brokers.until(lambda: set(state(brokers).isr) == {1, 2}, advance_ms=10)
    assert lost
    assert leads(brokers, 2)
    assert end(brokers, 1) == end(brokers, 2) == len(VALUES)


def test_a_new_controller_does_not_give_the_lead_to_one_that_has_nothing(
    brokers: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one before it went down before it heard that it was refused."""
    in_sync_has_nothing(brokers, tmp_path)
    with monkeypatch.context() as patched:
        lost = losing_answers(patched, 1)
        elect_unclean(brokers)
        brokers.until(lambda: bool(lost), advance_ms=1)
        brokers.leave(3)
    brokers.work_for(2_000)
    assert state(brokers).leader == NO_LEADER
    elect_unclean(brokers)
    brokers.until(lambda: set(state(brokers).isr) == {1, 2}, advance_ms=10)
    assert leads(brokers, 2)
    assert end(brokers, 1) == end(brokers, 2) == len(VALUES)


@pytest.mark.parametrize("who_is_gone", ["the controller", "the one that was asked"])
def test_a_request_that_is_over_is_no_permission_later(
    brokers: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who_is_gone: str
) -> None:
    """The store still says that the leader may lack records."""
    in_sync_has_nothing(brokers, tmp_path)
    with monkeypatch.context() as patched:
        lost = losing_answers(patched, 1)
        elect_unclean(brokers)
        brokers.until(lambda: bool(lost), advance_ms=1)
        brokers.leave(3 if who_is_gone == "the controller" else 1)
    brokers.work_for(2_000)
    brokers.leave(*brokers.running.keys() & {1, 2})
    brokers.start(1)
    brokers.work_for(2_000)
    assert (state(brokers).leader, state(brokers).isr, state(brokers).recovering) == (NO_LEADER, (1,), True)


def test_one_that_shuts_down_may_have_more_than_one_that_has_nothing(brokers: Brokers, tmp_path: Path) -> None:
    in_sync_has_nothing(brokers, tmp_path)
    _, registered = brokers.run(brokers[3].session.get(BrokerNode.path(2)))
    leaving = ControlledShutdownRequest(broker_id=2, broker_epoch=registered.czxid)
    assert brokers.ended(brokers[3].ask(leaving)).error_code == ErrorCode.NONE
    elect_unclean(brokers)
    brokers.work_for(2_000)
    assert state(brokers).leader == NO_LEADER
    brokers.leave(2)
    brokers.start(2)
    brokers.work_for(2_000)
    elect_unclean(brokers)
    brokers.until(lambda: set(state(brokers).isr) == {1, 2}, advance_ms=10)
    assert end(brokers, 1) == end(brokers, 2) == len(VALUES)


def test_a_leader_that_has_not_answered_yet_stays_when_others_come(
    brokers: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leads, and may have acknowledged records."""
    all_down(brokers, 1, 2, isr=(1,))
    replace(tmp_path / "1")
    brokers.start(1)
    brokers.work_for(2_000)
    with monkeypatch.context() as patched:
        losing_answers(patched, 1)
        elect_unclean(brokers)
        brokers.until(lambda: leads(brokers, 1), advance_ms=10)
        assert brokers.ended(brokers[1].produce(A0, b"new")).error_code == ErrorCode.NONE
        brokers.start(2)
        brokers.work_for(2_000)
    brokers.until(lambda: set(state(brokers).isr) == {1, 2}, advance_ms=10)
    assert leads(brokers, 1)
    assert end(brokers, 1) == end(brokers, 2) == 1


def test_one_that_found_no_room_to_lead_with_nothing_is_not_made_later_without_a_leader(
    brokers: Brokers, tmp_path: Path
) -> None:
    """After the next start it would be one like others, in sync and with nothing."""
    all_down(brokers, 1, 2, isr=(1,))
    replace(tmp_path / "1")
    disk = brokers.files[1] = FullOfPartitions()
    brokers.start(1)
    brokers.work_for(2_000)
    disk.is_full = True
    elect_unclean(brokers)
    brokers.work_for(2_000)
    assert state(brokers).leader == NO_LEADER
    disk.is_full = False
    brokers.work_for(70_000)
    assert not (tmp_path / "1" / "a-0").exists()
    elect_unclean(brokers)
    brokers.until(lambda: leads(brokers, 1), advance_ms=10)


class FullOfPartitions(NoSync):
    is_full = False

    def mkdir(self, path: str) -> None:
        if self.is_full and path.endswith(current_name(A0)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        super().mkdir(path)


def test_what_a_leader_has_acknowledged_stays_although_it_dies_before_its_first_answer(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_down(brokers, 1, 2, isr=(1,))
    brokers.start(2)
    brokers.work_for(2_000)
    with monkeypatch.context() as patched:
        losing_answers(patched, 2)
        elect_unclean(brokers)
        brokers.until(lambda: leads(brokers, 2), advance_ms=10)
        assert brokers.ended(brokers[2].produce(A0, b"five")).error_code == ErrorCode.NONE
        brokers.leave(2)
    brokers.work_for(2_000)
    assert (state(brokers).leader, state(brokers).isr) == (NO_LEADER, (2,))
    brokers.start(1, 2)
    brokers.until(lambda: set(state(brokers).isr) == {1, 2}, advance_ms=10)
    assert end(brokers, 1) == end(brokers, 2) == len(VALUES) + 1


@pytest.mark.parametrize("order", [(1, 2, 3), (2, 1, 3)])
@pytest.mark.parametrize("allow", [elect_unclean, allow_unclean])
def test_of_those_that_were_gone_one_that_has_copied_leads_before_one_that_has_not(
    brokers: Brokers, tmp_path: Path, order: tuple[int, ...], allow: Callable[[Brokers], None]
) -> None:
    """3, which alone was in sync, dies when 2 has copied all, and 1 nothing yet."""
    all_down(brokers, *order, isr=(3,))
    brokers.until(lambda: leads(brokers, 3), advance_ms=10)
    replace(tmp_path / "1")
    replace(tmp_path / "2")

    async def refused(
        self: Isr, broker: int, epoch: int, wanted: Mapping[TopicPartition, WantedIsr]
    ) -> dict[TopicPartition, PartitionState | KafkaError]:
        return {tp: KafkaError(ErrorCode.INELIGIBLE_REPLICA, "not now") for tp in wanted}

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Isr, "alter", refused)
        brokers.start(2)
        brokers.until(lambda: brokers[2].parts.replicas.find(*A0) is not None, advance_ms=10)
        brokers.until(lambda: end(brokers, 2) == len(VALUES), advance_ms=10)
        brokers.leave(3)
    brokers.start(1)
    brokers.work_for(2_000)
    assert (state(brokers).leader, state(brokers).isr) == (NO_LEADER, (3,))
    allow(brokers)
    brokers.until(lambda: set(state(brokers).isr) == {1, 2}, advance_ms=10)
    assert end(brokers, 1) == end(brokers, 2) == len(VALUES)


@pytest.mark.parametrize("is_there_from_the_start", [True, False])
def test_one_whose_name_was_taken_when_it_was_to_lead_can_be_asked_again(
    brokers: Brokers, tmp_path: Path, is_there_from_the_start: bool
) -> None:
    all_down(brokers, 1, 2, isr=(1,))
    replace(tmp_path / "1")
    own = tmp_path / "1" / "a-0"
    if is_there_from_the_start:
        own.write_text("mine")
    brokers.start(1)
    brokers.work_for(2_000)
    if not is_there_from_the_start:
        own.mkdir()
        (own / "mine").touch()
    elect_unclean(brokers)
    brokers.work_for(2_000)
    assert state(brokers).leader == NO_LEADER
    own.rename(tmp_path / "away")
    brokers.work_for(70_000)
    elect_unclean(brokers)
    brokers.until(lambda: leads(brokers, 1), advance_ms=10)


def test_one_that_has_nothing_yet_comes_behind_others_also_after_the_leader_has_died(
    brokers: Brokers, tmp_path: Path
) -> None:
    all_down(brokers, 1, 2, 3, isr=(1,))
    replace(tmp_path / "1")
    brokers.start(1, 2)
    brokers.work_for(2_000)

    def nothing_arrives(ends: tuple[int, int], answer: FetchResponse) -> None:
        answer.responses = []

    calm = brokers.tamper
    brokers.tamper = nothing_arrives
    elect_unclean(brokers)
    brokers.until(lambda: leads(brokers, 2), advance_ms=10)
    brokers.work_for(1_000)
    brokers.leave(2)
    brokers.work_for(1_000)
    assert (state(brokers).leader, state(brokers).isr) == (NO_LEADER, (2,))
    elect_unclean(brokers)
    brokers.until(lambda: leads(brokers, 3), advance_ms=10)
    brokers.tamper = calm
    brokers.until(lambda: set(state(brokers).isr) == {1, 3}, advance_ms=10)
    assert end(brokers, 1) == end(brokers, 3) == len(VALUES)
