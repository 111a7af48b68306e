"""The protocols of groups whose members have opposite preferences: real Kafka 3.9's choices."""

from __future__ import annotations

import pytest

from kafkad.group.votes import most_voted


@pytest.mark.parametrize(
    ("chosen", "other"),
    [
        ("roundrobin", "range"),
        ("cooperative-sticky", "sticky"),
        ("cooperative-sticky", "roundrobin"),
        ("range", "sticky"),
        ("consumer", "range"),
        ("p2", "p1"),
        ("a", "b"),
        ("x", "y"),
    ],
)
def test_equals_are_told_apart_as_kafka_does(chosen: str, other: str) -> None:
    """Whoever came first."""
    assert most_voted([chosen, other]) == most_voted([other, chosen]) == chosen
    assert most_voted([other, chosen, other]) == other


@pytest.mark.parametrize("names", [("Aa", "BB"), ("AaAa", "BBBB", "AaBB")])
def test_names_of_one_hash(names: tuple[str, ...]) -> None:
    assert most_voted(names) in names


def test_members_need_not_agree_on_names_that_share_a_branch() -> None:
    """Every name is found, however deep it lies in the tree."""
    names = [f"protocol-{number}" for number in range(500)]
    for name in names:
        assert most_voted([*names, name]) == name
