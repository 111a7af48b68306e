"""Real ZooKeepers on this machine: one server, or an ensemble, of release 3.8 or 3.9.

    with ZooKeeper("3.8") as server:
        KazooClient(server.connect)
    with Ensemble("3.8", servers=3) as ensemble:
        ensemble.servers[0].kill()

Jars come from Maven Central and are kept beside Kafka's (`tests/oracle/kafka`), with an archive of the classes of each
release, so that a server serves after about a second. Data lives in a temporary directory that is removed at the end.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.oracle.kafka import START_SECONDS, OracleError, Server, fetch, free_port, java_release
from tests.oracle.kafka import missing as missing_jar

RELEASES = ("3.8", "3.9")
TICK_MS = 100
"""The shortest session lasts two ticks: tests of lost sessions need not wait for long."""
MAX_SESSION_MS = 60_000
SYNC_TICKS = 100
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


def missing(release: str) -> str | None:
    """The reason that tests with this release cannot run here; None when they can, perhaps after a fetch."""
    return missing_jar(_jars_of(release), "zookeeper")


def _jars_of(release: str) -> str:
    return f"zookeeper-{release}"


class ZooKeeper:
    """One server; a context manager. It keeps its port and its data over `kill`, `stop` and `start`."""

    def __init__(self, release: str = "3.8", port: int | None = None, heap: str = "128m") -> None:
        self.release = release
        self.port = port or free_port()
        self.settings: dict[str, str] = {}
        self.options: list[str] = []
        """Of Java."""
        self._heap = heap
        self._server: Server | None = None
        self._directory = Path(tempfile.mkdtemp(prefix="zookeeper-"))

    @property
    def connect(self) -> str:
        """The value of `zookeeper.connect`, without a chroot."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._server is not None
        return self._server.pid

    @property
    def data(self) -> Path:
        return self._directory / "data"

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def start(self) -> None:
        """Returns when it serves; a member of an ensemble does once there is a majority."""
        self.launch()
        self.wait_serving()

    def launch(self) -> None:
        """Like `start`, but returns at once."""
        self.data.mkdir(parents=True, exist_ok=True)
        settings = {
            "tickTime": str(TICK_MS),
            "maxSessionTimeout": str(MAX_SESSION_MS),
            "dataDir": str(self.data),
            "clientPort": str(self.port),
            "clientPortAddress": "127.0.0.1",
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
            **self.settings,
        }
        path = self._directory / "zoo.cfg"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        options = [
            f"-Xmx{self._heap}",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData",
            *self.options,
        ]
        self._server = Server(_java(self.release, *options, _MAIN, str(path)), self.port)

    def wait_serving(self, seconds: float = START_SECONDS) -> None:
        assert self._server is not None
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self._server.process.poll() is not None:
                raise OracleError(f"ZooKeeper {self.release} ended: {self._server.output()}")
            if "Mode: " in self.ask("srvr"):
                return
            time.sleep(0.02)
        raise OracleError(f"ZooKeeper {self.release} does not serve after {seconds} s: {self._server.output()}")

    def kill(self) -> None:
        """SIGKILL, also to a server that is suspended."""
        if self._server is not None:
            self._server.kill()
            self._server.stop()  # closes its output
            self._server = None

    def stop(self) -> None:
        """SIGTERM."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    def suspend(self) -> None:
        """SIGSTOP: connections stay open, and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def lose_data(self) -> None:
        """Removes everything that a server which is not running had."""
        assert self._server is None, "the server is running"
        for name in self.data.iterdir():
            if name.name != "myid":
                shutil.rmtree(name)

    def ask(self, command: str, seconds: float = 5) -> str:
        """The answer to one of the commands of four letters; empty if there is none."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), seconds) as connection:
            connection.sendall(command.encode())
            return connection.makefile(errors="replace").read()
        return ""


class Ensemble:
    """Several servers that elect a leader; a context manager."""

    def __init__(self, release: str = "3.8", servers: int = 3) -> None:
        self.servers = [ZooKeeper(release) for _ in range(servers)]
        members = {
            f"server.{i + 1}": f"127.0.0.1:{free_port()}:{free_port()};127.0.0.1:{server.port}"
            for i, server in enumerate(self.servers)
        }
        for i, server in enumerate(self.servers):
            server.settings = {"initLimit": str(SYNC_TICKS), "syncLimit": str(SYNC_TICKS), **members}
            server.data.mkdir(parents=True)
            (server.data / "myid").write_text(f"{i + 1}\n")

    @property
    def connect(self) -> str:
        return ",".join(server.connect for server in self.servers)

    @property
    def leader(self) -> ZooKeeper:
        return next(server for server in self.servers if "Mode: leader" in server.ask("srvr"))

    @property
    def followers(self) -> list[ZooKeeper]:
        return [server for server in self.servers if "Mode: follower" in server.ask("srvr")]

    def __enter__(self) -> Self:
        try:
            for server in self.servers:
                server.launch()
            for server in self.servers:
                server.wait_serving()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self.servers:
            server.__exit__(kind, error, trace)


def _java(release: str, *arguments: str) -> list[str]:
    """A command line of java with a release's jars and the archive of its classes, made first when it is not there."""
    jars = fetch(_jars_of(release), "zookeeper")
    archive = jars / f"{java_release()}.jsa"
    command = ["java", "-Djava.awt.headless=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{jars}/*"]
    if not archive.exists():
        with (jars / "archiving.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not archive.exists():
                _make_archive(command, archive)
    return [*command, f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=off", *arguments]


def _make_archive(command: list[str], archive: Path) -> None:
    """Of the classes that a server loads while it starts and serves a client."""
    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        port, made = free_port(), Path(scratch, "archive")
        settings = Path(scratch, "zoo.cfg")
        settings.write_text(
            f"dataDir={scratch}/data\nclientPort={port}\nadmin.enableServer=false\n4lw.commands.whitelist=*\n"
        )
        server = Server([*command, f"-XX:ArchiveClassesAtExit={made}", "-XX:+UseSerialGC", _MAIN, str(settings)], port)
        server.wait_ready()
        server.stop()
        if not made.exists():
            raise OracleError(f"java could not archive ZooKeeper's classes in {archive}")
        made.rename(archive)
