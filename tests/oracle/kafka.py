"""Real Apache Kafka on this machine, as an oracle: the same commands against it and against kafkad.

    python -m tests.oracle.kafka fetch 3.9|4.3
        jars from Maven Central (needs mvn and Java 17), and the archive of their classes
    python -m tests.oracle.kafka start 3.9|4.3 PORT [-n BROKERS] [--set NAME=VALUE ...]
        ZooKeeper (3.9) or KRaft (4.3), in the foreground until Ctrl-C; brokers on PORT, PORT+1, ...;
        one JSON line when all accept
    python -m tests.oracle.kafka tool 3.9|4.3 NAME ARGS
        one of Kafka's own tools: `tool 3.9 topics --list ...`

Jars are kept in $KAFKAD_JARS, by default ~/.cache/kafkad/jars, one directory for each version, with an archive of the
classes in them as a JVM has them in memory: with it Kafka and its tools start with half of the CPU time. Data lives in
a temporary directory that is removed at the end, unless a caller passes its own.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import functools
import json
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import IO, Self

HERE = Path(__file__).parent
VERSIONS = ("3.9", "4.3")
START_SECONDS = 240
ANSWER_SECONDS = 10.0
STOP_SECONDS = 20

TOOLS = {
    "acls": "kafka.admin.AclCommand",
    "broker-api-versions": "kafka.admin.BrokerApiVersionsCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "configs": "kafka.admin.ConfigCommand",
    "connect-distributed": "org.apache.kafka.connect.cli.ConnectDistributed",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-producer": "kafka.tools.ConsoleProducer",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "consumer-perf": "org.apache.kafka.tools.ConsumerPerformance",
    "delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "dump-log": "kafka.tools.DumpLogSegments",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "producer-perf": "org.apache.kafka.tools.ProducerPerformance",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "storage": "kafka.tools.StorageTool",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}
MOVED = {
    "4.3": {
        "acls": "org.apache.kafka.tools.AclCommand",
        "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
        "console-producer": "org.apache.kafka.tools.ConsoleProducer",
        "dump-log": "org.apache.kafka.tools.DumpLogSegments",
    }
}
"""Classes of tools that have moved in releases after 3.9."""


class OracleError(Exception):
    """Kafka, ZooKeeper or the fetching of their jars failed; the message ends with what they printed last."""


def jars_directory(version: str) -> Path:
    root = os.environ.get("KAFKAD_JARS") or os.path.expanduser("~/.cache/kafkad/jars")
    return Path(root) / version


BROKER_JAR = "kafka_2.13"


def missing(version: str, jar: str = BROKER_JAR) -> str | None:
    """The reason that tests with this jar of real Kafka cannot run here; None when they can, perhaps after a fetch."""
    if shutil.which("java") is None:
        return "java is not installed"
    if not _fetched(version, jar) and shutil.which("mvn") is None:
        return f"Kafka {version}'s {jar} is not in {jars_directory(version)} and mvn is not installed"
    return None


def fetch(version: str, jar: str = BROKER_JAR) -> Path:
    """The directory with Kafka's jars, fetched first when this one is not there."""
    jars = jars_directory(version)
    if _fetched(version, jar):
        return jars
    jars.mkdir(parents=True, exist_ok=True)
    pom = HERE / f"pom-{version}.xml"
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={jars.absolute()}"]
    done = subprocess.run(["mvn", "-q", "-B", "-f", str(pom), *goal], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OracleError(f"mvn could not fetch Kafka {version}: {(done.stdout + done.stderr)[-2000:]}")
    for binding in jars.glob("slf4j-reload4j*"):  # two logging bindings would make every tool print a warning
        binding.unlink()
    for archive in jars.glob("*.jsa"):  # of a class path that these jars have changed
        archive.unlink()
    return jars


def _fetched(version: str, jar: str) -> bool:
    return any(jars_directory(version).glob(f"{jar}-*.jar"))


def java(version: str, main: str, *arguments: str, options: Sequence[str], archived: bool = True) -> list[str]:
    classpath = _classpath(version)
    classes = [_class_list.get() or f"-XX:SharedArchiveFile={_archive(version)}"] if archived else []
    quiet = ["-Xlog:cds*=off", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    return ["java", *options, *classes, "-Djava.awt.headless=true", *quiet, "-cp", classpath, main, *arguments]


def _classpath(version: str) -> str:
    return str(fetch(version).absolute() / "*")


_class_list: ContextVar[str | None] = ContextVar("_class_list", default=None)
"""While an archive is made: the option with which a JVM writes down which classes it loads."""


def _archive(version: str) -> Path:
    """The classes in a version's jars, as this Java keeps them in memory; made first when they are not there."""
    archive = fetch(version) / f"{java_release()}.jsa"
    if not archive.exists():
        with (archive.parent / "archiving.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not archive.exists():
                _make_archive(version, archive)
    return archive


@functools.cache
def java_release() -> str:
    said = subprocess.run(["java", "--version"], capture_output=True, text=True, check=True).stdout
    return re.sub(r"[^\w.]+", "-", said.splitlines()[0])


def _make_archive(version: str, archive: Path) -> None:
    """Of all classes that a broker and some tools load."""
    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        token = _class_list.set(f"-XX:DumpLoadedClassList={scratch}/%p.list")
        try:
            _load_classes(version)
        finally:
            _class_list.reset(token)
        loaded = [line for path in sorted(Path(scratch).glob("*.list")) for line in path.read_text().splitlines()]
        classes = Path(scratch, "classes")
        classes.write_text("".join(f"{line}\n" for line in dict.fromkeys(loaded)))
        made = Path(scratch, "archive")
        dump = ["-Xshare:dump", f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={made}"]
        done = subprocess.run(["java", *dump, "-cp", _classpath(version)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise OracleError(
                f"java could not archive Kafka {version}'s classes: {(done.stdout + done.stderr)[-2000:]}"
            )
        made.rename(archive)


def _load_classes(version: str) -> None:
    with Kafka(version, heap="512m") as kafka:
        for name, words, lines in (
            ("topics", "--create --topic any", ""),
            ("configs", "--describe --all --topic any", ""),
            ("console-producer", "--topic any", "a record\n"),
            ("console-consumer", "--topic any --group any --from-beginning --max-messages 1", ""),
            ("consumer-groups", "--describe --group any", ""),
        ):
            command = tool(version, name, "--bootstrap-server", kafka.bootstrap, *words.split())
            subprocess.run(command, input=lines, capture_output=True, text=True, check=True, timeout=START_SECONDS)


def tool(version: str, name: str, *arguments: str, archived: bool = True) -> list[str]:
    """The command line of one of Kafka's own tools; without the archive it costs what it costs users."""
    quick = ["-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    if name.endswith("-perf"):
        quick = ["-Xms512m", "-Xmx512m", "-XX:+UseG1GC"]
    return java(version, main_class(version, name), *arguments, options=quick, archived=archived)


def main_class(version: str, tool: str) -> str:
    """Of a tool, or of the class that was named instead."""
    return MOVED.get(version, {}).get(tool, TOOLS.get(tool, tool))


def free_port() -> int:
    """A port that nobody listens on. The kernel gives it to no outgoing connection before a server takes it."""
    first, given_out_from = 10_240, int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            port = random.SystemRandom().randrange(first, max(given_out_from, 2 * first))
            probe.bind(("127.0.0.1", port))
            return port


def wait_port(port: int, process: subprocess.Popen[bytes], log: IO[bytes], seconds: float = START_SECONDS) -> None:
    """Returns once something accepts on the port; raises when the process ends or the time is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            raise OracleError(f"the process for port {port} exited with {process.returncode}: {_last_words(log)}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise OracleError(f"nothing listens on {port} after {seconds} s: {_last_words(log)}")


def _known_brokers(port: int) -> int | None:
    """None: no answer. One that starts may forget a request, so each try has a connection of its own."""
    metadata_v1_of_no_topic = struct.pack(">ihhihi", 14, 3, 1, 1, -1, 0)
    try:
        with socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS) as connection:
            connection.sendall(metadata_v1_of_no_topic)
            (length,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
            (count,) = struct.unpack_from(">i", connection.recv(length, socket.MSG_WAITALL), 4)
            return int(count)
    except (OSError, struct.error):
        return None


def knows_brokers(port: int, count: int) -> bool:
    """True if a broker answers, and has been told of so many."""
    return _known_brokers(port) == count


def wait_for_brokers(port: int, count: int, seconds: float = START_SECONDS) -> None:
    """Real Kafka accepts connections before its controller has told it of the brokers; returns when it knows them."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if knows_brokers(port, count):
            return
        time.sleep(0.02)
    raise OracleError(f"the broker on {port} does not know of {count} brokers after {seconds} s")


def _wait_for_end_of_session(zookeeper: int, node: str, seconds: float = START_SECONDS) -> None:
    """A broker that was killed is not let in again before ZooKeeper has forgotten it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with socket.create_connection(("127.0.0.1", zookeeper), seconds) as connection:
            connection.sendall(b"dump")
            sessions = connection.makefile().read().split()
        if node not in sessions:
            return
        time.sleep(0.1)
    raise OracleError(f"ZooKeeper still has {node} after {seconds} s")


def _last_words(log: IO[bytes]) -> str:
    log.seek(0)
    return log.read()[-3000:].decode(errors="replace")


class Server:
    """A server process that listens on a port; its output is kept for the message of a failure."""

    def __init__(self, command: Sequence[str], port: int) -> None:
        self.port = port
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self.process = subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT)

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_ready(self) -> None:
        wait_port(self.port, self.process, self._log)

    def output(self) -> str:
        return "it was stopped" if self._log.closed else _last_words(self._log)

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self._log.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def zookeeper(directory: Path, port: int, longest_session_ms: int = 10_000) -> Server:
    """A standalone ZooKeeper from Kafka 3.9's jars, listening when this returns."""
    directory.mkdir(parents=True, exist_ok=True)
    settings = directory / "zoo.cfg"
    settings.write_text(
        f"tickTime=500\ndataDir={directory}\nclientPort={port}\nmaxClientCnxns=0\n"
        f"maxSessionTimeout={longest_session_ms}\n"
        "admin.enableServer=false\n4lw.commands.whitelist=*\n"
    )
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    server = Server(java("3.9", main, str(settings), options=["-Xms128m", "-Xmx128m"]), port)
    server.wait_ready()
    return server


class Kafka:
    """A throw-away cluster of real brokers; a context manager.

    `port` is the first broker's and the others take the next ones; without it each takes any free one. With `data`
    the single broker keeps its log directory there and nothing of it is removed. `options` are those of the JVM.
    """

    def __init__(
        self,
        version: str,
        *,
        port: int | None = None,
        brokers: int = 1,
        settings: Mapping[str, str] | None = None,
        heap: str = "1g",
        data: Path | None = None,
        options: Sequence[str] = (),
    ) -> None:
        if brokers > 1 and version != "3.9":
            raise OracleError(f"Kafka {version} is started with one broker only")
        self.version = version
        self.ports = [free_port() if port is None else port + i for i in range(brokers)]
        self.settings = dict(settings or {})
        self.brokers: list[Server] = []
        self.zookeeper: Server | None = None
        self._options = [f"-Xms{heap}", f"-Xmx{heap}", "-XX:+UseG1GC", *options]
        self._data = data
        self._stack = contextlib.ExitStack()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    @property
    def pids(self) -> list[int]:
        return [broker.pid for broker in self.brokers]

    def __enter__(self) -> Self:
        fetch(self.version)
        with contextlib.ExitStack() as stack:
            self.directory = Path(tempfile.mkdtemp(prefix="oracle-"))
            stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
            if self.version == "3.9":
                self.zookeeper = zookeeper(self.directory / "zk", free_port())
                stack.callback(self.zookeeper.stop)
                self.prepare_zookeeper(f"127.0.0.1:{self.zookeeper.port}")
            for i in range(len(self.ports)):
                self.brokers.append(self._start_broker(i))
                stack.callback(self.brokers[i].stop)
            for broker in self.brokers:
                broker.wait_ready()
                wait_for_brokers(broker.port, len(self.brokers))
            self._stack = stack.pop_all()
        return self

    def prepare_zookeeper(self, connect: str) -> None:
        """Called between ZooKeeper's start and the first broker's: for a subclass that fills the tree."""

    def restart(self, broker: int = 0, *, kill: bool = False, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Stop or kill a broker, have something done to its files, and start it again; returns when it accepts."""
        old = self.brokers[broker]
        if kill:
            old.kill()
        else:
            old.stop()
        meanwhile()
        if self.zookeeper is not None:
            _wait_for_end_of_session(self.zookeeper.port, f"/brokers/ids/{broker + 1}")
        self.launch(broker)
        self.brokers[broker].wait_ready()

    def launch(self, broker: int) -> None:
        """Start a broker that has ended; returns at once."""
        self.brokers[broker] = self._start_broker(broker)
        self._stack.callback(self.brokers[broker].stop)

    def log_directory(self, broker: int = 0) -> Path:
        return self._data or self.directory / f"data{broker + 1}"

    def _start_broker(self, i: int) -> Server:
        settings = self._properties(i)
        path = self.directory / f"server{i + 1}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        if self.version != "3.9":
            words = ["format", "--ignore-formatted", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", str(path)]
            storage = tool(self.version, "storage", *words)
            subprocess.run(storage, check=True, stdout=subprocess.DEVNULL)
        return Server(java(self.version, "kafka.Kafka", str(path), options=self._options), self.ports[i])

    def _properties(self, i: int) -> dict[str, str]:
        replication = str(min(3, len(self.ports)))
        listener = f"PLAINTEXT://127.0.0.1:{self.ports[i]}"
        settings = {
            "log.dirs": str(self.log_directory(i)),
            "listeners": listener,
            "offsets.topic.replication.factor": replication,
            "transaction.state.log.replication.factor": replication,
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
        if self.zookeeper:
            settings |= {"broker.id": str(i + 1), "zookeeper.connect": f"127.0.0.1:{self.zookeeper.port}"}
        else:
            controller = free_port()
            settings |= {
                "process.roles": "broker,controller",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": f"1@127.0.0.1:{controller}",
                "share.coordinator.state.topic.replication.factor": replication,
                "share.coordinator.state.topic.min.isr": "1",
                "node.id": "1",
                "listeners": f"{listener},CONTROLLER://127.0.0.1:{controller}",
            }
        return settings | self.settings

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            for broker in self.brokers:
                print(broker.output(), file=sys.stderr)
        self._stack.close()


def _start(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="start")
    parser.add_argument("version", choices=VERSIONS)
    parser.add_argument("port", type=int)
    parser.add_argument("-n", type=int, default=1)
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args(arguments)
    settings = dict(text.split("=", 1) for text in options.set)
    with Kafka(options.version, port=options.port, brokers=options.n, settings=settings, heap="512m") as kafka:
        connect = f"127.0.0.1:{kafka.zookeeper.port}" if kafka.zookeeper else None
        ready = {"bootstrap": kafka.bootstrap.split(","), "pids": kafka.pids, "zookeeper": connect}
        print(json.dumps(ready), flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["fetch", "start", "tool"])
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.what == "fetch":
        print(_archive(*options.rest).parent)
    elif options.what == "tool":
        command = tool(*options.rest)
        os.execvp(command[0], command)
    else:
        _start(options.rest)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    main()
