from __future__ import annotations

import pytest

from kctl.configs.values import (
    APPEND,
    DELETE,
    RATES_OF_MOVES,
    SET,
    SUBTRACT,
    Assignment,
    effect,
    effect_on_topics,
    in_milliseconds,
    is_same,
    misspelt,
    parse_assignment,
    parse_assignments,
    result,
    said,
    with_meaning,
    with_unit,
    without_brackets,
)
from kctl.errors import Exit, KctlError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("retention.ms=7d", Assignment("retention.ms", SET, "604800000")),
        ("retention.ms=-1", Assignment("retention.ms", SET, "-1")),
        ("retention.ms = 1h30m", Assignment("retention.ms", SET, "5400000")),
        ("segment.bytes=256MiB", Assignment("segment.bytes", SET, "268435456")),
        ("leader.replication.throttled.rate=50MB/s", Assignment("leader.replication.throttled.rate", SET, "50000000")),
        ("max.connection.creation.rate=0/s", Assignment("max.connection.creation.rate", SET, "0/s")),
        (f"{RATES_OF_MOVES[2]}=50MB/s", Assignment(RATES_OF_MOVES[2], SET, "50000000")),
        ("cleanup.policy+=compact", Assignment("cleanup.policy", APPEND, "compact")),
        ("cleanup.policy-=delete", Assignment("cleanup.policy", SUBTRACT, "delete")),
        ("listener.name.a.sasl.jaas.config=x y=z;", Assignment("listener.name.a.sasl.jaas.config", SET, "x y=z;")),
        ("retention.ms=", Assignment("retention.ms", SET, "")),
    ],
)
def test_what_people_write(text: str, expected: Assignment) -> None:
    assert parse_assignment(text) == expected


@pytest.mark.parametrize(
    ("text", "bare"), [("[a,b]", "a,b"), ("[]", ""), ("[a", "[a"), ("a]", "a]"), ("[::1]:5", "[::1]:5")]
)
def test_brackets_are_taken_off_as_a_pair(text: str, bare: str) -> None:
    assert without_brackets(text) == bare


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("TRUE", "true", True),
        ("0.50", "0.5", True),
        ("a, b", "a,b", True),
        (None, "", True),
        ("a,b", "b,a", False),
        ("A", "a", False),
        ("1", "2", False),
        ("9223372036854775807", "9223372036854775000", False),
    ],
)
def test_values_that_brokers_write_their_own_way(one: str | None, other: str | None, same: bool) -> None:
    assert is_same(one, other) is same


@pytest.mark.parametrize(
    "texts",
    [["retention.ms"], ["=7d"], ["retention.ms=soon"], ["a=1", "a=2"], ["leader.replication.throttled.rate=0.5"]],
)
def test_what_they_should_not(texts: list[str]) -> None:
    with pytest.raises(KctlError) as caught:
        parse_assignments(texts)
    assert caught.value.exit_code == Exit.USAGE


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("retention.ms", "604800000", "7d"),
        ("retention.ms", "-1", "unlimited"),
        ("flush.ms", str(2**63 - 1), "unlimited"),
        ("retention.ms", "90061000", "90061s"),
        ("retention.ms", "90061001", "1d01h"),
        ("retention.ms", "1500", "1.5s"),
        ("linger.ms", "5", None),
        ("segment.bytes", "1073741824", "1GiB"),
        ("max.message.bytes", "1048588", "1.0 MB"),
        ("min.insync.replicas", "2000", None),
        ("cleanup.policy", "delete", None),
        ("retention.ms", None, None),
        ("retention.ms", "9" * 5000, None),
        ("max.connection.creation.rate", "2147483647", None),
        (RATES_OF_MOVES[0], "50000000", "50.0 MB"),
    ],
)
def test_what_a_value_means(name: str, value: str | None, expected: str | None) -> None:
    assert said(name, value) == expected


def test_a_value_with_its_unit() -> None:
    settings = [("retention.ms", "7"), ("retention.ms", "0"), ("retention.bytes", "10"), ("retention.ms", "604800000")]
    assert [with_unit(*each) for each in settings] == ["7 ms", "0 ms", "10 B", "7d"]
    assert [with_unit(name, "500") for name in RATES_OF_MOVES] == ["500 B"] * 3
    assert [with_unit("min.insync.replicas", "2"), with_unit("retention.ms", None)] == ["2", None]
    assert with_unit("retention.ms", "-1") == "unlimited" and with_unit("segment.jitter.ms", "-5") == "-5"


def test_a_value_with_its_meaning() -> None:
    assert with_meaning("retention.ms", "604800000") == "604800000 (7d)"
    assert with_meaning("cleanup.policy", "delete") == "delete"


@pytest.mark.parametrize(
    ("old", "change", "expected"),
    [
        ("delete", Assignment("x", APPEND, "compact"), "delete,compact"),
        ("delete", Assignment("x", APPEND, "delete"), "delete"),
        ("", Assignment("x", APPEND, "a,b"), "a,b"),
        (None, Assignment("x", APPEND, "a"), "a"),
        ("a,b,c", Assignment("x", SUBTRACT, "b,d"), "a,c"),
        ("a", Assignment("x", SUBTRACT, "a"), ""),
        ("a", Assignment("x", SET, "b"), "b"),
        ("a", Assignment("x", DELETE, None), None),
    ],
)
def test_value_after_a_change(old: str | None, change: Assignment, expected: str | None) -> None:
    assert result(old, change) == expected


def test_misspelt_names() -> None:
    known = ["retention.ms", "retention.bytes"]
    wrong = misspelt("retention.mss", known)
    assert wrong is not None
    assert (wrong.exit_code, '"retention.ms"' in wrong.hints[0]) == (Exit.USAGE, True)
    assert misspelt("retention.ms", known) is None
    assert misspelt("my.plugin.setting", known) is None
    similar = "log.cleaner.io.max.bytes.per.second"
    assert misspelt("replica.alter.log.dirs.io.max.bytes.per.second", [similar]) is None
    assert misspelt("replica.alter.log.dirs.io.max.bytes.per.secnd", [similar]) is not None
    assert misspelt("retention.mss", []) is None


@pytest.mark.parametrize(
    ("name", "old", "new", "expected"),
    [
        ("retention.ms", "604800000", "86400000", "deletes data older than 1d now"),
        ("retention.ms", "604800000", "7", "deletes data older than 7 ms now"),
        ("retention.bytes", "-1", "10", "deletes the oldest data of partitions larger than 10 B now"),
        ("max.message.bytes", "2000", "999", "producers with batches above 999 B are refused"),
        ("retention.ms", "-1", "86400000", "deletes data older than 1d now"),
        ("retention.ms", "86400000", "604800000", None),
        ("retention.ms", "86400000", "-1", None),
        ("retention.bytes", "-1", "1073741824", "deletes the oldest data of partitions larger than 1GiB now"),
        ("cleanup.policy", "compact", "compact,delete", "deletes data older than retention.ms or beyond"),
        ("cleanup.policy", "delete", "compact", "keeps only the newest record of each key"),
        ("cleanup.policy", "compact,delete", "delete", None),
        ("cleanup.policy", "delete", "", "keeps all records"),
        ("unclean.leader.election.enable", "false", "true", "acknowledged records may be lost"),
        ("min.insync.replicas", "1", "2", "writes with acks=all stop while fewer than 2"),
        ("max.message.bytes", "2000000", "1000000", "producers with batches above 1.0 MB are refused"),
        ("segment.ms", "2", "1", None),
        ("retention.ms", "-1", None, "may delete data: the default is not known"),
        ("retention.bytes", "-1", None, "may delete data: the default is not known"),
        ("cleanup.policy", "compact", None, "may delete data: the default is not known"),
        ("segment.ms", "2", None, None),
    ],
)
def test_what_follows_from_a_change(name: str, old: str, new: str | None, expected: str | None) -> None:
    told = effect(name, old, new)
    assert told is None if expected is None else (told or "").startswith(expected)


@pytest.mark.parametrize(
    ("name", "old", "new", "expected"),
    [
        ("log.retention.ms", None, "60000", "deletes data older than 1m now"),
        ("log.retention.bytes", "-1", "1000", "deletes the oldest data of partitions larger than 1.0 KB now"),
        ("log.retention.ms", "60000", None, "may delete data: the default is not known"),
        ("log.cleanup.policy", "delete", "compact", "keeps only the newest record of each key"),
        ("unclean.leader.election.enable", None, "true", "acknowledged records may be lost"),
        ("min.insync.replicas", None, "2", "writes with acks=all stop while fewer than 2"),
        ("message.max.bytes", None, "2000", "producers with batches above 2.0 KB are refused"),
        ("log.retention.ms", "60000", "-1", None),
        ("min.insync.replicas", None, "1", None),
        ("num.io.threads", "8", "1", None),
    ],
)
def test_what_follows_from_a_change_of_brokers(
    name: str, old: str | None, new: str | None, expected: str | None
) -> None:
    told = effect_on_topics(name, old, new)
    begin = f"topics without a value of their own: {expected}"
    assert told is None if expected is None else (told or "").startswith(begin)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("log.retention.hours", "168", "604800000"),
        ("log.retention.minutes", "10", "600000"),
        ("log.retention.hours", "-1", "-1"),
        ("log.retention.ms", "5", "5"),
        ("log.roll.hours", None, None),
    ],
)
def test_what_brokers_count_in_other_units(name: str, value: str | None, expected: str | None) -> None:
    assert in_milliseconds(name, value) == expected
