"""One thing after another is asked about, and the session is closed behind the last."""

from __future__ import annotations

from threading import Event

from kafkad_etl.cluster.queued import Queued


class Session:
    def __init__(self) -> None:
        self.closed = Event()

    def close(self) -> None:
        self.closed.set()


def test_what_was_put_is_asked_in_order_before_the_end() -> None:
    session, asked = Session(), []
    queued = Queued(session, "numbers", asked.append)
    for number in range(3):
        queued.put(number)
    assert queued.close()
    assert asked == [0, 1, 2]
    assert session.closed.is_set()


def test_who_does_not_answer_in_time_is_left_behind_with_the_session() -> None:
    session, answered = Session(), Event()
    queued = Queued(session, "numbers", lambda _: answered.wait())
    queued.put(1)
    assert not queued.close(0)
    assert not session.closed.is_set()
    answered.set()
    assert queued.close()
    assert session.closed.is_set()
