"""Scopes, targets and files of offsets, without a broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkad.names import TopicPartition
from kctl.errors import Exit, KctlError
from kctl.groups import reset_offsets
from kctl.groups.offsets_file import FileOffset, csv_text, parse_offsets, save_offsets
from kctl.groups.partition_lag import Range
from kctl.groups.targets import (
    GIVEN,
    NONE_SO_LATE,
    TO_END,
    TO_START,
    WAS_UNCOMMITTED,
    Planned,
    Target,
    effect,
    parse_ago,
    parse_target,
    partitions_of,
    planned,
)
from kctl.texts.scopes import Scope, parse_scope
from tests.work import is_linear

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
NOW = 1_795_000_000_000


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("earliest", Target("earliest")),
        ("latest", Target("latest")),
        ("current", Target("current")),
        ("0", Target("offset", 0)),
        ("+10", Target("shift", 10)),
        ("-10", Target("shift", -10)),
        ("@-30m", Target("time", NOW - 30 * 60_000)),
        ("@2026-11-21T05:30", Target("time", 1_795_239_000_000)),
        ("@1795000000000", Target("time", NOW)),
    ],
)
def test_targets(text: str, target: Target) -> None:
    assert parse_target(text, NOW, utc=True) == target


@pytest.mark.parametrize("text", ["", "now", "1.5", "@soon", "early", "--5", "²"])
def test_no_targets(text: str) -> None:
    with pytest.raises(KctlError) as caught:
        parse_target(text, NOW, utc=True)
    assert caught.value.exit_code == Exit.USAGE


@pytest.mark.parametrize("text", ["PT5M", "5m", "300"])
def test_durations(text: str) -> None:
    assert parse_ago(text, NOW) == Target("time", NOW - 300_000)


@pytest.mark.parametrize(
    ("text", "scope"),
    [("a", Scope("a")), ("a.b-c_d:0", Scope("a.b-c_d", (0,))), ("a:3,0-2,1", Scope("a", (3, 0, 1, 2)))],
)
def test_scopes(text: str, scope: Scope) -> None:
    assert parse_scope(text) == scope


@pytest.mark.parametrize("text", ["", ":0", "a:", "a:x", "a:1,", "a:-1", "a:1:2"])
def test_no_scopes(text: str) -> None:
    with pytest.raises(KctlError):
        parse_scope(text)


def test_partitions_in_scopes() -> None:
    there = {"a": [1, 0], "b": [0]}
    assert partitions_of([Scope("a"), Scope("b", (0,)), Scope("a", (1,))], there) == [A0, A1, B0]
    with pytest.raises(KctlError, match='topic "b" has no partition 1'):
        partitions_of([Scope("b", (0, 1))], there)


@pytest.mark.parametrize(
    ("target", "current", "found", "new", "note"),
    [
        (Target("earliest"), 15, None, 10, ""),
        (Target("latest"), None, None, 20, ""),
        (Target("current"), 15, None, 15, ""),
        (Target("current"), None, None, 20, WAS_UNCOMMITTED),
        (Target("offset", 12), 15, None, 12, ""),
        (Target("offset", 9), 15, None, 10, TO_START),
        (Target("offset", 21), None, None, 20, TO_END),
        (Target("shift", -3), 15, None, 12, ""),
        (Target("shift", -6), 15, None, 10, TO_START),
        (Target("shift", 6), 15, None, 20, TO_END),
        (Target("time", NOW), 15, 18, 18, ""),
        (Target("time", NOW), 15, -1, 20, NONE_SO_LATE),
        (Target("given"), 15, 13, 13, ""),
        (Target("given"), 15, 99, 20, TO_END),
    ],
)
def test_where_a_partition_goes(target: Target, current: int | None, found: int | None, new: int, note: str) -> None:
    assert planned(A0, target, current, Range(10, 20), found) == Planned(A0, current, new, 20, note)


def test_what_is_not_committed_cannot_be_shifted() -> None:
    with pytest.raises(KctlError, match="a-0 has no commit"):
        planned(A0, Target("shift", 1), None, Range(0, 9))


@given(
    st.sampled_from(["earliest", "latest", "offset", "shift", "given"]),
    st.integers(-50, 50),
    st.integers(0, 30),
    st.integers(0, 30),
    st.integers(0, 60),
)
def test_no_offset_is_outside_of_the_partition(kind: str, value: int, start: int, size: int, current: int) -> None:
    there = Range(start, start + size)
    one = planned(A0, Target(kind, value), current, there)
    assert there.start <= one.new <= there.end
    wanted = {"offset": value, "given": value, "shift": current + value}.get(kind, one.new)
    assert (one.new == wanted) == (one.note == "")


def test_the_effect_in_words() -> None:
    plan = [Planned(A0, 5000, 10, 9000), Planned(A1, 5, 7, 9), Planned(B0, None, 7, 9)]
    assert effect(plan) == "replays 4,990 records, skips 2 records, gives 1 partition a first commit"
    assert effect([Planned(A0, 5, 5, 9)]) == "changes nothing"


OFFSETS = st.lists(
    st.tuples(st.sampled_from(["a", "b.c", 'ü,"x']), st.integers(0, 5), st.integers(0, 2**60)),
    min_size=1,
    unique_by=lambda one: one[:2],
)


@given(OFFSETS)
def test_files_of_one_group_come_back(offsets: list[tuple[str, int, int]]) -> None:
    lines = [FileOffset("g", TopicPartition(topic, partition), offset) for topic, partition, offset in offsets]
    assert parse_offsets(csv_text(lines, of_one=True), "f") == [line._replace(group="") for line in lines]


@given(OFFSETS)
def test_files_of_several_groups_come_back(offsets: list[tuple[str, int, int]]) -> None:
    groups = ("g,1", "g 2", "g\n3\r", "\v\x85\u20284", "g\r5", " g", "[g", "{g")
    for group in groups:
        lines = [FileOffset(group, TopicPartition(t, p), offset) for t, p, offset in offsets]
        assert parse_offsets(csv_text(lines, of_one=False), "f") == lines


def test_a_file_on_disk_has_names_as_they_are(tmp_path: Path) -> None:
    path = save_offsets(tmp_path, {"g\r5": {A0: 5}, "h": {A0: 6}})
    assert reset_offsets._file(str(path)) == {"g\r5": {A0: 5}, "h": {A0: 6}}


def test_files_as_others_write_them() -> None:
    expected = [FileOffset("", A0, 5), FileOffset("", B0, 4)]
    assert parse_offsets('"a",0,5\n"b",0,4\n', "f") == expected
    assert parse_offsets("topic,partition,offset\r\na, 0, 5\r\n\r\nb,0,4\r\n", "f") == expected
    assert (
        parse_offsets('[{"topic": "a", "partition": 0, "offset": 5}, {"topic": "b", "partition": 0, "new": 4}]', "f")
        == expected
    )
    described = {"group": "g", "offsets": [{"topic": "a", "partition": 0, "committed": 5, "lag": 1}]}
    unread = {"topic": "a", "partition": 1, "committed": None}
    described["offsets"].append(unread)  # type: ignore[attr-defined]
    assert parse_offsets(json.dumps({"items": [described]}), "f") == [FileOffset("g", A0, 5)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "f has no offsets"),
        ("a,0,5\na,0\n", "f line 2 is not topic,partition,offset"),
        ("a,0,-5\n", "f line 1 is"),
        ("a,x,5\n", "f line 1 is"),
        ("a,0,5\na,0,6\n", "f has a-0 twice"),
        ("g,a,0,5\na,1,6\n", "f names a group in some lines only"),
        ("[1]", "f entry 1 has no topic"),
        ('[{"topic": "a"}]', "f entry 1 has no topic"),
        ('[{"topic": "a", "partition": 0, "offset": -1}]', "f entry 1 has no topic"),
        ("[", "f is not JSON"),
        ('{"items": []}', "f has no offsets"),
    ],
)
def test_files_that_make_no_sense(text: str, why: str) -> None:
    with pytest.raises(KctlError) as caught:
        parse_offsets(text, "f")
    assert caught.value.what.startswith(why)
    assert caught.value.exit_code == Exit.USAGE


def test_a_file_of_many_groups_is_not_searched_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        reset_offsets, "partitions_in", lambda session, scopes: [TopicPartition("t", 0) for _ in scopes]
    )
    nobody: Any = None
    options = {"topics": (), "to_group": None}

    def resetting(count: int) -> Callable[[], object]:
        names = [f"g{number}" for number in range(count)]
        path = tmp_path / "offsets.csv"
        path.write_text("".join(f"{name},t,0,{at}\n" for at, name in enumerate(names)))
        offsets = reset_offsets._file(str(path))
        return lambda: [
            reset_offsets._wanted(nobody, name, Target(GIVEN), offsets, {}, options).given for name in names
        ]

    assert is_linear(resetting)
    assert resetting(3)() == [{TopicPartition("t", 0): at} for at in range(3)]
