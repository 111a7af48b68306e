"""Unclean elections among replicas of which some are on new disks, and have nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkad.controller.channel import RemoteChannel, Request, Response
from kafkad.errors import ErrorCode
from kafkad.model import NO_LEADER
from kafkad.net.client import LinkError
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
from tests.broker_parts.several import MEMORY, Brokers


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    brokers = Brokers(tmp_path, MEMORY, "auto.leader.rebalance.enable=false")
    brokers.start(1, 2, 3)
    yield brokers
    brokers.stop()


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
    all_down(brokers, 1, 2, isr=(1,))
    replace(tmp_path / "1")
    brokers.start(1, 2)
    brokers.work_for(2_000)
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
    all_down(brokers, 1, 2, isr=(1,))
    replace(tmp_path / "1")
    brokers.start(1, 2)
    brokers.work_for(2_000)
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
