"""Runs spark-submit with a user's program to its end: passes its output and Ctrl-C on, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from subprocess import DEVNULL, Popen, TimeoutExpired

from kafkad_etl.errors import EtlExit
from kafkad_etl.machine.environment import Environment, temporary
from kafkad_etl.process.interruptions import Interruptions
from kafkad_etl.process.launching import ARTIFACTS, Private, remove_empty, sweep
from kafkad_etl.process.programs import DRIVER_PID, DRIVER_PYTHON, LOG4J2, Program, driver_python, exit_code
from kafkad_etl.process.relaying import Relay
from kafkad_etl.process.submitting import LOG4J2 as LOGGING

_TICK_SECONDS = 0.1
_OUTPUT_SECONDS = 5.0
"""Time for what the program has written to arrive; a process that it left behind may hold the pipe for ever."""


def supervise(
    program: Program,
    environment: Environment,
    environ: Mapping[str, str],
    secrets: Iterable[str],
    grace: float,
    say: Callable[[str], None],
) -> int:
    """Returns the program's exit code. `environ` includes the login; `grace` is how long it may take to end after
    SIGTERM; `say` gets what people should know."""
    parent = Path(temporary(environ)).absolute()
    sweep(parent)
    with ExitStack() as stack:
        private = Private(parent)
        stack.callback(private.remove)
        if not ARTIFACTS.exists():
            stack.callback(remove_empty, ARTIFACTS.absolute())
        (private.path / LOG4J2).write_text(LOGGING)
        python = private.path / DRIVER_PYTHON
        python.write_text(driver_python(environment, environ))
        python.chmod(0o700)
        interruptions = stack.enter_context(Interruptions())
        relays = [Relay(target, secrets) for target in (1, 2)]
        process = Popen(
            program.command(environment),
            stdin=DEVNULL,
            stdout=relays[0].writing,
            stderr=relays[1].writing,
            env=program.variables(environment, private.path, environ),
            start_new_session=True,
            pass_fds=(private.lock,),
        )
        for relay in relays:
            relay.start()
        try:
            status = _Running(process, private.path / DRIVER_PID, interruptions, grace, say).end()
        finally:
            kill(process)
            for relay in relays:
                relay.finish(_OUTPUT_SECONDS)
    if status < 0 and interruptions.count:
        return EtlExit.INTERRUPTED
    if status < 0:
        say(_killed(signal.Signals(-status)))
    return exit_code(status)


class _Running:
    """The process while it runs. `driver` is the file with the process id of the program's Python."""

    def __init__(
        self,
        process: Popen[bytes],
        driver: Path,
        interruptions: Interruptions,
        grace: float,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._process = process
        self._driver = driver
        self._interruptions = interruptions
        self._grace = grace
        self._say = say
        self._clock = clock
        self._heeded = 0
        self._patience = float("inf")

    def end(self) -> int:
        while True:
            try:
                return self._process.wait(_TICK_SECONDS)
            except TimeoutExpired:
                self._heed()

    def _heed(self) -> None:
        if self._interruptions.count > self._heeded:
            self._heeded = self._interruptions.count
            if self._heeded == 1:
                self._pass_on(self._interruptions.by)
            else:
                self._say("stopping at once")
                kill(self._process)
        if self._clock() > self._patience:
            self._patience = float("inf")
            self._say(f"the program has not ended {self._grace:g} s after {self._interruptions.by.name}: killing it")
            kill(self._process)

    def _pass_on(self, by: signal.Signals) -> None:
        """Sends the signal to the program alone, so that Spark is still there when it cleans up."""
        if by == signal.SIGINT:
            self._say("waiting for the program to end; press Ctrl-C again to stop it at once")
        else:
            self._say(f"{by.name}: waiting up to {self._grace:g} s for the program to end")
            self._patience = self._clock() + self._grace
        with suppress(ProcessLookupError):
            if pid := self._driver_pid():
                os.kill(pid, by)
            else:
                os.killpg(self._process.pid, by)

    def _driver_pid(self) -> int:
        """The program's process id; 0 while there is none."""
        try:
            return int(self._driver.read_text() or "0")
        except FileNotFoundError:
            return 0


def kill(process: Popen[bytes]) -> None:
    """Kills spark-submit and everything in its process group: the program too, which outlives a JVM that was killed."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _killed(by: signal.Signals) -> str:
    told = f"error: Spark was killed ({by.name}) before the program ended"
    if by == signal.SIGKILL:
        told += "; if nobody killed it, the machine ran out of memory: check dmesg, and lower --driver-memory"
    return told
