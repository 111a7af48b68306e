"""One broker of the host: its process, its session with the store, and its restarts."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from secrets import token_urlsafe
from time import monotonic

from kafkad.config import ConfigError
from kafkad.exit_status import BAD_CONFIGURATION
from kafkad.meta.embedded import EmbeddedStore
from kafkad.meta.served import serve
from kafkad.net.http import TOKEN_VARIABLE
from kafkad.supervisor.broker_http import ANSWER_S, HttpAnswer, ask
from kafkad.supervisor.notices import Notice, Notices
from kafkad.supervisor.restarts import delay_s, how_it_ended
from kafkad.systemd import NOT_BLANK, STOP_ALL

log = logging.getLogger(__name__)

_BAD_CONFIGURATION_S = 1.0
"""The least time until one is tried again: it does not mend itself, and the others may be about to say the same."""
_KILLED_AT = 4
"""Ticks without a word."""
_KILLED_BEFORE_IT_SPEAKS_AT = 20
"""Until its first word: a name that no server resolves takes a minute, and would again in the next process."""
_REMEMBERED_ENDS = 10
_MICROSECONDS = 1_000_000


class BrokerProcess:
    """`keep_running` until `stop`. `doing` says in words why it is not ready, `on_change` hears of each change, and
    `extend_timeout` for how many seconds more it may be busy with its start or stop.
    `advice` is for whoever reads that it cannot use its configuration. Its file `may_be_blank` until one of the brokers
    has run by one that sets something: a restart takes no file that a reload would not. So `judge_file`, which gets the
    broker's id before each start, raises the ConfigError of a file that none is started by."""

    def __init__(
        self,
        broker_id: int,
        command: Sequence[str],
        environment: Mapping[str, str],
        store: EmbeddedStore,
        on_change: Callable[[], None],
        advice: Callable[[], str],
        may_be_blank: Callable[[], bool],
        judge_file: Callable[[int], Awaitable[None]],
        *,
        extend_timeout: Callable[[float], None],
        with_http: bool,
    ) -> None:
        self.broker_id = broker_id
        self.ready = False
        self.reloading = False
        """True from a SIGHUP until the broker has taken it in, and is ready. One that comes amid a start has its effect
        when that is over."""
        self.doing = "starting"
        self.restarts = 0
        self.bad_configuration = False
        """Of one that has never been ready. Where it has been, the file may be in the middle of a change, and is waited
        for."""
        self.failed_at_stop = False
        self._command = command
        self._environment = environment
        self._store = store
        self._on_change = on_change
        self._extend_timeout = extend_timeout
        self._advice = advice
        self._may_be_blank = may_be_blank
        self._judge_file = judge_file
        self.has_run_by_settings = False
        """By a file that sets something."""
        self._http_token = token_urlsafe()
        self._http = socket.create_server(("127.0.0.1", 0)) if with_http else None
        self._process: asyncio.subprocess.Process | None = None
        self._ends: list[float] = []
        self._silent_ticks = 0
        self._heard = False
        self._heard_at = monotonic()
        """Its last notice or answer, or its start."""
        self._ends_itself = False
        """It has said that it stops."""
        self._was_ready = False
        self._stopping = asyncio.Event()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def keep_running(self) -> None:
        while not self._stopping.is_set():
            try:
                await self._judge_file(self.broker_id)
                pid, code = await self._run()
            except ConfigError as error:
                self.bad_configuration = not self._was_ready
                what = f"is not started: kafkad could not start by the configuration file: {'; '.join(error.problems)}"
                await self._wait_to_restart(what, logging.ERROR, is_bad=True)
                continue
            except OSError as error:
                await self._wait_to_restart(f"cannot be started: {error.strerror}", logging.ERROR)
                continue
            if self._stopping.is_set():
                self.failed_at_stop = code != 0 and self._heard
            else:
                is_bad = code == BAD_CONFIGURATION
                self.bad_configuration = is_bad and not self._was_ready
                level = logging.ERROR if code else logging.INFO
                why = ". Its own lines above say why" if code else ""
                await self._wait_to_restart(f"(process {pid}) {how_it_ended(code)}", level, why, is_bad=is_bad)
            self._on_change()
        if self._http is not None:
            self._http.close()

    def stop(self) -> None:
        """Before a process has said anything it may know no signal yet, and SIGTERM ends it quietly. If it knows them
        it hears when it says something that all stop."""
        self._stopping.set()
        self.signal(STOP_ALL if self._heard else signal.SIGTERM)

    def signal(self, number: int) -> None:
        """Nothing when it does not run."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    def reload(self) -> None:
        """A process that has not said anything yet would be killed by SIGHUP: it gets it later."""
        if self._process is not None:
            self.reloading = True
            if self._heard:
                self.signal(signal.SIGHUP)

    def take(self, notice: Notice) -> None:
        """What the broker says of itself, as it would to systemd."""
        self._silent_ticks = 0
        self._heard_at = monotonic()
        if not self._heard and self._stopping.is_set():
            self.signal(STOP_ALL)
        elif not self._heard and self.reloading:
            self.signal(signal.SIGHUP)
        self._heard = True
        more_us = notice.get("EXTEND_TIMEOUT_USEC", "")
        if more_us.isdecimal() and not self.ready:
            self._extend_timeout(int(more_us) / _MICROSECONDS)
        if "READY" in notice:
            self.reloading = self.reloading and not self.ready
            self.ready = self._was_ready = True
            self.bad_configuration = False
            self.has_run_by_settings = self.has_run_by_settings or NOT_BLANK in notice
        elif "STOPPING" in notice:
            self.ready = False
            self._ends_itself = True
        self.doing = notice.get("STATUS", self.doing)
        self._on_change()

    def tick(self) -> None:
        """Called as often as the broker feeds its watchdog, which it does as soon as its loop runs: one that says
        nothing is killed. One that stops may, its loop stands still while logs are closed."""
        self._silent_ticks += 1
        if self._process is None or self._ends_itself:
            return
        killed_at = _KILLED_AT if self._heard else _KILLED_BEFORE_IT_SPEAKS_AT
        if self._silent_ticks == killed_at:
            then = "and its next start checks its logs" if self._stopping.is_set() else "and started again"
            log.error("broker %d (process %s) hangs: it is killed %s", self.broker_id, self.pid, then)
            self.signal(signal.SIGKILL)
        elif self._silent_ticks == 2 * killed_at:
            log.error(
                "broker %d (process %s) was killed and has not ended: the kernel holds it, perhaps for a disk that "
                "does not answer; it is started again once it has ended",
                *(self.broker_id, self.pid),
            )

    async def ask(self, path: str, within_s: float = ANSWER_S, *, in_full: bool = True) -> HttpAnswer | None:
        """None also when it does not run."""
        if self._process is None or self._http is None:
            return None
        answer = await ask(self._http.getsockname()[1], path, self._http_token if in_full else None, within_s)
        if answer is not None:
            self._heard_at = monotonic()
        return answer

    def unanswered(self, in_full: bool) -> str:
        """Says in words why there is no answer. What one that is ready said last is not what it does; what another one
        said may have names in it, which are told in full alone."""
        if self._process is None:
            return self.doing
        silent_s = monotonic() - self._heard_at
        silent = f"process {self.pid} does not answer, and has been silent for {silent_s:.0f} s"
        doing = f"{self.doing}; " if in_full and not self.ready else ""
        return f"{doing}{silent}" + ("" if self._ends_itself else "; it is started again if that goes on")

    async def _run(self) -> tuple[int, int]:
        """One life of the process: its id and exit code. Its session has ended then, too. OSError when the system has
        no process to give."""
        notices = Notices(self.take)
        here, there = socket.socketpair()
        serving = asyncio.create_task(serve(self._store, here))
        try:
            process = self._process = await self._start(there, notices.there)
        except OSError:
            notices.close()
            await self._end_session(here, serving)
            raise
        finally:
            there.close()
            notices.there.close()
        self._silent_ticks = 0
        self._heard = self._ends_itself = False
        self._heard_at = monotonic()
        self.doing = "starting"
        if self._stopping.is_set():
            self.signal(signal.SIGTERM)
        notices.listen()
        code = await process.wait()
        notices.close()
        self._process = None
        self.ready = self.reloading = False
        await self._end_session(here, serving)
        return process.pid, code

    async def _start(self, store: socket.socket, notices: socket.socket) -> asyncio.subprocess.Process:
        handed_over = [store, notices] if self._http is None else [store, notices, self._http]
        descriptors = [each.fileno() for each in handed_over]
        return await asyncio.create_subprocess_exec(
            *self._command,
            *([] if self._may_be_blank() else ["--refuse-blank-file"]),
            "--supervised",
            *map(str, descriptors),
            pass_fds=descriptors,
            env={**os.environ, **self._environment, TOKEN_VARIABLE: self._http_token},
            process_group=0,  # Ctrl-C is for the supervisor, which stops all of them
        )

    async def _end_session(self, connection: socket.socket, serving: asyncio.Task[None]) -> None:
        """The next process may not find the registration of this one. A process that this one left behind may still
        have the other end of the connection; it counts no more."""
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not serving.done():
            serving.cancel()
            await asyncio.wait([serving])

    async def _wait_to_restart(self, what: str, level: int, why: str = "", *, is_bad: bool = False) -> None:
        """`is_bad`: it cannot use its configuration."""
        now = asyncio.get_running_loop().time()
        self._ends = [*self._ends[-_REMEMBERED_ENDS:], now]
        wait_s = max(delay_s(self._ends, now), _BAD_CONFIGURATION_S if is_bad else 0.0)
        self.restarts += 1
        when = f"in {wait_s:.0f} s" if wait_s else "at once"
        self.doing = f"{what}; it is started again {when}"
        hint = f"{why}; /ready says when it is back" if level == logging.ERROR else ""
        hint += self._advice() if is_bad else ""
        log.log(level, "broker %d %s; it is started again %s%s", self.broker_id, what, when, hint)
        self._on_change()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), wait_s)
