"""What is said of a ZooKeeper that cannot be reached."""

from __future__ import annotations

from kazoo.exceptions import ConnectionDropped

from kafkad.meta.kazoo_session import _LastProblem


def test_the_last_problem_that_has_words_is_told() -> None:
    """Kazoo has none for an error without a number, as a time-out."""
    problem = _LastProblem()
    assert problem.text == "no server has answered"
    for why in ("Connection refused", None):
        problem.logger.warning("Connection dropped: %s", ConnectionDropped(f"socket connection error: {why}"))
        problem.logger.warning("Transition to CONNECTING")
        assert problem.text == "Connection refused"
