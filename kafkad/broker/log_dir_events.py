"""The controller is asked for LeaderAndIsr again, as Kafka's brokers ask when a log directory has failed.

By the answer it knows which replicas are offline, and so which leaders are to be elected anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from kafkad.clock import Clock
from kafkad.meta.retrying import until_answered
from kafkad.meta.store import MetaStore
from kafkad.meta.znodes import LogDirEvent
from kafkad.timers import Timers


def leader_and_isr_asker(
    loop: asyncio.AbstractEventLoop, store: MetaStore, broker: int, clock: Clock, timers: Timers
) -> Callable[[], None]:
    """A function to call, in any thread, when `broker` wants LeaderAndIsr again."""
    questions: set[asyncio.Task[None]] = set()
    note = partial(store.create, LogDirEvent.PREFIX, LogDirEvent.encode(broker), sequential=True)

    async def ask() -> None:
        await until_answered(note, "ask the controller for LeaderAndIsr again", clock, timers)

    def begin() -> None:
        task = loop.create_task(ask())
        questions.add(task)
        task.add_done_callback(questions.discard)

    def ask_again() -> None:
        loop.call_soon_threadsafe(begin)

    return ask_again
