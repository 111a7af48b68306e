from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from kafkad.errors import ErrorCode
from kafkad.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kafkad.wire.schema import Request
from kctl.configs import of_topics
from kctl.errors import Exit, KctlError, failure
from kctl.groups import group_lag
from kctl.groups.group import Listed
from kctl.reach.session import Broker, Cluster, Session
from kctl.texts.scopes import parse_numbers
from kctl.topics import details
from kctl.topics.describe import health_line
from kctl.topics.details import PartitionDetails, TopicDetails, total
from tests.kctl.conftest import Kctl


def created(kctl: Kctl, *arguments: object) -> None:
    ran = kctl("topics", "create", *arguments, "-y")
    assert ran.code == Exit.DONE, ran.err


def partition(index: int, health: list[str], isr: list[int]) -> PartitionDetails:
    return PartitionDetails(index, 1, 0, [1, 2, 3], isr, [], 0, 0, 0, 0, None, health)


def topic(*partitions: PartitionDetails, min_isr: int | None = 2) -> TopicDetails:
    return TopicDetails("a", None, False, 3, min_isr, min_isr, list(partitions), [])


@pytest.mark.parametrize(
    ("shown", "there", "silent", "expected"),
    [
        ([(["ok"], [1, 2, 3])], [1, 2, 3], [], "ok"),
        (
            [(["at-min-isr", "under-replicated"], [1, 2]), (["ok"], [1, 2, 3])],
            [1, 2],
            [],
            "1 at-min-isr, 1 under-replicated: broker 3 is down; writes continue (2 in sync, 2 needed)",
        ),
        (
            [(["under-min-isr"], [1])],
            [1],
            [],
            "1 under-min-isr: brokers 2, 3 are down; writes with acks=all fail (1 in sync, 2 needed)",
        ),
        ([(["not-preferred"], [1, 2, 3])], [1, 2, 3], [], "1 not-preferred"),
        (
            [(["unreachable"], [1, 2, 3])],
            [1, 2, 3],
            [3],
            "1 unreachable: broker 3 does not answer; nothing can be written to or read from what is unreachable",
        ),
        (
            [(["under-replicated"], [1, 2])],
            [1, 2],
            [1, 2],
            "1 under-replicated: broker 3 is down, brokers 1, 2 do not answer; writes continue (2 in sync, 2 needed)",
        ),
    ],
)
def test_health_in_a_line(
    shown: list[tuple[list[str], list[int]]], there: list[int], silent: list[int], expected: str
) -> None:
    partitions = [partition(index, health, isr) for index, (health, isr) in enumerate(shown)]
    cluster = Cluster("c", 1, {broker: Broker(broker, "h", 1, None) for broker in there})
    assert health_line(topic(*partitions), cluster, silent) == expected


def test_totals_are_known_or_not() -> None:
    assert (total([1, 2]), total([]), total([1, None])) == (3, 0, None)


def test_ranges_of_partitions() -> None:
    assert parse_numbers("0,3-5") == [0, 3, 4, 5]
    for wrong in ("", "a", "1-", "-1", "1,,2"):
        with pytest.raises(KctlError):
            parse_numbers(wrong)


def test_shows_partitions_and_settings(on_broker: Kctl, approved: Callable[[str, str], None]) -> None:
    created(on_broker, "describe-shown", "-p", 3, "-r", 1, "--config", "retention.ms=7d")
    ran = on_broker("topics", "describe", "describe-shown")
    assert (ran.code, ran.err) == (Exit.DONE, "")
    approved("topics-describe", ran.out)


def test_json_has_partitions_and_settings(on_broker: Kctl) -> None:
    created(on_broker, "describe-json", "-p", 2, "-r", 1, "--config", "segment.bytes=1MiB")
    whole = json.loads(on_broker("topics", "describe", "describe-json", "-o", "json").out)
    (item,) = whole["items"]
    assert [p["partition"] for p in item["partitions"]] == [0, 1]
    first = item["partitions"][0]
    assert (first["leader"], first["replicas"], first["isr"], first["out"]) == (1, [1], [1], [])
    assert (first["start_offset"], first["end_offset"], first["last_timestamp"]) == (0, 0, None)
    assert item["configs"] == [{"name": "segment.bytes", "value": "1048576", "source": "topic", "default": False}]
    everything = json.loads(on_broker("topics", "describe", "describe-json", "--configs", "all", "-o", "json").out)
    assert len(everything["items"][0]["configs"]) > 30


def test_some_partitions(on_broker: Kctl) -> None:
    created(on_broker, "describe-some", "-p", 3, "-r", 1)
    ran = on_broker("topics", "describe", "describe-some", "--partitions", "1,7", "-o", "json")
    assert ran.code == Exit.NOT_FOUND
    assert [p["partition"] for p in json.loads(ran.out)["items"][0]["partitions"]] == [1]
    assert 'topic "describe-some" has no partition 7' in ran.err


def test_nothing_unhealthy(on_broker: Kctl) -> None:
    created(on_broker, "describe-fine", "-p", 1, "-r", 1)
    ran = on_broker("topics", "describe", "describe-fine", "--unhealthy")
    assert (ran.code, ran.out) == (Exit.DONE, "all healthy\n")


def test_more_needed_in_sync_than_there_are(on_broker: Kctl) -> None:
    created(on_broker, "describe-strict", "-p", 1, "-r", 1, "--config", "min.insync.replicas=2")
    ran = on_broker("topics", "describe", "describe-strict")
    assert "min.insync.replicas 2 (these brokers ask for 1: there are no more replicas)" in ran.out
    assert "health  ok" in ran.out
    assert on_broker("produce", "describe-strict", "--value", "v", "--acks", "all").code == Exit.DONE


def test_unknown_topics(on_broker: Kctl) -> None:
    created(on_broker, "describe-known", "-p", 1, "-r", 1)
    ran = on_broker("topics", "describe", "describe-known", "describe-knwn", "-o", "name")
    assert (ran.code, ran.out) == (Exit.NOT_FOUND, "describe-known\n")
    assert 'did you mean "describe-known"' in ran.err


def test_of_all_topics_offsets_are_left_out(on_broker: Kctl) -> None:
    created(on_broker, "describe-all", "-p", 1, "-r", 1)
    ran = on_broker("topics", "describe")
    assert "describe-all  1 partition x 1" in ran.out
    assert "START" not in ran.out
    assert "START" in on_broker("topics", "describe", "--offsets").out
    assert "START" not in on_broker("topics", "describe", "describe-all", "--no-offsets").out


def test_groups_that_read_it(on_broker: Kctl) -> None:
    created(on_broker, "describe-read", "-p", 2, "-r", 1)
    commit = ("--topic", "describe-read", "--to", "earliest", "-y")
    assert on_broker("groups", "reset-offsets", "describe-reader", *commit).code == Exit.DONE
    assert "groups   describe-reader Empty lag 0" in on_broker("topics", "describe", "describe-read", "--groups").out
    ran = on_broker("topics", "describe", "describe-read", "--groups", "-o", "json")
    (item,) = json.loads(ran.out)["items"]
    reader = {"group": "describe-reader", "state": "Empty", "type": "classic", "lag": 0, "members": 0}
    assert item["groups"] == [reader]
    dry = on_broker("topics", "delete", "describe-read", "--dry-run", "-o", "json")
    assert json.loads(dry.out)["items"][0]["groups"] == ["describe-reader"]


@pytest.mark.parametrize("verb", ["describe", "offsets"])
def test_partitions_that_are_not_there_are_told(on_broker: Kctl, verb: str) -> None:
    created(on_broker, f"few-{verb}", "-p", 2)
    ran = on_broker("topics", verb, f"few-{verb}", "--partitions", "1,9")
    assert (ran.code, f'topic "few-{verb}" has no partition 9' in ran.err) == (Exit.NOT_FOUND, True)
    assert ran.out, "the other one is shown"


def test_a_note_of_what_is_not_known_says_why(on_broker: Kctl, monkeypatch: pytest.MonkeyPatch) -> None:
    def hide(session: Session, topics: Iterable[str], keys: object) -> of_topics.TopicSettings:
        return of_topics.TopicSettings({}, [failure(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "settings")])

    created(on_broker, "unseen", "-p", 1, "-r", 1)
    monkeypatch.setattr(details, "topic_settings", hide)
    ran = on_broker("topics", "describe", "unseen")
    assert ran.err == "settings are incomplete: settings (TOPIC_AUTHORIZATION_FAILED)\n"


def test_groups_that_no_broker_tells_are_not_taken_for_none(on_broker: Kctl, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Session.call_each

    def loading(session: Session, requests: Mapping[int, Request[Any]]) -> dict[int, Any]:
        if any(isinstance(request, ListGroupsRequest) for request in requests.values()):
            return dict.fromkeys(requests, ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        return answers(session, requests)

    created(on_broker, "unlisted", "-p", 1, "-r", 1)
    monkeypatch.setattr(Session, "call_each", loading)
    ran = on_broker("topics", "describe", "unlisted", "--groups", "-o", "json")
    told = [(error["error"], error["code"]) for error in json.loads(ran.out)["errors"]]
    assert told == [("groups of broker 1", "COORDINATOR_LOAD_IN_PROGRESS")]
    assert ran.code == Exit.UNREACHABLE


def test_readers_that_may_be_missing_are_an_error_for_programs(
    on_broker: Kctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, "a partition has no leader")
    monkeypatch.setattr(Session, "unlisted", lambda session, kind: [away])
    created(on_broker, "half-listed", "-p", 1, "-r", 1)
    ran = on_broker("topics", "describe", "half-listed", "--groups", "-o", "json")
    told = [(error["error"], error["code"]) for error in json.loads(ran.out)["errors"]]
    assert told == [("groups may be missing: a partition has no leader", "COORDINATOR_NOT_AVAILABLE")]
    ran = on_broker("topics", "describe", "half-listed", "--groups")
    assert (ran.code, f"incomplete: {away.with_code}" in ran.err) == (Exit.DONE, True)


def test_a_group_that_has_ended_since_it_was_listed_hides_nothing(
    on_broker: Kctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listed(session: Session) -> tuple[dict[str, Listed], list[KctlError]]:
        return {"ended": Listed("ended", "Stable", "classic", "consumer", 0)}, []

    created(on_broker, "read-before", "-p", 1, "-r", 1)
    monkeypatch.setattr(group_lag, "listed_groups", listed)
    ran = on_broker("topics", "describe", "read-before", "--groups", "-o", "json")
    assert (ran.code, json.loads(ran.out)["errors"]) == (Exit.DONE, [])
