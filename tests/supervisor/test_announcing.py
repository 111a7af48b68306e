"""When a supervisor says to systemd that it is ready, and what it says of brokers that are not."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafkad.clock import SystemClock
from kafkad.config import Config, ConfigError, load
from kafkad.exit_status import BAD_CONFIGURATION
from kafkad.meta.embedded import EmbeddedStore
from kafkad.supervisor.process import BrokerProcess
from kafkad.supervisor.supervisor import Supervisor
from kafkad.systemd import NOT_BLANK, NOT_RELOADED, RELOADED


class Scene:
    """A supervisor without processes. `told` is what systemd has heard since it was asked last. `meanwhile` is what
    happens while a supervisor waits for whoever writes the file."""

    def __init__(self, manager: socket.socket, directory: Path, text: str = "num.partitions: 3\n") -> None:
        self._manager = manager
        self.file = directory / "kafkad.yaml"
        self.file.write_text(text)
        self.meanwhile: Callable[[], object] = lambda: None
        self.supervisor = Supervisor(self.read(), self.read, [])
        self.supervisor._pause = self._pause  # type: ignore[method-assign]
        self.store = EmbeddedStore.in_memory(SystemClock())
        self.store.is_starting = True
        self.supervisor._store = self.store

    def read(self) -> Config:
        return load(str(self.file), [], {}, again=True)

    async def _pause(self, ms: float) -> None:
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        await asyncio.sleep(0)

    def begin(self) -> tuple[BrokerProcess, BrokerProcess]:
        first, second = (
            BrokerProcess(
                n,
                [],
                {},
                self.store,
                self.supervisor._changed,
                self.supervisor._advice,
                self.supervisor._may_be_blank,
                self.supervisor._judge_for,
                extend_timeout=self.supervisor._notifier.extend_timeout,
                with_http=False,
            )
            for n in range(2)
        )
        self.supervisor._brokers = [first, second]
        return first, second

    def begin_running(self) -> tuple[BrokerProcess, BrokerProcess]:
        """Brokers that are ready, and only seem to have processes."""
        brokers = self.begin()
        for broker in brokers:
            broker._process = SimpleNamespace(pid=1)  # type: ignore[assignment]
            broker.signal = lambda number: None  # type: ignore[method-assign]
            broker.take({"READY": "1"})
        self.told()
        return brokers

    async def begin_reload(self) -> tuple[BrokerProcess, BrokerProcess]:
        """Of brokers that are ready, and have still to reload."""
        brokers = self.begin()
        for broker in brokers:
            broker.take({"READY": "1"})
            broker.reloading = True
        self.told()
        await self.hang_up()
        return brokers

    async def hang_up(self) -> None:
        """SIGHUP, until the file has been judged."""
        self.supervisor._reload()
        while (judging := self.supervisor._judging) is not None:
            await asyncio.wait([judging])

    async def reload(self, *says: str) -> None:
        for broker, status in zip(await self.begin_reload(), says, strict=True):
            broker.take({"READY": "1", "STATUS": status})
            broker.reloading = False
            self.supervisor._changed()

    def told(self) -> list[str]:
        found = []
        while True:
            try:
                found.append(self._manager.recv(4096).decode())
            except BlockingIOError:
                return found


Run = Callable[[Callable[[Scene], Awaitable[None]]], None]


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    def run(steps: Callable[[Scene], Awaitable[None]]) -> None:
        async def whole() -> None:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
                manager.bind(str(tmp_path / "notify"))
                manager.setblocking(False)
                monkeypatch.setitem(os.environ, "NOTIFY_SOCKET", str(tmp_path / "notify"))
                scene = Scene(manager, tmp_path)
                await steps(scene)
                scene.supervisor._notifier.close()

        asyncio.run(whole())

    return run


def ends(broker: BrokerProcess, supervisor: Supervisor) -> None:
    broker.ready, broker.restarts, broker.doing = False, 1, "ended with exit code 1"
    supervisor._changed()


def test_a_broker_that_cannot_start_does_not_keep_the_others_back(scenario: Run) -> None:
    async def steps(scene: Scene) -> None:
        first, second = scene.begin()
        first.take({"READY": "1"})
        assert not [text for text in scene.told() if text.startswith("READY")], "the other may still come"
        ends(second, scene.supervisor)
        assert scene.told() == ["READY=1\nSTATUS=broker 0 is ready; broker 1: ended with exit code 1"]
        second.take({"READY": "1"})
        assert scene.told() == ["STATUS=2 brokers are ready"]

    scenario(steps)


def test_only_a_configuration_that_no_broker_can_use_ends_all(scenario: Run) -> None:
    async def steps(scene: Scene) -> None:
        supervisor = scene.supervisor
        first, second = scene.begin()
        first.bad_configuration = True
        ends(first, supervisor)
        assert not supervisor._stopping.is_set(), "the other may have in the store what it needs"
        second.bad_configuration = True
        ends(second, supervisor)
        assert supervisor._stopping.is_set()
        assert supervisor._exit_code(1) == BAD_CONFIGURATION

    scenario(steps)


def test_a_start_that_takes_longer_is_told(scenario: Run) -> None:
    async def steps(scene: Scene) -> None:
        first, _ = scene.begin()
        first.take({"STATUS": "loading logs", "EXTEND_TIMEOUT_USEC": "30000000"})
        assert scene.told() == ["EXTEND_TIMEOUT_USEC=30000000", "STATUS=broker 0: loading logs broker 1: starting"]

    scenario(steps)


def test_nothing_is_ready_while_no_broker_is(scenario: Run) -> None:
    async def steps(scene: Scene) -> None:
        for broker in scene.begin():
            ends(broker, scene.supervisor)
        assert not [text for text in scene.told() if text.startswith("READY")]
        assert scene.store.is_starting

    scenario(steps)


def test_from_the_first_that_serves_a_full_disk_takes_no_more_changes(scenario: Run) -> None:
    async def steps(scene: Scene) -> None:
        first, _ = scene.begin()
        assert scene.store.is_starting
        first.take({"READY": "1"})
        assert not scene.store.is_starting

    scenario(steps)


def test_a_reload_before_there_are_brokers_changes_nothing(scenario: Run) -> None:
    async def steps(scene: Scene) -> None:
        await scene.hang_up()
        assert scene.told() == []
        for broker in scene.begin():
            broker.take({"READY": "1"})
        assert scene.told()[-1] == "READY=1\nSTATUS=brokers 0, 1 are ready"

    scenario(steps)


def test_a_reload_before_any_broker_serves_is_not_told_as_ready(scenario: Run) -> None:
    async def steps(scene: Scene) -> None:
        first, second = scene.begin()
        await scene.hang_up()
        for broker in (first, second):
            ends(broker, scene.supervisor)
        await scene.hang_up()
        assert not [text for text in scene.told() if "READY" in text or "RELOADING" in text]
        first.take({"READY": "1"})
        assert scene.told() == ["READY=1\nSTATUS=broker 0 is ready; broker 1: ended with exit code 1"]

    scenario(steps)


def test_a_reload_amid_which_all_brokers_end_is_over(scenario: Run) -> None:
    """Each reads the configuration when it is started again; systemd would wait for ever."""

    async def steps(scene: Scene) -> None:
        brokers = await scene.begin_reload()
        assert [text for text in scene.told() if text.startswith("RELOADING")]
        for broker in brokers:
            broker.reloading = False
            ends(broker, scene.supervisor)
        assert "READY=1\nSTATUS=configuration reloaded" in scene.told()

    scenario(steps)


def test_a_reload_that_a_broker_could_not_do_is_told(scenario: Run) -> None:
    async def steps(scene: Scene) -> None:
        await scene.reload(NOT_RELOADED, RELOADED)
        assert f"READY=1\nSTATUS={NOT_RELOADED}" in scene.told()
        scene.supervisor._changed()
        assert scene.told() == [f"STATUS={NOT_RELOADED}"]

    scenario(steps)


@pytest.mark.parametrize("last", [RELOADED, NOT_RELOADED])
def test_brokers_that_have_all_taken_a_file_run_by_that_one(scenario: Run, last: str) -> None:
    """Where one then cannot use its configuration, it is for something else, such as its dynamic settings."""

    async def steps(scene: Scene) -> None:
        advice = scene.supervisor._advice
        assert advice() == ""
        scene.file.write_text("num.partitions: 4\n")
        assert "is another file than the brokers run by" in advice()
        await scene.reload(RELOADED, last)
        assert (advice() == "") == (last == RELOADED)

    scenario(steps)


GIVEN = "kafkad.brokers: 4\nkafkad.metadata.dir: /meta\nlisteners: PLAINTEXT://:9192\nlog.dirs: /data\nnode.id: 7\n"


@pytest.mark.parametrize("last", [RELOADED, NOT_RELOADED])
def test_what_brokers_are_given_is_named_where_the_file_says_otherwise(
    scenario: Run, caplog: pytest.LogCaptureFixture, last: str
) -> None:
    """They do not see it, and name what they see themselves."""

    async def steps(scene: Scene) -> None:
        scene.file.write_text(f"num.partitions: 4\n{GIVEN}advertised.listeners: PLAINTEXT://kafka:9192\n")
        await scene.reload(RELOADED, last)
        named = "broker.id, kafkad.brokers, kafkad.metadata.dir, listeners, log.dirs, node.id"
        told = [f"these settings need a restart to change: {named}"]
        assert caplog.messages == (told if last == RELOADED else []), "a broker that did not take it says why"
        assert f"READY=1\nSTATUS={last}" in scene.told()

    scenario(steps)


def test_a_reload_while_brokers_start_names_it_when_they_have_read_the_file(
    scenario: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def steps(scene: Scene) -> None:
        brokers = scene.begin()
        for broker in brokers:
            broker.reloading = True
        scene.file.write_text("kafkad.brokers: 4\n")
        await scene.hang_up()
        for broker in brokers:
            broker.take({"READY": "1"})
        assert caplog.messages == []
        for broker in brokers:
            broker.take({"READY": "1", "STATUS": RELOADED})
        assert caplog.messages == ["these settings need a restart to change: kafkad.brokers"]

    scenario(steps)


NONE_TO_START_BY = "num.partitions: 4\nkafkad.brokers: 2\nlisteners: PLAINTEXT://:9092\nhttp.listener: :9093\n"


def test_a_file_that_kafkad_could_not_start_by_is_given_to_no_broker(
    scenario: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """Each of them knows only its own ports, and would take it."""

    async def steps(scene: Scene) -> None:
        scene.file.write_text(NONE_TO_START_BY)
        brokers = scene.begin_running()
        await scene.hang_up()
        assert not any(broker.reloading for broker in brokers)
        [error] = caplog.messages
        assert error.startswith("no broker reads the configuration file again: port 9093 would be that of http")
        assert f"READY=1\nSTATUS={NOT_RELOADED}" in scene.told()

    scenario(steps)


@pytest.mark.parametrize(
    ("part", "whole", "is_good"),
    [
        ("num.partitions: 4\nlog.ret", "num.partitions: 4\nlog.retention.ms: 8640000\n", True),
        ("num.partitions: 4\n", NONE_TO_START_BY, False),
    ],
)
def test_a_file_is_judged_when_nobody_writes_it_any_more(
    scenario: Run, caplog: pytest.LogCaptureFixture, part: str, whole: str, is_good: bool
) -> None:
    """Brokers wait for the whole, too."""

    async def steps(scene: Scene) -> None:
        brokers = scene.begin_running()
        scene.file.write_text(part)
        scene.meanwhile = lambda: scene.file.write_text(whole)
        await scene.hang_up()
        assert [broker.reloading for broker in brokers] == [is_good, is_good]
        assert [text.split(":")[0] for text in caplog.messages] == (
            [] if is_good else ["no broker reads the configuration file again"]
        )

    scenario(steps)


def test_a_sighup_while_the_file_is_judged_is_one_reload_with_the_first(scenario: Run) -> None:
    async def steps(scene: Scene) -> None:
        brokers = scene.begin_running()
        scene.meanwhile = scene.supervisor._reload
        await scene.hang_up()
        states = [text.partition("=")[0] for text in scene.told()]
        assert (states.count("RELOADING"), states.count("READY")) == (2, 0)
        for broker in brokers:
            broker.take({"READY": "1", "STATUS": RELOADED})
        assert [text for text in scene.told() if text.startswith("READY")] == [f"READY=1\nSTATUS={RELOADED}"]

    scenario(steps)


def test_a_reload_is_not_over_before_the_file_of_the_latest_sighup_is_judged(scenario: Run) -> None:
    """Brokers are still at that of an earlier one."""

    async def steps(scene: Scene) -> None:
        brokers = scene.begin_running()
        await scene.hang_up()

        def taken() -> None:
            for broker in brokers:
                broker.take({"READY": "1", "STATUS": RELOADED})

        scene.meanwhile = taken
        await scene.hang_up()
        assert not [text for text in scene.told() if text.startswith("READY")]
        taken()
        assert f"READY=1\nSTATUS={RELOADED}" in scene.told()

    scenario(steps)


def test_a_broker_that_is_still_at_an_earlier_reload_may_take_a_file_that_the_others_are_not_given(
    scenario: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def steps(scene: Scene) -> None:
        first, second = scene.begin_running()
        await scene.hang_up()
        first.take({"READY": "1", "STATUS": RELOADED})
        scene.file.write_text(NONE_TO_START_BY)
        await scene.hang_up()
        [error] = caplog.messages
        assert error.startswith("no broker reads the configuration file again, but broker 1, still at an earlier ")
        second.take({"READY": "1", "STATUS": RELOADED})
        assert f"READY=1\nSTATUS={NOT_RELOADED}" in scene.told()

    scenario(steps)


@pytest.mark.parametrize(
    ("edited", "told"),
    [
        (NONE_TO_START_BY, "kafkad can no longer start by the configuration file: port 9093 would be that of http"),
        ("num.partitions: 5\n", "{} has changed while brokers took it, and some may have taken what it said before: "),
    ],
)
def test_a_file_that_changes_before_all_brokers_have_taken_it_is_told(
    scenario: Run, caplog: pytest.LogCaptureFixture, edited: str, told: str
) -> None:
    """One that starts, or stands still, takes what it says by then."""

    async def steps(scene: Scene) -> None:
        first, second = scene.begin_running()
        scene.file.write_text("num.partitions: 4\n")
        await scene.hang_up()
        first.take({"READY": "1", "STATUS": RELOADED})
        scene.file.write_text(edited)
        second.take({"READY": "1", "STATUS": RELOADED})
        [error] = caplog.messages
        assert error.startswith(told.format(scene.file))
        assert f"READY=1\nSTATUS={NOT_RELOADED}" in scene.told()
        assert scene.supervisor._advice(), "it is none that all of them run by"

    scenario(steps)


def test_no_broker_is_started_by_a_file_that_a_sighup_would_give_to_nobody(scenario: Run) -> None:
    async def steps(scene: Scene) -> None:
        first, _ = scene.begin_running()
        scene.file.write_text("num.partitions: 4\n")
        scene.meanwhile = lambda: scene.file.write_text(NONE_TO_START_BY)
        with pytest.raises(ConfigError, match="port 9093 would be that of http"):
            await scene.supervisor._judge_for(first.broker_id)

    scenario(steps)


def test_a_broker_that_is_started_by_another_file_than_the_others_is_told_until_all_take_it(
    scenario: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """One that is to be started when SIGHUP comes reads the file anyway."""

    async def steps(scene: Scene) -> None:
        first, second = scene.begin_running()
        await scene.supervisor._judge_for(1)
        assert caplog.messages == []
        scene.file.write_text("log.retention.ms: 60000\n")
        await scene.supervisor._judge_for(1)
        [warning] = caplog.messages
        assert warning.startswith(f"broker 1 is started by {scene.file} as it is now, which is another file than")
        caplog.clear()
        second._process = None
        ends(second, scene.supervisor)
        await scene.hang_up()
        first.take({"READY": "1", "STATUS": RELOADED})
        await scene.supervisor._judge_for(1)
        assert caplog.messages == []

    scenario(steps)


def test_an_error_of_ours_ends_the_reload(scenario: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def steps(scene: Scene) -> None:
        scene.begin_running()

        def fail() -> Config:
            raise RuntimeError("a bug")

        scene.supervisor._read_config = fail
        await scene.hang_up()
        assert f"READY=1\nSTATUS={NOT_RELOADED}" in scene.told()
        assert "internal error" in caplog.text

    scenario(steps)


def test_a_file_that_has_become_a_pipe_is_not_waited_for(scenario: Run, caplog: pytest.LogCaptureFixture) -> None:
    """Here the metadata store of all brokers would wait with it."""

    async def steps(scene: Scene) -> None:
        scene.file.unlink()
        os.mkfifo(scene.file)
        await scene.reload(RELOADED, RELOADED)
        assert f"READY=1\nSTATUS={NOT_RELOADED}" in scene.told()
        assert "kafkad.yaml is no regular file" in caplog.text

    scenario(steps)


def test_no_broker_may_run_by_a_blank_file_once_one_has_run_by_another(tmp_path: Path) -> None:
    async def steps() -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            scene = Scene(manager, tmp_path, "# nothing\n")
            first, second = scene.begin()
            for broker, says, may_be_blank in ((second, {}, True), (first, {NOT_BLANK: "1"}, False)):
                broker.take({"READY": "1", **says})
                assert scene.supervisor._may_be_blank() is may_be_blank

    asyncio.run(steps())
