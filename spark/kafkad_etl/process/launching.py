"""Runs spark-submit as a child process: starts it, exchanges messages over a socket, and never leaves it behind.

It runs in a session of its own, so that Ctrl-C on the terminal reaches only us and everything it started can be killed
with it. The socket, temporary files and logging configuration are in a private directory. The JVM inherits a lock on
it, so that the next run can find and remove what a killed run left.
"""

from __future__ import annotations

import fcntl
import os
import select
import shlex
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, Popen
from types import TracebackType
from typing import NamedTuple, Self

from msgspec.structs import replace

from kafkad_etl.facts import has_scheme, local_path
from kafkad_etl.machine.environment import Environment, temporary
from kafkad_etl.messages import Event, Plan, Stop, event_of, line_of
from kafkad_etl.process import submitting
from kafkad_etl.process.logs import Log
from kafkad_etl.sockets import address

PREFIX = "kctl-etl-"
"""Of private directories and of nothing else: what has it and no lock is removed by the next run."""
_TICK_SECONDS = 0.1
_GRACE_SECONDS = 20.0
"""Time for Spark to exit by itself after the driver has finished."""
KILL_SECONDS = 5.0
_PIECE = 1 << 16
ARTIFACTS = Path("artifacts")
"""Directory that Spark 4 creates wherever it is started, for nothing that jobs need, and leaves behind."""


class Arrival(NamedTuple):
    """What came from the driver of one job: an event, or None for the end of its events."""

    job: int
    """Its index among the jobs that were launched."""
    event: Event | None


class Conversation:
    """The socket of one job: its Plan goes to the driver as soon as that connects, its events come back."""

    def __init__(self, job: int, plan: Plan, listener: socket.socket) -> None:
        self.job = job
        self.has_ended = False
        self.is_stopping = False
        self._plan = plan
        self._listener = listener
        self._driver: socket.socket | None = None
        self._waiting = b""

    @property
    def is_connected(self) -> bool:
        return self._driver is not None

    def fileno(self) -> int:
        """What is readable when something arrives."""
        return (self._driver or self._listener).fileno()

    def receive(self) -> Iterator[Event]:
        """Handles what has arrived; yields the events of it."""
        if self._driver is None:
            self._driver, _ = self._listener.accept()
            self._send(self._plan)
            if self.is_stopping:
                self._send(Stop())
            return
        try:
            piece = self._driver.recv(_PIECE)
        except ConnectionResetError:
            piece = b""
        if not piece:
            self.has_ended = True
            return
        *lines, self._waiting = (self._waiting + piece).split(b"\n")
        for line in lines:
            yield event_of(line)

    def stop(self) -> None:
        """Asks the driver to finish the job's current batch."""
        self.is_stopping = True
        if self._driver is not None:
            self._send(Stop())

    def close(self) -> None:
        self._listener.close()
        if self._driver is not None:
            self._driver.close()

    def _send(self, message: Plan | Stop) -> None:
        assert self._driver is not None
        try:
            self._driver.sendall(line_of(message))
        except OSError:
            return  # it has gone, which the end of its events says


class Launched:
    """A running spark-submit with its jobs. A context manager: at its end no process is left, and no file but the
    log."""

    def __init__(
        self,
        process: Popen[bytes],
        conversations: Sequence[Conversation],
        private: Private,
        litter: Path | None,
    ) -> None:
        self._process = process
        self._conversations = conversations
        self._private = private
        self._litter = litter

    @property
    def pid(self) -> int:
        """The process id of spark-submit and the id of its process group."""
        return self._process.pid

    @property
    def ended(self) -> int | None:
        """The exit status, once it has exited; negative for a signal."""
        return self._process.poll()

    def events(self, tick: float = _TICK_SECONDS) -> Iterator[Arrival | None]:
        """Yields what arrives until the driver has left all conversations, and None whenever nothing arrived for a
        tick."""
        going_on = list(self._conversations)
        while going_on:
            readable = _readable(going_on, tick)
            if not readable:
                if self.ended is not None and not _readable(going_on, 0):
                    return  # the JVM was killed; the driver is an orphan, and holds the sockets
                yield None
            for each in readable:
                for event in each.receive():
                    yield Arrival(each.job, event)
                if each.has_ended:
                    going_on.remove(each)
                    yield Arrival(each.job, None)

    def stop(self, job: int | None = None) -> None:
        """Asks the driver to finish the current batch of this job, or of all of them."""
        for each in self._conversations:
            if job is None or each.job == job:
                each.stop()
        if all(each.is_stopping and not each.is_connected for each in self._conversations):
            self.kill()  # there is no batch yet

    def kill(self) -> None:
        """Kills spark-submit and everything it started."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def wait(self, seconds: float = _GRACE_SECONDS) -> int | None:
        """Waits for it to exit; returns None if that takes longer."""
        from subprocess import TimeoutExpired

        try:
            return self._process.wait(seconds)
        except TimeoutExpired:
            return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None or self.wait() is None:
            self.kill()
        self.kill()  # the driver outlives a JVM that was killed
        self._process.wait(KILL_SECONDS)
        for each in self._conversations:
            each.close()
        self._private.remove()
        if self._litter:
            remove_empty(self._litter)


def remove_empty(directory: Path) -> None:
    """Removes a directory if it holds nothing but empty directories."""
    for path in sorted((path for path in directory.rglob("*") if path.is_dir()), reverse=True):
        remove_if_empty(path)
    remove_if_empty(directory)


def remove_if_empty(directory: Path) -> None:
    try:
        directory.rmdir()
    except OSError:
        return  # it is not empty, or gone


def _readable(conversations: Sequence[Conversation], seconds: float) -> list[Conversation]:
    return select.select(conversations, [], [], seconds)[0]


class Private:
    """A private directory, locked for as long as we or the JVM live."""

    def __init__(self, parent: Path) -> None:
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
            with suppress(FileNotFoundError):
                self.lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
                fcntl.flock(self.lock, fcntl.LOCK_EX)
                if self.path.exists():
                    return
                os.close(self.lock)
            # a run that began at the same moment found it without a lock, and removed it

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)  # a daemon thread of a killed JVM may be writing still
        os.close(self.lock)


def sweep(parent: Path) -> list[Path]:
    """Removes directories left behind by killed runs, which are those that nobody has locked."""
    removed = []
    for path in parent.glob(f"{PREFIX}*"):
        try:
            directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue  # gone meanwhile, or another user's
        try:
            if os.fstat(directory).st_uid == os.getuid():
                fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
                removed.append(path)
        except BlockingIOError:
            continue
        finally:
            os.close(directory)
    return removed


def launch(
    environment: Environment,
    plans: Sequence[Plan],
    log: Log,
    master: str = "",
    options: submitting.Options = submitting.NO_OPTIONS,
    *,
    secrets: Iterable[str] = (),
    secret_variables: Collection[str] = (),
    inherited: Sequence[int] = (),
    environ: Mapping[str, str] | None = None,
) -> Launched:
    """Starts one Spark for these plans, which agree in what `submitting.application` says of it.

    Each has a socket, which listens before the process starts, so that the driver never has to wait for it. The JVM
    keeps the files `inherited` open, and so the locks on them, when it outlives us."""
    environ = os.environ if environ is None else environ
    job = submitting.application([plan.job for plan in plans])
    master = options.master or master or job.spark.master
    parent = Path(temporary(environ)).absolute()
    sweep(parent)
    private = Private(parent)
    litter = None if ARTIFACTS.exists() else ARTIFACTS.absolute()
    try:
        paths = [private.path / f"socket-{number}" for number in range(len(plans))]
        conversations = [
            Conversation(number, located(plan), _listen(path))
            for number, (plan, path) in enumerate(zip(plans, paths, strict=True))
        ]
        (private.path / "log4j2.properties").write_text(submitting.LOG4J2)
        command = submitting.command(environment, job, master, options, list(map(str, paths)), secrets)
        log.add(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {shlex.join(command)}")
        with log.open() as file:
            process = Popen(
                command,
                stdin=DEVNULL,
                stdout=file,
                stderr=file,
                env=submitting.variables(
                    environment,
                    master,
                    private.path,
                    environ,
                    submitting.java_options(plans, master, options, environ, environment.spark_home),
                    secrets,
                    secret_variables,
                ),
                start_new_session=True,
                pass_fds=(private.lock, *inherited),
            )
    except BaseException:
        private.remove()
        raise
    return Launched(process, conversations, private, litter)


def located(plan: Plan) -> Plan:
    """Gives paths without a scheme the scheme file:, so that they mean this machine's disk whatever fs.defaultFS
    says in HADOOP_CONF_DIR."""
    job, transform, files = plan.job, plan.job.transform, plan.job.source.files
    lookups = {name: replace(lookup, path=_located(lookup.path)) for name, lookup in transform.lookups.items()}
    job = replace(
        job,
        source=replace(job.source, files=files and replace(files, path=_located(files.path))),
        transform=replace(transform, lookups=lookups),
        sink=replace(job.sink, path=_located(job.sink.path)),
    )
    return replace(plan, job=job, checkpoint=_located(plan.checkpoint))


def _located(path: str) -> str:
    return path if not path or has_scheme(path) else f"file://{Path(local_path(path)).absolute()}"


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    with address(path) as reachable:
        listener.bind(reachable)
    listener.listen(1)
    return listener
