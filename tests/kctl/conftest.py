from __future__ import annotations

import difflib
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kctl.cli import run
from kctl.command.changes import Change
from kctl.reach.access import Access
from kctl.reach.connection import Address
from kctl.reach.session import Broker, Cluster, Session
from kctl.settings import Settings
from tests.broker import KafkadProcess
from tests.kctl.flaky import Flaky
from tests.oracle.kafka import Kafka, Server, missing

signal.signal(signal.SIGINT, signal.default_int_handler)
"""A shell that runs the tests in the background ignores it, and so would every kctl that a test interrupts."""

APPROVED = Path(__file__).parent / "approved"
RACKS = ("a", "b", "c")


LIBRDKAFKA = re.compile(r"^%[0-7]\|.*\n", re.MULTILINE)
"""A line of its log: clients that other tests have left behind, whose brokers are gone, write to the same stderr."""


class Ran(NamedTuple):
    code: int
    out: str
    err: str


Kctl = Callable[..., Ran]


def session_of(*brokers: int) -> Session:
    """One that was told of these brokers, and is connected to none."""
    session = Session(Settings(), Access(bootstrap=(("h", 1),)))
    session._cluster = Cluster("c", 1, {broker: Broker(broker, "h", broker, None) for broker in brokers})
    session._is_current = True
    return session


@pytest.fixture(autouse=True)
def no_settings_of_the_developer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("KCTL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("KCTL_CONFIG", str(tmp_path / "contexts.yaml"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def kctl(capfd: pytest.CaptureFixture[str]) -> Kctl:
    """Runs a command line in this process."""

    def call(*arguments: object) -> Ran:
        code = run([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Ran(int(code), out, LIBRDKAFKA.sub("", err))

    return call


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Callable[[], object]]]:
    """Changes that happen while somebody thinks about the question."""
    happens: list[Callable[[], object]] = []
    confirmed = Change.confirmed

    def slowly(self: Change, question: str, **others: Any) -> bool:
        for event in happens:
            event()
        return confirmed(self, question, **others)

    monkeypatch.setattr(Change, "confirmed", slowly)
    yield happens


@pytest.fixture
def pair() -> Iterator[tuple[Flaky, Flaky]]:
    """Brokers 1 and 2 of a cluster, each of which tells of both."""
    peers: dict[int, Address] = {}
    brokers = Flaky(peers), Flaky(peers)
    peers |= {1: brokers[0].address, 2: brokers[1].address}
    yield brokers
    for broker in brokers:
        broker.close()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkadProcess]:
    """One kafkad for all tests of a worker: use topics and groups of your own."""
    settings = {"auto.create.topics.enable": "false", "group.initial.rebalance.delay.ms": "0"}
    with KafkadProcess(tmp_path_factory.mktemp("kafkad"), settings) as process:
        yield process


@pytest.fixture
def on_broker(kctl: Kctl, broker: KafkadProcess) -> Kctl:
    """A command line against the kafkad of `broker`."""
    return lambda *arguments: kctl("-b", broker.bootstrap, *arguments)


class Three(Kafka):
    """Three real brokers, 1 to 3, in the racks a, b and c."""

    def __init__(self) -> None:
        settings = {
            "auto.create.topics.enable": "false",
            "auto.leader.rebalance.enable": "false",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:ANONYMOUS",  # everybody here, since nobody logs in
            "transaction.partition.verification.enable": "false",  # a test leaves a transaction hanging
        }
        super().__init__("3.9", brokers=3, heap="384m", settings=settings)

    def _properties(self, i: int) -> dict[str, str]:
        return super()._properties(i) | {"broker.rack": RACKS[i]}


class ThreeKafkads(Three):
    """Three kafkads in the place of the real brokers, with the same ZooKeeper."""

    def __init__(self) -> None:
        super().__init__()
        self.settings = {
            "auto.create.topics.enable": "false",
            "auto.leader.rebalance.enable": "false",
            "zookeeper.session.timeout.ms": "6000",
        }

    def _start_broker(self, i: int) -> Server:
        path = self.directory / f"kafkad{i + 1}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in self._properties(i).items()))
        return Server([sys.executable, "-m", "kafkad", "--config", str(path)], self.ports[i])


@pytest.fixture(scope="session")
def three_kafkas() -> Iterator[Three]:
    """One cluster for all tests of a worker that need it: leave it as it was found."""
    if why := missing("3.9"):
        pytest.skip(why)
    with Three() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def three_kafkads() -> Iterator[Three]:
    """As `three_kafkas`; Kafka's own tools are there too."""
    if why := missing("3.9"):
        pytest.skip(why)
    with ThreeKafkads() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def three(three_kafkas: Three) -> Three:
    """The cluster that a test is about; what kafkad does as well asks for it on both kinds."""
    return three_kafkas


@pytest.fixture
def on_three(kctl: Kctl, three: Three) -> Kctl:
    """A command line against the three brokers of `three`."""
    return lambda *arguments: kctl("-b", three.bootstrap, *arguments)


@pytest.fixture(scope="session")
def kraft() -> Iterator[Kafka]:
    """One real broker without ZooKeeper, of the newest release there is."""
    if why := missing("4.3"):
        pytest.skip(why)
    with Kafka("4.3", heap="512m", settings={"auto.create.topics.enable": "false"}) as cluster:
        yield cluster


@pytest.fixture
def approved() -> Callable[[str, str], None]:
    """`approved("topics-list", text)` compares with the file of that name; APPROVE=1 in the environment writes it."""

    def check(name: str, text: str) -> None:
        path = APPROVED / f"{name}.txt"
        if os.environ.get("APPROVE"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        expected = path.read_text() if path.exists() else ""
        difference = difflib.unified_diff(expected.splitlines(), text.splitlines(), str(path), "now", lineterm="")
        assert text == expected, "\n".join(difference)

    return check


def until(condition: Callable[[], bool], what: str, seconds: float = 20) -> None:
    """Brokers tell each other what changed in their own time: look again until it is so."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"after {seconds} s still not: {what}"
        time.sleep(0.05)


def steady(text: str) -> str:
    """Text with what differs between runs replaced: times, ids of topics and clusters, ports."""
    text = re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?", "TIME", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "HOST:PORT", text)
    return re.sub(r"\b[A-Za-z0-9_-]{22}\b", "ID", text)
