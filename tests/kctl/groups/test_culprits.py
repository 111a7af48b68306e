"""Suspects of holding up a rebalance, from what a coordinator answers and has written down."""

from __future__ import annotations

from kafkad.names import TopicPartition
from kctl.groups.culprits import Fate, fates, judge, longest_wait_ms, suspects
from kctl.groups.group import NEW, Group, Member
from kctl.groups.history import History, LastGeneration, LastMember

A0, A1, A2 = (TopicPartition("a", partition) for partition in range(3))


def last_member(name: str, *assigned: TopicPartition, timeout: int = 60_000) -> LastMember:
    return LastMember(f"{name}-id", None, name, "h", timeout, 10_000, assigned)


def member(name: str, instance: str | None = None, member_id: str = "") -> Member:
    return Member(member_id or f"{name}-id", instance, name, "h")


LAST = LastGeneration(4, "range", 0, (last_member("x", A0), last_member("y", A1, timeout=90_000), last_member("z", A2)))
WAITING_FOR_MEMBERS = Group("g", "PreparingRebalance", members=(member("x"), member("y"), member("n")))


def test_who_waits_who_works_who_is_suspected_and_who_is_gone() -> None:
    history = History({A0: 500, A1: 900}, LAST)
    judged = judge(WAITING_FOR_MEMBERS, history, {A1})
    assert [(one.member.client, one.status, one.held, one.last_commit_ms) for one in judged] == [
        ("x", "suspect", (A0,), 500),
        ("y", "working", (A1,), 900),
        ("n", "waiting", (), None),
        ("z", "gone", (A2,), None),
    ]
    assert longest_wait_ms(LAST) == 90_000


def test_suspects_are_tried_by_their_last_commit_and_those_that_work_last() -> None:
    group = WAITING_FOR_MEMBERS._replace(members=tuple(map(member, "xyzn")))
    history = History({A0: 500, A1: 400}, LAST)
    assert [one.member.client for one in suspects(judge(group, history))] == ["z", "y", "x"]
    assert [one.member.client for one in suspects(judge(group, history, {A2}))] == ["y", "x", "z"]


def test_nothing_is_claimed_without_the_history() -> None:
    judged = judge(WAITING_FOR_MEMBERS, History({}, None, "not allowed"))
    assert {(one.status, one.why) for one in judged} == {("unknown", "not allowed")}
    assert suspects(judged) == []


def test_a_group_without_a_generation_before_has_only_members_that_joined() -> None:
    assert {one.status for one in judge(WAITING_FOR_MEMBERS, History({}, None))} == {"waiting"}


def test_nobody_is_suspected_at_other_times() -> None:
    for state, status in (("CompletingRebalance", "joined"), ("Stable", "ready")):
        judged = judge(WAITING_FOR_MEMBERS._replace(state=state), History({}, LAST))
        assert {one.status for one in judged} == {status}
        assert suspects(judged) == []


def test_members_of_the_new_protocol_say_it_themselves() -> None:
    members = (
        Member("done", None, "c", "h", (), (A0,), (A0,), 7),
        Member("slow", None, "c", "h", (), (A1, A2), (A1,), 6),
        Member("next", None, "c", "h", (), (), (A2,), 7),
        Member("late", None, "c", "h", (), (), (), 6),
    )
    judged = judge(Group("g", "Reconciling", NEW, members=members, epoch=7), History({A1: 5}, None))
    assert [(one.status, one.why) for one in judged] == [
        ("ready", ""),
        ("behind", "epoch 6 of 7, has 1 to give up"),
        ("waiting", "epoch 7 of 7, waits for 1"),
        ("behind", "epoch 6 of 7"),
    ]
    assert [one.member.id for one in suspects(judged)] == ["late", "slow"]


def test_what_became_of_the_members() -> None:
    before = [member("x"), member("y"), member("z"), member("s", "one"), member("s", "two", "s2"), member("l")]
    after = [member("x"), member("y", None, "y-new"), member("s", "one", "s-new"), member("n")]
    removed = {"y-id", "z-id", "s-id", "s2"}
    assert [(fate.now and fate.now.id, fate.word) for fate in fates(before, removed, after)] == [
        ("x-id", "stayed"),
        ("y-new", "returned"),
        (None, "did not return"),
        ("s-new", "returned"),
        (None, "did not return"),
        (None, "left"),
        ("n-id", "new"),
    ]


def test_one_that_came_is_only_one_of_those_that_went() -> None:
    twins = [member("t", None, "1"), member("t", None, "2")]
    found = fates(twins, {"1", "2"}, [member("t", None, "3")])
    assert [fate.word for fate in found] == ["returned", "did not return"]
    assert found[0] == Fate(twins[0], member("t", None, "3"), True)
