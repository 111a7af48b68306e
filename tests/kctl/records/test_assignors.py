from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.errors import KctlError
from kctl.records.assignors import (
    ASSIGNORS,
    Assignment,
    Subscription,
    assign_range,
    assign_round_robin,
    assign_sticky,
    assignor,
    without_moving,
)


def wants(*topics: str) -> Subscription:
    return Subscription(topics)


def test_range_gives_neighbours_topic_by_topic() -> None:
    assigned = assign_range({"b": wants("t", "u"), "a": wants("t", "u"), "c": wants("u")}, {"t": 5, "u": 3})
    assert assigned == {
        "a": [("t", 0), ("t", 1), ("t", 2), ("u", 0)],
        "b": [("t", 3), ("t", 4), ("u", 1)],
        "c": [("u", 2)],
    }


def test_static_members_come_first_by_their_instance() -> None:
    members = {"z": Subscription(("t",), instance_id="1"), "a": wants("t")}
    assert assign_range(members, {"t": 3}) == {"z": [("t", 0), ("t", 1)], "a": [("t", 2)]}


def test_round_robin_deals_out_all_topics_in_turn() -> None:
    assigned = assign_round_robin({"a": wants("t", "u"), "b": wants("t", "u")}, {"t": 3, "u": 2})
    assert assigned == {"a": [("t", 0), ("t", 2), ("u", 1)], "b": [("t", 1), ("u", 0)]}


def test_round_robin_passes_over_who_does_not_want_the_topic() -> None:
    assigned = assign_round_robin({"a": wants("t"), "b": wants("t", "u")}, {"t": 1, "u": 3})
    assert assigned == {"a": [("t", 0)], "b": [("u", 0), ("u", 1), ("u", 2)]}


def test_sticky_moves_only_what_evens_out() -> None:
    before = assign_sticky({"a": wants("t"), "b": wants("t")}, {"t": 6})
    owned = {member: Subscription(("t",), tuple(had), 1) for member, had in before.items()}
    after = assign_sticky({**owned, "c": wants("t")}, {"t": 6})
    assert sorted(map(len, after.values())) == [2, 2, 2]
    for member in ("a", "b"):
        assert set(after[member]) < set(before[member])


class TestTenPartitionsAndThreeMembersOfWhomOneLeaves:
    """The assignment before and after, from each assignor, as from Kafka's own."""

    def assigned(self, name: str, members: dict[str, Subscription]) -> dict[str, list[int]]:
        chosen = assignor(name)
        assert chosen is not None
        return {
            member: sorted(index for _, index in given) for member, given in chosen.assign(members, {"t": 10}).items()
        }

    def test_range(self) -> None:
        assert self.assigned("range", dict.fromkeys("abc", wants("t"))) == {
            "a": [0, 1, 2, 3],
            "b": [4, 5, 6],
            "c": [7, 8, 9],
        }
        assert self.assigned("range", dict.fromkeys("ab", wants("t"))) == {"a": [0, 1, 2, 3, 4], "b": [5, 6, 7, 8, 9]}

    def test_round_robin(self) -> None:
        assert self.assigned("roundrobin", dict.fromkeys("abc", wants("t"))) == {
            "a": [0, 3, 6, 9],
            "b": [1, 4, 7],
            "c": [2, 5, 8],
        }
        assert self.assigned("roundrobin", dict.fromkeys("ab", wants("t"))) == {
            "a": [0, 2, 4, 6, 8],
            "b": [1, 3, 5, 7, 9],
        }

    @pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
    def test_sticky(self, name: str) -> None:
        ranges = assign_range(dict.fromkeys("abc", wants("t")), {"t": 10})
        owned = {member: Subscription(("t",), tuple(had), 1) for member, had in ranges.items()}
        kept = self.assigned(name, owned)
        assert kept == {"a": [0, 1, 2, 3], "b": [4, 5, 6], "c": [7, 8, 9]}
        del owned["c"]
        left = self.assigned(name, owned)
        assert left == {"a": [0, 1, 2, 3, 7], "b": [4, 5, 6, 8, 9]}
        back = {member: Subscription(("t",), tuple(("t", at) for at in had), 2) for member, had in left.items()}
        assert self.assigned(name, back | {"c": wants("t")}) == {"a": [0, 1, 2, 3], "b": [4, 5, 6], "c": [7, 8, 9]}

    @pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
    def test_sticky_from_its_own_beginning(self, name: str) -> None:
        given = self.assigned(name, dict.fromkeys("abc", wants("t")))
        assert given == {"a": [0, 3, 6, 9], "b": [1, 4, 7], "c": [2, 5, 8]}
        owned = {member: Subscription(("t",), tuple(("t", at) for at in given[member]), 1) for member in "ab"}
        assert self.assigned(name, owned) == {"a": [0, 2, 3, 6, 9], "b": [1, 4, 5, 7, 8]}


def test_sticky_believes_the_later_generation() -> None:
    old, new = Subscription(("t",), (("t", 0),), 1), Subscription(("t",), (("t", 0),), 2)
    assert assign_sticky({"a": old, "b": new}, {"t": 2}) == {"a": [("t", 1)], "b": [("t", 0)]}


def test_cooperative_rebalance_takes_two_rounds() -> None:
    members = {"a": Subscription(("t",), (("t", 0), ("t", 1)), 1), "b": wants("t")}
    final = assign_sticky(members, {"t": 2})
    first = without_moving(final, members)
    assert sorted(map(len, final.values())) == [1, 1]
    assert first["b"] == []
    members["a"] = Subscription(("t",), tuple(first["a"]), 2)
    second = assign_sticky(members, {"t": 2})
    assert without_moving(second, members) == second == final


_topics = st.dictionaries(st.sampled_from("tuvw"), st.integers(1, 8), min_size=1)
_members = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(
        Subscription,
        st.lists(st.sampled_from("tuvwx"), unique=True).map(tuple),
        st.lists(st.tuples(st.sampled_from("tuvwx"), st.integers(0, 9)), unique=True, max_size=8).map(tuple),
        st.integers(-1, 3),
    ),
    min_size=1,
)


@given(_members, _topics, st.sampled_from(ASSIGNORS))
def test_each_wanted_partition_goes_to_one_member_that_wants_it(
    members: dict[str, Subscription], topics: dict[str, int], name: str
) -> None:
    chosen = assignor(name)
    assert chosen is not None
    assigned = chosen.assign(members, topics)
    given_out = list(chain(*assigned.values()))
    wanted = {topic for member in members.values() for topic in member.topics if topic in topics}
    assert sorted(given_out) == sorted((topic, index) for topic in wanted for index in range(topics[topic]))
    assert all(topic in members[member].topics for member, owned in assigned.items() for topic, _ in owned)


def is_even(members: dict[str, Subscription], assigned: Assignment) -> bool:
    """Nobody has two more than another that could take one of them."""
    return not any(
        len(mine) - len(theirs) > 1 and any(topic in members[other].topics for topic, _ in mine)
        for mine in assigned.values()
        for other, theirs in assigned.items()
    )


@given(_members, _topics)
def test_sticky_is_even_and_stays_as_it_is(members: dict[str, Subscription], topics: dict[str, int]) -> None:
    assigned = assign_sticky(members, topics)
    assert is_even(members, assigned)
    owned = {
        member: Subscription(members[member].topics, tuple(partitions), 9) for member, partitions in assigned.items()
    }
    assert assign_sticky(owned, topics) == assigned


def test_names() -> None:
    assert assignor("nonsense") is None
    assert [name for name in ASSIGNORS if (assignor(name) or pytest.fail(name)).cooperative] == ["cooperative-sticky"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("return {'a': [('t', 0)], 'b': []}", ""),
        ("return {'a': [('t', 0)]}", ""),
        ("return None", "did not return a mapping"),
        ("return {'a': [1]}", "did not return a mapping"),
        ("return {'a': [('t', 5)]}", r"assigned a member or partition that does not exist: \('t', 5\)"),
        ("return {'z': []}", "assigned a member or partition that does not exist: z"),
        ("return partitions['absent']", "failed with KeyError: 'absent'"),
    ],
)
def test_assignor_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, text: str) -> None:
    (tmp_path / "kctl_assigns.py").write_text(f"def mine(subscriptions, partitions):\n    {body}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "kctl_assigns", raising=False)
    chosen = assignor("kctl_assigns:mine")
    assert chosen is not None
    members = {"a": wants("t"), "b": wants("t")}
    if text:
        with pytest.raises(KctlError, match=text):
            chosen.assign(members, {"t": 2})
    else:
        assert chosen.assign(members, {"t": 2}) == {"a": [("t", 0)], "b": []}
