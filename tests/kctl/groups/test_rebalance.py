"""`kctl groups rebalance`, on kafkad: members by hand, some of which do not join again."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator

import pytest

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kctl.errors import Exit
from kctl.groups import rebalance as module
from tests.broker import KafkadProcess
from tests.clients.members import Member, assignment
from tests.kctl.conftest import Kctl, steady
from tests.kctl.groups.reading import commit_as, make_topic, reading


@pytest.fixture
def port(broker: KafkadProcess) -> int:
    return broker.port


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(module, "_RETURN_SECONDS", 0.1)


@contextlib.contextmanager
def held_up(port: int, name: str) -> Iterator[tuple[Member, Member, Member]]:
    """`quick`, the only one that ever committed, has joined again since `newcomer` came, and `stuck` has not."""
    make_topic(port, name, 5, 5)
    with reading(port, name, name, {"stuck": [0], "quick": [1]}, leaving=False) as (stuck, quick):
        commit_as(quick, {TopicPartition(name, 1): 1})
        newcomer = Member(port, name, "newcomer", topic=name)
        try:
            newcomer.start_join()
            quick.wait_for_rebalance()
            quick.start_join()
            yield stuck, quick, newcomer
        finally:
            newcomer.close()


def test_explains_who_waits_and_who_is_suspected(
    on_broker: Kctl, port: int, approved: Callable[[str, str], None]
) -> None:
    with held_up(port, "explained"):
        ran = on_broker("groups", "rebalance", "explained")
        assert ran.code == Exit.DONE, ran
        aged = re.sub(r" +(\d+m)?\d+s$", lambda found: "0s".rjust(len(found[0])), ran.out, flags=re.MULTILINE)
        approved("groups-rebalance", steady(aged))
        whole = json.loads(on_broker("groups", "rebalance", "explained", "--explain", "-o", "json").out)
        told = {row["member"]: (row["status"], row["held"]) for row in whole["items"]}
        assert told == {
            "stuck": ("suspect", "explained:0"),
            "quick": ("suspect", "explained:1"),
            "newcomer": ("waiting", None),
        }
        described = on_broker("groups", "describe", "explained")
        assert "rebalancing: " in described.out
        more = f"kctl -b 127.0.0.1:{port} groups rebalance explained --explain"
        assert f"waiting: newcomer. More: {more}" in described.out


def test_finds_the_one_that_is_stuck(on_broker: Kctl, port: int) -> None:
    with held_up(port, "found-out") as (stuck, quick, newcomer):
        going_on = threading.Thread(target=go_on, args=(quick, newcomer, "found-out"))
        going_on.start()
        ran = on_broker("groups", "rebalance", "found-out", "--suspects", "-y", "--timeout", "30s", "-o", "json")
        going_on.join()
        assert ran.code == Exit.DONE, ran
        told = {row["member"]: (row["fate"], row["held"], row["has"]) for row in json.loads(ran.out)["items"]}
        assert told == {
            "stuck": ("did not return", "found-out:0", None),
            "quick": ("stayed", "found-out:1", "found-out:0"),
            "newcomer": ("stayed", None, "found-out:1"),
        }
        assert "did not return: stuck" in ran.err
        assert stuck.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def go_on(quick: Member, newcomer: Member, topic: str) -> None:
    """As clients do when a rebalance completes: one of them is the leader, and assigns."""
    leads = quick.joined().members
    newcomer_leads = newcomer.joined().members
    shares = {quick.id: assignment(topic, [0]), newcomer.id: assignment(topic, [1])}
    first, second = (quick, newcomer) if leads else (newcomer, quick)
    assert leads or newcomer_leads
    first.sync(shares)
    second.sync({})


def test_names_must_be_those_of_members(on_broker: Kctl, port: int) -> None:
    make_topic(port, "named", 1)
    with reading(port, "named", "named", {"only": [0]}) as (member,):
        for option in ("--member", "--instance"):
            ran = on_broker("groups", "rebalance", "named", option, "onli", "-y")
            assert (ran.code, "(UNKNOWN_MEMBER_ID)" in ran.err) == (Exit.NOT_FOUND, True)
        assert on_broker("groups", "rebalance", "named", "--suspects", "-y").code == Exit.NOT_FOUND
        assert on_broker("groups", "rebalance", "named", "--all").code == Exit.REFUSED
        dry = on_broker("groups", "rebalance", "named", "--member", member.id, "--dry-run")
        assert (dry.code, "dry run" in dry.err) == (Exit.DONE, True)
        assert on_broker("groups", "rebalance", "named", "--all", "--suspects").code == Exit.USAGE
        assert on_broker("groups", "rebalance", "named", "--all", "-y", "--watch").code == Exit.USAGE
        assert member.heartbeat() == ErrorCode.NONE
        ran = on_broker("groups", "rebalance", "named")
        assert (ran.code, ran.out.splitlines()[0]) == (Exit.DONE, "named  Stable  generation 1")
    assert on_broker("groups", "rebalance", "nemed").code == Exit.NOT_FOUND
