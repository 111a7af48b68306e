"""What a broker's process says over the socket that it has inherited, and that nobody else is in its way."""

from __future__ import annotations

import asyncio

from kafkad.supervisor.notices import Notice, Notices
from tests.fakes import turns


def test_a_notice_is_taken() -> None:
    async def scenario() -> None:
        taken: list[Notice] = []
        notices = Notices(taken.append)
        notices.there.send(b"READY=1\nSTATUS=a = b")
        await turns()
        assert taken == []
        notices.listen()
        await turns()
        assert taken == [{"READY": "1", "STATUS": "a = b"}]
        notices.close()

    asyncio.run(scenario())


def test_there_is_no_name_by_which_others_could_speak_or_fill_the_queue() -> None:
    async def scenario() -> None:
        notices = Notices(lambda notice: None)
        assert [end.getsockname() for end in (notices._here, notices.there)] == ["", ""]
        notices.close()

    asyncio.run(scenario())


def test_one_that_speaks_without_end_lets_others_in_between() -> None:
    async def scenario() -> None:
        taken: list[str] = []
        first, second = (Notices(lambda notice: taken.extend(notice.values())) for _ in range(2))
        for notices, name in ((first, b"first"), (second, b"second")):
            for _ in range(5):
                notices.there.send(b"STATUS=" + name)
            notices.listen()
        await turns()
        assert sorted(taken[:4]) == ["first", "first", "second", "second"]
        first.close()
        second.close()

    asyncio.run(scenario())
