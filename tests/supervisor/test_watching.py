"""A supervisor and brokers that hang: what it does about them, and what it says of them meanwhile."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkad.broker.supervised import Supervised
from kafkad.clock import SystemClock
from kafkad.config import Config, load
from kafkad.meta.embedded import EmbeddedStore
from kafkad.net.http import Condition
from kafkad.supervisor.broker_http import HttpAnswer
from kafkad.supervisor.process import BrokerProcess
from kafkad.supervisor.supervisor import Supervisor
from tests.fakes import turns

PROMETHEUS_WAITS_S = 10
"""For a page of metrics, unless it is told otherwise."""
IMAGE_WAITS_S = 4
"""For /health: its HEALTHCHECK."""


class Scene:
    """A supervisor that no service manager started, and brokers that only seem to run. `sent` are the signals that
    these got, `asked` for what pages they were asked, and for how many seconds, `showed` with what token. One that
    hangs answers nothing."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file = directory / "kafkad.yaml"
        file.write_text("num.partitions: 3\n")

        def read() -> Config:
            return load(str(file), [], {}, again=True)

        self.supervisor = Supervisor(read(), read, [])
        store = EmbeddedStore.in_memory(SystemClock())
        self.brokers = [self.supervisor._process(store, index, 0) for index in range(2)]
        self.supervisor._brokers = self.brokers
        self.sent: list[tuple[int, int]] = []
        self.asked: list[tuple[int, str, float]] = []
        self.showed: list[str | None] = []
        self.hanging: set[int] = set()
        monkeypatch.setattr("kafkad.supervisor.process.ask", self._ask)
        for broker in self.brokers:
            broker._http = SimpleNamespace(getsockname=self._address_of(broker))  # type: ignore[assignment]
            broker._process = SimpleNamespace(pid=100 + broker.broker_id)  # type: ignore[assignment]
            broker.signal = self._signal_to(broker)  # type: ignore[method-assign]

    def _signal_to(self, broker: BrokerProcess) -> Callable[[int], None]:
        return lambda number: self.sent.append((broker.broker_id, number))

    def _address_of(self, broker: BrokerProcess) -> Callable[[], tuple[str, int]]:
        """Its id stands for its port."""
        return lambda: ("127.0.0.1", broker.broker_id)

    async def _ask(self, broker: int, path: str, token: str | None, within_s: float) -> HttpAnswer | None:
        self.asked.append((broker, path, within_s))
        self.showed.append(token)
        page = "# HELP reads How many.\nreads 1\n" if path == "/metrics" else "ok\n"
        return None if broker in self.hanging else HttpAnswer(True, page)

    def one_hangs(self) -> None:
        """The second of two that have been ready."""
        for broker in self.brokers:
            broker.take({"READY": "1", "STATUS": "listening"})
        self.hanging = {1}


Run = Callable[[Callable[[Scene], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
        monkeypatch.delenv(name, raising=False)

    def run(steps: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            await steps(Scene(tmp_path, monkeypatch))

        asyncio.run(whole())

    return run


LISTENING = {"READY": "1", "STATUS": "listening"}


@pytest.mark.parametrize(
    "said", [[LISTENING], [{"STATUS": "loading logs"}], []], ids=["ready", "loading", "not a word yet"]
)
def test_without_a_service_manager_one_that_is_silent_is_killed(
    scenario: Run, monkeypatch: pytest.MonkeyPatch, said: list[dict[str, str]]
) -> None:
    """In a container, or at a terminal. One that stops may close its logs for as long as it takes."""
    monkeypatch.setattr("kafkad.supervisor.supervisor._TICK_S", 0.0)

    async def steps(scene: Scene) -> None:
        for notice in said:
            scene.brokers[0].take(notice)
        for notice in (LISTENING, {"STOPPING": "1", "STATUS": "handing leaderships over"}):
            scene.brokers[1].take(notice)
        watching = asyncio.create_task(scene.supervisor._watch())
        await turns()
        watching.cancel()
        assert scene.sent == [(0, signal.SIGKILL)]

    scenario(steps)


def test_one_that_loads_for_long_and_says_that_it_lives_is_left_alone(scenario: Run) -> None:
    async def steps(scene: Scene) -> None:
        for _ in range(20):
            scene.brokers[0].tick()
            scene.brokers[0].take({"WATCHDOG": "1"})
        assert scene.sent == []

    scenario(steps)


def test_one_that_hangs_when_all_are_told_to_stop_is_not_said_to_be_started_again(
    scenario: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def steps(scene: Scene) -> None:
        scene.one_hangs()
        scene.brokers[1]._stopping.set()
        for _ in range(4):
            scene.brokers[1].tick()
        assert caplog.messages == ["broker 1 (process 101) hangs: it is killed and its next start checks its logs"]

    scenario(steps)


def test_one_that_has_not_said_a_word_has_more_time(scenario: Run) -> None:
    """A name that no server resolves takes a minute, and would again in the next process."""

    async def steps(scene: Scene) -> None:
        for _ in range(10):
            scene.brokers[0].tick()
        assert scene.sent == []
        for _ in range(10):
            scene.brokers[0].tick()
        assert scene.sent == [(0, signal.SIGKILL)]

    scenario(steps)


def test_one_that_is_waited_for_to_start_it_again_is_not_taken_for_silent(
    scenario: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def steps(scene: Scene) -> None:
        scene.brokers[0]._process = None
        for _ in range(20):
            scene.brokers[0].tick()
        assert (scene.sent, caplog.messages) == ([], [])

    scenario(steps)


def test_one_that_no_signal_ends_is_told_of_twice_and_no_more(scenario: Run, caplog: pytest.LogCaptureFixture) -> None:
    """The kernel holds it, as for a disk that does not answer."""

    async def steps(scene: Scene) -> None:
        scene.one_hangs()
        for _ in range(50):
            scene.brokers[1].tick()
        assert scene.sent == [(1, signal.SIGKILL)]
        hangs, held = caplog.messages
        assert hangs == "broker 1 (process 101) hangs: it is killed and started again"
        assert held.startswith("broker 1 (process 101) was killed and has not ended: the kernel holds it")

    scenario(steps)


def test_without_a_service_manager_brokers_are_told_to_say_that_they_live(scenario: Run) -> None:
    async def steps(scene: Scene) -> None:
        for broker in scene.brokers:
            assert broker._environment == {"WATCHDOG_USEC": "30000000"}

    scenario(steps)


@pytest.mark.parametrize(("settings", "told"), [([], True), (["kafkad.http.token=t"], False)])
def test_brokers_are_told_whether_anybody_may_read_the_metrics(settings: list[str], told: bool) -> None:
    """Of all but the first the settings do not say it."""

    async def steps() -> None:
        config = load(None, ["kafkad.brokers=2", "http.listener=0.0.0.0:9404", *settings], {})
        store = EmbeddedStore.in_memory(SystemClock())
        broker = Supervisor(config, lambda: config, [])._process(store, 1, 0)
        here, there = socket.socketpair()
        inherited = [here.detach(), there.detach()]
        environment = dict(broker._environment)
        supervised = Supervised.inherited(inherited, environment)
        assert (supervised.has_open_metrics, list(environment)) == (told, ["WATCHDOG_USEC"])
        supervised.store.close()
        supervised.notices.close()
        broker._http.close()  # type: ignore[union-attr]

    asyncio.run(steps())


def test_one_that_hangs_is_not_up_and_the_others_metrics_come_in_time(scenario: Run) -> None:
    async def steps(scene: Scene) -> None:
        scene.one_hangs()
        lines = "".join([piece async for piece in scene.supervisor._metrics()]).splitlines()
        samples = [line for line in lines if line.startswith(("reads", "kafkad_broker_up"))]
        assert samples == [
            'reads{broker="0"} 1',
            'kafkad_broker_up{broker="0"} 1.0',
            'kafkad_broker_up{broker="1"} 0.0',
        ]
        assert sum({path: within_s for _, path, within_s in scene.asked}.values()) < PROMETHEUS_WAITS_S

    scenario(steps)


def test_whether_all_are_well_is_known_before_a_container_is_taken_for_dead(scenario: Run) -> None:
    async def steps(scene: Scene) -> None:
        await scene.supervisor._health(in_full=True)
        await scene.supervisor._ready(in_full=True)
        assert max(within_s for _, _, within_s in scene.asked) < IMAGE_WAITS_S

    scenario(steps)


def test_of_one_that_hangs_it_is_told_since_when_and_that_is_no_reason_to_end_all(
    scenario: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its supervisor sees to it; who asks at /health would end the others, too."""
    now = [1000.0]
    monkeypatch.setattr("kafkad.supervisor.process.monotonic", lambda: now[0])
    silent = "process 101 does not answer, and has been silent for 41 s"
    hangs = f"broker 1: {silent}; it is started again if that goes on"

    async def steps(scene: Scene) -> None:
        supervisor = scene.supervisor
        scene.one_hangs()
        now[0] += 41
        assert await supervisor._ready(in_full=True) == Condition(False, hangs)
        assert await supervisor._health(in_full=True) == Condition(True, hangs)
        scene.hanging = set()
        assert await supervisor._ready(in_full=True) == Condition(True, "ok")
        now[0] += 2
        scene.hanging = {1}
        assert "silent for 2 s" in (await supervisor._ready(in_full=True)).text, "an answer is a sign of life"

    scenario(steps)


def test_of_one_that_does_not_answer_amid_its_start_it_is_told_what_it_does_and_what_comes(
    scenario: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkad.supervisor.process.monotonic", lambda: 1000.0)

    async def steps(scene: Scene) -> None:
        scene.brokers[1].take({"STATUS": "loading logs"})
        scene.hanging = {1}
        silent = "process 101 does not answer, and has been silent for 0 s; it is started again if that goes on"
        assert await scene.supervisor._health(in_full=True) == Condition(True, f"broker 1: loading logs; {silent}")
        assert await scene.supervisor._health(in_full=False) == Condition(True, f"broker 1: {silent}")

    scenario(steps)


def test_brokers_are_asked_as_the_supervisor_is(scenario: Run) -> None:
    """They know what has names in it."""

    async def steps(scene: Scene) -> None:
        for in_full in (True, False):
            scene.showed.clear()
            await scene.supervisor._health(in_full)
            await scene.supervisor._ready(in_full)
            assert [token is not None for token in scene.showed] == [in_full] * 4

    scenario(steps)


@pytest.mark.parametrize("is_running", [False, True])
def test_one_that_is_not_ready_and_does_not_answer_has_said_what_it_does(
    scenario: Run, monkeypatch: pytest.MonkeyPatch, is_running: bool
) -> None:
    monkeypatch.setattr("kafkad.supervisor.process.monotonic", lambda: 1000.0)

    async def steps(scene: Scene) -> None:
        scene.one_hangs()
        scene.brokers[1].take({"STOPPING": "1", "STATUS": "handing leaderships over"})
        if not is_running:
            scene.brokers[1]._process = None
        silent = "; process 101 does not answer, and has been silent for 0 s" if is_running else ""
        assert await scene.supervisor._ready(in_full=True) == Condition(
            False, f"broker 1: handing leaderships over{silent}"
        )

    scenario(steps)
