"""A supervisor and brokers that hang: what it does about them, and what it says of them meanwhile."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkad.clock import SystemClock
from kafkad.config import Config, load
from kafkad.meta.embedded import EmbeddedStore
from kafkad.supervisor.process import BrokerProcess
from kafkad.supervisor.supervisor import Supervisor
from tests.fakes import turns


class Scene:
    """A supervisor that no service manager started, and brokers that only seem to run. `sent` are the signals that
    these got."""

    def __init__(self, directory: Path) -> None:
        file = directory / "kafkad.yaml"
        file.write_text("num.partitions: 3\n")

        def read() -> Config:
            return load(str(file), [], {}, again=True)

        self.supervisor = Supervisor(read(), read, [])
        store = EmbeddedStore.in_memory(SystemClock())
        self.brokers = [self.supervisor._process(store, index, 0, "@notify") for index in range(2)]
        self.supervisor._brokers = self.brokers
        self.sent: list[tuple[int, int]] = []
        for broker in self.brokers:
            broker._process = SimpleNamespace(pid=100 + broker.broker_id)  # type: ignore[assignment]
            broker.signal = self._signal_to(broker)  # type: ignore[method-assign]

    def _signal_to(self, broker: BrokerProcess) -> Callable[[int], None]:
        return lambda number: self.sent.append((broker.broker_id, number))


Run = Callable[[Callable[[Scene], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
        monkeypatch.delenv(name, raising=False)

    def run(steps: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            await steps(Scene(tmp_path))

        asyncio.run(whole())

    return run


def test_without_a_service_manager_one_that_is_ready_and_silent_is_killed(
    scenario: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container, or at a terminal. One that starts may load its logs for as long as it takes."""
    monkeypatch.setattr("kafkad.supervisor.supervisor._TICK_S", 0.0)

    async def steps(scene: Scene) -> None:
        scene.brokers[0].take({"READY": "1", "STATUS": "listening"})
        scene.brokers[1].take({"STATUS": "loading logs"})
        watching = asyncio.create_task(scene.supervisor._watch())
        await turns()
        watching.cancel()
        assert set(scene.sent) == {(0, signal.SIGKILL)}

    scenario(steps)


def test_without_a_service_manager_brokers_are_told_to_say_that_they_live(scenario: Run) -> None:
    async def steps(scene: Scene) -> None:
        for broker in scene.brokers:
            assert broker._environment == {"NOTIFY_SOCKET": "@notify", "WATCHDOG_USEC": "30000000"}

    scenario(steps)
