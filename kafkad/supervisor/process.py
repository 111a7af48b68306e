"""One broker of the host: its process, its session with the store, and its restarts."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from kafkad.meta.embedded import EmbeddedStore
from kafkad.meta.served import serve
from kafkad.supervisor.asking import HttpAnswer, ask
from kafkad.supervisor.restarts import delay_s, how_it_ended
from kafkad.systemd import STOP_ALL

log = logging.getLogger(__name__)

BAD_CONFIGURATION = 2
_SILENT_TICKS = 3


class BrokerProcess:
    """`keep_running` until `stop`. `doing` says in words why it is not ready, `on_change` hears of each change."""

    def __init__(
        self,
        broker_id: int,
        command: Sequence[str],
        environment: Mapping[str, str],
        store: EmbeddedStore,
        on_change: Callable[[], None],
        *,
        with_http: bool,
    ) -> None:
        self.broker_id = broker_id
        self.ready = False
        self.reloading = False
        """True from a SIGHUP until the broker says that it is ready again."""
        self.doing = "starting"
        self.restarts = 0
        self.bad_configuration = False
        self.failed_at_stop = False
        self._command = command
        self._environment = environment
        self._store = store
        self._on_change = on_change
        self._http = socket.create_server(("127.0.0.1", 0)) if with_http else None
        self._process: asyncio.subprocess.Process | None = None
        self._ends: list[float] = []
        self._silent_ticks = 0
        self._heard = False
        self._stopping = asyncio.Event()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def keep_running(self) -> None:
        while not self._stopping.is_set():
            pid, code = await self._run()
            self.ready = self.reloading = False
            if self._stopping.is_set():
                self.failed_at_stop = code != 0 and self._heard
            elif code == BAD_CONFIGURATION:
                self.bad_configuration = True
                self._stopping.set()
            else:
                await self._wait_to_restart(pid, code)
            self._on_change()
        if self._http is not None:
            self._http.close()

    def stop(self) -> None:
        """Before a process has said anything it may know no signal yet, and SIGTERM ends it quietly."""
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

    def take(self, notice: Mapping[str, str]) -> None:
        """What the broker says of itself, as it would to systemd."""
        self._silent_ticks = 0
        if not self._heard and self.reloading:
            self.signal(signal.SIGHUP)
        self._heard = True
        if "READY" in notice:
            self.ready, self.reloading = True, False
        self.doing = notice.get("STATUS", self.doing)
        self._on_change()

    def tick(self) -> None:
        """Called as often as the broker feeds its watchdog: one that is ready and says nothing is killed."""
        self._silent_ticks += 1
        if self.ready and self._silent_ticks > _SILENT_TICKS:
            log.error("broker %d (process %s) hangs: it is killed and started again", self.broker_id, self.pid)
            self.signal(signal.SIGKILL)

    async def ask(self, path: str) -> HttpAnswer | None:
        """None also when it does not run."""
        if self._process is None or self._http is None:
            return None
        return await ask(self._http.getsockname()[1], path)

    async def _run(self) -> tuple[int, int]:
        """One life of the process: its id and exit code. Its session has ended then, too."""
        here, there = socket.socketpair()
        serving = asyncio.create_task(serve(self._store, here))
        descriptors = [there.fileno()] if self._http is None else [there.fileno(), self._http.fileno()]
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                "--supervised",
                *map(str, descriptors),
                pass_fds=descriptors,
                env={**os.environ, **self._environment},
                process_group=0,  # Ctrl-C is for the supervisor, which stops all of them
            )
        finally:
            there.close()
        self._process = process
        self._silent_ticks = 0
        self._heard = False
        self.doing = "starting"
        if self._stopping.is_set():
            self.signal(signal.SIGTERM)
        code = await process.wait()
        self._process = None
        await self._end_session(here, serving)
        return process.pid, code

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

    async def _wait_to_restart(self, pid: int, code: int) -> None:
        now = asyncio.get_running_loop().time()
        self._ends.append(now)
        wait_s = delay_s(self._ends, now)
        self.restarts += 1
        when = f"in {wait_s:.0f} s" if wait_s else "at once"
        ended = how_it_ended(code)
        self.doing = f"{ended}; it is started again {when}"
        if code == 0:
            log.info("broker %d (process %d) %s; it is started again %s", self.broker_id, pid, ended, when)
        else:
            log.error(
                "broker %d (process %d) %s; it is started again %s. Its own lines above say why; /ready says when it "
                "is back",
                self.broker_id,
                pid,
                ended,
                when,
            )
        self._on_change()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), wait_s)
