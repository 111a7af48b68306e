"""What is said of a transaction whose reply was lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps

from kafkad.meta.embedded import EmbeddedSession, EmbeddedStore
from kafkad.meta.lost_replies import results_if_carried_out
from kafkad.meta.store import Check, Create, Delete, Operation, Set
from tests.fakes import FakeClock

TRANSACTION: list[Operation] = [
    Check("/fence", 0),
    Create("/topic", b"its id"),
    Create("/topic/state"),
    Set("/topic/state", b"leader"),
    Set("/count", b"1", 0),
    Delete("/wish"),
]


def on_a_store(test: Callable[[EmbeddedSession, EmbeddedSession], Awaitable[None]]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        async def whole() -> None:
            store = EmbeddedStore.in_memory(FakeClock())
            mine, other = store.session(), store.session()
            for path in ("/fence", "/count", "/wish"):
                await other.create(path)
            await test(mine, other)

        asyncio.run(whole())

    del run.__wrapped__  # type: ignore[attr-defined]
    return run


@on_a_store
async def test_what_was_carried_out_has_its_results(mine: EmbeddedSession, other: EmbeddedSession) -> None:
    results = await mine.multi(TRANSACTION)
    found = await results_if_carried_out(mine, TRANSACTION)
    assert found is not None
    state = await other.exists("/topic/state")
    assert found == [*results[:3], state, *results[4:]]


@on_a_store
async def test_nothing_was_carried_out_if_any_part_was_not(mine: EmbeddedSession, other: EmbeddedSession) -> None:
    assert await results_if_carried_out(mine, TRANSACTION) is None
    await other.create("/topic", b"its id")
    await other.create("/topic/state", b"leader")
    await other.set("/count", b"1")
    assert await results_if_carried_out(mine, TRANSACTION) is None
    await other.delete("/wish")
    assert await results_if_carried_out(mine, TRANSACTION) is not None
    await other.set("/topic", b"another id")
    assert await results_if_carried_out(mine, TRANSACTION) is None


@on_a_store
async def test_who_was_fenced_has_done_nothing_though_all_is_as_wanted(
    mine: EmbeddedSession, other: EmbeddedSession
) -> None:
    await mine.multi(TRANSACTION)
    await other.set("/fence", b"")
    assert await results_if_carried_out(mine, TRANSACTION) is None


@on_a_store
async def test_an_ephemeral_node_of_another_session_is_not_mine(mine: EmbeddedSession, other: EmbeddedSession) -> None:
    registration = [Create("/ids/1", b"me", ephemeral=True), Set("/ids/1", b"me")]
    await other.create("/ids")
    await other.multi(registration)
    assert await results_if_carried_out(mine, registration) is None
    found = await results_if_carried_out(other, registration)
    assert found == ["/ids/1", await other.exists("/ids/1")]


@on_a_store
async def test_nobody_can_tell_which_sequential_node_it_was(mine: EmbeddedSession, other: EmbeddedSession) -> None:
    noted = [Set("/count", b"1", 0), Create("/note", sequential=True)]
    await mine.multi(noted)
    assert await results_if_carried_out(mine, noted) is None
