"""One supervised process, which need not be a broker: how its ends are taken."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafkad.clock import SystemClock
from kafkad.config import ConfigError
from kafkad.meta.embedded import EmbeddedStore
from kafkad.supervisor.file_in_use import FileInUse
from kafkad.supervisor.process import BrokerProcess
from kafkad.systemd import NOT_BLANK, STOP_ALL

pytestmark = pytest.mark.slow

NO_FILE = FileInUse.at(None).advice


async def good(broker_id: int) -> None:
    """The file of every broker."""


def supervised(
    command: list[str],
    until: Callable[[BrokerProcess], bool],
    advice: Callable[[], str] = NO_FILE,
    *,
    may_be_blank: Callable[[BrokerProcess], bool] = lambda broker: False,
    judge_file: Callable[[int], Awaitable[None]] = good,
) -> BrokerProcess:
    """The process when `until` holds and it has been stopped."""

    async def run() -> BrokerProcess:
        store = EmbeddedStore.in_memory(SystemClock())
        changed = asyncio.Event()
        broker = BrokerProcess(
            *(1, command, {}, store, changed.set, advice, lambda: may_be_blank(broker), judge_file),
            extend_timeout=lambda seconds: None,
            with_http=False,
        )
        running: Awaitable[None] = asyncio.ensure_future(broker.keep_running())
        async with asyncio.timeout(20):
            while not until(broker):
                changed.clear()
                await changed.wait()
            broker.stop()
            await running
        await store.close()
        return broker

    return asyncio.run(run())


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


SPEAKS = """
import os, signal, socket, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
assert "NOTIFY_SOCKET" not in os.environ
socket.socket(fileno=int(sys.argv[-1])).send(b"READY=1\\nSTATUS=listening")
signal.pause()
"""


def test_it_says_over_a_socket_of_its_own_what_it_does() -> None:
    said: list[str] = []

    def is_ready(broker: BrokerProcess) -> bool:
        if broker.ready:
            said.append(broker.doing)
        return broker.ready

    supervised(python(SPEAKS), is_ready)
    assert said == ["listening"]


def test_it_is_started_again_and_again() -> None:
    broker = supervised(python("raise SystemExit(7)"), lambda broker: broker.restarts == 2)
    assert broker.doing.endswith("ended with exit code 7; it is started again in 1 s")
    assert not broker.bad_configuration


def test_a_configuration_that_cannot_be_used_is_not_tried_again_at_once() -> None:
    broker = supervised(python("raise SystemExit(2)"), lambda broker: broker.bad_configuration)
    assert broker.doing.endswith("ended with exit code 2; it is started again in 1 s")


def test_a_configuration_that_was_mended_is_bad_no_more() -> None:
    broker, _ = signalled()
    broker.bad_configuration = True
    broker.take({"READY": "1"})
    assert not broker.bad_configuration


FAILS_ONCE = "import os, sys; ran = os.path.exists({0!r}); open({0!r}, 'w').close(); sys.exit(2 if ran else 7)"
"""Afterwards it cannot use its configuration."""


def test_a_configuration_that_cannot_be_used_any_more_is_waited_for(tmp_path: Path) -> None:
    """Somebody is in the middle of a change when a broker dies: the others serve by what they have read."""

    def ended(broker: BrokerProcess) -> bool:
        if not broker.restarts:
            broker.take({"READY": "1"})
        return broker.restarts == 2

    broker = supervised(python(FAILS_ONCE.format(str(tmp_path / "ran"))), ended)
    assert not broker.bad_configuration
    assert "exit code 2" in broker.doing


def test_a_start_that_failed_for_something_else_keeps_nobody_from_saying_that_it_is_the_configuration(
    tmp_path: Path,
) -> None:
    code = FAILS_ONCE.format(str(tmp_path / "ran"))
    assert supervised(python(code), lambda broker: broker.restarts == 2).bad_configuration


@pytest.mark.parametrize(
    ("may_be_blank", "notice", "refuses"),
    [(False, {}, True), (True, {"READY": "1"}, False), (True, {"READY": "1", NOT_BLANK: "1"}, True)],
)
def test_one_that_has_run_by_a_file_that_sets_something_is_started_again_by_no_blank_one(
    may_be_blank: bool, notice: dict[str, str], refuses: bool
) -> None:
    """A SIGHUP takes none either: by the defaults, retention would delete."""

    def ended(broker: BrokerProcess) -> bool:
        if broker.restarts == 1:
            broker.take(notice)
        return broker.restarts == 2

    says = python("import sys; sys.exit(8 if '--refuse-blank-file' in sys.argv else 7)")
    broker = supervised(says, ended, may_be_blank=lambda broker: may_be_blank and not broker.has_run_by_settings)
    assert ("exit code 8" in broker.doing) == refuses


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_file_that_is_another_by_now_is_named_to_who_reads_why_a_broker_cannot_use_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_changed: bool
) -> None:
    path = tmp_path / "kafkad.yaml"
    path.write_text("num.partitions: 3\n")
    file_in_use = FileInUse.at(str(path))
    if is_changed:
        path.write_text("num.partitions: 4\n")
    supervised(python("raise SystemExit(2)"), lambda broker: broker.restarts == 1, file_in_use.advice)
    assert ("is another file than the brokers run by" in caplog.text) == is_changed


@pytest.mark.parametrize("was_ready", [False, True])
def test_it_is_not_started_by_a_file_that_is_none_to_start_by(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, was_ready: bool
) -> None:
    """It would take the part of it that it sees. Until it has run there is nothing to wait for."""
    ran = tmp_path / "ran"

    async def judge(broker_id: int) -> None:
        raise ConfigError("port 9093 is taken")

    def ended(broker: BrokerProcess) -> bool:
        if not broker.restarts and was_ready:
            broker.take({"READY": "1"})
        return broker.restarts == 1

    broker = supervised(python(f"open({str(ran)!r}, 'w')"), ended, lambda: "; put it back", judge_file=judge)
    assert not ran.exists()
    told = "is not started: kafkad could not start by the configuration file: port 9093 is taken"
    assert broker.doing == f"{told}; it is started again in 1 s"
    assert caplog.messages == [f"broker 1 {broker.doing}; /ready says when it is back; put it back"]
    assert broker.bad_configuration != was_ready


def test_what_can_be_read_only_once_is_not_taken_for_another(tmp_path: Path) -> None:
    pipe, gone = tmp_path / "pipe", tmp_path / "gone"
    os.mkfifo(pipe)
    gone.touch()
    before = FileInUse.at(str(gone))
    gone.unlink()
    assert [each.advice() for each in (FileInUse.at(None), FileInUse.at(str(pipe)))] == ["", ""]
    assert str(gone) in before.advice()


def test_a_program_that_is_not_there_is_tried_again() -> None:
    broker = supervised(["/nonexistent/kafkad"], lambda broker: broker.restarts == 2)
    assert broker.doing == "cannot be started: No such file or directory; it is started again in 1 s"


def signalled() -> tuple[BrokerProcess, list[int]]:
    """A process that only seems to run, and the signals that it gets."""
    store = EmbeddedStore.in_memory(SystemClock())
    broker = BrokerProcess(
        *(1, [], {}, store, lambda: None, NO_FILE, lambda: False, good),
        extend_timeout=lambda seconds: None,
        with_http=False,
    )
    sent: list[int] = []
    broker.signal = sent.append  # type: ignore[method-assign]
    broker._process = SimpleNamespace(pid=1)  # type: ignore[assignment]
    return broker, sent


@pytest.mark.parametrize("first", [{}, {"STATUS": "loading logs"}])
def test_a_reload_that_is_asked_for_amid_a_start_is_over_when_it_was_done(first: dict[str, str]) -> None:
    broker, sent = signalled()
    broker.reload()
    assert sent == []
    if first:
        broker.take(first)
    broker.take({"READY": "1", "STATUS": "listening"})
    assert (broker.ready, broker.reloading, sent) == (True, True, [signal.SIGHUP])
    broker.take({"RELOADING": "1"})
    broker.take({"READY": "1", "STATUS": "configuration reloaded"})
    assert (broker.ready, broker.reloading, sent) == (True, False, [signal.SIGHUP])


def test_one_that_stops_before_it_has_said_anything_hears_that_all_stop() -> None:
    """It would wait for somebody to whom it can hand its leaderships over."""
    broker, sent = signalled()
    broker.stop()
    assert sent == [signal.SIGTERM]
    for _ in range(2):
        broker.take({"STOPPING": "1", "STATUS": "handing leaderships over"})
        assert sent == [signal.SIGTERM, STOP_ALL]


def test_one_that_stops_is_not_killed_for_its_silence() -> None:
    """Its loop may stand still while logs are closed."""
    broker, sent = signalled()
    broker.take({"READY": "1", "STATUS": "listening"})
    broker.take({"STOPPING": "1", "STATUS": "handing leaderships over"})
    for _ in range(10):
        broker.tick()
    assert sent == []
    assert (broker.ready, broker.doing) == (False, "handing leaderships over")


def test_the_session_ends_though_a_child_of_the_process_keeps_its_connection() -> None:
    code = "import subprocess; subprocess.Popen(['sleep', '5'], close_fds=False)"
    broker = supervised(python(code), lambda broker: broker.restarts == 1)
    assert "was told to stop" in broker.doing
