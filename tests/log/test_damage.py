"""What is known of damage, and what it costs to forget it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafkad.log.damage import Damage, Damages
from kafkad.names import TopicPartition
from tests.work import instructions

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def damage(tp: TopicPartition, position: int, *, was_cut: bool = False) -> Damage:
    path = f"/data/{tp.topic}-{tp.partition}/00000000000000000000.log"
    return Damage(path, position, 10, position // 10, position // 10 + 1, "rot", was_cut)


def known(damages: Damages) -> dict[TopicPartition, list[int]]:
    found: dict[TopicPartition, list[int]] = {}
    for tp, each in (*damages.kept(), *damages.cut()):
        found.setdefault(tp, []).append(each.position)
    return found


def test_what_is_mended_cut_off_or_deleted_is_forgotten_of_that_log_alone() -> None:
    damages = Damages()
    for tp in (A, B):
        assert [damages.add(tp, damage(tp, position)) for position in (0, 100, 200, 100)] == [True, True, True, False]
        assert damages.add(tp, damage(tp, 300, was_cut=True))
    damages.mended(damage(A, 0).path, 100, 200)
    assert known(damages) == {A: [0, 200, 300], B: [0, 100, 200, 300]}
    damages.cut_off(B, 10)
    assert known(damages) == {A: [0, 200, 300], B: [0, 300]}
    assert damages.add(A, damage(A, 100)), "it is damaged again"
    damages.forget(A)
    assert known(damages) == {B: [0, 300]}
    damages.mended(damage(A, 0).path, 0, 1000)
    assert damages.add(A, damage(A, 0))


@pytest.mark.parametrize(
    "act",
    [
        lambda damages: damages.cut_off(A, 0),
        lambda damages: damages.forget(A),
        lambda damages: damages.mended(damage(A, 0).path, 0, 1000),
    ],
)
def test_one_log_costs_the_same_beside_thousands(act: Callable[[Damages], None]) -> None:
    """After a power cut many have torn ends, and then each of them is cut back to where its leader's is."""
    costs = []
    for others in (10, 1000):
        damages = Damages()
        for number in range(others):
            tp = TopicPartition("t", number)
            damages.add(tp, damage(tp, 0, was_cut=True))
        costs.append(instructions(lambda damages=damages: act(damages)))  # type: ignore[misc]
    assert costs[0] == costs[1]
