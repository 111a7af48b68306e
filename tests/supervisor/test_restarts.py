"""How soon a broker that ended is started again, and in which words."""

from __future__ import annotations

import pytest

from kafkad.supervisor.restarts import delay_s, how_it_ended


def test_at_once_after_a_good_while_and_later_and_later_while_it_keeps_ending() -> None:
    ends: list[float] = []
    waits = []
    now = 1000.0
    for _ in range(8):
        ends.append(now)
        waits.append(delay_s(ends, now))
        now += 1
    assert waits == [0, 1, 2, 4, 8, 16, 30, 30]
    ends.append(now + 100)
    assert delay_s(ends, now + 100) == 0


@pytest.mark.parametrize(
    ("code", "text"),
    [(1, "ended with exit code 1"), (0, "was told to stop"), (-9, "was killed by SIGKILL")],
)
def test_how_it_ended(code: int, text: str) -> None:
    assert how_it_ended(code) == text
