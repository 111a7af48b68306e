"""`kctl groups list`, `describe`, `members` and `lag`, on kafkad."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition, home_partition
from kctl.errors import Exit, KctlError, failure
from kctl.groups import group_lag, history
from kctl.reach.connection import Connection
from kctl.reach.session import Session
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl
from tests.kctl.groups.reading import commit, commit_as, make_topic, reading


@pytest.fixture
def port(broker: KafkadProcess) -> int:
    return broker.port


def test_describes_members_and_partitions(on_broker: Kctl, port: int, approved: Callable[[str, str], None]) -> None:
    make_topic(port, "shown", 30, 20, 5, 0)
    with reading(port, "showing", "shown", {"first": [0, 1], "second": [2, 3]}) as (first, _):
        commit_as(first, {TopicPartition("shown", 0): 12, TopicPartition("shown", 1): 20})
        ran = on_broker("groups", "describe", "showing")
        assert (ran.code, ran.err) == (Exit.DONE, "")
        aged = re.sub(r" +(\d+m)?\d+s  (?=first)", lambda found: "0s  ".rjust(len(found[0])), ran.out)
        approved("groups-describe", aged)
        approved("groups-members", on_broker("groups", "describe", "showing", "--members").out)
        approved("groups-list", on_broker("groups", "list", "showing").out)
        approved("groups-lag", on_broker("groups", "lag", "showing", "--by", "partition").out)
        by_member = on_broker("groups", "lag", "showing", "--by", "member", "-o", "csv", "--columns", "member,lag")
        assert by_member.out.splitlines() == ["member,lag", "first,18", "second,5"]


def test_json_has_a_group_with_all_that_belongs_to_it(on_broker: Kctl, port: int) -> None:
    make_topic(port, "shown-json", 10, 20)
    with reading(port, "showing-json", "shown-json", {"only": [0, 1]}) as (member,):
        commit_as(member, {TopicPartition("shown-json", 0): 4})
        whole = json.loads(on_broker("groups", "describe", "showing-json", "-o", "json").out)
        (group,) = whole["items"]
        named = (group["state"], group["protocol"], group["generation"], group["coordinator"], group["lag"])
        assert named == ("Stable", "range", member.generation, 1, 26)
        (told,) = group["members"]
        assert on_broker("groups", "members", "showing-json", "-o", "name").out == f"{member.id}\n"
        assert (told["member_id"], told["topics"], told["assigned"]) == (
            member.id,
            ["shown-json"],
            ["shown-json-0", "shown-json-1"],
        )
        read, unread = group["offsets"]
        assert (read["committed"], read["end"], read["lag"], read["behind_ms"]) == (4, 10, 6, 5)
        assert 0 <= read["commit_age_ms"] < 600_000
        assert (unread["committed"], unread["lag"], unread["note"], unread["commit_age_ms"]) == (
            None,
            20,
            "no commit",
            None,
        )


def test_an_unknown_group_is_not_found(on_broker: Kctl, port: int) -> None:
    make_topic(port, "known-topic", 1)
    commit(port, "known-group", {TopicPartition("known-topic", 0): 1})
    for verb in ("describe", "lag", "list", "members"):
        ran = on_broker("groups", verb, "known-groop")
        assert ran.code == Exit.NOT_FOUND, verb
        assert 'group "known-groop" does not exist (GROUP_ID_NOT_FOUND)' in ran.err
        assert 'did you mean "known-group"' in ran.err


def test_the_others_are_shown_nevertheless(on_broker: Kctl, port: int) -> None:
    make_topic(port, "partly-topic", 3)
    commit(port, "partly", {TopicPartition("partly-topic", 0): 1})
    ran = on_broker("groups", "lag", "nobody-knows", "partly", "-o", "csv", "--no-headers", "--columns", "group,lag")
    assert (ran.code, ran.out.split()) == (Exit.NOT_FOUND, ["partly,2"])


def test_a_deleted_topic_is_a_line_of_its_own(on_broker: Kctl, port: int) -> None:
    """A coordinator forgets commits with their topic, but not at once; here it is an assignment that is left over."""
    make_topic(port, "to-stay", 3)
    with reading(port, "mourning", "gone", {"only": [0]}) as (member,):
        commit_as(member, {TopicPartition("to-stay", 0): 1})
        ran = on_broker("groups", "describe", "mourning", "-o", "csv", "--columns", "topic,lag,note")
        assert ran.code == Exit.DONE
        assert ran.out.splitlines()[1:] == ["gone,,deleted", "to-stay,2,"]
        assert on_broker("groups", "lag", "mourning", "-o", "csv", "--columns", "topic,lag").out.splitlines()[1:] == [
            "gone,",
            "to-stay,2",
        ]


def test_how_many_records_of_a_lag_are_gone(on_broker: Kctl, port: int) -> None:
    make_topic(port, "shown-gone", 10, 10)
    commit(port, "showing-gone", {TopicPartition("shown-gone", 0): 2, TopicPartition("shown-gone", 1): 7})
    assert on_broker("topics", "truncate", "shown-gone", "--before", 6, "-y").code == Exit.DONE
    ran = on_broker("groups", "describe", "showing-gone", "-o", "csv", "--columns", "partition,lag,note")
    assert ran.out.splitlines()[1:] == ["0,8,4 are gone", "1,3,"]


def test_whoever_may_not_read_the_history_learns_less(
    on_broker: Kctl, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(port, "closed", 3)
    commit(port, "closed", {TopicPartition("closed", 0): 1})
    monkeypatch.setattr(history, "GROUPS_TOPIC", "not-to-be-read")
    ran = on_broker("groups", "describe", "closed", "-o", "csv", "--no-headers", "--columns", "lag,commit_age_ms")
    assert (ran.code, ran.out) == (Exit.DONE, "2,\r\n")
    assert "times of commits are not known: not-to-be-read cannot be read (UNKNOWN_TOPIC_OR_PARTITION)" in ran.err


def test_commits_of_groups_with_the_same_home_are_read_once(on_broker: Kctl, port: int) -> None:
    make_topic(port, "at-home", 3)
    home = home_partition("at-home-0", 50)
    names = [name for name in map("at-home-{}".format, range(300)) if home_partition(name, 50) == home]
    for name in names:
        commit(port, name, {TopicPartition("at-home", 0): 3})

    def fetches(*groups: str) -> int:
        columns = ("-o", "csv", "--no-headers", "--columns", "lag,commit_age_ms")
        ran = on_broker("-v", "groups", "describe", *groups, *columns)
        assert len(re.findall(r"0,\d+\r\n", ran.out)) == len(groups)
        return ran.err.count("FetchRequest") - ran.err.count("OffsetFetchRequest")

    assert len(names) > 3
    assert fetches(*names) == fetches(names[0]) > 0


def test_the_record_that_several_groups_read_next_is_looked_up_once(on_broker: Kctl, port: int) -> None:
    make_topic(port, "same-place", 30)
    names = [f"same-place-{number}" for number in range(5)]
    for name in names:
        commit(port, name, {TopicPartition("same-place", 0): 10})
    columns = ("-o", "csv", "--no-headers", "--columns", "lag,behind_ms")
    ran = on_broker("-v", "groups", "describe", *names, *columns)
    assert ran.out.split("\r\n")[:-1] == ["20,19"] * 5
    alone = on_broker("-v", "groups", "describe", names[0], *columns)
    assert ran.err.count("ListOffsetsRequest") == alone.err.count("ListOffsetsRequest")


def test_partitions_that_nobody_reads(on_broker: Kctl, port: int) -> None:
    make_topic(port, "half-read", 3, 3)
    commit(port, "half", {TopicPartition("half-read", 1): 1})
    columns = ("-o", "csv", "--no-headers", "--columns", "partition,lag,note")
    assert on_broker("groups", "describe", "half", *columns).out.split("\r\n")[:-1] == ["1,2,"]
    every = on_broker("groups", "describe", "half", "--all-partitions", *columns)
    assert every.out.split("\r\n")[:-1] == ["0,,nobody reads it", "1,2,"]


def test_filters_of_the_list(on_broker: Kctl, port: int) -> None:
    make_topic(port, "filter-a", 50)
    make_topic(port, "filter-b", 5)
    commit(port, "filter-1", {TopicPartition("filter-a", 0): 10})
    commit(port, "filter-2", {TopicPartition("filter-b", 0): 1})

    def names(*options: str) -> list[str]:
        return on_broker("groups", "list", "--match", "filter-*", "-o", "name", *options).out.split()

    assert names() == ["filter-1", "filter-2"]
    assert names("--topic", "filter-b") == ["filter-2"]
    assert names("--lagging", "4") == ["filter-1"]
    assert names("--state", "empty") == ["filter-1", "filter-2"]
    assert names("--state", "stable") == []
    assert names("--type", "consumer") == []
    assert "OffsetFetch" not in on_broker("-v", "groups", "list", "--match", "filter-*", "--state", "dead").err


def test_fails_above(on_broker: Kctl, port: int) -> None:
    make_topic(port, "above", 10)
    commit(port, "above", {TopicPartition("above", 0): 3})
    assert on_broker("groups", "lag", "above", "--fail-above", "7").code == Exit.DONE
    assert on_broker("groups", "lag", "above", "--fail-above", "6").code == Exit.FINDINGS
    assert on_broker("groups", "lag", "above", "--min", "8", "-o", "csv", "--no-headers").out == ""


AWAY = failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, "a partition has no leader")
UNSEEN = failure(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "some may not be seen")


MISSING = (
    ("list --match missed*", Exit.DONE, Exit.DONE),
    ("list --match missed* -o json", Exit.UNREACHABLE, Exit.DONE),
    ("list --match missed* --lagging 0", Exit.UNREACHABLE, Exit.UNAUTHORIZED),
    ("lag --match missed*", Exit.DONE, Exit.DONE),
    ("lag --match missed* -o json", Exit.UNREACHABLE, Exit.DONE),
    ("lag --match missed* --fail-above 7", Exit.UNREACHABLE, Exit.UNAUTHORIZED),
    ("lag --match missed* --fail-above 6", Exit.FINDINGS, Exit.FINDINGS),
    ("lag missed --fail-above 7", Exit.DONE, Exit.DONE),
    ("describe --match missed* -o json", Exit.UNREACHABLE, Exit.DONE),
    ("members --match missed* -o json", Exit.UNREACHABLE, Exit.DONE),
    ("export --match missed*", Exit.DONE, Exit.DONE),
    ("export --match missed* -o json", Exit.UNREACHABLE, Exit.DONE),
    ("describe missing --match missed*", Exit.UNREACHABLE, Exit.UNAUTHORIZED),
    ("reset-offsets --match missed* --all-topics --to-earliest --dry-run", Exit.DONE, Exit.DONE),
    ("delete --match missed* --dry-run", Exit.DONE, Exit.DONE),
)
"""What is done, and its exit codes where a group may be missing for `AWAY` and for `UNSEEN`."""


def test_groups_that_are_missing_are_told_and_no_success_for_who_decides(
    on_broker: Kctl, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(port, "missed", 10)
    commit(port, "missed", {TopicPartition("missed", 0): 3})
    for command, *expected in MISSING:
        for why, code in zip((AWAY, UNSEEN), expected, strict=True):
            monkeypatch.setattr(Session, "unlisted", lambda session, kind, why=why: [why])
            ran = on_broker("groups", *command.split())
            assert ran.code == code, (command, ran.err)
            assert (why.with_code in ran.err) == ("--match" in command), (command, ran.err)


def test_an_end_that_cannot_be_read_is_no_success_for_who_decides_by_it(
    on_broker: Kctl, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(port, "silent", 10)
    commit(port, "silent", {TopicPartition("silent", 0): 3})
    down = KctlError("it has no leader", code=ErrorCode.LEADER_NOT_AVAILABLE.name)
    monkeypatch.setattr(group_lag, "offsets_at", lambda session, times, committed=False: dict.fromkeys(times, down))
    ran = on_broker("groups", "lag", "silent", "--fail-above", "7", "-o", "json")
    [item] = json.loads(ran.out)["items"]
    assert (ran.code, item["lag"], item["unknown"]) == (Exit.UNREACHABLE, None, 1)
    assert "lag is not known of 1 partition: no leader" in ran.err
    ran = on_broker("groups", "list", "silent", "--lagging", "100", "-o", "name")
    assert (ran.code, ran.out) == (Exit.UNREACHABLE, "silent\n")
    ran = on_broker("groups", "describe", "silent", "--no-time")
    assert (ran.code, "lag at least 0 on 0 of 1 partitions   1 not known" in ran.out) == (Exit.DONE, True)
    assert "lag is not known of 1 partition: no leader" in ran.err
    for words in (("lag",), ("list",), ("members",)):
        assert on_broker("groups", *words, "silent").code == Exit.DONE


def test_watches_in_lines_of_json(on_broker: Kctl, port: int) -> None:
    make_topic(port, "watched", 10)
    commit(port, "watched", {TopicPartition("watched", 0): 3})
    ran = on_broker("groups", "lag", "watched", "--watch=0.01s", "--samples", "3", "-o", "json")
    rows = [json.loads(line) for line in ran.out.splitlines()]
    assert [row["lag"] for row in rows] == [7, 7, 7]
    assert [row["trend"] for row in rows] == [None, "stalled", "stalled"], "nobody is there to commit"
    text = on_broker("groups", "lag", "watched", "--watch=0.01s", "--samples", "2").out
    assert "never: no members" in text
    assert "1 group, lag 7\n" in text, "there is no slowest partition where nobody reads"


def test_brokers_that_ask_for_one_group_at_a_time(on_broker: Kctl, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As before Kafka 3.0."""
    make_topic(port, "single", 10)
    for group in ("single-1", "single-2"):
        commit(port, group, {TopicPartition("single", 0): 3})
    newest = Connection.version_of
    old = {9: 7, 10: 3, 15: 4}

    def version_of(self: Connection, request: object) -> int | None:
        version = newest(self, request)
        return version and min(version, old.get(request.__schema__.key, version))  # type: ignore[attr-defined]

    monkeypatch.setattr(Connection, "version_of", version_of)
    ran = on_broker(
        "groups", "lag", "single-2", "single-1", "none", "-o", "csv", "--no-headers", "--columns", "group,lag"
    )
    assert (ran.code, ran.out.split()) == (Exit.NOT_FOUND, ["single-2,7", "single-1,7"])
